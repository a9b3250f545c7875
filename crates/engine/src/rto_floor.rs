//! Which floor of the retransmission timeout would have been best, from what was observed.
//!
//! Linux waits `srtt + max(4 x deviation, floor)` (RFC 6298, 2.3). With small deviations a lower floor saves the difference;
//! below the delay of acknowledgements it repeats what has arrived.

/// The observations of a network class.
#[derive(Clone, Copy, Debug)]
pub struct Seen<'a> {
    /// The floor in effect.
    pub floor_us: u32,
    /// Lateness beyond the shortest round trip, with the connections that had at most that.
    pub lateness: &'a [(u32, u64)],
    /// Timeouts by four deviations of the round trip.
    pub timeouts: &'a [(u32, u64)],
    /// Segments sent again that had arrived.
    pub spurious: u64,
}

/// The best floor, with its arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BestFloor {
    /// The advised floor.
    pub floor_us: u32,
    /// The wait of all timeouts.
    pub waited_us: u64,
    /// Their wait with this floor.
    pub would_wait_us: u64,
    /// The lateness of 999 in 1,000 connections.
    pub late_us: u32,
    /// The reason of the choice.
    pub why: Why,
}

/// The reason for a floor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// Peers may delay an acknowledgement.
    DelayedAcknowledgements,
    /// Acknowledgements were later than that.
    Late,
    /// Too much was repeated that had arrived.
    Spurious,
}

/// Floors that are considered.
pub const CANDIDATES_US: [u32; 9] =
    [10_000, 20_000, 50_000, 100_000, 200_000, 500_000, 1_000_000, 2_000_000, 5_000_000];

/// Linux delays acknowledgements by 40 ms at least, in jiffies of up to 10 ms.
pub const DELAYED_ACK_US: u32 = 50_000;

/// A smaller number of connections says nothing.
pub const LEAST_CONNECTIONS: u64 = 20;

/// Spurious repeats may be a fifth of the timeouts; fewer timeouts than that many say nothing.
const SPURIOUS_PART: u64 = 5;

/// The best floor; `None`: too little was seen.
pub fn best(seen: &Seen<'_>) -> Option<BestFloor> {
    let connections: u64 = seen.lateness.iter().map(|(_, count)| count).sum();
    if connections < LEAST_CONNECTIONS {
        return None;
    }
    let late_us = permille(seen.lateness, connections, 999);
    let timeouts: u64 = seen.timeouts.iter().map(|(_, count)| count).sum();
    let is_too_low = timeouts >= SPURIOUS_PART && seen.spurious * SPURIOUS_PART > timeouts;
    let at_least = |us: u32| CANDIDATES_US.iter().copied().find(|floor| *floor >= us);
    let (needed_us, why) = match late_us > DELAYED_ACK_US {
        true => (late_us, Why::Late),
        false => (DELAYED_ACK_US, Why::DelayedAcknowledgements),
    };
    let above_us = seen.floor_us.saturating_add(1);
    let (needed_us, why) = match is_too_low && above_us > needed_us {
        true => (above_us, Why::Spurious),
        false => (needed_us, why),
    };
    let last = CANDIDATES_US[CANDIDATES_US.len() - 1];
    let floor_us = at_least(needed_us).unwrap_or(last);
    let waits = |floor_us: u32| {
        seen.timeouts.iter().map(|(variation_us, count)| count * u64::from(floor_us.max(*variation_us))).sum()
    };
    Some(BestFloor { floor_us, waited_us: waits(seen.floor_us), would_wait_us: waits(floor_us), late_us, why })
}

/// The value that so many of 1,000 do not exceed.
pub fn permille(counts: &[(u32, u64)], total: u64, of_1000: u64) -> u32 {
    let wanted = (total * of_1000).div_ceil(1000);
    let mut so_far = 0;
    for (us, count) in counts {
        so_far += count;
        if so_far >= wanted {
            return *us;
        }
    }
    counts.last().map_or(0, |(us, _)| *us)
}

#[cfg(test)]
mod tests {
    use super::*;

    const QUIET: &[(u32, u64)] = &[(1_000, 990), (4_000, 10)];

    #[test]
    fn on_a_quiet_network_the_delay_of_acknowledgements_decides_and_the_difference_is_saved() {
        let seen = Seen { floor_us: 200_000, lateness: QUIET, timeouts: &[(1_000, 30), (90_000, 10)], spurious: 1 };
        let best = best(&seen).unwrap();
        assert_eq!((best.floor_us, best.why, best.late_us), (50_000, Why::DelayedAcknowledgements, 4_000));
        assert_eq!(best.waited_us, 40 * 200_000);
        assert_eq!(best.would_wait_us, 30 * 50_000 + 10 * 90_000, "a deviation above the floor counts itself");
    }

    #[test]
    fn late_acknowledgements_raise_the_floor() {
        let late: &[(u32, u64)] = &[(1_000, 900), (150_000, 100)];
        let best = best(&Seen { floor_us: 50_000, lateness: late, timeouts: &[], spurious: 0 }).unwrap();
        assert_eq!((best.floor_us, best.why), (200_000, Why::Late));
    }

    #[test]
    fn what_was_sent_again_for_nothing_raises_the_floor_above_the_one_in_effect() {
        let seen = Seen { floor_us: 100_000, lateness: QUIET, timeouts: &[(1_000, 10)], spurious: 3 };
        assert_eq!(best(&seen).map(|best| (best.floor_us, best.why)), Some((200_000, Why::Spurious)));
        let seen = Seen { floor_us: 20_000, ..seen };
        assert_eq!(best(&seen).map(|best| (best.floor_us, best.why)), Some((50_000, Why::DelayedAcknowledgements)));
        let few = Seen { timeouts: &[(1_000, 4)], ..seen };
        assert_eq!(best(&few).map(|best| best.floor_us), Some(50_000));
    }

    #[test]
    fn of_few_connections_nothing_is_said() {
        assert_eq!(best(&Seen { floor_us: 1, lateness: &[(1, 19)], timeouts: &[], spurious: 0 }), None);
    }
}
