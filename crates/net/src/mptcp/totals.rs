//! Adds up several subflows' figures as one connection's.
//!
//! Subflows go, and their sum would run backward: each reading adds what each did since the last.

use std::net::IpAddr;

use haul_sys::mptcp::Subflow;
use haul_sys::tcp_info::TcpInfo;

#[derive(Debug, Default)]
pub(crate) struct Totals {
    last: Vec<Subflow>,
    acked_bytes: u64,
    received_bytes: u64,
    sent_bytes: u64,
    resent_bytes: u64,
    delivered: u32,
    dsack_dups: u32,
    total_retrans: u32,
    busy_us: u64,
    rwnd_limited_us: u64,
    sndbuf_limited_us: u64,
    ways: Vec<WayTotals>,
}

/// The totals between two addresses, past subflows included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WayTotals {
    /// The address of this end.
    pub local: IpAddr,
    /// The address of the other end.
    pub remote: IpAddr,
    /// Bytes that the peer has acknowledged.
    pub acked_bytes: u64,
    /// Bytes sent, with repeats.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// The smoothed round-trip time when last read.
    pub rtt_us: u32,
}

/// Two hosts with eight addresses have 64 pairs; the kernel allows 8 more subflows.
const WAYS_MAX: usize = 32;

impl Totals {
    /// Takes a reading with `unsent_bytes` still waiting, if there is a subflow.
    ///
    /// Round-trip times are of the subflow with the largest minimum: ordered data arrives no sooner, and a queue shows as
    /// their difference.
    pub(crate) fn read(&mut self, now: &[Subflow], unsent_bytes: u32) -> Option<TcpInfo> {
        self.count(now);
        let slowest = now.iter().map(|subflow| &subflow.info).max_by_key(|info| (info.rtt_min_us, info.rtt_us))?;
        let infos = || now.iter().map(|subflow| &subflow.info);
        let sum = |of: fn(&TcpInfo) -> u32| infos().map(of).fold(0, u32::saturating_add);
        Some(TcpInfo {
            timeouts: infos().map(|info| info.timeouts).min()?,
            rto_us: infos().map(|info| info.rto_us).max()?,
            snd_mss_bytes: infos().map(|info| info.snd_mss_bytes).max()?,
            path_mtu_bytes: infos().map(|info| info.path_mtu_bytes).min()?,
            silent_us: infos().map(|info| info.silent_us).min()?,
            rtt_us: slowest.rtt_us,
            rcv_rtt_us: slowest.rcv_rtt_us,
            rtt_var_us: slowest.rtt_var_us,
            rtt_min_us: slowest.rtt_min_us,
            // A threshold never set is the largest number, and so is the sum: slow start goes on.
            snd_ssthresh: sum(|info| info.snd_ssthresh),
            snd_cwnd: sum(|info| info.snd_cwnd),
            total_retrans: self.total_retrans,
            pacing_rate_bytes_per_s: None,
            max_pacing_rate_bytes_per_s: None,
            delivery_rate_bytes_per_s: None,
            bytes_acked: Some(self.acked_bytes),
            bytes_received: Some(self.received_bytes),
            notsent_bytes: Some(sum(|info| info.notsent_bytes.unwrap_or_default()).saturating_add(unsent_bytes)),
            busy_time_us: Some(self.busy_us),
            rwnd_limited_us: Some(self.rwnd_limited_us),
            sndbuf_limited_us: Some(self.sndbuf_limited_us),
            delivered: Some(self.delivered),
            bytes_sent: Some(self.sent_bytes),
            bytes_retrans: Some(self.resent_bytes),
            dsack_dups: Some(self.dsack_dups),
            // One window for all, as each subflow heard last.
            snd_wnd_bytes: infos().filter_map(|info| info.snd_wnd_bytes).max(),
            // An ended subflow takes them along.
            timeouts_total: None,
            timeout_recoveries: None,
            timeout_recovery_ms: None,
        })
    }

    pub(crate) fn ways(&self) -> &[WayTotals] {
        &self.ways
    }

    fn count(&mut self, now: &[Subflow]) {
        let last = std::mem::replace(&mut self.last, now.to_vec());
        let before = |subflow: &Subflow| last.iter().find(|last| is_same(last, subflow)).map(|last| last.info);
        // The connection was busy at least as long as its busiest subflow.
        let (mut busy_us, mut rwnd_us, mut sndbuf_us) = (0, 0, 0);
        for subflow in now {
            let (was, is) = (before(subflow).unwrap_or_default(), &subflow.info);
            let more = |of: fn(&TcpInfo) -> Option<u64>| {
                of(is).unwrap_or_default().saturating_sub(of(&was).unwrap_or_default())
            };
            let more_of_32 =
                |of: fn(&TcpInfo) -> Option<u32>| of(is).unwrap_or_default().wrapping_sub(of(&was).unwrap_or_default());
            let (acked, sent) = (more(|info| info.bytes_acked), more(|info| info.bytes_sent));
            count_way(&mut self.ways, subflow, [acked, sent, more(|info| info.bytes_retrans)]);
            self.acked_bytes = self.acked_bytes.saturating_add(acked);
            self.received_bytes = self.received_bytes.saturating_add(more(|info| info.bytes_received));
            self.sent_bytes = self.sent_bytes.saturating_add(sent);
            self.resent_bytes = self.resent_bytes.saturating_add(more(|info| info.bytes_retrans));
            self.delivered = self.delivered.wrapping_add(more_of_32(|info| info.delivered));
            self.dsack_dups = self.dsack_dups.wrapping_add(more_of_32(|info| info.dsack_dups));
            self.total_retrans = self.total_retrans.wrapping_add(is.total_retrans.wrapping_sub(was.total_retrans));
            busy_us = busy_us.max(more(|info| info.busy_time_us));
            rwnd_us = rwnd_us.max(more(|info| info.rwnd_limited_us));
            sndbuf_us = sndbuf_us.max(more(|info| info.sndbuf_limited_us));
        }
        self.busy_us = self.busy_us.saturating_add(busy_us);
        self.rwnd_limited_us = self.rwnd_limited_us.saturating_add(rwnd_us);
        self.sndbuf_limited_us = self.sndbuf_limited_us.saturating_add(sndbuf_us);
        // A lost subflow's bytes are sent again on another.
        for gone in last.iter().filter(|last| !now.iter().any(|now| is_same(last, now))) {
            let info = &gone.info;
            let sent_bytes = info.bytes_sent.unwrap_or_default();
            let over_bytes =
                info.bytes_acked.unwrap_or_default().saturating_add(info.bytes_retrans.unwrap_or_default());
            self.resent_bytes = self.resent_bytes.saturating_add(sent_bytes.saturating_sub(over_bytes));
        }
    }
}

fn count_way(ways: &mut Vec<WayTotals>, subflow: &Subflow, [acked, sent, resent]: [u64; 3]) {
    let (local, remote) = (subflow.local.ip(), subflow.remote.ip());
    let at = ways.iter().position(|way| (way.local, way.remote) == (local, remote));
    if at.is_none() && ways.len() >= WAYS_MAX {
        return;
    }
    let at = at.unwrap_or_else(|| {
        ways.push(WayTotals { local, remote, acked_bytes: 0, sent_bytes: 0, resent_bytes: 0, rtt_us: 0 });
        ways.len() - 1
    });
    let way = &mut ways[at];
    way.acked_bytes = way.acked_bytes.saturating_add(acked);
    way.sent_bytes = way.sent_bytes.saturating_add(sent);
    way.resent_bytes = way.resent_bytes.saturating_add(resent);
    way.rtt_us = subflow.info.rtt_us;
}

fn is_same(one: &Subflow, other: &Subflow) -> bool {
    (one.local, one.remote) == (other.local, other.remote)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn subflow(port: u16, rtt_ms: u32, sent: u64, acked: u64, busy_us: u64) -> Subflow {
        Subflow {
            local: ([10, 0, 0, 1], port).into(),
            remote: ([10, 0, 0, 2], 22).into(),
            info: TcpInfo {
                rtt_us: rtt_ms * 1_000,
                rtt_min_us: Some(rtt_ms * 900),
                snd_cwnd: 10,
                snd_ssthresh: u32::MAX,
                snd_mss_bytes: 1_448,
                bytes_sent: Some(sent),
                bytes_acked: Some(acked),
                delivered: Some((acked / 1_448) as u32),
                bytes_retrans: Some(0),
                busy_time_us: Some(busy_us),
                notsent_bytes: Some(5),
                ..TcpInfo::default()
            },
        }
    }

    #[test]
    fn counters_are_those_of_all_subflows_and_never_run_backward() {
        let mut totals = Totals::default();
        let figures = |info: TcpInfo| {
            (
                info.bytes_sent.unwrap(),
                info.bytes_acked.unwrap(),
                info.bytes_retrans.unwrap(),
                info.busy_time_us.unwrap(),
            )
        };
        let one = totals.read(&[subflow(1, 10, 1_000, 900, 100)], 0).unwrap();
        assert_eq!(figures(one), (1_000, 900, 0, 100));
        let both = totals.read(&[subflow(1, 10, 2_000, 1_900, 200), subflow(2, 80, 500, 100, 60)], 0).unwrap();
        assert_eq!(figures(both), (2_500, 2_000, 0, 200), "busy as long as the busiest");
        let other = totals.read(&[subflow(2, 80, 700, 300, 160)], 0).unwrap();
        assert_eq!(figures(other), (2_700, 2_200, 100, 300));
        let in_flight = 2_700 - 2_200 - 100;
        assert_eq!(in_flight, 700 - 300, "what the other one has under way");
        assert!(totals.read(&[], 0).is_none());
        let back = totals.read(&[subflow(3, 10, 40, 20, 5)], 0).unwrap();
        assert_eq!(back.bytes_acked, Some(2_220));
    }

    #[test]
    fn a_subflow_that_comes_back_with_another_port_is_the_same_way() {
        let mut totals = Totals::default();
        let elsewhere = |subflow: Subflow| Subflow { local: ([10, 0, 1, 1], 9).into(), ..subflow };
        totals.read(&[subflow(1, 10, 1_000, 900, 0), elsewhere(subflow(2, 80, 500, 400, 0))], 0);
        totals.read(&[elsewhere(subflow(2, 90, 700, 600, 0))], 0);
        totals.read(&[subflow(3, 12, 50, 40, 0), elsewhere(subflow(2, 90, 700, 650, 0))], 0);
        let ways: Vec<_> =
            totals.ways().iter().map(|way| (way.local, way.acked_bytes, way.sent_bytes, way.rtt_us)).collect();
        let ip = |net| IpAddr::from([10, 0, net, 1]);
        assert_eq!(ways, [(ip(0), 940, 1_050, 12_000), (ip(1), 650, 700, 90_000)]);
        for net in 0..=255 {
            totals.read(&[Subflow { local: ([10, 9, net, 1], 9).into(), ..subflow(1, 1, 1, 1, 0) }], 0);
        }
        assert_eq!(totals.ways().len(), WAYS_MAX);
    }

    #[test]
    fn round_trips_are_of_one_subflow_and_windows_of_all() {
        let mut totals = Totals::default();
        let info = totals.read(&[subflow(1, 10, 0, 0, 0), subflow(2, 80, 0, 0, 0)], 7).unwrap();
        assert_eq!((info.rtt_us, info.rtt_min_us), (80_000, Some(72_000)));
        assert_eq!((info.snd_cwnd, info.snd_ssthresh, info.notsent_bytes), (20, u32::MAX, Some(17)));
    }
}
