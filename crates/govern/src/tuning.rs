//! Tunes a sender's lanes while they work: sample -> estimate -> advice -> applied.
//!
//! The session's loop runs this ten times a second, with a system call for each lane. `haul_engine::paths` decides; this applies,
//! and reports a kernel's refusal once.

mod ending;
mod outbound;

#[cfg(test)]
#[path = "../tests/unit/tuning.rs"]
mod scenarios;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::path::{
    Advice, LaneReading, OneWay, Tuner, Wishes, beside_own_bounds, bound_per_lane, bounds_at_end, too_slow_for_more,
};
use haul_engine::paths::{Joined, PathEvent, PathReading, Paths, PathsSample};
use haul_engine::service::ServiceClass;
use haul_engine::thin_acks::PAUSE_US_MAX;
use haul_job::Subject;
use haul_net::mptcp::WayTotals;
use haul_net::policy::Dscp;
use haul_net::{Probe, host};
use haul_wire::control::{AskedClass, Carriage, Notice};
use haul_wire::lane::path_of;
use haul_wire::summary::{OnePath, PathNow, PathSummary};

use crate::hooks::Hooks;
use haul_channel::clock::TICK;
use haul_channel::foreseen::Foreseen;
use haul_channel::lane_addresses::LaneAddresses;
use haul_channel::{convert, host_facts};
use haul_kept::class_policy::Permits;
use haul_kept::known_paths::{self, Direction, KnownPaths};

use crate::background::BackgroundShare;
pub use crate::black_hole::BlackHole;
use crate::deadline::Deadline;
use crate::lane::{Lane, LaneAdvice};
pub use crate::outlets::Move;
use crate::service::{Classes, PathNow as PathInClass};
use crate::subflows::Subflows;
pub use crate::work::{Ending, Endless, Left, Work};

const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// 48 lanes on 1 Gbit/s finish within a tenth of a chunk's 430 ms: each must leave its part at once.
const DIVIDE_EVERY: Duration = Duration::from_millis(20);

const TELL_EVERY: Duration = Duration::from_secs(1);

const BBR: &str = "bbr";

/// Tunes a sender's lanes.
pub struct Tuning {
    foreseen: Foreseen,
    /// The initiator's findings.
    told: Option<haul_engine::path::Remembered>,
    /// Findings for the first lanes of paths.
    remembers: Option<KnownPaths>,
    paths: Paths,
    applied: BTreeMap<u16, OfPath>,
    /// Lanes by number, and so by path.
    lanes: Vec<Lane>,
    /// Lanes without more units: the rest finishes sooner.
    too_slow: Vec<u16>,
    /// A new lane may have such a number, and is not given up.
    given_up: Vec<u16>,
    pending: Vec<PathEvent>,
    divided_at: Instant,
    started: Instant,
    sampled_at: Instant,
    told_at: Instant,
    was_refused: bool,
    /// Whether lanes with smaller segments can follow.
    dials_again: bool,
    black_hole: Option<BlackHole>,
    classes: Classes,
    background: BackgroundShare,
    deadline: Deadline,
    /// How long the target lets data gather.
    acknowledgements_wait_us: u32,
}

struct OfPath {
    addresses: Option<LaneAddresses>,
    advice: Advice,
    /// The last common bound.
    paced_to: Option<u64>,
    /// Lanes will soon leave their part.
    some_finish: bool,
    delivered_bytes: u64,
    /// A background path's tuner would see only what others leave.
    background_bound: Option<(u64, u16)>,
    subflows: Subflows,
}

/// A turn's results.
#[derive(Default)]
pub struct Turn {
    /// Lanes of a path that shall carry data.
    pub lanes: Vec<(u16, u16)>,
    /// Whether [`Tuning::resting`] has changed.
    pub work_moves: bool,
    /// Lanes to cut: others are sooner.
    pub give_up: Vec<u16>,
    /// Paths without progress, to be cut.
    pub lost: Vec<u16>,
    /// Paths that drop full packets, to be cut, and the largest segment to try.
    pub smaller_segments: Vec<(u16, u16)>,
    /// Lanes that shall leave elsewhere.
    pub moves: Vec<Move>,
    /// Choices with reasons, for the user.
    pub notices: Vec<Notice>,
    /// The paths' state, now and then.
    pub paths: Vec<PathNow>,
}

impl Tuning {
    /// Begins a job of at least the foreseen bytes.
    pub fn new(carriage: &Carriage, foreseen: Foreseen) -> Self {
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
            dials_again: true,
            black_hole: None,
            acknowledgements_wait_us: 0,
            classes: Classes::new(carriage, Permits::default(), None),
            background: BackgroundShare::new(carriage.rate_bytes_per_s),
            deadline: Deadline::new(carriage),
        }
    }

    /// Sets the operator's bounds.
    pub fn permitted(self, carriage: &Carriage, permits: Permits, hooks: Option<Hooks>) -> Self {
        Self { classes: Classes::new(carriage, permits, hooks), ..self }
    }

    /// Uses this host's earlier findings.
    pub fn remembering(self, paths: KnownPaths) -> Self {
        Self { remembers: Some(paths), ..self }
    }

    /// Sets the limit of the rate.
    pub fn limit_rate(&mut self, bytes_per_s: Option<u64>) {
        self.paths.limit_rate(bytes_per_s);
        self.background.limit_rate(bytes_per_s);
        self.deadline.limit_rate(bytes_per_s);
    }

    /// Samples a new lane.
    pub fn lane_up(&mut self, number: u16, probe: Probe, addresses: Option<LaneAddresses>) {
        self.sample_lane(Lane::new(number, probe), addresses);
    }

    /// Samples an earlier job's lane, from zero.
    pub fn lane_back(&mut self, number: u16, probe: Probe, addresses: Option<LaneAddresses>) {
        self.sample_lane(Lane::counting_from_now(number, probe), addresses);
    }

    fn sample_lane(&mut self, mut lane: Lane, addresses: Option<LaneAddresses>) {
        let number = lane.number;
        let Some(info) = lane.probe.tcp_info() else { return };
        // A successor keeps the path up.
        self.forget_lane(number);
        let path = path_of(number);
        if !self.paths.up().any(|up| up == path) {
            self.path_up(path, info.rtt_us, addresses);
        }
        let applied = self.applied.get(&path).expect("its path is up");
        // Good enough until the next sample.
        let _ = lane.follow(LaneAdvice { dscp: lane.dscp(), ..applied.for_lanes() });
        if let Some(granted) = lane.granted() {
            self.paths.on_granted(path, &granted);
        }
        if applied.addresses.is_none_or(|addresses| !addresses.local.is_loopback()) {
            self.classes.lane_up(&mut lane, applied.addresses);
        }
        self.lanes.push(lane);
        self.lanes.sort_unstable_by_key(|lane| lane.number);
    }

    /// Takes bounds and marks off.
    pub fn release(&mut self) {
        self.lanes.iter_mut().for_each(Lane::release);
        self.classes.release();
    }

    fn path_up(&mut self, path: u16, rtt_us_at_connect: u32, addresses: Option<LaneAddresses>) {
        let known = match (&self.remembers, addresses) {
            (Some(paths), Some(LaneAddresses { local, peer })) => {
                paths.between(local, peer, Direction::To).as_ref().map(crate::report::remembered)
            }
            (Some(_), None) => None,
            (None, _) => self.told.clone().filter(|_| path == 0),
        };
        let joined = Joined { rtt_us_at_connect, foreseen_bytes: self.foreseen.bytes(), remembered: known };
        let advice = self.paths.path_up(path, joined);
        // A path keeps its bound.
        let before = self.applied.remove(&path);
        let paced_to = before.as_ref().and_then(|before| before.paced_to);
        let delivered_bytes = before.as_ref().map_or(0, |before| before.delivered_bytes);
        let subflows = before.map(|before| before.subflows).unwrap_or_default();
        let some_finish = false;
        let of_path =
            OfPath { addresses, advice, paced_to, some_finish, delivered_bytes, background_bound: None, subflows };
        self.applied.insert(path, of_path);
        // Pacing begins before sampling.
        let is_here = addresses.is_some_and(|addresses| addresses.local.is_loopback());
        self.background.set(path, !is_here && self.classes.begins_as_background(), rtt_us_at_connect);
        if let Some(bound) = self.background.bound(path)
            && let Some(applied) = self.applied.get_mut(&path)
        {
            applied.paced_to = Some((bound / u64::from(applied.advice.lanes.max(1))).max(1));
        }
    }

    /// Drops a lost lane.
    pub fn lane_down(&mut self, number: u16) {
        let path = path_of(number);
        if self.forget_lane(number) && !self.lanes.iter().any(|lane| path_of(lane.number) == path) {
            // A single path keeps its estimate.
            let events = self.paths.path_down(path);
            self.pending.extend(events);
        }
    }

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

    /// Notes that one of [`Turn::moves`] was done.
    pub fn lanes_moved(&mut self, path: u16, outcome: Result<(), String>) {
        self.classes.lanes_moved(path, outcome);
    }

    /// Whether no lane was TCP so far.
    pub fn has_no_path(&self) -> bool {
        self.applied.is_empty()
    }

    /// Time until the next turn.
    pub fn tick(&self) -> Duration {
        match (self.background.is_empty(), self.some_finish()) {
            (false, _) => crate::background::EVERY,
            (true, true) => DIVIDE_EVERY,
            (true, false) => TICK,
        }
    }

    fn some_finish(&self) -> bool {
        self.applied.values().any(|applied| applied.some_finish)
    }

    /// Takes in a far ping's time.
    pub fn on_one_way(&mut self, word: OneWay) {
        let at_us = self.at_us(Instant::now());
        self.paths.on_one_way(at_us, word);
    }

    /// Samples, when it is time, and applies the advice.
    pub fn turn(&mut self, work: &dyn Work) -> Turn {
        let now = Instant::now();
        let mut turn = Turn::default();
        if self.background.is_due(now) {
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
            // Once data has passed, it may be a cable out for a moment.
            let black_hole = crate::black_hole::look(&self.lanes, &mut self.black_hole);
            if let Some(black_hole) = black_hole.filter(|black_hole| !black_hole.ever && self.dials_again) {
                let (smaller, mut text) = (black_hole.smaller(), black_hole.to_string());
                if let Some(bytes) = smaller {
                    text += &format!("; they are made again with {bytes} bytes at most");
                    turn.smaller_segments = self.paths.up().map(|path| (path, bytes)).collect();
                }
                turn.notices.push(Notice::Warning { text });
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

    /// True: other lanes shall carry data.
    fn give_way(&mut self, now: Instant, work: &dyn Work) -> bool {
        let at_us = self.at_us(now);
        let mut paths = self.readings();
        paths.retain(|path| self.background.has(path.path));
        let mut moves = false;
        for PathReading { path, lanes, .. } in &paths {
            moves |= self.background.on_sample(*path, at_us, lanes);
        }
        self.divide(&paths, work);
        moves
    }

    fn keep_to_schedule(&mut self, at_us: u64, work: &dyn Work, turn: &mut Turn) {
        let delivered_bytes = self.delivered_bytes().values().sum();
        let (class, allowed_most) = (self.classes.highest(), self.classes.allowed_most());
        let now = crate::deadline::Now { at_us, delivered_bytes, class, allowed_most };
        self.classes.schedule_wants(self.deadline.on_sample(now, || work.left()));
        turn.notices.extend(self.deadline.told());
    }

    /// Leaves out paths in ssh, or on this host, whose network cannot be asked.
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
            let (class, rtt_us) =
                (self.classes.class_of(path), self.paths.estimate(path).map_or(0, |estimate| estimate.rtt_us));
            self.paths.marked_are(path, self.classes.marked(path));
            self.background.set(path, class == ServiceClass::Background, rtt_us);
        }
        turn.notices.extend(self.background.told());
        turn.notices.extend(self.classes.told());
        turn.moves = self.classes.moves();
    }

    fn paths_now(&mut self, now: Instant) -> Vec<PathNow> {
        let since = now.duration_since(self.told_at);
        let Self { paths, applied, lanes, .. } = self;
        let told = paths.up().filter_map(|path| {
            let subflows = applied.get_mut(&path).map(|applied| applied.subflows.now(ways(lanes, path), since));
            let marks = lanes.iter().filter(|lane| path_of(lane.number) == path).filter_map(Lane::dscp);
            let marks: Vec<u8> = marks.map(Dscp::code_point).filter(|mark| *mark != 0).collect();
            let now = crate::report::path_now(paths, path, subflows.unwrap_or_default())?;
            let (mark, marked_lanes) =
                (marks.first().copied().unwrap_or(0), u16::try_from(marks.len()).unwrap_or(u16::MAX));
            Some(PathNow { mark, marked_lanes, ..now })
        });
        told.collect()
    }

    fn readings(&mut self) -> Vec<PathReading> {
        let mut paths: Vec<PathReading> = Vec::new();
        for lane in &mut self.lanes {
            let path = path_of(lane.number);
            let Some((mut reading, timeouts)) = lane.reading() else { continue };
            reading.rtt_us = reading.rtt_us.saturating_sub(self.acknowledgements_wait_us).max(reading.rtt_min_us);
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

    /// Enters that the target acknowledges so much later than data comes: that time is no queue.
    pub fn acknowledgements_wait(&mut self, us: u32) {
        self.acknowledgements_wait_us = us.min(PAUSE_US_MAX);
    }

    fn carrying(&self, path: u16) -> usize {
        match self.applied.get(&path) {
            Some(_) if self.paths.rests(path) => 0,
            Some(applied) => usize::from(applied.advice.lanes.min(self.background.lanes(path))),
            None => 0,
        }
    }

    fn all_carrying(&self, paths: &[PathReading]) -> usize {
        paths.iter().map(|path| self.carrying(path.path)).sum()
    }

    /// Finds lanes that would finish last. True: they changed.
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

    /// Leaves finished lanes' part to the others.
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
                again_bytes: Vec::new(),
                // As if paths took turns.
                waiting_bytes: part_of(&ending.waiting_bytes, at, carrying.len().max(1)),
            });
            let Some(applied) = self.applied.get_mut(number) else { continue };
            let of_path = self.lanes.iter_mut().filter(|lane| path_of(lane.number) == *number);
            applied.background_bound =
                self.background.bound(*number).map(|bound| (bound, self.background.lanes(*number)));
            let own: BTreeMap<u16, u64> = self.classes.lane_bounds(*number).collect();
            applied.divide(lanes, ending, rests || !is_waiting, &own, of_path);
            for (number, bound) in own {
                if let Some(lane) = self.lanes.iter_mut().find(|lane| lane.number == number) {
                    lane.pace(Some(lane.pace_bytes_per_s().map_or(bound, |pace| pace.min(bound))));
                }
            }
        }
    }

    /// Lanes without units: resting, surplus, and finally slow ones.
    pub fn resting(&self) -> Vec<u16> {
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

    /// Describes all paths together, and each, for the report.
    pub fn summary(&self) -> (PathSummary, Vec<OnePath>) {
        let delivered = self.delivered_bytes();
        let paths = self.applied.iter().filter_map(|(number, applied)| {
            let delivered_bytes = delivered.get(number).copied().unwrap_or_default();
            let subflows = applied.subflows.summary(ways(&self.lanes, *number), self.started.elapsed());
            let mut path = crate::report::one_path(&self.paths, *number, applied.addresses, delivered_bytes, subflows)?;
            let lanes = self.lanes.iter().filter(|lane| path_of(lane.number) == *number);
            path.summary.service = self.classes.summary(*number, lanes);
            Some(path)
        });
        let paths: Vec<OnePath> = paths.collect();
        (crate::report::together(&paths), paths)
    }

    /// Bytes delivered by path.
    pub fn delivered_bytes(&self) -> BTreeMap<u16, u64> {
        let of = |number: &u16, applied: &OfPath| {
            let now = self.lanes.iter().filter(|lane| path_of(lane.number) == *number).map(Lane::delivered_bytes);
            now.fold(applied.delivered_bytes, u64::saturating_add)
        };
        self.applied.iter().map(|(number, applied)| (*number, of(number, applied))).collect()
    }

    /// The last finding about dropped packets, if the peer lives on another connection.
    pub fn black_hole(&self) -> Option<BlackHole> {
        self.black_hole
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
                turn.notices.push(Notice::Warning { text: crate::report::death(path, self.addresses(path), cause) });
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
    /// `is_done`: no lane gets more.
    fn divide<'a>(
        &mut self,
        readings: &[LaneReading],
        ending: Option<Ending>,
        is_done: bool,
        own: &BTreeMap<u16, u64>,
        lanes: impl Iterator<Item = &'a mut Lane>,
    ) {
        let bound = self.background_bound.map_or(self.advice.pacing_bytes_per_s, |(bound, _)| Some(bound));
        let Some(bound) = bound else {
            self.some_finish = false;
            return self.pace_all(None, lanes);
        };
        match ending {
            Some(Ending { left_bytes, waiting_bytes, .. }) => {
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
                let lanes_most =
                    self.background_bound.map_or(self.advice.lanes, |(_, lanes)| lanes.min(self.advice.lanes));
                let carrying = if is_done { 0 } else { lanes_most };
                self.some_finish = readings.iter().skip(usize::from(carrying)).any(|lane| lane.unsent_bytes > 0);
                let per_lane = bound_per_lane(bound, readings, carrying);
                let carrying = readings.iter().take(usize::from(carrying));
                let own: Vec<Option<u64>> = carrying.map(|lane| own.get(&lane.lane).copied()).collect();
                let bounds = beside_own_bounds(per_lane, &own);
                self.paced_to = Some(per_lane);
                for (at, lane) in lanes.enumerate() {
                    lane.pace(Some(bounds.get(at).copied().unwrap_or(per_lane)));
                }
            }
        }
    }

    fn for_lanes(&self) -> LaneAdvice {
        let congestion_control = self.advice.congestion_control.clone();
        LaneAdvice { pace_bytes_per_s: self.paced_to, congestion_control, dscp: None }
    }

    fn pace_all<'a>(&mut self, bytes_per_s: Option<u64>, lanes: impl Iterator<Item = &'a mut Lane>) {
        self.paced_to = bytes_per_s;
        lanes.for_each(|lane| lane.pace(bytes_per_s));
    }
}

fn ways(lanes: &[Lane], path: u16) -> impl Iterator<Item = WayTotals> + '_ {
    lanes.iter().filter(move |lane| path_of(lane.number) == path).flat_map(|lane| lane.probe.ways())
}

/// Bytes in connections, and taken beyond.
fn left(lanes: &[LaneReading], left_bytes: &[u64]) -> Vec<u64> {
    lanes.iter().zip(left_bytes).map(|(lane, left)| lane.unsent_bytes.saturating_add(*left)).collect()
}

fn part_of(units: &[u64], first: usize, every: usize) -> Vec<u64> {
    units.iter().skip(first).step_by(every).copied().collect()
}

/// A job's first lanes over connections that take `rtt_us` to open, and why.
pub fn first_lanes(carriage: &Carriage, foreseen: &Foreseen, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
    // Yielding needs no quick start.
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
    // bbr grows slowly after a bound; these have an unused window at once.
    let is_background = carriage.service.class == AskedClass::Background;
    let steady = ["cubic", "reno"].into_iter().find(|name| is_background && allowed.iter().any(|may| may == name));
    Wishes {
        lanes: carriage.lanes,
        congestion_control: carriage.congestion_control.clone().or_else(|| steady.map(str::to_owned)),
        rate_bytes_per_s: carriage.rate_bytes_per_s,
        allowed_congestion_controls: allowed,
        host_congestion_control: limits.congestion_control.unwrap_or_default(),
        foreseen_bytes: 0,
        remembered: carriage.path.as_ref().filter(|known| known_paths::is_sound(known)).map(crate::report::remembered),
    }
}

/// The smaller host's, or this one's if no initiator said so.
pub fn cpus_of_smaller(carriage: &Carriage) -> u16 {
    let told = if carriage.cpus > 0 { carriage.cpus } else { u16::MAX };
    host_facts::cpus().min(told)
}
