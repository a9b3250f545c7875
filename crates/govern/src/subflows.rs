//! Sums what the lanes of a path carry between each pair of addresses, over MPTCP.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

use haul_net::mptcp::WayTotals;
use haul_wire::limits::MAX_SUBFLOWS;
use haul_wire::summary::Subflow;

use haul_channel::convert;

/// One path's; empty without MPTCP.
#[derive(Clone, Debug, Default)]
pub(crate) struct Subflows {
    gone: Sums,
    told: BTreeMap<Ends, u64>,
}

type Ends = (IpAddr, IpAddr);

/// Sums of at most [`MAX_SUBFLOWS`] pairs.
#[derive(Clone, Debug, Default)]
struct Sums(BTreeMap<Ends, WayTotals>);

impl Sums {
    fn add(&mut self, way: &WayTotals) {
        let ends = (way.local, way.remote);
        if self.0.len() >= MAX_SUBFLOWS && !self.0.contains_key(&ends) {
            return;
        }
        self.0
            .entry(ends)
            .and_modify(|sum| {
                sum.acked_bytes = sum.acked_bytes.saturating_add(way.acked_bytes);
                sum.sent_bytes = sum.sent_bytes.saturating_add(way.sent_bytes);
                sum.resent_bytes = sum.resent_bytes.saturating_add(way.resent_bytes);
                sum.rtt_us = sum.rtt_us.max(way.rtt_us);
            })
            .or_insert(*way);
    }
}

impl Subflows {
    pub(crate) fn lane_gone(&mut self, ways: &[WayTotals]) {
        for way in ways {
            // A lost lane has no round trip.
            self.gone.add(&WayTotals { rtt_us: 0, ..*way });
        }
    }

    /// Rates of the time `since` the last call.
    pub fn now(&mut self, lanes: impl Iterator<Item = WayTotals>, since: Duration) -> Vec<Subflow> {
        let sums = self.sums(lanes);
        let told =
            std::mem::replace(&mut self.told, sums.0.iter().map(|(ends, sum)| (*ends, sum.acked_bytes)).collect());
        let more = |sum: &WayTotals| {
            let before = told.get(&(sum.local, sum.remote)).copied().unwrap_or_default();
            sum.acked_bytes.saturating_sub(before)
        };
        sums.0.values().map(|sum| subflow(sum, more(sum), since)).collect()
    }

    /// Rates of all the time.
    pub fn summary(&self, lanes: impl Iterator<Item = WayTotals>, elapsed: Duration) -> Vec<Subflow> {
        self.sums(lanes).0.values().map(|sum| subflow(sum, sum.acked_bytes, elapsed)).collect()
    }

    fn sums(&self, lanes: impl Iterator<Item = WayTotals>) -> Sums {
        let mut sums = self.gone.clone();
        lanes.for_each(|way| sums.add(&way));
        sums
    }
}

fn subflow(sum: &WayTotals, bytes: u64, within: Duration) -> Subflow {
    let ppm = u128::from(sum.resent_bytes) * 1_000_000 / u128::from(sum.sent_bytes.max(1));
    let rate = u128::from(bytes) * 1_000_000 / within.as_micros().max(1);
    Subflow {
        local: convert::address(sum.local),
        remote: convert::address(sum.remote),
        rate_bytes_per_s: u64::try_from(rate).unwrap_or(u64::MAX),
        delivered_bytes: sum.acked_bytes,
        rtt_us: sum.rtt_us,
        resent_ppm: u32::try_from(ppm).unwrap_or(u32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(net: u8, acked_bytes: u64, rtt_us: u32) -> WayTotals {
        let (local, remote) = ([10, 0, net, 1].into(), [10, 0, net, 2].into());
        WayTotals { local, remote, acked_bytes, sent_bytes: 2 * acked_bytes, resent_bytes: acked_bytes / 10, rtt_us }
    }

    fn figures(subflows: &[Subflow]) -> Vec<(u64, u64, u32, u32)> {
        subflows.iter().map(|of| (of.rate_bytes_per_s, of.delivered_bytes, of.rtt_us, of.resent_ppm)).collect()
    }

    #[test]
    fn lanes_that_take_the_same_way_are_one_subflow_and_lanes_that_are_gone_count_on() {
        let mut subflows = Subflows::default();
        let second = Duration::from_secs(1);
        let first = subflows.now([way(0, 1_000, 10), way(1, 500, 80), way(0, 2_000, 12)].into_iter(), second);
        assert_eq!(figures(&first), [(3_000, 3_000, 12, 50_000), (500, 500, 80, 50_000)]);
        subflows.lane_gone(&[way(0, 2_000, 12)]);
        let later = subflows.now([way(0, 1_700, 10), way(1, 500, 80)].into_iter(), second);
        assert_eq!(figures(&later), [(700, 3_700, 10, 50_000), (0, 500, 80, 50_000)]);
        let all = subflows.summary([way(0, 1_700, 10)].into_iter(), 10 * second);
        assert_eq!(figures(&all), [(370, 3_700, 10, 50_000)]);
        assert!(Subflows::default().now(std::iter::empty(), second).is_empty(), "without MPTCP there are none");
    }
}
