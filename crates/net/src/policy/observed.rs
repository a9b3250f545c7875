//! The kernel's figures of a class's ended connections: round trips, and timeouts.

use std::collections::BTreeMap;

use haul_sys::tcp_info::TcpInfo;

/// Classes that are kept: a site has a handful.
pub const MAX_OBSERVED_CLASSES: usize = 64;

/// Four steps for each doubling, from 16 us to four minutes.
pub const STEPS: usize = 96;
const FIRST_US: f64 = 16.0;

/// The connections of a class.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Observed {
    /// The connections read at their end.
    pub connections: u64,
    /// Connections by their smoothed round trip.
    pub round_trips: Steps,
    /// Connections by an acknowledgement's expected lateness: smoothed round trip and four deviations, less the shortest
    /// round trip.
    pub lateness: Steps,
    /// Timeouts, by four deviations of the round trip: the kernel waits that long, or the floor.
    pub timeouts: Steps,
    /// Periods from a timeout until all was acknowledged.
    pub recoveries: u64,
    /// Their length in milliseconds.
    pub recovery_ms: u64,
    /// Segments sent again that had arrived (DSACK).
    pub spurious: u64,
    /// Bytes sent.
    pub sent_bytes: u64,
    /// The last connection's floor, perhaps not yet a lower one's.
    pub floor_us: Option<u32>,
}

/// Counts by time. Empty, or [`STEPS`] numbers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steps(pub Vec<u64>);

impl Steps {
    /// Counts at a time.
    pub fn add(&mut self, us: u64, count: u64) {
        if count > 0 {
            self.0.resize(STEPS, 0);
            let step = (4.0 * (us.max(1) as f64 / FIRST_US).log2()).ceil().clamp(0.0, (STEPS - 1) as f64);
            self.0[step as usize] += count;
        }
    }

    /// Each step's longest time, and its count.
    pub fn counts(&self) -> impl Iterator<Item = (u32, u64)> {
        let upper = |step: usize| (FIRST_US * 2f64.powf(step as f64 / 4.0)).round() as u32;
        self.0.iter().enumerate().filter(|(_, count)| **count > 0).map(move |(step, count)| (upper(step), *count))
    }

    /// The sum of all counts.
    pub fn total(&self) -> u64 {
        self.0.iter().sum()
    }

    fn merge(&mut self, other: &Steps) {
        if !other.0.is_empty() {
            self.0.resize(STEPS, 0);
            self.0.iter_mut().zip(&other.0).for_each(|(one, other)| *one += other);
        }
    }

    fn halve(&mut self) {
        self.0.iter_mut().for_each(|count| *count /= 2);
    }
}

/// Beyond it all counts are halved: newer ones weigh more.
const MAX_CONNECTIONS: u64 = 1 << 20;

impl Observed {
    /// Counts one ended connection, and its floor.
    pub fn add(&mut self, info: &TcpInfo, floor_us: Option<u32>) {
        // There is no round trip without an acknowledgement.
        let (Some(rtt_min_us), true) = (info.rtt_min_us, info.rtt_us > 0) else { return };
        let deviation_us = u64::from(info.rtt_var_us) * 4;
        let late_us = (u64::from(info.rtt_us) + deviation_us).saturating_sub(rtt_min_us.into());
        self.connections += 1;
        self.round_trips.add(info.rtt_us.into(), 1);
        self.lateness.add(late_us, 1);
        self.timeouts.add(deviation_us, info.timeouts_total.unwrap_or(0).into());
        self.recoveries += u64::from(info.timeout_recoveries.unwrap_or(0));
        self.recovery_ms += u64::from(info.timeout_recovery_ms.unwrap_or(0));
        self.spurious += u64::from(info.dsack_dups.unwrap_or(0));
        self.sent_bytes = self.sent_bytes.saturating_add(info.bytes_sent.unwrap_or(0));
        self.floor_us = floor_us.or(self.floor_us);
    }

    /// Adds another count.
    pub fn merge(&mut self, other: &Observed) {
        self.connections += other.connections;
        self.round_trips.merge(&other.round_trips);
        self.lateness.merge(&other.lateness);
        self.timeouts.merge(&other.timeouts);
        self.recoveries += other.recoveries;
        self.recovery_ms = self.recovery_ms.saturating_add(other.recovery_ms);
        self.spurious += other.spurious;
        self.sent_bytes = self.sent_bytes.saturating_add(other.sent_bytes);
        // The newer one: floors change.
        self.floor_us = other.floor_us.or(self.floor_us);
        while self.connections > MAX_CONNECTIONS {
            self.halve();
        }
    }

    fn halve(&mut self) {
        let Observed { connections, recoveries, recovery_ms, spurious, sent_bytes, .. } = self;
        for count in [connections, recoveries, recovery_ms, spurious, sent_bytes] {
            *count /= 2;
        }
        [&mut self.round_trips, &mut self.lateness, &mut self.timeouts].into_iter().for_each(Steps::halve);
    }
}

/// The observations of each class, by name.
pub type ObservedClasses = BTreeMap<String, Observed>;

pub(super) fn count(classes: &mut ObservedClasses, name: &str, info: &TcpInfo, floor_us: Option<u32>) {
    if !classes.contains_key(name) && classes.len() >= MAX_OBSERVED_CLASSES {
        return;
    }
    classes.entry(name.to_owned()).or_default().add(info, floor_us);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn info(rtt_us: u32, timeouts_total: u16) -> TcpInfo {
        TcpInfo {
            rtt_us,
            rtt_min_us: Some(rtt_us / 2),
            rtt_var_us: 250,
            timeouts_total: Some(timeouts_total),
            ..TcpInfo::default()
        }
    }

    #[test]
    fn a_time_is_counted_in_the_first_step_that_holds_it() {
        let mut steps = Steps::default();
        for us in [0, 16, 17, 1_000, u64::MAX] {
            steps.add(us, 1);
        }
        let counts: Vec<(u32, u64)> = steps.counts().collect();
        assert_eq!(counts.len(), 4);
        assert_eq!((counts[0], counts[1]), ((16, 2), (19, 1)));
        assert!(counts[2].0 >= 1_000 && counts[2].0 < 1_200, "{counts:?}");
    }

    #[test]
    fn connections_add_up_and_never_more_than_a_million_are_kept() {
        let mut observed = Observed::default();
        (0..3).for_each(|_| observed.add(&info(1_000, 2), Some(50_000)));
        assert_eq!((observed.connections, observed.timeouts.total()), (3, 6));
        assert_eq!(observed.floor_us, Some(50_000));
        observed.add(&TcpInfo::default(), None);
        assert_eq!(observed.connections, 3, "nothing was acknowledged");
        let mut kept = Observed { connections: MAX_CONNECTIONS - 1, ..observed.clone() };
        kept.merge(&observed);
        assert_eq!((kept.connections, kept.timeouts.total()), ((MAX_CONNECTIONS + 2) / 2, 6));
    }

    #[test]
    fn classes_have_a_bound() {
        let mut classes = ObservedClasses::new();
        (0..1_000).for_each(|number| count(&mut classes, &number.to_string(), &info(1_000, 0), None));
        assert_eq!(classes.len(), MAX_OBSERVED_CLASSES);
    }
}
