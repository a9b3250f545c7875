//! The service class of each path: which lanes carry which mark, and why.
//!
//! ```text
//!   asked for     background, normal or priority from the start, or auto      (`Carriage::service`)
//!   allowed       what the operator lets this sender ask for                  (`Allowed`)
//!   engine        aware: others take the path away                            -> the class of a path, lane by lane
//!   lanes         the mark, read back; a kernel that refuses is a warning
//! ```

use std::collections::BTreeMap;
use std::net::IpAddr;

use haul_engine::path::{Estimate, LaneReading};
use haul_engine::service::allowed::Allowed;
use haul_engine::service::aware::{Aware, Change, Effect, Seen};
use haul_engine::service::{AskedClass, ServiceClass};
use haul_job::Subject;
use haul_net::policy::Dscp;
use haul_wire::control::{Carriage, Notice};
use haul_wire::lane::path_of;
use haul_wire::summary::{MarkEffect, PathService};

use crate::kept::class_policy::Permits;
use crate::session::convert;

use super::lane::Lane;

/// The classes of a session's paths.
pub(super) struct Classes {
    asked: AskedClass,
    floor_bytes_per_s: Option<u64>,
    permits: Permits,
    paths: BTreeMap<u16, OfPath>,
    /// What is to be told with the next turn.
    untold: Vec<Notice>,
    was_refused: bool,
    /// See [`Classes::schedule_wants`].
    wanted: Option<ServiceClass>,
}

/// The class of one path.
struct OfPath {
    aware: Aware,
    allowed: Allowed,
    class: ServiceClass,
    /// How long it has had priority, and since when it has it now.
    priority_us: u64,
    counted_us: u64,
    is_over: bool,
    /// What lanes sent marked that are gone.
    gone_marked_bytes: u64,
    /// Bounds of some lanes, by their numbers.
    lane_bounds: BTreeMap<u16, u64>,
}

/// A path at one moment.
pub(super) struct PathNow<'a> {
    pub(super) path: u16,
    pub(super) at_us: u64,
    pub(super) estimate: &'a Estimate,
    /// All of its lanes; the first `carrying` of them carry data.
    pub(super) lanes: &'a [LaneReading],
    pub(super) carrying: usize,
}

impl Classes {
    pub(super) fn new(carriage: &Carriage, permits: Permits) -> Self {
        Self {
            asked: convert::asked_class(carriage.service.class),
            floor_bytes_per_s: carriage.service.floor_bytes_per_s,
            permits,
            paths: BTreeMap::new(),
            untold: Vec::new(),
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
        let may = self.paths.values().any(|of| of.allowed.priority() && !of.is_over);
        if may { ServiceClass::Priority } else { ServiceClass::Normal }
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
    pub(super) fn lane_up(&mut self, lane: &mut Lane, peer: Option<IpAddr>) {
        let path = path_of(lane.number);
        if !self.paths.contains_key(&path) {
            self.path_up(path, peer);
        }
        if self.asked != AskedClass::Auto
            && let Some(of) = self.paths.get(&path)
        {
            self.mark(lane, of.class);
        }
    }

    fn path_up(&mut self, path: u16, peer: Option<IpAddr>) {
        let allowed = self.permits.allowed(peer);
        let wanted = if self.asked == AskedClass::Auto { ServiceClass::Priority } else { self.asked.first() };
        let class = allowed.class(self.asked.first());
        if allowed.class(wanted) != wanted {
            let why = format!("{} is not allowed here: {}", wanted.name(), allowed.why());
            self.untold.push(convert::chose(Subject::Class, class.name(), convert::bounded(&why)));
            let text = format!("{why}; the copy goes on as {}", class.name());
            self.untold.push(Notice::Warning { text: convert::bounded(text) });
        } else if class != ServiceClass::Normal {
            self.untold.push(convert::chose(Subject::Class, described(class), "asked for"));
        }
        let of_path = OfPath {
            aware: Aware::new(self.floor_bytes_per_s),
            allowed,
            class,
            priority_us: 0,
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
        of.count_time(now.at_us);
        let is_over = allowed.priority_us().is_some_and(|most| of.priority_us >= most);
        let (mut marked, mut change) = (0, None);
        if asked == AskedClass::Auto {
            let carry = &now.lanes[..now.carrying.min(now.lanes.len())];
            let may_raise = allowed.priority() && !is_over;
            let seen = Seen { at_us: now.at_us, estimate: now.estimate, lanes: carry, may_raise };
            change = of.aware.on_sample(&seen);
            of.class = of.aware.class();
            marked = of.aware.marked_lanes(carry.len());
        } else if let Some(wanted) = wanted {
            of.class = if is_over { allowed.class(wanted).min(ServiceClass::Normal) } else { allowed.class(wanted) };
            if of.class != ServiceClass::Normal {
                marked = now.lanes.len();
            }
        } else {
            if is_over && of.class == ServiceClass::Priority {
                of.class = ServiceClass::Normal;
            }
            if of.class != ServiceClass::Normal {
                marked = now.lanes.len();
            }
        }
        let has_ended = is_over && !std::mem::replace(&mut of.is_over, is_over);
        of.lane_bounds = of.bounds(now, marked, allowed.priority_bytes_per_s(now.estimate.capacity_bytes_per_s));
        let class = of.class;
        for (at, lane) in lanes.enumerate() {
            let class = if at < marked { class } else { ServiceClass::Normal };
            self.mark(lane, class);
        }
        if has_ended {
            let why = format!(
                "priority was allowed for {} s, and they are over",
                allowed.priority_us().unwrap_or(0) / 1_000_000
            );
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

    /// What is new since the last call.
    pub(super) fn told(&mut self) -> Vec<Notice> {
        std::mem::take(&mut self.untold)
    }

    /// What the lanes of a path asked for, for the report.
    pub(super) fn summary<'a>(&self, path: u16, lanes: impl Iterator<Item = &'a Lane>) -> PathService {
        let Some(of) = self.paths.get(&path) else { return PathService::default() };
        PathService {
            mark: of.class.code_point(),
            marked_bytes: lanes.map(Lane::marked_bytes).fold(of.gone_marked_bytes, u64::saturating_add),
            raises: of.aware.raises(),
            effect: match of.aware.effect() {
                Effect::Unknown => MarkEffect::Unknown,
                Effect::Helps => MarkEffect::Helps,
                Effect::None => MarkEffect::None,
                Effect::Dropped => MarkEffect::Dropped,
                Effect::Policed { bytes_per_s } => MarkEffect::Policed { bytes_per_s },
            },
            arrives: None,
        }
    }
}

impl OfPath {
    /// Of the marked lanes, what is allowed and what the floor needs; of the scout, little; of all while we look whose queue it is.
    fn bounds(&self, now: &PathNow<'_>, marked: usize, allowed_bytes_per_s: Option<u64>) -> BTreeMap<u16, u64> {
        let carry = &now.lanes[..now.carrying.min(now.lanes.len())];
        let mut bounds = BTreeMap::new();
        if let Some(each) = self.aware.lane_bytes_per_s() {
            bounds.extend(carry.iter().map(|lane| (lane.lane, each)));
        }
        let allowed = allowed_bytes_per_s.filter(|_| self.class == ServiceClass::Priority);
        if let Some(all) = [self.aware.marked_bytes_per_s(), allowed].into_iter().flatten().min() {
            let lanes = now.lanes.iter().take(marked);
            let each = (all / carry.len().clamp(1, marked.max(1)) as u64).max(1);
            bounds.extend(lanes.map(|lane| (lane.lane, each)));
        }
        let scout = self.aware.scout_bytes_per_s(now.estimate.rate_bytes_per_s);
        if let (Some(scout), Some(last)) = (scout, carry.last().filter(|_| marked < carry.len())) {
            bounds.insert(last.lane, scout);
        }
        bounds
    }

    fn count_time(&mut self, at_us: u64) {
        if self.class == ServiceClass::Priority {
            self.priority_us = self.priority_us.saturating_add(at_us.saturating_sub(self.counted_us));
        }
        self.counted_us = at_us;
    }
}

/// A class, with its mark.
pub(super) fn described(class: ServiceClass) -> String {
    match class {
        ServiceClass::Normal => class.name().to_owned(),
        ServiceClass::Background => format!("{} (marked LE)", class.name()),
        ServiceClass::Priority => format!("{} (marked EF)", class.name()),
    }
}
