//! The loop that tunes a sender's lanes while they work: sample -> estimate -> advice -> applied.
//!
//! Runs at the turns of the session's loop, ten times a second: a reading of a lane is one system call. What to do is decided in
//! `haul_engine::paths`, for each path of the session; here it is done, and what the kernel refused is told once.

mod deadline;
mod lane;
mod modest;
mod outlets;
mod report;
#[cfg(test)]
mod scenarios;
mod service;
mod subflows;
mod swallowed;
mod work;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::path::{
    Advice, LaneReading, Tuner, Wishes, better_given_up, bound_per_lane, bounds_at_end, too_slow_for_more,
};
use haul_engine::paths::{Joined, PathEvent, PathReading, Paths, PathsSample};
use haul_engine::service::ServiceClass;
use haul_job::Subject;
use haul_net::mptcp::WayTotals;
use haul_net::policy::Dscp;
use haul_net::{Probe, host};
use haul_wire::control::{AskedClass, Carriage, Notice};
use haul_wire::lane::path_of;
use haul_wire::summary::{OnePath, PathNow, PathSummary};

use crate::kept::class_policy::Permits;
use crate::kept::known_paths::{self, Direction, KnownPaths};
use crate::session::clock::TICK;
use crate::session::foreseen::Foreseen;
use crate::session::hooks::Hooks;
use crate::session::lane_addresses::LaneAddresses;
use crate::session::{convert, host_facts};

use deadline::Deadline;
use lane::{Lane, LaneAdvice};
use modest::Modesty;
pub(crate) use outlets::Move;
use service::{Classes, PathNow as PathInClass};
use subflows::Subflows;
pub(crate) use swallowed::Swallowed;
pub(crate) use work::{Ending, Endless, Left, Work};

/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Between two divisions of the bound while lanes finish their last chunk. With 48 lanes on 1 Gbit/s a chunk takes 430 ms. All
/// lanes finish within a tenth of that, and a lane that has finished must leave its part to the others at once.
const DIVIDE_EVERY: Duration = Duration::from_millis(20);

/// Between two words about the path to whoever watches.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The congestion control that the engine may choose by itself.
const BBR: &str = "bbr";

/// Tunes the lanes of one sender.
pub(crate) struct Tuning {
    foreseen: Foreseen,
    /// What an earlier job found of the path, in the words of the initiator: of the first path.
    told: Option<haul_engine::path::Remembered>,
    /// What earlier jobs found of a path is looked up with its first lane, which says where it leads.
    remembers: Option<KnownPaths>,
    paths: Paths,
    /// By the number of the path.
    applied: BTreeMap<u16, OfPath>,
    /// In the order of their numbers, so that those of one path stand together.
    lanes: Vec<Lane>,
    /// Lanes that get no more units, although they do not rest: the others are done sooner.
    too_slow: Vec<u16>,
    /// Lanes that were given up. Once is enough: what follows under the same number begins as new.
    given_up: Vec<u16>,
    /// What followed from a path that went down.
    pending: Vec<PathEvent>,
    divided_at: Instant,
    started: Instant,
    sampled_at: Instant,
    told_at: Instant,
    was_refused: bool,
    swallowed: Option<Swallowed>,
    classes: Classes,
    modesty: Modesty,
    deadline: Deadline,
}

/// What was done to the lanes of one path.
struct OfPath {
    /// Where its first lane leads.
    addresses: Option<LaneAddresses>,
    advice: Advice,
    /// The last bound that was the same for each lane, in bytes per second.
    paced_to: Option<u64>,
    /// Lanes will soon leave their part.
    some_finish: bool,
    /// What lanes delivered that are gone.
    delivered_bytes: u64,
    /// Rate and lanes of a path whose class is background: what the tuner finds there is what others leave.
    modest: Option<(u64, u16)>,
    /// Over MPTCP.
    subflows: Subflows,
}

/// What a turn of the loop brought.
#[derive(Default)]
pub(crate) struct Turn {
    /// So many lanes of this path shall carry data from now on.
    pub(crate) lanes: Vec<(u16, u16)>,
    /// Others than before get no units: see [`Tuning::resting`].
    pub(crate) work_moves: bool,
    /// These lanes are to be cut: others carry what they have sooner.
    pub(crate) give_up: Vec<u16>,
    /// Nothing comes through on these paths: all their lanes are to be cut.
    pub(crate) lost: Vec<u16>,
    /// Lanes of these paths shall leave elsewhere.
    pub(crate) moves: Vec<Move>,
    /// Choices with their reasons, for whoever watches.
    pub(crate) notices: Vec<Notice>,
    /// The paths as they are, when it is time to tell it.
    pub(crate) paths: Vec<PathNow>,
}

impl Tuning {
    /// For a job that sends at least what is foreseen by the time of its first lane.
    pub(crate) fn new(carriage: &Carriage, foreseen: Foreseen) -> Self {
        let now = Instant::now();
        let wishes = wishes(carriage);
        Self {
            foreseen,
            told: wishes.remembered.clone(),
            remembers: None,
            paths: Paths::new(wishes, cpus_of_smaller(carriage)),
            applied: BTreeMap::new(),
            lanes: Vec::new(),
            too_slow: Vec::new(),
            given_up: Vec::new(),
            pending: Vec::new(),
            divided_at: now,
            started: now,
            sampled_at: now,
            told_at: now,
            was_refused: false,
            swallowed: None,
            classes: Classes::new(carriage, Permits::default(), None),
            modesty: Modesty::new(carriage.rate_bytes_per_s),
            deadline: Deadline::new(carriage),
        }
    }

    /// What an operator allows of what is asked for.
    pub(crate) fn permitted(self, carriage: &Carriage, permits: Permits, hooks: Option<Hooks>) -> Self {
        Self { classes: Classes::new(carriage, permits, hooks), ..self }
    }

    /// With what earlier jobs of this host found of the paths to whom the lanes lead.
    pub(crate) fn remembering(self, paths: KnownPaths) -> Self {
        Self { remembers: Some(paths), ..self }
    }

    /// A lane between these addresses is there; from now on it is sampled.
    pub(crate) fn lane_up(&mut self, number: u16, probe: Probe, addresses: Option<LaneAddresses>) {
        self.sample_lane(Lane::new(number, probe), addresses);
    }

    /// A lane has come back from the job before: of what it has counted until now nothing is of this job.
    pub(crate) fn lane_back(&mut self, number: u16, probe: Probe, addresses: Option<LaneAddresses>) {
        self.sample_lane(Lane::counting_from_now(number, probe), addresses);
    }

    fn sample_lane(&mut self, mut lane: Lane, addresses: Option<LaneAddresses>) {
        let number = lane.number;
        let Some(info) = lane.probe.tcp_info() else { return };
        // What follows under a number is the same path: it does not go down in between.
        self.forget_lane(number);
        let path = path_of(number);
        if !self.paths.up().any(|up| up == path) {
            self.path_up(path, info.rtt_us, addresses);
        }
        let applied = self.applied.get(&path).expect("its path is up");
        // What the lane has now is good enough until the next sample.
        let _ = lane.follow(applied.for_lanes());
        if let Some(granted) = lane.granted() {
            self.paths.on_granted(path, &granted);
        }
        if applied.addresses.is_none_or(|addresses| !addresses.local.is_loopback()) {
            self.classes.lane_up(&mut lane, applied.addresses);
        }
        self.lanes.push(lane);
        self.lanes.sort_unstable_by_key(|lane| lane.number);
    }

    /// The job is over, and its lanes may carry another one: they have no bound and no mark any more but their own.
    pub(crate) fn let_go(&mut self) {
        self.lanes.iter_mut().for_each(Lane::let_go);
        self.classes.let_go();
    }

    fn path_up(&mut self, path: u16, rtt_us_at_connect: u32, addresses: Option<LaneAddresses>) {
        let known = match (&self.remembers, addresses) {
            (Some(paths), Some(LaneAddresses { local, peer })) => {
                paths.between(local, peer, Direction::To).as_ref().map(report::remembered)
            }
            (Some(_), None) => None,
            (None, _) => self.told.clone().filter(|_| path == 0),
        };
        let joined = Joined { rtt_us_at_connect, foreseen_bytes: self.foreseen.bytes(), remembered: known };
        let advice = self.paths.path_up(path, joined);
        // One that comes back goes on with its bound.
        let before = self.applied.remove(&path);
        let paced_to = before.as_ref().and_then(|before| before.paced_to);
        let delivered_bytes = before.as_ref().map_or(0, |before| before.delivered_bytes);
        let subflows = before.map(|before| before.subflows).unwrap_or_default();
        let some_finish = false;
        let of_path = OfPath { addresses, advice, paced_to, some_finish, delivered_bytes, modest: None, subflows };
        self.applied.insert(path, of_path);
        // It begins with little: its first lanes are paced before they are sampled.
        let is_here = addresses.is_some_and(|addresses| addresses.local.is_loopback());
        self.modesty.set(path, !is_here && self.classes.begins_as_background(), rtt_us_at_connect);
        if let Some(bound) = self.modesty.bound(path)
            && let Some(applied) = self.applied.get_mut(&path)
        {
            applied.paced_to = Some((bound / u64::from(applied.advice.lanes.max(1))).max(1));
        }
    }

    pub(crate) fn lane_down(&mut self, number: u16) {
        let path = path_of(number);
        if self.forget_lane(number) && !self.lanes.iter().any(|lane| path_of(lane.number) == path) {
            // One path alone goes on with what is known of it.
            let events = self.paths.path_down(path);
            self.pending.extend(events);
        }
    }

    /// True when there was one.
    fn forget_lane(&mut self, number: u16) -> bool {
        let Some(at) = self.lanes.iter().position(|lane| lane.number == number) else { return false };
        let lane = self.lanes.remove(at);
        self.classes.lane_down(&lane);
        if let Some(applied) = self.applied.get_mut(&path_of(number)) {
            applied.delivered_bytes = applied.delivered_bytes.saturating_add(lane.delivered_bytes());
            applied.subflows.lane_gone(&lane.probe.ways());
        }
        true
    }

    /// An order of [`Turn::moves`] was carried out, as far as that was possible.
    pub(crate) fn lanes_moved(&mut self, path: u16, outcome: Result<(), String>) {
        self.classes.lanes_moved(path, outcome);
    }

    /// How long the session may wait for its next event.
    pub(crate) fn tick(&self) -> Duration {
        match (self.modesty.is_empty(), self.some_finish()) {
            (false, _) => modest::EVERY,
            (true, true) => DIVIDE_EVERY,
            (true, false) => TICK,
        }
    }

    fn some_finish(&self) -> bool {
        self.applied.values().any(|applied| applied.some_finish)
    }

    /// Samples when it is time, and applies what follows.
    pub(crate) fn turn(&mut self, work: &dyn Work) -> Turn {
        let now = Instant::now();
        let mut turn = Turn::default();
        if self.modesty.is_due(now) {
            turn.work_moves = self.give_way(now, work);
        }
        if now.duration_since(self.sampled_at) < SAMPLE_EVERY {
            if self.some_finish() && now.duration_since(self.divided_at) >= DIVIDE_EVERY {
                let paths = self.readings();
                self.divide(&paths, work);
            }
            turn.notices = self.classes.told();
            return turn;
        }
        self.sampled_at = now;
        turn.notices = self.classes.told();
        if self.applied.is_empty() {
            return turn;
        }
        let at_us = self.at_us(now);
        let sample = PathsSample { at_us, paths: self.readings(), waiting_bytes: work.waiting_bytes() };
        let mut events = std::mem::take(&mut self.pending);
        events.extend(self.paths.on_sample(&sample));
        if now.duration_since(self.told_at) >= TELL_EVERY {
            turn.paths = self.paths_now(now);
            self.told_at = now;
            // A cable that is out for a moment looks the same once data had passed.
            let swallowed = swallowed::look(&self.lanes, &mut self.swallowed);
            if let Some(swallowed) = swallowed.filter(|swallowed| !swallowed.ever) {
                turn.notices.push(Notice::Warning { text: swallowed.to_string() });
            }
        }
        for event in events {
            self.apply(event, &mut turn);
        }
        self.keep_to_schedule(at_us, work, &mut turn);
        self.classify(&sample, &mut turn);
        self.divide(&sample.paths, work);
        turn.work_moves |= self.look_for_slow(&sample, work.unit_bytes());
        turn.give_up = self.look_for_last(&sample.paths, work);
        turn
    }

    fn at_us(&self, now: Instant) -> u64 {
        u64::try_from(now.duration_since(self.started).as_micros()).unwrap_or(u64::MAX)
    }

    /// Lets background paths follow the queue. True when others of their lanes carry data.
    fn give_way(&mut self, now: Instant, work: &dyn Work) -> bool {
        let at_us = self.at_us(now);
        let mut paths = self.readings();
        paths.retain(|path| self.modesty.has(path.path));
        let mut moves = false;
        for PathReading { path, lanes, .. } in &paths {
            moves |= self.modesty.on_sample(*path, at_us, lanes);
        }
        self.divide(&paths, work);
        moves
    }

    /// A job with a deadline has the class that its schedule wants.
    fn keep_to_schedule(&mut self, at_us: u64, work: &dyn Work, turn: &mut Turn) {
        let delivered_bytes = self.delivered_bytes().values().sum();
        let (class, allowed_most) = (self.classes.highest(), self.classes.allowed_most());
        let now = deadline::Now { at_us, delivered_bytes, class, allowed_most };
        self.classes.schedule_wants(self.deadline.on_sample(now, || work.left()));
        turn.notices.extend(self.deadline.told());
    }

    /// Gives each path its class. What goes through ssh, or stays on this host, meets no network that could be asked.
    fn classify(&mut self, sample: &PathsSample, turn: &mut Turn) {
        let ends = sample.waiting_bytes == 0;
        for PathReading { path, lanes, .. } in &sample.paths {
            let is_here = self.addresses(*path).is_some_and(|addresses| addresses.local.is_loopback());
            let Some(estimate) = self.paths.estimate(*path).filter(|_| !is_here) else { continue };
            let (path, at_us, carrying) = (*path, sample.at_us, self.carrying(*path));
            let now = PathInClass { path, at_us, estimate, lanes, carrying, ends };
            let lanes = self.lanes.iter_mut().filter(|lane| path_of(lane.number) == path);
            if let Some(class) = self.classes.on_sample(&now, lanes) {
                self.paths.class_changed(path, class == ServiceClass::Priority);
            }
            let rtt_us = self.paths.estimate(path).map_or(0, |estimate| estimate.rtt_us);
            self.modesty.set(path, self.classes.class_of(path) == ServiceClass::Background, rtt_us);
        }
        turn.notices.extend(self.modesty.told());
        turn.notices.extend(self.classes.told());
        turn.moves = self.classes.moves();
    }

    /// The paths since it was last told.
    fn paths_now(&mut self, now: Instant) -> Vec<PathNow> {
        let since = now.duration_since(self.told_at);
        let Self { paths, applied, lanes, .. } = self;
        let told = paths.up().filter_map(|path| {
            let subflows = applied.get_mut(&path).map(|applied| applied.subflows.now(ways(lanes, path), since));
            let marks = lanes.iter().filter(|lane| path_of(lane.number) == path).filter_map(Lane::dscp);
            let marks: Vec<u8> = marks.map(Dscp::code_point).filter(|mark| *mark != 0).collect();
            let now = report::path_now(paths, path, subflows.unwrap_or_default())?;
            let (mark, marked_lanes) =
                (marks.first().copied().unwrap_or(0), u16::try_from(marks.len()).unwrap_or(u16::MAX));
            Some(PathNow { mark, marked_lanes, ..now })
        });
        told.collect()
    }

    /// The counters of all lanes, by path.
    fn readings(&mut self) -> Vec<PathReading> {
        let mut paths: Vec<PathReading> = Vec::new();
        for lane in &mut self.lanes {
            let path = path_of(lane.number);
            let Some((reading, timeouts)) = lane.reading() else { continue };
            match paths.last_mut().filter(|last| last.path == path) {
                Some(last) => {
                    last.lanes.push(reading);
                    last.timeouts = last.timeouts.min(timeouts);
                }
                None => paths.push(PathReading { path, lanes: vec![reading], timeouts }),
            }
        }
        paths
    }

    /// So many lanes of a path carry data.
    fn carrying(&self, path: u16) -> usize {
        match self.applied.get(&path) {
            Some(_) if self.paths.rests(path) => 0,
            Some(applied) => usize::from(applied.advice.lanes.min(self.modesty.lanes(path))),
            None => 0,
        }
    }

    /// And of all paths together.
    fn all_carrying(&self, paths: &[PathReading]) -> usize {
        paths.iter().map(|path| self.carrying(path.path)).sum()
    }

    /// Looks which lanes would hold up the end of the job: what they carry is to go over others.
    fn look_for_last(&mut self, paths: &[PathReading], work: &dyn Work) -> Vec<u16> {
        let lanes: Vec<LaneReading> = paths.iter().flat_map(|path| path.lanes.iter().copied()).collect();
        let numbers: Vec<u16> = lanes.iter().map(|lane| lane.lane).collect();
        let Some(ending) = work.ending(&numbers, self.all_carrying(paths)) else { return Vec::new() };
        let left = left(&lanes, &ending.left_bytes);
        let slow = numbers.into_iter().zip(better_given_up(&lanes, &left)).filter(|(_, slow)| *slow);
        let slow: Vec<u16> = slow.map(|(number, _)| number).filter(|lane| !self.given_up.contains(lane)).collect();
        self.given_up.extend(&slow);
        slow
    }

    /// Looks which lanes would be the last to be done, with what they would take now. True when these are others than before.
    fn look_for_slow(&mut self, sample: &PathsSample, unit_bytes: u64) -> bool {
        let carry = sample.paths.iter().flat_map(|path| path.lanes.iter().take(self.carrying(path.path)).copied());
        let lanes: Vec<LaneReading> = carry.collect();
        let too_slow = match sample.waiting_bytes {
            0 | u64::MAX => Vec::new(),
            waiting_bytes => {
                let slow = too_slow_for_more(&lanes, waiting_bytes, unit_bytes);
                lanes.iter().zip(slow).filter(|(_, slow)| *slow).map(|(lane, _)| lane.lane).collect()
            }
        };
        let is_new = too_slow != self.too_slow;
        self.too_slow = too_slow;
        is_new
    }

    /// Divides the bound of each path among its lanes as they are now. Those that have sent all they had, and get no more, leave their part
    /// to the others.
    fn divide(&mut self, paths: &[PathReading], work: &dyn Work) {
        self.divided_at = Instant::now();
        let numbers: Vec<u16> = paths.iter().flat_map(|path| path.lanes.iter().map(|lane| lane.lane)).collect();
        let mut ending = work.ending(&numbers, self.all_carrying(paths));
        let is_waiting = work.waiting_bytes() > 0;
        let carrying: Vec<u16> = paths.iter().map(|path| path.path).filter(|path| self.carrying(*path) > 0).collect();
        for (at, path) in (0..).zip(paths) {
            let PathReading { path: number, lanes, .. } = path;
            let rests = self.paths.rests(*number);
            let ending = ending.as_mut().map(|ending| Ending {
                left_bytes: ending.left_bytes.drain(..lanes.len().min(ending.left_bytes.len())).collect(),
                // Who of them will take a unit nobody knows: each path is reckoned to take its turn.
                waiting_bytes: part_of(&ending.waiting_bytes, at, carrying.len().max(1)),
            });
            let Some(applied) = self.applied.get_mut(number) else { continue };
            let of_path = self.lanes.iter_mut().filter(|lane| path_of(lane.number) == *number);
            applied.modest = self.modesty.bound(*number).map(|bound| (bound, self.modesty.lanes(*number)));
            applied.divide(lanes, ending, rests || !is_waiting, of_path);
            for (number, bound) in self.classes.lane_bounds(*number) {
                if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.number == number) {
                    lane.pace(Some(lane.pace_bytes_per_s().map_or(bound, |pace| pace.min(bound))));
                }
            }
        }
    }

    /// The lanes that get no units: those of paths that rest, of the others those with the highest numbers, when fewer carry data, and
    /// towards the end those that are too slow.
    pub(crate) fn resting(&self) -> Vec<u16> {
        let mut resting = Vec::new();
        let (mut path, mut at) = (None, 0);
        for lane in &self.lanes {
            let of = path_of(lane.number);
            if path != Some(of) {
                (path, at) = (Some(of), 0);
            }
            if at >= self.carrying(of) || self.too_slow.contains(&lane.number) {
                resting.push(lane.number);
            }
            at += 1;
        }
        resting
    }

    /// The paths, for the report: all together, and each.
    pub(crate) fn summary(&self) -> (PathSummary, Vec<OnePath>) {
        let delivered = self.delivered_bytes();
        let paths = self.applied.iter().filter_map(|(number, applied)| {
            let delivered_bytes = delivered.get(number).copied().unwrap_or_default();
            let subflows = applied.subflows.summary(ways(&self.lanes, *number), self.started.elapsed());
            let mut path = report::one_path(&self.paths, *number, applied.addresses, delivered_bytes, subflows)?;
            let lanes = self.lanes.iter().filter(|lane| path_of(lane.number) == *number);
            path.summary.service = self.classes.summary(*number, lanes);
            Some(path)
        });
        let paths: Vec<OnePath> = paths.collect();
        (report::together(&paths), paths)
    }

    /// What the lanes of each path delivered so far.
    pub(crate) fn delivered_bytes(&self) -> BTreeMap<u16, u64> {
        let of = |number: &u16, applied: &OfPath| {
            let now = self.lanes.iter().filter(|lane| path_of(lane.number) == *number).map(Lane::delivered_bytes);
            now.fold(applied.delivered_bytes, u64::saturating_add)
        };
        self.applied.iter().map(|(number, applied)| (*number, of(number, applied))).collect()
    }

    /// What the path did not let through when it was last looked at, for a peer that is alive on another connection.
    pub(crate) fn swallowed(&self) -> Option<Swallowed> {
        self.swallowed
    }

    fn apply(&mut self, event: PathEvent, turn: &mut Turn) {
        match event {
            PathEvent::Advice { path, advice } => self.follow(path, advice, turn),
            PathEvent::Rests { path, reason } => {
                turn.work_moves = true;
                turn.notices.push(convert::chose(Subject::Paths, format!("path {path} rests"), reason));
            }
            PathEvent::Resumes { path, reason } => {
                turn.work_moves = true;
                turn.notices.push(convert::chose(Subject::Paths, format!("path {path} carries data again"), reason));
            }
            PathEvent::Dead { path, cause } => {
                turn.work_moves = true;
                turn.lost.push(path);
                turn.notices.push(Notice::Warning { text: report::death(path, self.addresses(path), cause) });
            }
        }
    }

    fn addresses(&self, path: u16) -> Option<LaneAddresses> {
        self.applied.get(&path).and_then(|applied| applied.addresses)
    }

    fn follow(&mut self, path: u16, advice: Advice, turn: &mut Turn) {
        let Some(applied) = self.applied.get_mut(&path) else { return };
        let before = std::mem::replace(&mut applied.advice, advice.clone());
        let (mut refused, mut granted) = (None, None);
        for lane in self.lanes.iter_mut().filter(|lane| path_of(lane.number) == path) {
            let (pace_bytes_per_s, dscp) = (lane.pace_bytes_per_s(), lane.dscp());
            let advice = LaneAdvice { pace_bytes_per_s, dscp, ..applied.for_lanes() };
            refused = lane.follow(advice).err().or(refused);
            granted = granted.or_else(|| lane.granted());
        }
        if let Some(granted) = granted {
            self.paths.on_granted(path, &granted);
        }
        if before.lanes != advice.lanes {
            turn.lanes.push((path, advice.lanes));
            turn.notices.push(convert::chose(Subject::Lanes, advice.lanes.to_string(), advice.reasons.lanes));
        }
        if let Some(name) = &advice.congestion_control
            && before.congestion_control.as_ref() != Some(name)
        {
            let reason = advice.reasons.congestion_control;
            turn.notices.push(convert::chose(Subject::CongestionControl, name.clone(), reason));
        }
        if let Some(error) = refused.filter(|_| !self.was_refused) {
            self.was_refused = true;
            turn.notices.push(Notice::Warning { text: format!("a lane could not be tuned to the path: {error}") });
        }
    }
}

impl OfPath {
    /// Divides the bound of this path among its lanes. `is_done`: none of them gets further units.
    fn divide<'a>(
        &mut self,
        readings: &[LaneReading],
        ending: Option<Ending>,
        is_done: bool,
        lanes: impl Iterator<Item = &'a mut Lane>,
    ) {
        let bound = self.modest.map_or(self.advice.pacing_bytes_per_s, |(bound, _)| Some(bound));
        let Some(bound) = bound else {
            self.some_finish = false;
            return self.pace_all(None, lanes);
        };
        match ending {
            Some(Ending { left_bytes, waiting_bytes }) => {
                let left = left(readings, &left_bytes);
                self.some_finish = left.iter().chain(&waiting_bytes).any(|bytes| *bytes > 0);
                let bounds = bounds_at_end(bound, readings, &left, &waiting_bytes);
                let bounds: BTreeMap<u16, u64> = readings.iter().map(|reading| reading.lane).zip(bounds).collect();
                for lane in lanes {
                    if let Some(bound) = bounds.get(&lane.number) {
                        lane.pace(Some(*bound));
                    }
                }
            }
            None => {
                let lanes_most = self.modest.map_or(self.advice.lanes, |(_, lanes)| lanes.min(self.advice.lanes));
                let carrying = if is_done { 0 } else { lanes_most };
                self.some_finish = readings.iter().skip(usize::from(carrying)).any(|lane| lane.unsent_bytes > 0);
                self.pace_all(Some(bound_per_lane(bound, readings, carrying)), lanes);
            }
        }
    }

    /// What each lane is advised as long as all are advised the same.
    fn for_lanes(&self) -> LaneAdvice {
        let congestion_control = self.advice.congestion_control.clone();
        LaneAdvice { pace_bytes_per_s: self.paced_to, congestion_control, dscp: None }
    }

    fn pace_all<'a>(&mut self, bytes_per_s: Option<u64>, lanes: impl Iterator<Item = &'a mut Lane>) {
        self.paced_to = bytes_per_s;
        lanes.for_each(|lane| lane.pace(bytes_per_s));
    }
}

/// Over MPTCP, what each lane of a path carried by each way.
fn ways(lanes: &[Lane], path: u16) -> impl Iterator<Item = WayTotals> + '_ {
    lanes.iter().filter(move |lane| path_of(lane.number) == path).flat_map(|lane| lane.probe.ways())
}

/// What each lane has left: in its connection, and taken beyond that.
fn left(lanes: &[LaneReading], left_bytes: &[u64]) -> Vec<u64> {
    lanes.iter().zip(left_bytes).map(|(lane, left)| lane.unsent_bytes.saturating_add(*left)).collect()
}

/// Every so many-th of the units, from this one on.
fn part_of(units: &[u64], first: usize, every: usize) -> Vec<u64> {
    units.iter().skip(first).step_by(every).copied().collect()
}

/// How many lanes a job begins with on a path whose connections take `rtt_us` to open, and why.
pub(crate) fn first_lanes(carriage: &Carriage, foreseen: &Foreseen, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
    // A quick start is not for those who yield.
    let is_background = carriage.service.class == AskedClass::Background;
    let foreseen_bytes = if is_background { 0 } else { foreseen.bytes() };
    let wishes = Wishes { foreseen_bytes, ..wishes(carriage) };
    let advice = Tuner::new(wishes, rtt_us, cpus).first();
    (advice.lanes, advice.reasons.lanes)
}

fn wishes(carriage: &Carriage) -> Wishes {
    let limits = host::limits();
    let mut allowed = limits.allowed_congestion_controls;
    if !allowed.iter().any(|name| name == BBR) && host::may_choose_congestion_control(BBR) {
        allowed.push(BBR.to_owned());
    }
    // Bbr finds out slowly that a bound was lifted; a window that was left unused is there at once.
    let is_background = carriage.service.class == AskedClass::Background;
    let steady = ["cubic", "reno"].into_iter().find(|name| is_background && allowed.iter().any(|may| may == name));
    Wishes {
        lanes: carriage.lanes,
        congestion_control: carriage.congestion_control.clone().or_else(|| steady.map(str::to_owned)),
        rate_bytes_per_s: carriage.rate_bytes_per_s,
        allowed_congestion_controls: allowed,
        host_congestion_control: limits.congestion_control.unwrap_or_default(),
        foreseen_bytes: 0,
        remembered: carriage.path.as_ref().filter(|known| known_paths::is_sound(known)).map(report::remembered),
    }
}

/// Processors of the smaller of both hosts. Without the word of an initiator only this one is known.
pub(crate) fn cpus_of_smaller(carriage: &Carriage) -> u16 {
    let told = if carriage.cpus > 0 { carriage.cpus } else { u16::MAX };
    host_facts::cpus().min(told)
}
