//! Applies the service class of each path, as the policies of the engine decide it.
//!
//! ```text
//!   a reading of a path -> `PathPolicies` -> class, marked lanes, bounds -> marks, read back; a kernel that refuses is a warning
//!                                         -> what is said                -> notices; orders for the operator's program
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use haul_engine::path::{Estimate, LaneReading, Marked};
use haul_engine::service::aware::Change;
use haul_engine::service::path_policies::{Decided, PathPolicies};
use haul_engine::service::reading::Reading;
use haul_engine::service::said::{Asks, Policing, Said};
use haul_engine::service::{AskedClass, ServiceClass};
use haul_job::Subject;
use haul_net::policy::Dscp;
use haul_wire::control::{Carriage, Notice};
use haul_wire::lane::path_of;
use haul_wire::summary::PathService;

use crate::hooks::Hooks;
use haul_channel::convert;
use haul_channel::lane_addresses::LaneAddresses;
use haul_kept::class_policy::Permits;
use haul_kept::hook_words::{Answered, Event, Outlet, Request};
use haul_kept::priority_time::PriorityClock;

use super::lane::Lane;
use super::outlets::{Granted, Move};

/// The classes of a session's paths.
pub struct Classes {
    asked: AskedClass,
    floor_bytes_per_s: Option<u64>,
    permits: Permits,
    /// Time with priority, of all paths and sessions.
    time: PriorityClock,
    hooks: Option<Hooks>,
    paths: BTreeMap<u16, OfPath>,
    untold: Vec<Notice>,
    moves: Vec<Move>,
    was_refused: bool,
    wanted: Option<ServiceClass>,
}

struct OfPath {
    policies: PathPolicies,
    addresses: Option<LaneAddresses>,
    granted: Granted,
    counted_us: u64,
    gone_marked_bytes: u64,
    lane_bounds: BTreeMap<u16, u64>,
}

/// The mark of a connection to `peer` before anything is known of the path.
pub(crate) fn first_mark(carriage: &Carriage, permits: &Permits, has_hooks: bool, peer: IpAddr) -> Option<Dscp> {
    let asked = convert::asked_class(carriage.service.class);
    let class = PathPolicies::new(asked, None, permits.allowed(Some(peer)), has_hooks).class();
    Dscp::new(class.code_point()).filter(|_| class != ServiceClass::Normal && !peer.is_loopback())
}

/// A path at one moment.
pub struct PathNow<'a> {
    /// The number of the path.
    pub path: u16,
    pub(crate) at_us: u64,
    /// The path's estimate.
    pub estimate: &'a Estimate,
    /// All lanes; the first `carrying` have data.
    pub lanes: &'a [LaneReading],
    /// Lanes with data.
    pub carrying: usize,
    /// No unit waits.
    pub ends: bool,
}

impl Classes {
    /// Begins a session.
    pub fn new(carriage: &Carriage, permits: Permits, hooks: Option<Hooks>) -> Self {
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

    /// Replaces the asked class, for a deadline.
    pub(crate) fn schedule_wants(&mut self, class: Option<ServiceClass>) {
        self.wanted = class;
    }

    pub(crate) fn highest(&self) -> ServiceClass {
        self.paths.values().map(|of| of.policies.class()).max().unwrap_or_default()
    }

    pub(crate) fn allowed_most(&self) -> ServiceClass {
        if self.paths.values().any(|of| of.policies.may_raise()) {
            ServiceClass::Priority
        } else {
            ServiceClass::Normal
        }
    }

    /// A path's class.
    pub fn class_of(&self, path: u16) -> ServiceClass {
        self.paths.get(&path).map_or(ServiceClass::Normal, |of| of.policies.class())
    }

    pub(crate) fn marked(&self, path: u16) -> Marked {
        self.paths.get(&path).map_or(Marked::None, |of| of.policies.marked())
    }

    /// The mark with which a path's next connection begins; `None`: nothing is known of the path.
    pub(crate) fn mark_of_next(&self, path: u16) -> Option<Option<Dscp>> {
        let policies = &self.paths.get(&path).filter(|of| of.granted.outlet().is_anywhere())?.policies;
        let is_marked = match (self.asked, policies.class()) {
            (_, ServiceClass::Normal) => false,
            (AskedClass::Auto, ServiceClass::Priority) => policies.marked() != Marked::None,
            _ => !policies.harms(),
        };
        Some(Dscp::new(policies.class().code_point()).filter(|_| is_marked))
    }

    pub(crate) fn begins_as_background(&self) -> bool {
        self.wanted.unwrap_or(self.asked.first()) == ServiceClass::Background
    }

    /// Marks a new lane.
    pub fn lane_up(&mut self, lane: &mut Lane, addresses: Option<LaneAddresses>) {
        let path = path_of(lane.number);
        self.path_begins(path, addresses);
        if self.asked != AskedClass::Auto
            && let Some(of) = self.paths.get(&path)
            && !of.policies.harms()
            && (of.policies.class() != ServiceClass::Priority || of.granted.has(lane.probe.local_addr()))
        {
            self.mark(lane, of.policies.class());
        }
    }

    /// Decides on a path's class, once.
    pub(crate) fn path_begins(&mut self, path: u16, addresses: Option<LaneAddresses>) {
        if !self.paths.contains_key(&path) {
            self.path_up(path, addresses);
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
            policies: PathPolicies::new(self.asked, self.floor_bytes_per_s, allowed, self.hooks.is_some()),
            addresses,
            granted: Granted::default(),
            counted_us: 0,
            gone_marked_bytes: 0,
            lane_bounds: BTreeMap::new(),
        };
        self.paths.insert(path, of_path);
    }

    /// Keeps a lost lane's counts.
    pub fn lane_down(&mut self, lane: &Lane) {
        if let Some(of) = self.paths.get_mut(&path_of(lane.number)) {
            of.gone_marked_bytes = of.gone_marked_bytes.saturating_add(lane.marked_bytes());
        }
    }

    /// Marks a path's lanes. Returns a new class.
    pub(crate) fn on_sample<'a>(
        &mut self,
        now: &PathNow<'_>,
        lanes: impl Iterator<Item = &'a mut Lane>,
    ) -> Option<ServiceClass> {
        let of = self.paths.get_mut(&now.path)?;
        let before = of.policies.class();
        if before == ServiceClass::Priority {
            self.time.count(of.counted_us, now.at_us);
        }
        of.counted_us = now.at_us;
        let reading = Reading {
            carrying: now.carrying,
            ends: now.ends,
            used_us: self.time.used_us(),
            wanted: self.wanted,
            is_moving: of.granted.is_moving(),
            ..Reading::of(now.at_us, now.estimate, now.lanes)
        };
        let Decided { class, marked, marked_resting, lane_bounds, said } = of.policies.on_sample(&reading);
        of.lane_bounds = lane_bounds;
        for said in &said {
            self.on_said(now, *said);
        }
        let of = self.paths.get(&now.path)?;
        let outlet = if class == ServiceClass::Priority { of.granted.outlet() } else { Outlet::default() };
        let mut outside = Vec::new();
        for (at, lane) in lanes.enumerate() {
            let is_marked = at < marked || (marked > 0 && marked_resting.contains(&lane.number));
            let is_outside = is_marked && !outlet.has(lane.probe.local_addr());
            outside.extend((is_outside && at < marked).then_some(lane.number));
            let class = if is_marked && !is_outside { class } else { ServiceClass::Normal };
            self.mark(lane, class);
            let is_scout = self.asked == AskedClass::Auto && marked > 0 && at == marked;
            if is_scout && now.estimate.rtt_min_us < SCOUT_RTT_US_MOST {
                lane.watches();
            }
        }
        self.on_outside(now.path, &outside, marked);
        for said in said {
            self.tell_class(now.path, class, marked, said);
        }
        (class != before).then_some(class)
    }

    fn on_said(&mut self, now: &PathNow<'_>, said: Said) {
        let PathNow { path, .. } = *now;
        match said {
            Said::Hook(asks) => {
                let used_us = self.time.used_us();
                let (Some(hooks), Some(of)) = (&self.hooks, self.paths.get_mut(&path)) else { return };
                let event = match asks {
                    Asks::ToRaise => Event::Raise,
                    Asks::ToRelease => Event::Release,
                };
                let rate = of.policies.rate_to_ask_for(now.estimate.capacity_bytes_per_s);
                hooks.order(of.request(event, path, rate, used_us));
                if asks == Asks::ToRelease && !of.granted.outlet().is_anywhere() {
                    of.granted = Granted::default();
                    self.moves.push(Move { path, outlet: Outlet::default(), lanes: Vec::new() });
                }
            }
            Said::Dropped(class) => {
                let text = format!(
                    "packets marked {} do not arrive on path {path}: the copy goes on without the mark",
                    class.name()
                );
                self.untold.push(Notice::Warning { text: convert::bounded(text) });
            }
            Said::Policed(policing) => self.untold.push(policed(path, policing)),
            Said::TimeIsOver { .. } | Said::Changed(_) => {}
        }
    }

    fn tell_class(&mut self, path: u16, class: ServiceClass, marked: usize, said: Said) {
        match said {
            Said::TimeIsOver { us } => {
                let why = format!("priority was allowed for {} s a day, and they are over", us / 1_000_000);
                let text = format!("{why}; the copy goes on as {}", class.name());
                self.untold.push(Notice::Warning { text: convert::bounded(text) });
                self.untold.push(convert::chose(Subject::Class, described(class), why));
            }
            Said::Changed(Change { class, reason }) => {
                let choice = match class {
                    ServiceClass::Normal => format!("{}, path {path}", described(class)),
                    _ => format!("{}, {marked} lanes of path {path}", described(class)),
                };
                self.untold.push(convert::chose(Subject::Class, choice, reason.to_string()));
            }
            Said::Hook(_) | Said::Dropped(_) | Said::Policed(_) => {}
        }
    }

    /// Moves marked lanes that leave elsewhere.
    fn on_outside(&mut self, path: u16, outside: &[u16], marked: usize) {
        let Some(of) = self.paths.get_mut(&path) else { return };
        if let Some(lanes) = of.granted.on_outside(outside) {
            self.moves.push(Move { path, outlet: of.granted.outlet(), lanes });
        }
        self.untold.extend(of.granted.word(outside.len(), marked));
    }

    /// Notes that one of [`Classes::moves`] was done.
    pub fn lanes_moved(&mut self, path: u16, outcome: Result<(), String>) {
        let Some(of) = self.paths.get_mut(&path) else { return };
        if of.granted.on_moved(outcome) {
            of.policies.lanes_stand(of.counted_us);
        }
    }

    /// Takes orders for the dialler.
    pub fn moves(&mut self) -> Vec<Move> {
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

    pub(crate) fn lane_bounds(&self, path: u16) -> impl Iterator<Item = (u16, u64)> {
        self.paths.get(&path).into_iter().flat_map(|of| of.lane_bounds.iter().map(|(lane, bound)| (*lane, *bound)))
    }

    fn hear(&mut self) {
        let Some(hooks) = self.hooks.clone() else { return };
        while let Some(Answered { path, event, answer }) = hooks.answered() {
            let outlet = answer.outlet();
            let is_granted = answer.granted && (event == Event::Release || outlet.is_ok());
            let why = answer.reason.or(outlet.clone().err()).unwrap_or_default();
            let Some(of) = self.paths.get_mut(&path) else { continue };
            match event {
                Event::Raise if is_granted => {
                    of.policies.granted(of.counted_us, answer.rate_bytes_per_s);
                    of.granted = Granted::to(outlet.unwrap_or_default());
                    let rate = answer.rate_bytes_per_s.map(|rate| format!(", {:.1} Mbit/s", rate as f64 * 8e-6));
                    let choice = format!("{}{}", described(ServiceClass::Priority), rate.unwrap_or_default());
                    self.untold.push(convert::chose(Subject::Class, choice, "the operator's program grants it"));
                }
                Event::Raise => {
                    of.policies.refused();
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

    /// Gives back what was raised.
    pub fn release(&mut self) {
        let Some(hooks) = &self.hooks else { return };
        let used_us = self.time.used_us();
        for (path, of) in &mut self.paths {
            if of.policies.gives_back() {
                hooks.order(of.request(Event::Release, *path, None, used_us));
            }
        }
    }

    /// Takes new notices.
    pub fn told(&mut self) -> Vec<Notice> {
        self.hear();
        std::mem::take(&mut self.untold)
    }

    /// A path's marks, for the report.
    pub fn summary<'a>(&self, path: u16, lanes: impl Iterator<Item = &'a Lane>) -> PathService {
        let Some(of) = self.paths.get(&path) else { return PathService::default() };
        PathService {
            mark: of.policies.class().code_point(),
            marked_bytes: lanes.map(Lane::marked_bytes).fold(of.gone_marked_bytes, u64::saturating_add),
            raises: of.policies.raises(),
            effect: of.policies.effect(),
            arrives: None,
        }
    }
}

impl OfPath {
    fn request(&self, event: Event, path: u16, rate_bytes_per_s: Option<u64>, used_us: u64) -> Request {
        let address = |of: fn(&LaneAddresses) -> std::net::IpAddr| {
            self.addresses.as_ref().map_or_else(String::new, |addresses| of(addresses).to_canonical().to_string())
        };
        let left_us = self.policies.left_us(used_us);
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
}

fn policed(path: u16, policing: Policing) -> Notice {
    let Policing { bytes_per_s, harms } = policing;
    let follows =
        if harms { "the copy goes on without the mark" } else { "without the mark there is no more, so it stays" };
    let rate = bytes_per_s as f64 * 8e-6;
    let text =
        format!("path {path} lets {rate:.1} Mbit/s of packets marked priority through, and drops the rest: {follows}");
    Notice::Warning { text: convert::bounded(text) }
}

/// Longer paths need longer timeouts than a second.
const SCOUT_RTT_US_MOST: u32 = 300_000;

pub(crate) fn described(class: ServiceClass) -> String {
    match class {
        ServiceClass::Normal => class.name().to_owned(),
        ServiceClass::Background => format!("{} (marked LE)", class.name()),
        ServiceClass::Priority => format!("{} (marked EF)", class.name()),
    }
}
