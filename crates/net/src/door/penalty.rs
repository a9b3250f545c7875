//! Makes a source that tries key after key wait longer and longer.
//!
//! Each refusal is charged to the source address; the charge decreases with time. Owing too much, a source gets few guests,
//! a short deadline, and few refusals in a second. A lately admitted source is not charged: lanes may come late, and people
//! share addresses. sshd refuses altogether (`PerSourcePenalties`, sshd_config(5)).

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

/// Refusals in it count once: a job has several connections.
const MOMENT: Duration = Duration::from_secs(1);
/// Up to this debt a source is not barred: people look for the right key.
const FORGIVEN: Duration = Duration::from_secs(20);
/// The most that a source can owe: barred, it waits 120 - 20 = 100 s at most, see [`FORGIVEN`].
const OWED_MAX: Duration = Duration::from_secs(120);
/// A source is not charged for so long after an admission: a weekly job comes after a week and its duration.
const TRUSTED: Duration = Duration::from_secs(8 * 86_400);
/// 64 Ki sources x about 128 bytes = 8 MiB. The source whose charge ends first makes room.
const MAX_SOURCES: usize = 64 << 10;
/// Ended charges to forget at a time: the accepting thread waits.
const FORGOTTEN_AT_ONCE: usize = 8;

pub(super) struct Penalties {
    sources: HashMap<IpAddr, Standing>,
    /// Sources by the end of their charge.
    by_end: BTreeSet<(Instant, IpAddr)>,
    most: usize,
}

impl Default for Penalties {
    fn default() -> Self {
        Self::of_at_most(MAX_SOURCES)
    }
}

#[derive(Clone, Copy)]
enum Standing {
    /// The charge ends at `until`.
    Owes {
        until: Instant,
        charged: Instant,
        penalty: Duration,
        refused: usize,
    },
    Trusted {
        until: Instant,
    },
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Hearing {
    pub(super) is_barred: bool,
    /// The refusals in this moment. Each keeps a seat, to bound the callers judged at once.
    pub(super) refused_lately: usize,
}

impl Standing {
    fn ends(self) -> Instant {
        match self {
            Standing::Owes { until, .. } | Standing::Trusted { until } => until,
        }
    }
}

impl Penalties {
    fn of_at_most(most: usize) -> Self {
        Self { sources: HashMap::new(), by_end: BTreeSet::new(), most }
    }

    /// Charges a refusal, of each moment the highest.
    pub(super) fn refused(&mut self, source: IpAddr, penalty: Duration, now: Instant) {
        let penalty = penalty.min(OWED_MAX);
        let owes = |until: Instant, charged, penalty, refused| {
            let until = until.min(now + OWED_MAX);
            Standing::Owes { until, charged, penalty, refused }
        };
        let standing = match self.sources.get(&source) {
            Some(Standing::Trusted { until }) if *until > now => return,
            Some(&Standing::Owes { until, charged, penalty: before, refused }) if is_same_moment(charged, now) => {
                let highest = before.max(penalty);
                owes(until + (highest - before), charged, highest, refused + 1)
            }
            Some(Standing::Owes { until, .. }) => owes((*until).max(now) + penalty, now, penalty, 1),
            _ => owes(now + penalty, now, penalty, 1),
        };
        self.keep(source, standing, now);
    }

    pub(super) fn admitted(&mut self, source: IpAddr, now: Instant) {
        self.keep(source, Standing::Trusted { until: now + TRUSTED }, now);
    }

    pub(super) fn hearing(&self, source: IpAddr, now: Instant) -> Hearing {
        match self.sources.get(&source) {
            Some(&Standing::Owes { until, charged, refused, .. }) => Hearing {
                is_barred: until.saturating_duration_since(now) >= FORGIVEN,
                refused_lately: if is_same_moment(charged, now) { refused } else { 0 },
            },
            _ => Hearing::default(),
        }
    }

    fn keep(&mut self, source: IpAddr, standing: Standing, now: Instant) {
        if let Some(before) = self.sources.insert(source, standing) {
            self.by_end.remove(&(before.ends(), source));
        }
        for _ in 0..FORGOTTEN_AT_ONCE {
            let Some(&(end, first)) = self.by_end.first() else { break };
            if end > now && self.sources.len() <= self.most {
                break;
            }
            self.by_end.pop_first();
            self.sources.remove(&first);
        }
        self.by_end.insert((standing.ends(), source));
    }
}

fn is_same_moment(charged: Instant, now: Instant) -> bool {
    now.saturating_duration_since(charged) < MOMENT
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::limits::REFUSED_KEY;

    fn source(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    impl Penalties {
        pub(in crate::door) fn owed(&self, source: IpAddr, now: Instant) -> Duration {
            match self.sources.get(&source) {
                Some(Standing::Owes { until, .. }) => until.saturating_duration_since(now),
                _ => Duration::ZERO,
            }
        }

        fn bars(&self, source: IpAddr, now: Instant) -> bool {
            self.hearing(source, now).is_barred
        }
    }

    fn refuse(penalties: &mut Penalties, source: IpAddr, keys: u32, start: Instant) -> Instant {
        (0..keys).for_each(|key| penalties.refused(source, REFUSED_KEY, start + MOMENT * key));
        start + MOMENT * (keys - 1)
    }

    #[test]
    fn who_tries_key_after_key_waits_and_nobody_else_does() {
        let (mut penalties, start) = (Penalties::default(), Instant::now());
        (0..100).for_each(|_| penalties.refused(source(1), REFUSED_KEY, start));
        let fourth = refuse(&mut penalties, source(1), 4, start);
        assert!(!penalties.bars(source(1), fourth), "a person who looks for the right key");
        let last = refuse(&mut penalties, source(1), 4, fourth + MOMENT);
        assert!(penalties.bars(source(1), last));
        assert!(!penalties.bars(source(2), last));
        let last = refuse(&mut penalties, source(1), 1_000, last + MOMENT);
        assert!(penalties.bars(source(1), last + OWED_MAX - FORGIVEN));
        assert!(!penalties.bars(source(1), last + OWED_MAX - FORGIVEN + Duration::from_millis(1)), "not for ever");
    }

    #[test]
    fn keys_of_a_moment_are_counted_for_as_long() {
        let (mut penalties, start) = (Penalties::default(), Instant::now());
        (1..=40).for_each(|keys| {
            penalties.refused(source(1), REFUSED_KEY, start);
            let hearing = Hearing { is_barred: false, refused_lately: keys };
            assert_eq!(penalties.hearing(source(1), start + MOMENT - Duration::from_millis(1)), hearing);
        });
        assert_eq!(penalties.hearing(source(1), start + MOMENT), Hearing::default());
        assert_eq!(penalties.hearing(source(2), start), Hearing::default());
        let last = refuse(&mut penalties, source(1), 100, start + MOMENT);
        assert_eq!(penalties.hearing(source(1), last), Hearing { is_barred: true, refused_lately: 1 });
        penalties.admitted(source(1), last);
        (0..40).for_each(|_| penalties.refused(source(1), REFUSED_KEY, last));
        assert_eq!(penalties.hearing(source(1), last), Hearing::default());
    }

    #[test]
    fn of_several_penalties_of_one_moment_the_highest_counts() {
        let (mut penalties, start) = (Penalties::default(), Instant::now());
        let seconds = Duration::from_secs;
        for (penalty, owed) in [(1, 1), (5, 5), (2, 5), (5, 5)] {
            penalties.refused(source(1), seconds(penalty), start);
            assert_eq!(penalties.owed(source(1), start), seconds(owed));
        }
        penalties.refused(source(1), seconds(3_600), start);
        assert_eq!(penalties.owed(source(1), start), OWED_MAX);
    }

    #[test]
    fn who_proved_a_key_of_ours_is_charged_nothing_for_a_while() {
        let (mut penalties, start) = (Penalties::default(), Instant::now());
        let barred = refuse(&mut penalties, source(1), 100, start);
        penalties.admitted(source(1), barred);
        assert!(!penalties.bars(source(1), barred));
        let next_week = barred + Duration::from_secs(7 * 86_400 + 3_600);
        let last = refuse(&mut penalties, source(1), 100, next_week);
        assert!(!penalties.bars(source(1), last));
        let last = refuse(&mut penalties, source(1), 100, barred + TRUSTED);
        assert!(penalties.bars(source(1), last));
    }

    #[test]
    fn what_is_remembered_is_bounded_and_the_worst_stay() {
        let (mut penalties, start) = (Penalties::of_at_most(4), Instant::now());
        let barred = refuse(&mut penalties, source(0), 100, start);
        for number in 1..=200 {
            penalties.refused(source(number), REFUSED_KEY, barred);
            assert!(penalties.sources.len() <= 4);
            assert_eq!(penalties.sources.len(), penalties.by_end.len());
        }
        assert!(penalties.bars(source(0), barred));
        penalties.admitted(source(201), barred + OWED_MAX);
        assert_eq!(penalties.sources.len(), 1, "what ran off is forgotten");
    }

    #[test]
    fn however_many_sources_ran_off_one_call_forgets_a_few() {
        let many = 10_000;
        let (mut penalties, start) = (Penalties::of_at_most(many), Instant::now());
        let address = |number: u32| IpAddr::from(Ipv4Addr::from_bits(number));
        (0..many as u32).for_each(|number| penalties.refused(address(number), REFUSED_KEY, start));
        let later = start + OWED_MAX;
        for number in 0..many / FORGOTTEN_AT_ONCE {
            let before = penalties.sources.len();
            penalties.refused(address((many + number) as u32), REFUSED_KEY, later);
            assert!(penalties.sources.len() + FORGOTTEN_AT_ONCE > before, "all of them in one call");
        }
        assert!(penalties.sources.len() <= many / FORGOTTEN_AT_ONCE + FORGOTTEN_AT_ONCE, "and all of them in the end");
    }
}
