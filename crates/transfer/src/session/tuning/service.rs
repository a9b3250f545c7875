//! The service class of each path: which lanes carry which mark, and why.
//!
//! ```text
//!   asked for     background, normal or priority from the start, or auto      (`Carriage::service`)
//!   allowed       what the operator lets this sender ask for                  (`Allowed`)
//!   engine        aware: others take the path away                            -> the class of a path, lane by lane
//!   lanes         the mark, read back; a kernel that refuses is a warning
//! ```

use std::collections::BTreeMap;

use haul_engine::path::{Estimate, LaneReading};
use haul_engine::service::allowed::Allowed;
use haul_engine::service::aware::{Aware, Change, Seen};
use haul_engine::service::dropped::Dropped;
use haul_engine::service::policed::{Policed, Policing};
use haul_engine::service::{AskedClass, ServiceClass};
use haul_job::Subject;
use haul_net::policy::Dscp;
use haul_wire::control::{Carriage, Notice};
use haul_wire::lane::path_of;
use haul_wire::summary::{MarkEffect, PathService};

use crate::kept::class_policy::Permits;
use crate::kept::hook_words::{Answered, Event, Outlet, Request};
use crate::kept::priority_time::PriorityClock;
use crate::session::convert;
use crate::session::hooks::Hooks;
use crate::session::lane_addresses::LaneAddresses;

use super::lane::Lane;
use super::outlets::{Granted, Move};

/// The classes of a session's paths.
pub(super) struct Classes {
    asked: AskedClass,
    floor_bytes_per_s: Option<u64>,
    permits: Permits,
    /// Of all paths together, and of earlier sessions.
    time: PriorityClock,
    hooks: Option<Hooks>,
    paths: BTreeMap<u16, OfPath>,
    /// What is to be told with the next turn.
    untold: Vec<Notice>,
    /// And to be ordered.
    moves: Vec<Move>,
    was_refused: bool,
    /// See [`Classes::schedule_wants`].
    wanted: Option<ServiceClass>,
}

/// The class of one path.
struct OfPath {
    aware: Aware,
    /// Whether packets with the mark that was asked for arrive at all. `aware` finds that out by itself.
    drops: Dropped,
    /// Whether only a part of them does. Here, too, `aware` sees it by itself.
    polices: Policed,
    allowed: Allowed,
    class: ServiceClass,
    addresses: Option<LaneAddresses>,
    hook: Hook,
    /// Where its connections have to leave for what the operator's program granted.
    granted: Granted,
    /// Until when its time with priority is counted.
    counted_us: u64,
    is_over: bool,
    /// What lanes sent marked that are gone.
    gone_marked_bytes: u64,
    /// Bounds of some lanes, by their numbers.
    lane_bounds: BTreeMap<u16, u64>,
}

/// What the operator's program says to priority on a path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Hook {
    /// It was not asked.
    None,
    Asked,
    /// Up to a rate, if it names one.
    Granted(Option<u64>),
    Refused,
}

/// A path at one moment.
pub(super) struct PathNow<'a> {
    pub(super) path: u16,
    pub(super) at_us: u64,
    pub(super) estimate: &'a Estimate,
    /// All of its lanes; the first `carrying` of them carry data.
    pub(super) lanes: &'a [LaneReading],
    pub(super) carrying: usize,
    /// Nothing waits for a lane: what they have is the last of the job.
    pub(super) ends: bool,
}

impl Classes {
    pub(super) fn new(carriage: &Carriage, permits: Permits, hooks: Option<Hooks>) -> Self {
        Self {
            asked: convert::asked_class(carriage.service.class),
            floor_bytes_per_s: carriage.service.floor_bytes_per_s,
            time: PriorityClock::new(permits.time()),
            permits,
            hooks,
            paths: BTreeMap::new(),
            untold: Vec::new(),
            moves: Vec::new(),
            was_refused: false,
            wanted: None,
        }
    }

    /// What the schedule of a job with a deadline wants, in place of what was asked for.
    pub(super) fn schedule_wants(&mut self, class: Option<ServiceClass>) {
        self.wanted = class;
    }

    /// The highest class that a path has now.
    pub(super) fn highest(&self) -> ServiceClass {
        self.paths.values().map(|of| of.class).max().unwrap_or_default()
    }

    /// The highest class that may be asked for now.
    pub(super) fn allowed_most(&self) -> ServiceClass {
        let may = |of: &OfPath| of.allowed.priority() && !of.is_over && of.hook != Hook::Refused && !of.harms();
        if self.paths.values().any(may) { ServiceClass::Priority } else { ServiceClass::Normal }
    }

    /// The class of a path.
    pub(super) fn class_of(&self, path: u16) -> ServiceClass {
        self.paths.get(&path).map_or(ServiceClass::Normal, |of| of.class)
    }

    /// A path that comes begins as background.
    pub(super) fn begins_as_background(&self) -> bool {
        self.wanted.unwrap_or(self.asked.first()) == ServiceClass::Background
    }

    /// A lane is there: it begins with the mark of its path.
    pub(super) fn lane_up(&mut self, lane: &mut Lane, addresses: Option<LaneAddresses>) {
        let path = path_of(lane.number);
        if !self.paths.contains_key(&path) {
            self.path_up(path, addresses);
        }
        if self.asked != AskedClass::Auto
            && let Some(of) = self.paths.get(&path)
            && !of.harms()
            && (of.class != ServiceClass::Priority || of.granted.has(lane.probe.local_addr()))
        {
            self.mark(lane, of.class);
        }
    }

    fn path_up(&mut self, path: u16, addresses: Option<LaneAddresses>) {
        let allowed = self.permits.allowed(addresses.map(|addresses| addresses.peer));
        let wanted = if self.asked == AskedClass::Auto { ServiceClass::Priority } else { self.asked.first() };
        let class = allowed.class(self.asked.first());
        if allowed.class(wanted) != wanted {
            let why = format!("{} is not allowed here: {}", wanted.name(), allowed.why());
            self.untold.push(convert::chose(Subject::Class, class.name(), convert::bounded(&why)));
            let text = format!("{why}; the copy goes on as {}", class.name());
            self.untold.push(Notice::Warning { text: convert::bounded(text) });
        } else if class == ServiceClass::Background || (class == ServiceClass::Priority && self.hooks.is_none()) {
            self.untold.push(convert::chose(Subject::Class, described(class), "asked for"));
        }
        let of_path = OfPath {
            aware: Aware::new(self.floor_bytes_per_s),
            drops: Dropped::default(),
            polices: Policed::default(),
            allowed,
            // Who has to ask does not have it yet.
            class: if self.hooks.is_some() { class.min(ServiceClass::Normal) } else { class },
            addresses,
            hook: Hook::None,
            granted: Granted::default(),
            counted_us: 0,
            is_over: false,
            gone_marked_bytes: 0,
            lane_bounds: BTreeMap::new(),
        };
        self.paths.insert(path, of_path);
    }

    pub(super) fn lane_down(&mut self, lane: &Lane) {
        if let Some(of) = self.paths.get_mut(&path_of(lane.number)) {
            of.gone_marked_bytes = of.gone_marked_bytes.saturating_add(lane.marked_bytes());
        }
    }

    /// Decides for one path, and marks its lanes. Returns its class when that is another one now.
    pub(super) fn on_sample<'a>(
        &mut self,
        now: &PathNow<'_>,
        lanes: impl Iterator<Item = &'a mut Lane>,
    ) -> Option<ServiceClass> {
        let asked = self.asked;
        let wanted = self.wanted;
        let of = self.paths.get_mut(&now.path)?;
        let allowed = of.allowed.clone();
        let before = of.class;
        if of.class == ServiceClass::Priority {
            self.time.count(of.counted_us, now.at_us);
        }
        of.counted_us = now.at_us;
        let used_us = self.time.used_us();
        let is_over = allowed.priority_us().is_some_and(|most| used_us >= most);
        let may_raise = allowed.priority() && !is_over && of.hook != Hook::Refused;
        let carry = &now.lanes[..now.carrying.min(now.lanes.len())];
        let (mut marked, mut change) = (0, None);
        if asked == AskedClass::Auto {
            // Until the operator's program has answered, and lanes leave where it says, nothing is marked, and so nothing to be seen of it.
            if of.hook != Hook::Asked && !of.granted.is_moving() {
                let (at_us, estimate, ends) = (now.at_us, now.estimate, now.ends);
                let seen = Seen { at_us, estimate, lanes: carry, may_raise, ends };
                change = of.aware.on_sample(&seen);
            }
            of.class = of.aware.class();
            marked = of.aware.marked_lanes(carry.len());
        } else {
            let class = allowed.class(wanted.unwrap_or(asked.first()));
            let may_raise = may_raise && !of.harms();
            of.class = if may_raise { class } else { class.min(ServiceClass::Normal) };
            if of.class != ServiceClass::Normal && !of.harms() {
                marked = now.lanes.len();
            }
        }
        if let Some(hooks) = &self.hooks {
            of.ask(hooks, now, used_us);
            if of.class == ServiceClass::Priority && !matches!(of.hook, Hook::Granted(_)) {
                (of.class, marked) = (ServiceClass::Normal, 0);
            }
            if of.hook == Hook::None && !of.granted.outlet().is_anywhere() {
                of.granted = Granted::default();
                self.moves.push(Move { path: now.path, outlet: Outlet::default(), lanes: Vec::new() });
            }
        }
        let has_ended = is_over && !std::mem::replace(&mut of.is_over, is_over);
        let granted = if let Hook::Granted(rate) = of.hook { rate } else { None };
        let most = [allowed.priority_bytes_per_s(now.estimate.capacity_bytes_per_s), granted];
        of.lane_bounds = of.bounds(now, marked, most.into_iter().flatten().min());
        let resting = of.marked_resting(now, marked);
        if marked > 0 && asked != AskedClass::Auto && of.drops.on_sample(now.at_us, now.estimate.rtt_us, now.lanes) {
            let text = format!(
                "packets marked {} do not arrive on path {}: the copy goes on without the mark",
                of.class.name(),
                now.path
            );
            self.untold.push(Notice::Warning { text: convert::bounded(text) });
            marked = 0;
            of.class = of.class.min(ServiceClass::Normal);
        }
        if marked > 0 && asked != AskedClass::Auto && of.class == ServiceClass::Priority && !of.granted.is_moving() {
            if of.polices.on_sample(now.at_us, now.lanes)
                && let Some(policing) = of.polices.found()
            {
                self.untold.push(policed(now.path, policing));
            }
            if of.polices.is_trial() {
                marked = 0;
            } else if of.polices.harms() {
                marked = 0;
                of.class = ServiceClass::Normal;
            }
        } else {
            of.polices.rests();
        }
        let class = of.class;
        let outlet = if class == ServiceClass::Priority { of.granted.outlet() } else { Outlet::default() };
        let mut outside = Vec::new();
        for (at, lane) in lanes.enumerate() {
            let is_marked = at < marked || (marked > 0 && resting.contains(&lane.number));
            let is_outside = is_marked && !outlet.has(lane.probe.local_addr());
            outside.extend((is_outside && at < marked).then_some(lane.number));
            let class = if is_marked && !is_outside { class } else { ServiceClass::Normal };
            self.mark(lane, class);
            let is_scout = asked == AskedClass::Auto && marked > 0 && at == marked;
            if is_scout && now.estimate.rtt_min_us < SCOUT_RTT_US_MOST {
                lane.watches();
            }
        }
        self.on_outside(now.path, &outside, marked);
        if has_ended {
            let why = format!(
                "priority was allowed for {} s a day, and they are over",
                allowed.priority_us().unwrap_or(0) / 1_000_000
            );
            let text = format!("{why}; the copy goes on as {}", class.name());
            self.untold.push(Notice::Warning { text: convert::bounded(text) });
            self.untold.push(convert::chose(Subject::Class, described(class), why));
        }
        if let Some(Change { class, reason }) = change {
            let lanes = format!("{} lanes of path {}", marked, now.path);
            let choice = match class {
                ServiceClass::Normal => format!("{}, path {}", described(class), now.path),
                _ => format!("{}, {lanes}", described(class)),
            };
            self.untold.push(convert::chose(Subject::Class, choice, reason.to_string()));
        }
        (class != before).then_some(class)
    }

    /// These of the marked lanes do not leave where the operator's program grants priority.
    fn on_outside(&mut self, path: u16, outside: &[u16], marked: usize) {
        let Some(of) = self.paths.get_mut(&path) else { return };
        if let Some(lanes) = of.granted.on_outside(outside) {
            self.moves.push(Move { path, outlet: of.granted.outlet(), lanes });
        }
        self.untold.extend(of.granted.word(outside.len(), marked));
    }

    /// An order of [`Classes::moves`] was carried out, as far as that was possible.
    pub(super) fn lanes_moved(&mut self, path: u16, outcome: Result<(), String>) {
        let Some(of) = self.paths.get_mut(&path) else { return };
        if of.granted.on_moved(outcome) {
            of.aware.granted(of.counted_us);
        }
    }

    /// What is to be ordered of whoever dials.
    pub(super) fn moves(&mut self) -> Vec<Move> {
        std::mem::take(&mut self.moves)
    }

    fn mark(&mut self, lane: &mut Lane, class: ServiceClass) {
        let dscp = match class {
            ServiceClass::Normal => None,
            ServiceClass::Background | ServiceClass::Priority => Dscp::new(class.code_point()),
        };
        if let Err(error) = lane.mark(dscp)
            && !std::mem::replace(&mut self.was_refused, true)
        {
            let text = format!("the class of a data connection could not be set: {error}; it goes on without");
            self.untold.push(Notice::Warning { text: convert::bounded(text) });
        }
    }

    /// Bounds of single lanes of a path, because of its class.
    pub(super) fn lane_bounds(&self, path: u16) -> impl Iterator<Item = (u16, u64)> {
        self.paths.get(&path).into_iter().flat_map(|of| of.lane_bounds.iter().map(|(lane, bound)| (*lane, *bound)))
    }

    /// What the operator's programs have answered.
    fn hear(&mut self) {
        let Some(hooks) = self.hooks.clone() else { return };
        while let Some(Answered { path, event, answer }) = hooks.answered() {
            let outlet = answer.outlet();
            let is_granted = answer.granted && (event == Event::Release || outlet.is_ok());
            let why = answer.reason.or(outlet.clone().err()).unwrap_or_default();
            let Some(of) = self.paths.get_mut(&path) else { continue };
            match event {
                Event::Raise if is_granted => {
                    of.hook = Hook::Granted(answer.rate_bytes_per_s);
                    of.granted = Granted::to(outlet.unwrap_or_default());
                    of.aware.granted(of.counted_us);
                    let rate = answer.rate_bytes_per_s.map(|rate| format!(", {:.1} Mbit/s", rate as f64 * 8e-6));
                    let choice = format!("{}{}", described(ServiceClass::Priority), rate.unwrap_or_default());
                    self.untold.push(convert::chose(Subject::Class, choice, "the operator's program grants it"));
                }
                Event::Raise => {
                    of.hook = Hook::Refused;
                    of.aware.refused();
                    let text =
                        format!("the operator's program does not grant priority: {why}; the copy goes on as normal");
                    self.untold.push(Notice::Warning { text: convert::bounded(text) });
                }
                Event::Release if is_granted => {}
                Event::Release => {
                    let text =
                        format!("the operator's program did not take priority back: {why}; it is tried again later");
                    self.untold.push(Notice::Warning { text: convert::bounded(text) });
                }
            }
        }
    }

    /// The job is over, and its session waits for another: what was raised is given back.
    pub(super) fn let_go(&mut self) {
        let Some(hooks) = &self.hooks else { return };
        let used_us = self.time.used_us();
        for (path, of) in &mut self.paths {
            if matches!(of.hook, Hook::Granted(_) | Hook::Asked) {
                of.hook = Hook::None;
                hooks.order(of.request(Event::Release, *path, None, used_us));
            }
        }
    }

    /// What is new since the last call.
    pub(super) fn told(&mut self) -> Vec<Notice> {
        self.hear();
        std::mem::take(&mut self.untold)
    }

    /// What the lanes of a path asked for, for the report.
    pub(super) fn summary<'a>(&self, path: u16, lanes: impl Iterator<Item = &'a Lane>) -> PathService {
        let Some(of) = self.paths.get(&path) else { return PathService::default() };
        PathService {
            mark: of.class.code_point(),
            marked_bytes: lanes.map(Lane::marked_bytes).fold(of.gone_marked_bytes, u64::saturating_add),
            raises: of.aware.raises(),
            effect: of.effect(),
            arrives: None,
        }
    }
}

impl OfPath {
    /// The mark goes: without it more gets through.
    fn harms(&self) -> bool {
        self.drops.is_certain() || self.polices.harms()
    }

    fn effect(&self) -> MarkEffect {
        match self.polices.found() {
            _ if self.drops.is_certain() => MarkEffect::Dropped,
            Some(Policing { bytes_per_s, .. }) => MarkEffect::Policed { bytes_per_s },
            None => self.aware.effect(),
        }
    }

    /// Asks the operator's program once for each change.
    fn ask(&mut self, hooks: &Hooks, now: &PathNow<'_>, used_us: u64) {
        let event = match (self.class, self.hook) {
            (ServiceClass::Priority, Hook::None) => Event::Raise,
            (ServiceClass::Background | ServiceClass::Normal, Hook::Granted(_)) => Event::Release,
            _ => return,
        };
        self.hook = if event == Event::Raise { Hook::Asked } else { Hook::None };
        let rate =
            [self.aware.marked_bytes_per_s(), self.allowed.priority_bytes_per_s(now.estimate.capacity_bytes_per_s)];
        hooks.order(self.request(event, now.path, rate.into_iter().flatten().min(), used_us));
    }

    fn request(&self, event: Event, path: u16, rate_bytes_per_s: Option<u64>, used_us: u64) -> Request {
        let address = |of: fn(&LaneAddresses) -> std::net::IpAddr| {
            self.addresses.as_ref().map_or_else(String::new, |addresses| of(addresses).to_canonical().to_string())
        };
        let left_us = self.allowed.priority_us().map(|most| most.saturating_sub(used_us));
        Request {
            event,
            class: ServiceClass::Priority.name().to_owned(),
            path,
            local: address(|addresses| addresses.local),
            remote: address(|addresses| addresses.peer),
            rate_bytes_per_s,
            until_unix_s: left_us.and_then(|us| u64::try_from(convert::now().s).ok()?.checked_add(us / 1_000_000)),
        }
    }

    /// Lanes that rest, and have the mark for what they still have.
    fn marked_resting(&self, now: &PathNow<'_>, marked: usize) -> Vec<u16> {
        let resting = now.lanes.iter().skip(now.carrying).filter(|lane| marked > 0 && self.aware.marks_resting(lane));
        resting.map(|lane| lane.lane).collect()
    }

    /// Of the marked lanes, what is allowed and what the floor needs; of the scout, little; of all while we look whose queue it is.
    fn bounds(&self, now: &PathNow<'_>, marked: usize, allowed_bytes_per_s: Option<u64>) -> BTreeMap<u16, u64> {
        let carry = &now.lanes[..now.carrying.min(now.lanes.len())];
        let mut bounds = BTreeMap::new();
        if let Some(each) = self.aware.lane_bytes_per_s() {
            bounds.extend(carry.iter().map(|lane| (lane.lane, each)));
        }
        if let Some(each) = self.aware.resting_lane_bytes_per_s() {
            bounds.extend(now.lanes.iter().skip(carry.len()).map(|lane| (lane.lane, each)));
        }
        let allowed = allowed_bytes_per_s.filter(|_| self.class == ServiceClass::Priority);
        if let Some(all) = [self.aware.marked_bytes_per_s(), allowed].into_iter().flatten().min() {
            let lanes = now.lanes.iter().take(marked).map(|lane| lane.lane);
            let resting = self.marked_resting(now, marked);
            let each = (all / (carry.len().clamp(1, marked.max(1)) + resting.len()) as u64).max(1);
            bounds.extend(lanes.chain(resting).map(|lane| (lane, each)));
        }
        let scout = self.aware.scout_bytes_per_s(now.estimate.rate_bytes_per_s);
        if let (Some(scout), Some(last)) = (scout, carry.last().filter(|_| marked < carry.len())) {
            bounds.insert(last.lane, scout);
        }
        bounds
    }
}

/// What a path does to the mark, and what follows.
fn policed(path: u16, policing: Policing) -> Notice {
    let Policing { bytes_per_s, harms } = policing;
    let follows =
        if harms { "the copy goes on without the mark" } else { "without the mark there is no more, so it stays" };
    let rate = bytes_per_s as f64 * 8e-6;
    let text =
        format!("path {path} lets {rate:.1} Mbit/s of packets marked priority through, and drops the rest: {follows}");
    Notice::Warning { text: convert::bounded(text) }
}

/// On longer paths a timeout of a second would be too early.
const SCOUT_RTT_US_MOST: u32 = 300_000;

/// A class, with its mark.
pub(super) fn described(class: ServiceClass) -> String {
    match class {
        ServiceClass::Normal => class.name().to_owned(),
        ServiceClass::Background => format!("{} (marked LE)", class.name()),
        ServiceClass::Priority => format!("{} (marked EF)", class.name()),
    }
}
