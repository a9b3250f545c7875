//! The policies of a path in their order: each narrows what the ones before it allow.
//!
//! ```text
//!   what was asked for -> operator -> dropped -> policed -> hook      a class that was asked for
//!                         operator -> aware   -> hook                 `auto`: only while others take the path away
//! ```
//! A new policy implements [`Policy`], and has a line in `PathPolicies::chain`.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use haul_wire::service::MarkEffect;

use super::allowed::Allowed;
use super::asked::Asked;
use super::aware::Aware;
use super::dropped::Dropped;
use super::hook::Hook;
use super::operator::Operator;
use super::policed::Policed;
use super::policy::Policy;
use super::reading::{Allowance, Reading};
use super::said::{Policing, Said};
use super::{AskedClass, ServiceClass};
use crate::path::Marked;

/// All policies of a path, in their order.
#[derive(Clone, Debug)]
pub struct PathPolicies {
    asked: Asked,
    operator: Operator,
    aware: Aware,
    dropped: Dropped,
    policed: Policed,
    hook: Option<Hook>,
    class: ServiceClass,
    marked: Marked,
}

/// The decision until the next sample.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Decided {
    /// The path's class.
    pub class: ServiceClass,
    /// The number of first lanes with the mark.
    pub marked: usize,
    /// Resting lanes with the mark.
    pub marked_resting: Vec<u16>,
    /// Bounds of single lanes, in bytes per second.
    pub lane_bounds: BTreeMap<u16, u64>,
    /// The changes, with reasons.
    pub said: Vec<Said>,
}

impl PathPolicies {
    /// Begins a path. `has_hook`: priority must be asked for first.
    #[must_use]
    pub fn new(asked: AskedClass, floor_bytes_per_s: Option<u64>, allowed: Allowed, has_hook: bool) -> Self {
        let class = allowed.class(asked.first());
        let class = if has_hook { class.min(ServiceClass::Normal) } else { class };
        Self {
            asked: Asked::new(asked),
            operator: Operator::new(allowed),
            aware: Aware::new(floor_bytes_per_s),
            dropped: Dropped::default(),
            policed: Policed::default(),
            hook: has_hook.then(Hook::default),
            class,
            marked: Marked::None,
        }
    }

    fn chain(&mut self) -> Vec<&mut dyn Policy> {
        let Self { asked, operator, aware, dropped, policed, hook, class: _, marked: _ } = self;
        let mut chain: Vec<&mut dyn Policy> = match asked.is_auto() {
            true => alloc::vec![operator, aware],
            false => alloc::vec![asked, operator, dropped, policed],
        };
        chain.extend(hook.as_mut().map(|hook| hook as &mut dyn Policy));
        chain
    }

    /// Takes a reading of the path.
    pub fn on_sample(&mut self, reading: &Reading<'_>) -> Decided {
        let reading = Reading { grant: self.hook.as_ref().map(Hook::grant).unwrap_or_default(), ..*reading };
        let mut said = Vec::new();
        let mut allowance = Allowance { may_raise: !reading.grant.is_refused(), ..Allowance::default() };
        for policy in self.chain() {
            allowance = policy.on_sample(&reading, allowance, &mut said);
        }
        self.class = allowance.class;
        self.marked = match allowance.marked {
            1.. if allowance.class == ServiceClass::Priority => {
                if self.asked.is_auto() {
                    Marked::ByNeed
                } else {
                    Marked::All
                }
            }
            _ => Marked::None,
        };
        Decided {
            class: allowance.class,
            marked: allowance.marked,
            marked_resting: self.marked_resting(&reading, allowance.bounded),
            lane_bounds: self.bounds(&reading, &allowance),
            said,
        }
    }

    /// The class of the path now.
    #[must_use]
    pub fn class(&self) -> ServiceClass {
        self.class
    }

    /// Which lanes ask for priority now.
    #[must_use]
    pub fn marked(&self) -> Marked {
        self.marked
    }

    /// Whether priority is possible, as far as known.
    #[must_use]
    pub fn may_raise(&self) -> bool {
        let is_refused = self.hook.as_ref().is_some_and(|hook| hook.grant().is_refused());
        self.operator.may_raise() && !is_refused && !self.harms()
    }

    /// Whether more gets through without the mark.
    #[must_use]
    pub fn harms(&self) -> bool {
        self.dropped.is_certain() || self.policed.harms()
    }

    /// The effect of the mark.
    #[must_use]
    pub fn effect(&self) -> MarkEffect {
        match self.policed.found() {
            _ if self.dropped.is_certain() => MarkEffect::Dropped,
            Some(Policing { bytes_per_s, .. }) => MarkEffect::Policed { bytes_per_s },
            None => self.aware.effect(),
        }
    }

    /// How often others made priority rise.
    #[must_use]
    pub fn raises(&self) -> u32 {
        self.aware.raises()
    }

    /// The rest of the day's time with priority.
    #[must_use]
    pub fn left_us(&self, used_us: u64) -> Option<u64> {
        self.operator.left_us(used_us)
    }

    /// The rate with priority to ask for.
    #[must_use]
    pub fn rate_to_ask_for(&self, capacity_bytes_per_s: u64) -> Option<u64> {
        let rates = [self.aware.marked_bytes_per_s(), self.operator.priority_bytes_per_s(capacity_bytes_per_s)];
        rates.into_iter().flatten().min()
    }

    /// Enters a grant of the operator's program, at most at this rate.
    pub fn granted(&mut self, at_us: u64, rate_bytes_per_s: Option<u64>) {
        if let Some(hook) = &mut self.hook {
            hook.granted(rate_bytes_per_s);
        }
        self.lanes_stand(at_us);
    }

    /// Enters that the operator's program refuses priority.
    pub fn refused(&mut self) {
        if let Some(hook) = &mut self.hook {
            hook.refused();
        }
        self.aware.refused();
    }

    /// Enters that lanes leave where priority is granted.
    pub fn lanes_stand(&mut self, at_us: u64) {
        self.aware.granted(at_us);
    }

    /// Ends the job. True: give priority back.
    pub fn gives_back(&mut self) -> bool {
        self.hook.as_mut().is_some_and(Hook::gives_back)
    }

    fn marked_resting(&self, reading: &Reading<'_>, marked: usize) -> Vec<u16> {
        let resting = reading.lanes.iter().skip(reading.carrying);
        let marked = resting.filter(|lane| marked > 0 && self.aware.marks_resting(lane));
        marked.map(|lane| lane.lane).collect()
    }

    /// Bounds marked lanes by permission and floor, the scout by little, and all during a look.
    fn bounds(&self, reading: &Reading<'_>, allowance: &Allowance) -> BTreeMap<u16, u64> {
        let (carry, marked) = (reading.carry(), allowance.bounded);
        let mut bounds = BTreeMap::new();
        if let Some(each) = self.aware.lane_bytes_per_s() {
            bounds.extend(carry.iter().map(|lane| (lane.lane, each)));
        }
        if let Some(each) = self.aware.resting_lane_bytes_per_s() {
            bounds.extend(reading.lanes.iter().skip(carry.len()).map(|lane| (lane.lane, each)));
        }
        let allowed = allowance.priority_bytes_per_s.filter(|_| allowance.class == ServiceClass::Priority);
        if let Some(all) = [self.aware.marked_bytes_per_s(), allowed].into_iter().flatten().min() {
            let lanes = reading.lanes.iter().take(marked).map(|lane| lane.lane);
            let resting = self.marked_resting(reading, marked);
            let each = (all / (carry.len().clamp(1, marked.max(1)) + resting.len()) as u64).max(1);
            bounds.extend(lanes.chain(resting).map(|lane| (lane, each)));
        }
        let scout = self.aware.scout_bytes_per_s(reading.estimate.rate_bytes_per_s);
        if let (Some(scout), Some(last)) = (scout, carry.last().filter(|_| marked < carry.len())) {
            bounds.insert(last.lane, scout);
        }
        bounds
    }
}

#[cfg(test)]
mod tests {
    use alloc::string::String;

    use super::super::allowed::Bounds;
    use super::super::said::Asks;
    use super::*;
    use crate::path::{Estimate, LaneReading};

    fn lanes() -> [LaneReading; 3] {
        [0, 1, 2].map(|lane| LaneReading { lane, ..LaneReading::default() })
    }

    fn at(at_us: u64, estimate: &Estimate, used_us: u64) -> Decided {
        let mut policies = priority(Bounds { priority_us: Some(5_000_000), ..Bounds::default() }, false);
        decide(&mut policies, at_us, estimate, used_us)
    }

    fn decide(policies: &mut PathPolicies, at_us: u64, estimate: &Estimate, used_us: u64) -> Decided {
        let lanes = lanes();
        policies.on_sample(&Reading { used_us, carrying: 2, ..Reading::of(at_us, estimate, &lanes) })
    }

    fn priority(bounds: Bounds, has_hook: bool) -> PathPolicies {
        PathPolicies::new(AskedClass::Priority, None, Allowed::new(bounds, String::new()), has_hook)
    }

    #[test]
    fn the_class_that_was_asked_for_marks_all_lanes_as_long_as_the_operator_allows_it() {
        let estimate = Estimate::default();
        let now = at(0, &estimate, 0);
        assert_eq!((now.class, now.marked, now.said.len()), (ServiceClass::Priority, 3, 0));
        let over = at(0, &estimate, 5_000_000);
        assert_eq!((over.class, over.marked), (ServiceClass::Normal, 0));
        assert_eq!(over.said, [Said::TimeIsOver { us: 5_000_000 }]);
    }

    #[test]
    fn a_bound_of_the_operator_is_divided_among_the_lanes_that_carry() {
        let mut policies = priority(Bounds { priority_bytes_per_s: Some(2_000_000), ..Bounds::default() }, false);
        let now = decide(&mut policies, 0, &Estimate::default(), 0);
        assert_eq!(now.lane_bounds, BTreeMap::from([(0, 1_000_000), (1, 1_000_000), (2, 1_000_000)]));
    }

    #[test]
    fn no_lane_is_marked_before_the_program_of_the_operator_grants_it() {
        let (mut policies, estimate) = (priority(Bounds::default(), true), Estimate::default());
        let asks = decide(&mut policies, 0, &estimate, 0);
        assert_eq!((asks.class, asks.marked), (ServiceClass::Normal, 0));
        assert_eq!(asks.said, [Said::Hook(Asks::ToRaise)]);
        assert_eq!(decide(&mut policies, 100_000, &estimate, 0).said, [], "it is asked once");
        policies.granted(200_000, Some(300_000));
        let granted = decide(&mut policies, 300_000, &estimate, 0);
        assert_eq!((granted.class, granted.marked), (ServiceClass::Priority, 3));
        assert_eq!(granted.lane_bounds.get(&0), Some(&150_000));
        assert!(policies.gives_back() && !policies.gives_back());
        policies.refused();
        let refused = decide(&mut policies, 400_000, &estimate, 0);
        assert_eq!((refused.class, refused.marked, policies.may_raise()), (ServiceClass::Normal, 0, false));
    }
}
