//! One job: runs of the same command until one succeeds, with faults in the first ones.

use std::collections::{BTreeMap, BTreeSet};

use haul_engine::schedule::Unit;
use haul_wire::control::Control;
use haul_wire::limits::{MAX_OPEN_ITEMS, MIN_CHUNK_BYTES};

use super::chance::Chance;
use super::disk::{Disk, Flush, Inode, Trouble};
use super::receiver::Receiver;
use super::sender::Sender;
use super::source::{SourceFile, Version};

#[derive(Debug)]
pub enum Event {
    Walk,
    ToSender(Control),
    ToReceiver(Control),
    /// Number and serial number of a lane.
    SenderLane(usize, usize),
    Arrive(usize, Frame),
    Room(usize, usize),
    ReceiverLane(usize),
    Settled,
    SenderSeesEnd(usize, usize),
    ReceiverSeesEnd(usize),
    Redial(usize, usize),
    Fault(Fault),
}

#[derive(Clone, Copy, Debug)]
pub enum Frame {
    Header(Unit),
    Block(u64),
    Trailer(Option<haul_engine::integrity::Hash>),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    LaneDies,
    LaneStalls,
    Cut,
    SenderKilled,
    ReceiverKilled,
    PowerCut,
    DiskFull,
    DiskBreaks,
    DiskStalls,
    BytesChange,
    SourceChanges,
    SourceGoes,
}

const FAULTS: [Fault; 12] = [
    Fault::LaneDies,
    Fault::LaneStalls,
    Fault::Cut,
    Fault::SenderKilled,
    Fault::ReceiverKilled,
    Fault::PowerCut,
    Fault::DiskFull,
    Fault::DiskBreaks,
    Fault::DiskStalls,
    Fault::BytesChange,
    Fault::SourceChanges,
    Fault::SourceGoes,
];

/// A simulation in which nothing happens shows nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Count {
    pub runs: u64,
    pub events: u64,
    pub checkpoints: u64,
    pub resumed: u64,
    pub waits: u64,
    pub spoilt: u64,
    pub withdrawn: u64,
    pub disk_failures: u64,
    pub again_bytes: u64,
    pub faults: BTreeMap<&'static str, u64>,
}

impl Count {
    pub fn add(&mut self, other: &Self) {
        self.runs += other.runs;
        self.events += other.events;
        self.checkpoints += other.checkpoints;
        self.resumed += other.resumed;
        self.waits += other.waits;
        self.spoilt += other.spoilt;
        self.withdrawn += other.withdrawn;
        self.disk_failures += other.disk_failures;
        self.again_bytes += other.again_bytes;
        for (fault, count) in &other.faults {
            *self.faults.entry(fault).or_default() += count;
        }
    }
}

/// Microseconds.
#[derive(Clone, Debug)]
struct Pace {
    latency_us: u64,
    block_us: u64,
    disk_block_us: u64,
    flush_us: u64,
}

pub struct Around<'a> {
    pub now_us: u64,
    pub chance: &'a mut Chance,
    pub disk: &'a mut Disk,
    pub count: &'a mut Count,
    out: &'a mut Vec<Effect>,
    pace: &'a Pace,
    numbers: &'a mut u64,
    stall_us: u64,
    tracing: bool,
}

enum Effect {
    At(u64, Event),
    Say(bool, Control),
    Send(usize, usize, Frame),
    Named(String),
}

impl Around<'_> {
    pub fn at(&mut self, delay_us: u64, event: Event) {
        self.out.push(Effect::At(delay_us, event));
    }

    pub fn say_to_sender(&mut self, message: Control) {
        self.out.push(Effect::Say(true, message));
    }

    pub fn say_to_receiver(&mut self, message: Control) {
        self.out.push(Effect::Say(false, message));
    }

    pub fn send(&mut self, number: usize, serial: usize, frame: Frame) {
        self.out.push(Effect::Send(number, serial, frame));
    }

    pub fn named(&mut self, name: &str) {
        self.out.push(Effect::Named(name.to_owned()));
    }

    pub fn number(&mut self) -> u64 {
        *self.numbers += 1;
        *self.numbers
    }

    /// Whether a call that needs room goes wrong.
    pub fn trouble(&mut self) -> Result<(), Trouble> {
        self.disk.trouble(self.now_us, self.chance)
    }

    pub fn breaks(&mut self) -> bool {
        self.disk.broken_one_in > 0 && self.chance.one_in(self.disk.broken_one_in)
    }

    pub fn flush(&mut self, inode: Inode) -> (Flush, u64) {
        let takes_us = self.pace.flush_us + self.disk.dirty_blocks(inode) * self.pace.disk_block_us + self.stall_us;
        (self.disk.begin_flush(inode), takes_us)
    }

    pub fn begin_flush(&mut self, inode: Inode) -> Flush {
        let (flush, takes_us) = self.flush(inode);
        self.at(takes_us, Event::Settled);
        flush
    }

    pub fn trace(&self, what: impl FnOnce() -> String) {
        if self.tracing {
            eprintln!("{:>12} us  {}", self.now_us, what());
        }
    }
}

#[derive(Debug, PartialEq, Eq)]
enum End {
    Done,
    /// One side failed, or heard that the other did; survivors end in order.
    Failed(&'static str),
    Killed,
    PowerCut,
}

struct Job {
    chance: Chance,
    now_us: u64,
    numbers: u64,
    queue: BTreeMap<(u64, u64), Event>,
    queued: u64,
    /// The last word's arrival at the receiver and at the sender.
    said_us: [u64; 2],
    arrives_us: BTreeMap<usize, u64>,
    sources: Vec<SourceFile>,
    disk: Disk,
    lanes: usize,
    interval_bytes: u64,
    pace: Pace,
    stall_until_us: u64,
    /// One block in so many is changed on its way; 0: none.
    changes_one_in: u64,
    tracing: bool,
    count: Count,
    /// What the run before had verified, and with how many lanes.
    before: BTreeMap<String, (haul_wire::manifest::Identity, Vec<bool>)>,
}

/// Runs that may have faults: later failures are real.
const FAULTY_RUNS_MAX: u64 = 5;
const RUNS_MAX: u64 = FAULTY_RUNS_MAX + 2;

/// An hour.
const EVENTS_MAX: u64 = 100_000;
const RUN_MAX_US: u64 = 3_600_000_000;

/// Runs the job of a seed to its end; panics where something does not hold.
pub fn job(seed: u64, tracing: bool) -> Count {
    let mut chance = Chance::new(seed);
    let count = chance.between(1, 7);
    let sources: Vec<SourceFile> = (0..count).map(|number| SourceFile::new(number, &mut chance)).collect();
    let pace = Pace {
        latency_us: [50, 1_000, 40_000, 150_000][chance.below(4) as usize],
        block_us: [200, 2_000, 20_000][chance.below(3) as usize],
        disk_block_us: [100, 1_000, 30_000][chance.below(3) as usize],
        flush_us: [500, 10_000][chance.below(2) as usize],
    };
    let disk = Disk::new(&mut chance);
    let faulty_runs = chance.below(FAULTY_RUNS_MAX + 1);
    let mut job = Job {
        now_us: 0,
        numbers: 0,
        queue: BTreeMap::new(),
        queued: 0,
        said_us: [0; 2],
        arrives_us: BTreeMap::new(),
        sources,
        disk,
        lanes: chance.between(1, 4) as usize,
        interval_bytes: chance.between(1, 6) << 20,
        pace,
        stall_until_us: 0,
        changes_one_in: 0,
        tracing,
        count: Count::default(),
        before: BTreeMap::new(),
        chance,
    };
    for run in 0..RUNS_MAX {
        if job.run(run < faulty_runs) {
            return job.count;
        }
    }
    panic!("it does not end in {RUNS_MAX} runs, though nothing fails any more");
}

impl Job {
    /// True: the command succeeded.
    fn run(&mut self, faulty: bool) -> bool {
        self.count.runs += 1;
        self.queue.clear();
        self.arrives_us.clear();
        self.said_us = [self.now_us; 2];
        (self.disk.full_until_us, self.disk.broken_one_in, self.changes_one_in, self.stall_until_us) = (0, 0, 0, 0);
        let started: Vec<usize> = self.sources.iter().map(|file| file.versions.len() - 1).collect();
        let no_resume = faulty && self.chance.one_in(5);
        let mut sender = Sender::new(self.lanes);
        let mut receiver = Receiver::new(self.lanes, self.interval_bytes, no_resume);
        receiver.before = std::mem::take(&mut self.before);
        if faulty {
            self.plan_faults();
        }
        self.enqueue(0, Event::Walk);
        let end = self.until_end(&mut sender, &mut receiver);
        self.trace(|| format!("the run ends: {end:?}"));
        self.count.again_bytes += receiver.again_bytes;
        match end {
            End::Done => {}
            End::Failed(_) => {
                self.with(|around| receiver.end_in_order(around));
                self.before = receiver.verified();
            }
            End::Killed => self.before = receiver.verified(),
            End::PowerCut => self.power_cut(),
        }
        if end != End::Done || sender.tally.totals().failed > 0 {
            let pause_us = self.chance.between(0, 5_000_000);
            self.now_us += pause_us;
            return false;
        }
        // A success holds whatever happens next.
        self.disk.power_cut(true, false, &mut self.chance);
        self.judge_finals();
        for (file, first) in self.sources.iter().zip(started).filter(|(file, _)| !file.deleted) {
            let found = self.disk.names().find(|(name, _)| *name == file.name);
            let (_, image) = found.unwrap_or_else(|| panic!("success, and {} is not there", file.name));
            let is_recent = file.versions[first..].iter().any(|version| version.is(image.size, &image.blocks));
            assert!(is_recent, "success, and {} is an older one", file.name);
        }
        true
    }

    /// Plans faults somewhere in the time that the run takes.
    fn plan_faults(&mut self) {
        let blocks: u64 = self.sources.iter().map(|file| file.now().blocks()).sum();
        let disk_us = blocks * self.pace.disk_block_us + self.pace.flush_us * 4;
        let time_us = blocks * self.pace.block_us / self.lanes as u64 + disk_us + 6 * self.pace.latency_us;
        let mut last_us = 0;
        for _ in 0..self.chance.between(2, 8) {
            let fault = FAULTS[self.chance.below(FAULTS.len() as u64) as usize];
            // Half of them come before the last one is over.
            let at_us = match self.chance.one_in(2) {
                true => last_us + self.chance.below(4 * self.pace.latency_us + 5_000),
                false => self.chance.below(time_us + time_us / 4),
            };
            last_us = at_us;
            self.enqueue(at_us, Event::Fault(fault));
        }
    }

    fn until_end(&mut self, sender: &mut Sender, receiver: &mut Receiver) -> End {
        let run_ends_us = self.now_us + RUN_MAX_US;
        for _ in 0..EVENTS_MAX {
            let Some(((at_us, _), event)) = self.queue.pop_first() else {
                panic!("nothing happens any more, and the job is not done: {sender:?} {receiver:?}");
            };
            assert!(at_us < run_ends_us, "it does not end in an hour");
            self.now_us = at_us;
            self.count.events += 1;
            if let Some(end) = self.apply(event, sender, receiver) {
                return end;
            }
            self.judge(sender, receiver);
            if sender.done {
                return End::Done;
            }
            if let Some(why) = receiver.failure {
                return End::Failed(why);
            }
        }
        panic!("it does not end in {EVENTS_MAX} events");
    }

    fn apply(&mut self, event: Event, sender: &mut Sender, receiver: &mut Receiver) -> Option<End> {
        match event {
            Event::Fault(fault) => return self.fault(fault, sender),
            Event::Walk => {
                let sources = std::mem::take(&mut self.sources);
                let more = self.with(|around| sender.walk(&sources, around));
                self.sources = sources;
                if more {
                    self.enqueue(100, Event::Walk);
                }
            }
            Event::ToSender(message) => self.with(|around| sender.hear(message, around)),
            Event::ToReceiver(message) => self.with(|around| receiver.hear(message, around)),
            Event::SenderLane(number, serial) => {
                let sources = std::mem::take(&mut self.sources);
                self.with(|around| sender.step(number, serial, &sources, around));
                self.sources = sources;
            }
            Event::Arrive(serial, frame) => self.with(|around| receiver.arrive(serial, frame, around)),
            Event::Room(number, serial) => self.with(|around| sender.room(number, serial, around)),
            Event::ReceiverLane(serial) => self.with(|around| receiver.lane_ready(serial, around)),
            Event::Settled => self.with(|around| receiver.settled(around)),
            Event::SenderSeesEnd(number, serial) => {
                if sender.lanes[number].serial == serial {
                    self.with(|around| sender.lane_died(number, around));
                }
            }
            Event::ReceiverSeesEnd(serial) => self.with(|around| receiver.lane_died(serial, around)),
            Event::Redial(number, serial) => {
                if sender.lanes[number].serial == serial {
                    let serial = self.with(|around| receiver.lane_up(number, around));
                    self.with(|around| sender.lane_up(number, serial, around));
                }
            }
        }
        None
    }

    fn fault(&mut self, fault: Fault, sender: &Sender) -> Option<End> {
        *self.count.faults.entry(name_of(fault)).or_default() += 1;
        self.trace(|| format!("{fault:?}"));
        let number = self.chance.below(self.lanes as u64) as usize;
        let file = self.chance.below(self.sources.len() as u64) as usize;
        let for_us = self.chance.between(1_000, 60_000_000);
        match fault {
            Fault::LaneDies => {
                let serial = sender.lanes[number].serial;
                // Either side may notice first.
                let [first_us, second_us] = [(); 2].map(|()| self.chance.below(2 * self.pace.latency_us + 1_000));
                self.enqueue(first_us, Event::SenderSeesEnd(number, serial));
                self.enqueue(second_us, Event::ReceiverSeesEnd(serial));
            }
            Fault::LaneStalls => {
                let serial = sender.lanes[number].serial;
                let last_us = self.arrives_us.entry(serial).or_default();
                *last_us = (*last_us).max(self.now_us + for_us);
            }
            Fault::Cut => return Some(End::Failed("the network is gone")),
            Fault::SenderKilled => return Some(End::Failed("the sender is gone")),
            Fault::ReceiverKilled => return Some(End::Killed),
            Fault::PowerCut => return Some(End::PowerCut),
            Fault::DiskFull => self.disk.full_until_us = self.now_us + for_us,
            Fault::DiskBreaks => self.disk.broken_one_in = self.chance.between(5, 100),
            Fault::DiskStalls => self.stall_until_us = self.now_us + for_us,
            Fault::BytesChange => self.changes_one_in = self.chance.between(3, 100),
            Fault::SourceChanges => self.sources[file].change(file as u64, &mut self.chance),
            Fault::SourceGoes => self.sources[file].deleted = true,
        }
        None
    }

    fn power_cut(&mut self) {
        let forgets = self.chance.one_in(3);
        let lies = self.chance.one_in(4);
        self.disk.power_cut(forgets, lies, &mut self.chance);
        self.judge_finals();
    }

    /// Checks what must hold at each step.
    fn judge(&self, sender: &Sender, receiver: &Receiver) {
        // Each lane may have a chunk under way when the interval is full.
        let most = self.interval_bytes + self.lanes as u64 * MIN_CHUNK_BYTES;
        let at_risk = receiver.at_risk.bytes();
        assert!(at_risk <= most, "{at_risk} bytes are at risk, more than {most}");
        let again = receiver.again_bytes;
        assert!(again <= most, "{again} verified bytes are wanted again, more than {most}");
        assert!(sender.open_items() <= 2 * MAX_OPEN_ITEMS && receiver.open_items() <= 2 * MAX_OPEN_ITEMS);
    }

    /// A final name never holds anything but a whole version of its source.
    fn judge_finals(&self) {
        let finals: BTreeSet<&str> = self.sources.iter().map(|file| file.name.as_str()).collect();
        self.disk
            .names()
            .map(|(name, _)| name)
            .filter(|name| finals.contains(name))
            .for_each(|name| self.judge_final(name));
    }

    fn judge_final(&self, name: &str) {
        let file = self.sources.iter().find(|file| file.name == name).expect("a file of the source");
        let (_, image) = self.disk.names().find(|(found, _)| *found == name).expect("it has its name");
        let is_whole = |version: &Version| version.is(image.size, &image.blocks);
        assert!(file.versions.iter().any(is_whole), "{name} is no version of its source: {image:?}");
    }

    fn with<T>(&mut self, act: impl FnOnce(&mut Around) -> T) -> T {
        let mut out = Vec::new();
        let stall_us = self.stall_until_us.saturating_sub(self.now_us);
        let mut around = Around {
            now_us: self.now_us,
            chance: &mut self.chance,
            disk: &mut self.disk,
            count: &mut self.count,
            out: &mut out,
            pace: &self.pace,
            numbers: &mut self.numbers,
            stall_us,
            tracing: self.tracing,
        };
        let result = act(&mut around);
        out.into_iter().for_each(|effect| self.carry_out(effect));
        result
    }

    fn carry_out(&mut self, effect: Effect) {
        match effect {
            Effect::At(delay_us, event) => self.enqueue(delay_us, event),
            Effect::Say(to_sender, message) => {
                let jitter_us = self.chance.below(self.pace.latency_us + 1);
                let last_us = &mut self.said_us[usize::from(to_sender)];
                *last_us = (*last_us).max(self.now_us + self.pace.latency_us + jitter_us);
                let delay_us = *last_us - self.now_us;
                let event = if to_sender { Event::ToSender(message) } else { Event::ToReceiver(message) };
                self.enqueue(delay_us, event);
            }
            Effect::Send(number, serial, frame) => {
                let takes_us = match frame {
                    Frame::Block(_) => self.pace.block_us,
                    Frame::Header(_) | Frame::Trailer(_) => 1,
                };
                let jitter_us = self.chance.below(self.pace.latency_us + 1);
                let last_us = self.arrives_us.entry(serial).or_default();
                *last_us = (*last_us).max(self.now_us + takes_us + self.pace.latency_us + jitter_us);
                let delay_us = *last_us - self.now_us;
                let changes = self.changes_one_in > 0 && self.chance.one_in(self.changes_one_in);
                let frame = match frame {
                    Frame::Block(block) if changes => Frame::Block(block ^ (1 << self.chance.below(64))),
                    same => same,
                };
                self.enqueue(delay_us, Event::Arrive(serial, frame));
                self.enqueue(takes_us, Event::SenderLane(number, serial));
            }
            Effect::Named(name) => self.judge_final(&name),
        }
    }

    fn enqueue(&mut self, delay_us: u64, event: Event) {
        self.queued += 1;
        self.queue.insert((self.now_us + delay_us, self.queued), event);
    }

    fn trace(&self, what: impl FnOnce() -> String) {
        if self.tracing {
            eprintln!("{:>12} us  {}", self.now_us, what());
        }
    }
}

fn name_of(fault: Fault) -> &'static str {
    match fault {
        Fault::LaneDies => "a lane dies",
        Fault::LaneStalls => "a lane stalls",
        Fault::Cut => "the network is cut",
        Fault::SenderKilled => "the sender is killed",
        Fault::ReceiverKilled => "the receiver is killed",
        Fault::PowerCut => "power cut",
        Fault::DiskFull => "disk full",
        Fault::DiskBreaks => "disk breaks",
        Fault::DiskStalls => "disk stalls",
        Fault::BytesChange => "bytes change",
        Fault::SourceChanges => "a source changes",
        Fault::SourceGoes => "a source goes",
    }
}
