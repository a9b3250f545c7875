//! The receiving side: the engine's parts, and what `transfer` and `store` do around them, with one settle thread and a thread
//! for each lane.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use haul_engine::arriving::{Arriving, Checkpoint, Progressed, Step};
use haul_engine::at_risk::AtRisk;
use haul_engine::compare::{self, Existing, FileDecision, Rules, Standing};
use haul_engine::integrity::{self, Hash, UnitHasher};
use haul_engine::plan::ChunkLayout;
use haul_engine::receiving::Receiving;
use haul_engine::schedule::{MAX_TRIES, Unit};
use haul_wire::control::{
    Answer, Control, FailureKind, Outcome, OutcomeKind, Receipt, ReceiverSummary, Void, Wanted, Withdraw,
};
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::{Identity, Item, ItemKind, Packer};

use super::disk::{Flush, Trouble};
use super::incoming::{Arrival, Incoming, Lane, Part, journal_name, judge_journal, part_name};
use super::run::{Around, Event, Frame};
use super::source;

/// Whole files that a lane names at once.
const MOST_PENDING: usize = 8;

pub struct Receiver {
    items: Receiving<usize, ()>,
    packer: Packer,
    files: Vec<Incoming>,
    pub at_risk: AtRisk,
    /// The settle thread knows that a checkpoint is due.
    told: bool,
    tasks: VecDeque<Task>,
    work: Option<Work>,
    /// Threads of lanes by serial number, ended ones too.
    lanes: Vec<Lane>,
    no_resume: bool,
    said_all: bool,
    over: bool,
    /// A name changed since the directory was flushed.
    dirty: bool,
    /// The directory has its times: later names would change them.
    ended: bool,
    pub failure: Option<&'static str>,
    /// What an earlier run had verified, by name, and what of it must come again.
    pub before: BTreeMap<String, (Identity, Vec<bool>)>,
    pub again_bytes: u64,
}

enum Task {
    Checkpoint(usize),
    Relieve,
    Publish(usize),
    DirectoryEnd(u64),
}

enum Work {
    Checkpoint { file: usize, part: Part, checkpoint: Checkpoint, step: Step, flush: Flush, relieving: bool },
    Publish { file: usize, part: Part, hash: Hash, flush: Flush },
    DirectoryEnd(u64),
}

impl Receiver {
    pub fn new(lanes: usize, interval_bytes: u64, no_resume: bool) -> Self {
        Self {
            items: Receiving::default(),
            packer: Packer::default(),
            files: Vec::new(),
            at_risk: AtRisk::new(interval_bytes),
            told: false,
            tasks: VecDeque::new(),
            work: None,
            lanes: (0..lanes).map(Lane::new).collect(),
            no_resume,
            said_all: false,
            over: false,
            dirty: false,
            ended: false,
            failure: None,
            before: BTreeMap::new(),
            again_bytes: 0,
        }
    }

    pub fn hear(&mut self, message: Control, around: &mut Around) {
        match message {
            Control::Items(packed) => {
                for packed in packed {
                    let item = self.packer.unpack(packed).expect("an honest sender");
                    self.on_item(item, around);
                }
            }
            Control::EndOfManifest => self.items.end_of_manifest(),
            Control::Withdraw(withdraw) => self.on_withdraw(withdraw, around),
            other => panic!("the sender says {other:?}"),
        }
        self.go_on(around);
    }

    fn on_item(&mut self, item: Item, around: &mut Around) {
        let index = self.items.open(item.weight_bytes()).expect("no more is open than agreed");
        self.decide(index, &item, around);
    }

    fn decide(&mut self, index: u64, item: &Item, around: &mut Around) {
        match &item.kind {
            ItemKind::File { identity, .. } => self.file(index, item, *identity, around),
            ItemKind::DirectoryEnd { .. } => self.items.in_order(index, ()),
            _ => self.settle(index, OutcomeKind::Nothing, around),
        }
    }

    fn on_withdraw(&mut self, withdraw: Withdraw, around: &mut Around) {
        let data = self.items.data(withdraw.index).copied();
        let result = match withdraw.retry {
            Some(packed) => {
                let item = self.packer.unpack(packed).expect("an honest sender");
                data.into_iter().for_each(|file| self.abandon(file, false, around));
                // The withdrawal may cross our word that all is done.
                self.said_all = false;
                let index = self.items.open(item.weight_bytes()).expect("no more is open than agreed");
                match self.items.takes_place(index, withdraw.index) {
                    true => self.decide(index, &item, around),
                    false => self.settle(index, OutcomeKind::Superseded, around),
                }
                OutcomeKind::Superseded
            }
            None => {
                data.into_iter().for_each(|file| self.abandon(file, false, around));
                OutcomeKind::Failed { why: withdraw.why, kind: withdraw.kind }
            }
        };
        self.settle(withdraw.index, result, around);
    }

    fn file(&mut self, index: u64, item: &Item, identity: Identity, around: &mut Around) {
        let name = String::from_utf8(item.path.as_bytes().to_vec()).expect("a name of ours");
        let standing = |inode| {
            let seen = around.disk.seen(inode);
            let mtime = seen.mtime.unwrap_or_default();
            Existing::File(Standing { size: seen.size, mtime, mode: 0o644, uid: 0, gid: 0 })
        };
        let existing = around.disk.find(&name).map_or(Existing::Missing, standing);
        match compare::file(&identity, &item.attributes, &existing, &Rules::default()) {
            FileDecision::Send => self.want(index, name, identity, around),
            FileDecision::Keep => {
                // `transfer` removes a journal that a crash left.
                if around.disk.find(&part_name(&name)).is_none() {
                    around.disk.unlink(&journal_name(&name));
                }
                self.settle(index, OutcomeKind::Kept { blake3: None }, around);
            }
            other => panic!("{other:?} of {name}"),
        }
    }

    fn want(&mut self, index: u64, name: String, identity: Identity, around: &mut Around) {
        let layout = ChunkLayout::of(identity.size);
        let large = !layout.is_whole();
        let mut incoming = Incoming {
            index,
            identity,
            layout,
            part: None,
            large: large.then(|| Arriving::new(identity, layout, around.now_us)),
            arrived: false,
            spoilt: 0,
            claims: BTreeMap::new(),
            failed: false,
            name,
        };
        let mut wanted = Wanted::All;
        if large && !self.no_resume && incoming.resume(around) {
            wanted = Wanted::Chunks(incoming.missing());
        }
        self.count_again(&incoming);
        let file = self.files.len();
        self.files.push(incoming);
        self.items.expect(index, file);
        match wanted {
            Wanted::Chunks(ranges) if ranges.is_empty() => self.tasks.push_back(Task::Publish(file)),
            wanted => around.say_to_sender(Control::Answers(vec![Answer { index, wanted }])),
        }
    }

    /// Counts bytes that the run before verified and that are wanted again.
    fn count_again(&mut self, incoming: &Incoming) {
        let Some((identity, verified)) = self.before.remove(&incoming.name) else { return };
        if identity != incoming.identity || self.no_resume {
            return;
        }
        for range in incoming.missing() {
            for chunk in range.first..range.first + range.count {
                if verified[chunk as usize] {
                    self.again_bytes += incoming.layout.range(chunk).expect("a chunk of it").1;
                }
            }
        }
    }

    /// Sends a receipt, which no item with an outcome may have.
    fn receipt(&mut self, index: u64, chunk: u32, around: &mut Around) {
        if self.items.data(index).is_some() {
            around.say_to_sender(Control::Receipts(vec![Receipt { index, chunk, data_bytes: 1, matched_bytes: 0 }]));
        }
    }

    fn settle(&mut self, index: u64, result: OutcomeKind, around: &mut Around) {
        if self.items.settle(index) {
            around.trace(|| format!("item {index}: {result:?}"));
            around.say_to_sender(Control::Outcomes(vec![Outcome::of(index, result)]));
        }
    }

    fn abandon(&mut self, file: usize, keep_part: bool, around: &mut Around) {
        let incoming = &mut self.files[file];
        match &mut incoming.large {
            Some(large) => large.end(&mut self.at_risk),
            None => incoming.arrived = true,
        }
        let (name, part) = (incoming.name.clone(), incoming.part.take());
        if let Some(part) = part
            && !keep_part
        {
            if part.journal.is_some() {
                around.disk.unlink(&journal_name(&name));
            }
            if around.disk.find(&part_name(&name)) == Some(part.inode) {
                around.disk.unlink(&part_name(&name));
            }
        }
    }

    fn fail(&mut self, file: usize, trouble: Trouble, around: &mut Around) {
        around.count.disk_failures += 1;
        self.files[file].failed = true;
        self.abandon(file, true, around);
        let kind = match trouble {
            Trouble::Full => FailureKind::Space,
            Trouble::Broken => FailureKind::Io,
        };
        if trouble == Trouble::Full {
            self.failure = Some("no space");
        }
        self.settle(self.files[file].index, OutcomeKind::Failed { why: "the disk".into(), kind }, around);
    }

    /// Does what follows from any change: turns, the settle thread's work, waiting lanes, the end.
    fn go_on(&mut self, around: &mut Around) {
        if self.over {
            return;
        }
        if let Some((index, ())) = self.items.next_in_order() {
            self.tasks.push_back(Task::DirectoryEnd(index));
        }
        if self.at_risk.is_due() && !std::mem::replace(&mut self.told, true) {
            self.tasks.push_back(Task::Relieve);
        }
        while self.work.is_none() {
            let Some(task) = self.tasks.pop_front() else { break };
            self.begin(task, around);
        }
        for serial in 0..self.lanes.len() {
            if !self.lanes[serial].busy {
                self.lane_step(serial, around);
            }
        }
        if self.items.is_complete() && !std::mem::replace(&mut self.said_all, true) {
            if std::mem::take(&mut self.dirty) {
                around.disk.flush_names();
            }
            around.say_to_sender(Control::Summary(ReceiverSummary::default()));
        }
    }

    fn begin(&mut self, task: Task, around: &mut Around) {
        match task {
            Task::Checkpoint(file) => self.begin_checkpoint(file, false, around),
            Task::Relieve => {
                self.told = self.at_risk.is_due();
                let fresh = |file: &usize| self.files[*file].large.as_ref().map_or(0, Arriving::fresh_bytes);
                let most = self.items.all_data().copied().filter(|file| fresh(file) > 0).max_by_key(fresh);
                if let (true, Some(file)) = (self.told, most) {
                    self.begin_checkpoint(file, true, around);
                }
            }
            Task::Publish(file) => {
                let incoming = &mut self.files[file];
                let hash = incoming.large.as_ref().and_then(Arriving::complete);
                let (Some(part), Some(hash)) = (incoming.part.clone(), hash) else { return };
                around.disk.set_size(part.inode, incoming.identity.size, incoming.identity.mtime);
                let flush = around.begin_flush(part.inode);
                self.work = Some(Work::Publish { file, part, hash, flush });
            }
            Task::DirectoryEnd(index) => {
                let delay_us = around.chance.between(100, 20_000);
                around.at(delay_us, Event::Settled);
                self.work = Some(Work::DirectoryEnd(index));
            }
        }
    }

    fn begin_checkpoint(&mut self, file: usize, relieving: bool, around: &mut Around) {
        let incoming = &mut self.files[file];
        let (Some(part), Some(large)) = (incoming.part.clone(), &mut incoming.large) else { return };
        let begun = large.begin_checkpoint((1, part.inode), around.now_us, &mut self.at_risk);
        let Some(checkpoint) = begun else { return };
        around.count.checkpoints += 1;
        self.checkpoint_step(file, part, checkpoint, relieving, around);
    }

    /// Begins the next step; at the end, or on failure, the settle thread is free.
    fn checkpoint_step(
        &mut self,
        file: usize,
        mut part: Part,
        mut checkpoint: Checkpoint,
        relieving: bool,
        around: &mut Around,
    ) {
        let Some(step) = checkpoint.next_step() else { return self.checkpoint_ends(&checkpoint, relieving) };
        let journal = journal_name(&self.files[file].name);
        let room = if step == Step::Flush { Ok(()) } else { around.trouble() };
        if let Err(trouble) = room {
            self.checkpoint_ends(&checkpoint, relieving);
            return self.fail(file, trouble, around);
        }
        let flush = match &step {
            Step::Flush => around.begin_flush(part.inode),
            Step::BeginJournal(header) => {
                let inode = part.journal.unwrap_or_else(|| around.disk.make(&journal));
                part.journal = Some(inode);
                around.disk.cut(inode, 0);
                around.disk.append(inode, header);
                around.begin_flush(inode)
            }
            Step::Append(records) => {
                let inode = part.journal.expect("it has begun");
                around.disk.append(inode, records);
                judge_journal(around.disk, inode, part.inode, &journal);
                around.begin_flush(inode)
            }
        };
        self.work = Some(Work::Checkpoint { file, part, checkpoint, step, flush, relieving });
    }

    fn checkpoint_ends(&mut self, checkpoint: &Checkpoint, relieving: bool) {
        self.at_risk.end(checkpoint.bytes());
        if relieving {
            self.tasks.push_front(Task::Relieve);
        }
    }

    pub fn settled(&mut self, around: &mut Around) {
        match self.work.take().expect("it waits for something") {
            Work::Checkpoint { file, mut part, checkpoint, step, flush, relieving } => {
                if let Err(trouble) = part.end_flush(flush, around) {
                    self.remember(file, &part);
                    self.checkpoint_ends(&checkpoint, relieving);
                    self.fail(file, trouble, around);
                } else {
                    if let (Step::BeginJournal(_), Some(large)) = (&step, &mut self.files[file].large) {
                        large.journal_begun(&checkpoint);
                        around.disk.flush_names();
                    }
                    self.remember(file, &part);
                    self.checkpoint_step(file, part, checkpoint, relieving, around);
                }
            }
            Work::Publish { file, mut part, hash, flush } => match part.end_flush(flush, around) {
                Ok(()) if !self.give_name(file, &part, around) => self.fail(file, Trouble::Broken, around),
                Ok(()) => {
                    let incoming = &mut self.files[file];
                    incoming.part = None;
                    if let Some(large) = &mut incoming.large {
                        large.end(&mut self.at_risk);
                    }
                    self.settle(self.files[file].index, OutcomeKind::Copied { blake3: hash }, around);
                }
                Err(trouble) => self.fail(file, trouble, around),
            },
            Work::DirectoryEnd(index) => {
                // An earlier run may have changed a name and died.
                self.dirty = false;
                self.ended = true;
                around.disk.flush_names();
                self.settle(index, OutcomeKind::Nothing, around);
            }
        }
        self.go_on(around);
    }

    /// All threads share one part.
    fn remember(&mut self, file: usize, part: &Part) {
        if let Some(shared) = &mut self.files[file].part {
            *shared = part.clone();
        }
    }

    /// Commits as `store` does: the flushed part is renamed, then its journal goes. False if the part is gone.
    fn give_name(&mut self, file: usize, part: &Part, around: &mut Around) -> bool {
        let name = self.files[file].name.clone();
        let is_ours = around.disk.find(&part_name(&name)) == Some(part.inode);
        assert!(!self.ended || !is_ours, "{name} comes after its directory has its times");
        if !is_ours || !around.disk.rename(&part_name(&name), &name) {
            return false;
        }
        self.dirty = true;
        around.named(&name);
        if part.journal.is_some() {
            around.disk.unlink(&journal_name(&name));
        }
        true
    }

    pub fn arrive(&mut self, serial: usize, frame: Frame, around: &mut Around) {
        let lane = &mut self.lanes[serial];
        if lane.alive {
            lane.frames.push_back(frame);
            self.go_on(around);
        }
    }

    pub fn lane_ready(&mut self, serial: usize, around: &mut Around) {
        let lane = &mut self.lanes[serial];
        lane.busy = false;
        for (file, mut part, hash, flush) in std::mem::take(&mut lane.publishing) {
            match part.end_flush(flush, around) {
                Ok(()) if !self.give_name(file, &part, around) => self.fail(file, Trouble::Broken, around),
                Ok(()) => self.settle(self.files[file].index, OutcomeKind::Copied { blake3: hash }, around),
                Err(trouble) => self.fail(file, trouble, around),
            }
        }
        if !self.lanes[serial].alive {
            // Whole files that verified are kept.
            self.publish(serial, around);
        }
        self.go_on(around);
    }

    /// Tells the sender, unless another connection has the number.
    pub fn lane_died(&mut self, serial: usize, around: &mut Around) {
        let lane = &mut self.lanes[serial];
        if !std::mem::replace(&mut lane.alive, false) {
            return;
        }
        lane.frames.clear();
        let (number, busy, arrival) = (lane.number, lane.busy, lane.unit.take());
        if let Some(arrival) = arrival {
            self.forsake(&arrival, around);
        }
        if self.lanes.iter().rposition(|lane| lane.number == number) == Some(serial) {
            around.say_to_sender(Control::LaneLost { lane: number as u16 });
        }
        if !busy {
            self.publish(serial, around);
        }
        self.go_on(around);
    }

    /// Voids what the lane before brings of the chunk; its sender does not know.
    fn forsake(&mut self, arrival: &Arrival, around: &mut Around) {
        let (Some(file), Unit { index, chunk }) = (arrival.file, arrival.unit) else { return };
        let incoming = &mut self.files[file];
        if !incoming.lets_go(chunk, arrival.claim) {
            return;
        }
        let wanted = match &incoming.large {
            Some(large) => large.wants(chunk),
            None => !incoming.arrived,
        };
        for lane in arrival.voids.iter().filter(|_| wanted) {
            around.say_to_sender(Control::Void(Void { index, chunk, lane: *lane as u16 }));
        }
    }

    /// Starts a lane in the place of one that is as good as dead.
    pub fn lane_up(&mut self, number: usize, around: &mut Around) -> usize {
        let serial = self.lanes.len();
        self.lanes.push(Lane::new(number));
        for before in 0..serial {
            if self.lanes[before].number == number {
                self.lane_died(before, around);
            }
        }
        serial
    }

    /// Begins the flushes of all whole files that wait for names. False if there are none.
    fn publish(&mut self, serial: usize, around: &mut Around) -> bool {
        let lane = &mut self.lanes[serial];
        if lane.pending.is_empty() {
            return false;
        }
        let mut delay_us = 0;
        for (file, part, hash) in std::mem::take(&mut lane.pending) {
            let (flush, takes_us) = around.flush(part.inode);
            delay_us += takes_us;
            lane.publishing.push((file, part, hash, flush));
        }
        lane.busy = true;
        around.at(delay_us, Event::ReceiverLane(serial));
        true
    }

    fn lane_step(&mut self, serial: usize, around: &mut Around) {
        let lane = &mut self.lanes[serial];
        if lane.unit.is_none() {
            let full = self.at_risk.is_full();
            let idle = lane.frames.is_empty() || lane.pending.len() >= MOST_PENDING;
            if (idle || full) && self.publish(serial, around) {
                return;
            }
            if full {
                around.count.waits += u64::from(!self.lanes[serial].frames.is_empty());
                return;
            }
        }
        let lane = &mut self.lanes[serial];
        let Some(frame) = lane.frames.pop_front() else { return };
        let number = lane.number;
        around.at(0, Event::Room(number, serial));
        match frame {
            Frame::Header(unit) => {
                let arrival = self.arrival(number, unit, around);
                self.lanes[serial].unit = Some(arrival);
            }
            Frame::Block(block) => self.block(serial, block, around),
            Frame::Trailer(claimed) => self.trailer(serial, claimed, around),
        }
        self.lanes[serial].busy = true;
        let delay_us = around.chance.between(10, 300);
        around.at(delay_us, Event::ReceiverLane(serial));
    }

    fn arrival(&mut self, lane: usize, unit: Unit, around: &mut Around) -> Arrival {
        let mut arrival = Arrival {
            file: None,
            unit,
            next: 0,
            end: 0,
            hasher: None,
            claim: around.number(),
            voids: BTreeSet::new(),
            part: None,
            failed: None,
        };
        let Some(file) = self.items.data(unit.index).copied() else { return arrival };
        let incoming = &mut self.files[file];
        let places = source::places(&incoming.layout, unit.chunk);
        (arrival.next, arrival.end) = (places.start, places.end);
        arrival.hasher = Some(UnitHasher::new(&incoming.layout, unit.chunk));
        arrival.file = Some(file);
        arrival.voids = incoming.claim(unit.chunk, arrival.claim, lane);
        let wanted = match &incoming.large {
            Some(large) => large.wants(unit.chunk),
            None => !incoming.arrived,
        };
        if wanted && incoming.part.is_none() {
            match around.trouble() {
                Ok(()) => incoming.part = Some(Part::new(&incoming.name, around.disk)),
                Err(trouble) => arrival.failed = Some(trouble),
            }
        }
        arrival.part = incoming.part.clone().filter(|_| wanted);
        arrival
    }

    fn block(&mut self, serial: usize, block: u64, around: &mut Around) {
        let arrival = self.lanes[serial].unit.as_mut().expect("a unit has begun");
        let Some(file) = arrival.file else { return };
        let hasher = arrival.hasher.as_mut().expect("of a file that is awaited");
        hasher.update(&block.to_le_bytes());
        let incoming = &mut self.files[file];
        let held = incoming.holds(arrival.unit.chunk, arrival.claim);
        assert!(arrival.next < arrival.end, "more than the chunk holds");
        if let (Some(part), None, true) = (&arrival.part, arrival.failed, held) {
            match around.trouble() {
                Ok(()) => {
                    let end_bytes = ((arrival.next + 1) * BLOCK_BYTES as u64).min(incoming.identity.size);
                    around.disk.write_block(part.inode, arrival.next, block, end_bytes);
                }
                Err(trouble) => arrival.failed = Some(trouble),
            }
        }
        arrival.next += 1;
    }

    fn trailer(&mut self, serial: usize, claimed: Option<Hash>, around: &mut Around) {
        let arrival = self.lanes[serial].unit.take().expect("a unit has begun");
        let Some(file) = arrival.file else { return };
        let held = self.files[file].lets_go(arrival.unit.chunk, arrival.claim);
        let Some(claimed) = claimed else { return };
        if let Some(trouble) = arrival.failed {
            return self.fail(file, trouble, around);
        }
        let (index, chunk) = (arrival.unit.index, arrival.unit.chunk);
        assert_eq!(arrival.next, arrival.end, "less than the chunk holds");
        let incoming = &mut self.files[file];
        let computed = arrival.hasher.expect("of a file that is awaited").finish();
        let Ok(verified) = integrity::verify(chunk, computed, claimed) else {
            incoming.spoilt += 1;
            if incoming.spoilt <= incoming.layout.count() * u32::from(MAX_TRIES) {
                around.count.spoilt += 1;
                around.say_to_sender(Control::Again { index, chunk });
            } else {
                self.abandon(file, true, around);
                let failed = OutcomeKind::Failed { why: "unverified".into(), kind: FailureKind::Unverified };
                self.settle(index, failed, around);
            }
            return;
        };
        let Some(part) = arrival.part else { return };
        if !held {
            return;
        }
        let bytes = incoming.layout.range(chunk).expect("a chunk of it").1;
        match &mut incoming.large {
            Some(large) => {
                let mut new = false;
                let progressed = large.record(verified, bytes, around.now_us, Some(&mut self.at_risk), || new = true);
                if new {
                    self.receipt(index, chunk, around);
                }
                match progressed {
                    Progressed::Waiting | Progressed::Void => {}
                    Progressed::Checkpoint => self.tasks.push_back(Task::Checkpoint(file)),
                    Progressed::Complete => self.tasks.push_back(Task::Publish(file)),
                }
            }
            None => {
                if std::mem::replace(&mut incoming.arrived, true) {
                    return;
                }
                around.disk.set_size(part.inode, incoming.identity.size, incoming.identity.mtime);
                self.receipt(index, chunk, around);
                self.lanes[serial].pending.push((file, part, verified.hash()));
            }
        }
    }

    /// Ends a failed session of a living process: what is verified is made safe.
    pub fn end_in_order(&mut self, around: &mut Around) {
        self.over = true;
        self.tasks.clear();
        for serial in 0..self.lanes.len() {
            self.lane_ready(serial, around);
            if self.publish(serial, around) {
                self.lane_ready(serial, around);
            }
        }
        let open: Vec<usize> = self.items.all_data().copied().collect();
        for file in std::iter::once(None).chain(open.into_iter().map(Some)) {
            if let Some(file) = file {
                self.begin_checkpoint(file, false, around);
            }
            while self.work.is_some() {
                self.settled(around);
            }
        }
    }

    /// The most that a death now would lose: see [`Receiver::before`]. Files that the disk failed do not count.
    pub fn verified(&self) -> BTreeMap<String, (Identity, Vec<bool>)> {
        let open = self.items.all_data().map(|file| &self.files[*file]).filter(|file| !file.failed);
        open.filter(|file| file.large.as_ref().is_some_and(|large| !large.is_dead()))
            .map(|file| {
                let mut verified = vec![true; file.layout.count() as usize];
                for range in file.missing() {
                    verified[range.first as usize..][..range.count as usize].fill(false);
                }
                (file.name.clone(), (file.identity, verified))
            })
            .collect()
    }

    pub fn open_items(&self) -> usize {
        self.items.open_items()
    }
}

impl std::fmt::Debug for Receiver {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let missing = |file: &usize| (self.files[*file].index, self.files[*file].missing());
        let lane = |lane: &Lane| (lane.number, lane.alive, lane.busy, lane.frames.len(), lane.unit.is_some());
        f.debug_struct("Receiver")
            .field("at_risk", &self.at_risk)
            .field("told", &self.told)
            .field("tasks", &self.tasks.len())
            .field("works", &self.work.is_some())
            .field("missing", &self.items.all_data().map(missing).collect::<Vec<_>>())
            .field("lanes", &self.lanes.iter().map(lane).collect::<Vec<_>>())
            .finish_non_exhaustive()
    }
}
