//! Readings of the lanes, and what happened between two of them.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use haul_wire::limits::MAX_LANES;

/// One lane at one moment, from the sender's `TCP_INFO` (tcp(7)). Counters run from the connection's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LaneReading {
    /// Number of the lane.
    pub lane: u16,
    /// Smoothed round-trip time (RFC 6298); 0: not measured.
    pub rtt_us: u32,
    /// Smallest round-trip time; 0: not measured.
    pub rtt_min_us: u32,
    /// Bytes sent again that were only late.
    pub resent_in_vain_bytes: u64,
    /// Mean deviation of the round-trip time; 0: unknown.
    pub rtt_deviation_us: u32,
    /// Largest segment sent.
    pub mss_bytes: u32,
    /// Congestion window.
    pub cwnd_bytes: u64,
    /// Slow start (RFC 5681).
    pub in_slow_start: bool,
    /// Bytes acknowledged: all before them arrived.
    pub acked_bytes: u64,
    /// Arrived, also behind a gap (`tcpi_delivered`), in full segments. Where unknown, `acked_bytes`.
    pub delivered_bytes: u64,
    /// Bytes sent, repeats included.
    pub sent_bytes: u64,
    /// Bytes sent again.
    pub resent_bytes: u64,
    /// Never sent bytes in the send buffer.
    pub unsent_bytes: u64,
    /// Time with data to send or unacknowledged.
    pub busy_us: u64,
    /// Busy time stopped by the receiver's window.
    pub receive_window_limited_us: u64,
    /// Busy time stopped by the send buffer; may stay 0 though it is the limit.
    pub send_buffer_limited_us: u64,
    /// Time since sending. A silent lane begins again with a small window (RFC 2861).
    pub silent_us: u64,
    /// Window the peer offers; 0: unknown.
    pub peer_window_bytes: u64,
    /// `SO_SNDBUF` in effect; 0: unknown.
    pub send_buffer_bytes: u64,
}

/// One reading of all lanes.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    /// When, in microseconds since any fixed start.
    pub at_us: u64,
    /// The connected lanes, resting ones too.
    pub lanes: Vec<LaneReading>,
    /// Bytes of waiting units; `u64::MAX`: more may come.
    pub waiting_bytes: u64,
}

#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct LaneStep {
    pub(super) delivered_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) resent_bytes: u64,
    pub(super) resent_in_vain_bytes: u64,
    pub(super) busy_us: u64,
    pub(super) receive_window_us: u64,
    pub(super) in_flight_bytes: u64,
    pub(super) cwnd_bytes: u64,
    pub(super) rtt_us: u32,
    /// The hosts' limit now, which grows with the congestion window.
    pub(super) window_bytes: u64,
    pub(super) receive_window_full: bool,
    pub(super) send_buffer_full: bool,
    /// The buffer is empty, and no window full. A lane that the network holds has something unsent (`TCP_NOTSENT_LOWAT`).
    pub(super) wants_data: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Step {
    pub(super) at_us: u64,
    pub(super) us: u64,
    /// Busy lanes, in the order of their numbers.
    pub(super) lanes: Vec<LaneStep>,
    /// Time of lanes with data that do not rest.
    pub(super) lanes_us: u64,
    pub(super) starved_us: u64,
    pub(super) delivered_bytes: u64,
    pub(super) sent_bytes: u64,
    pub(super) resent_bytes: u64,
    pub(super) resent_in_vain_bytes: u64,
    /// Smoothed round-trip time: a quarter of the lanes that delivered have a smaller one. A queue shows in all, a late host in
    /// some. 0: none delivered.
    pub(super) rtt_us: u32,
    /// Smallest round-trip time of any lane; 0: unknown.
    pub(super) rtt_min_us: u32,
    pub(super) rtt_deviation_us: u32,
    pub(super) mss_bytes: u32,
    pub(super) waiting_bytes: u64,
}

/// Lanes come, go, and may be dialled again under a number.
#[derive(Clone, Debug, Default)]
pub(super) struct Steps {
    at_us: Option<u64>,
    last: BTreeMap<u16, LaneReading>,
}

impl Steps {
    /// The step to this sample; `None` without time before. Lanes beyond the first `active` rest.
    pub(super) fn to(&mut self, sample: &Sample, active: u16) -> Option<Step> {
        let lanes = &sample.lanes[..sample.lanes.len().min(usize::from(MAX_LANES))];
        let now: BTreeMap<u16, LaneReading> = lanes.iter().map(|reading| (reading.lane, *reading)).collect();
        let last = core::mem::replace(&mut self.last, now);
        let us = sample.at_us.saturating_sub(self.at_us.replace(sample.at_us)?);
        if us == 0 {
            return None;
        }
        let mut step = Step { at_us: sample.at_us, us, waiting_bytes: sample.waiting_bytes, ..Step::default() };
        let (mut rtts, mut deviations) = (Vec::new(), Vec::new());
        for (at, reading) in self.last.values().enumerate() {
            let rtt_min_us = Some(reading.rtt_min_us).filter(|us| *us > 0);
            step.rtt_min_us =
                [Some(step.rtt_min_us).filter(|us| *us > 0), rtt_min_us].into_iter().flatten().min().unwrap_or(0);
            step.mss_bytes = step.mss_bytes.max(reading.mss_bytes);
            let lane = lane_step(last.get(&reading.lane), reading, us);
            if at < usize::from(active) && reading.acked_bytes > HANDSHAKE_BYTES_MAX {
                let busy_us = lane.map_or(0, |lane| if lane.wants_data { 0 } else { lane.busy_us });
                step.lanes_us = step.lanes_us.saturating_add(us);
                step.starved_us = step.starved_us.saturating_add(us - busy_us);
            }
            let Some(lane) = lane else { continue };
            step.delivered_bytes = step.delivered_bytes.saturating_add(lane.delivered_bytes);
            step.sent_bytes = step.sent_bytes.saturating_add(lane.sent_bytes);
            step.resent_bytes = step.resent_bytes.saturating_add(lane.resent_bytes);
            step.resent_in_vain_bytes = step.resent_in_vain_bytes.saturating_add(lane.resent_in_vain_bytes);
            if lane.delivered_bytes > 0 && lane.rtt_us > 0 {
                rtts.push(lane.rtt_us);
                deviations.push(reading.rtt_deviation_us);
            }
            step.lanes.push(lane);
        }
        rtts.sort_unstable();
        step.rtt_us = rtts.get(rtts.len() / 4).copied().unwrap_or(0);
        deviations.sort_unstable();
        step.rtt_deviation_us = deviations.get(deviations.len() / 2).copied().unwrap_or(0);
        Some(step)
    }
}

/// `None`: idle. New connections count from zero, also where counters ran backward.
fn lane_step(last: Option<&LaneReading>, now: &LaneReading, us: u64) -> Option<LaneStep> {
    let went_back = |last: &&LaneReading| last.acked_bytes > now.acked_bytes || last.busy_us > now.busy_us;
    let last = last.filter(|last| !went_back(last)).copied().unwrap_or_default();
    let busy_us = now.busy_us.saturating_sub(last.busy_us).min(us);
    if busy_us == 0 {
        return None;
    }
    let in_flight_bytes = now.sent_bytes.saturating_sub(now.resent_bytes).saturating_sub(now.acked_bytes);
    let resent_bytes = now.resent_bytes.saturating_sub(last.resent_bytes);
    let buffer_bytes = now.send_buffer_bytes / 100 * SEND_BUFFER_DATA_PERCENT;
    let told_full = now.send_buffer_limited_us.saturating_sub(last.send_buffer_limited_us).saturating_mul(2) > busy_us;
    let mss_bytes = u64::from(now.mss_bytes);
    let has_cwnd_left =
        now.cwnd_bytes > in_flight_bytes.saturating_add(in_flight_bytes / 16).saturating_add(2 * mss_bytes);
    let fills_buffer = buffer_bytes > 0 && in_flight_bytes >= buffer_bytes / 100 * FULL_PERCENT;
    let fills_peer = now.peer_window_bytes > 0 && in_flight_bytes >= now.peer_window_bytes / 100 * FULL_PERCENT;
    let receive_window_us = now.receive_window_limited_us.saturating_sub(last.receive_window_limited_us).min(busy_us);
    let told_other = receive_window_us.saturating_mul(2) > busy_us;
    // A paced lane stops just before the window, and the kernel tells only a fraction: 28 % with bbr and a window of 155 kB at 80
    // ms.
    let is_smaller_buffer = fills_buffer && buffer_bytes < now.peer_window_bytes;
    let receive_window_full = told_other || (has_cwnd_left && fills_peer && !is_smaller_buffer);
    let send_buffer_full = told_full || (has_cwnd_left && fills_buffer && !told_other);
    Some(LaneStep {
        delivered_bytes: now.delivered_bytes.saturating_sub(last.delivered_bytes),
        sent_bytes: now.sent_bytes.saturating_sub(last.sent_bytes),
        resent_bytes,
        resent_in_vain_bytes: now.resent_in_vain_bytes.saturating_sub(last.resent_in_vain_bytes),
        busy_us,
        receive_window_us,
        in_flight_bytes,
        cwnd_bytes: now.cwnd_bytes,
        rtt_us: now.rtt_us,
        window_bytes: [buffer_bytes, now.peer_window_bytes].into_iter().filter(|bytes| *bytes > 0).min().unwrap_or(0),
        receive_window_full,
        send_buffer_full,
        wants_data: now.unsent_bytes == 0 && !fills_buffer && !fills_peer,
    })
}

/// Ten segments of 1448 bytes (RFC 6928).
pub(super) const FIRST_WINDOW_BYTES: u64 = 14_480;

/// A handshake sends no more.
const HANDSHAKE_BYTES_MAX: u64 = 16_384;

/// The kernel's own records take the rest: 4 MiB had 2.9 MB under way. Twice as far from the whole, the rate falls 4.7 % (10
/// Gbit/s x 228 ms, tuned).
pub(super) const SEND_BUFFER_DATA_PERCENT: u64 = 70;

/// Readings fall between departures and acknowledgements.
const FULL_PERCENT: u64 = 85;

#[cfg(test)]
mod tests {
    use alloc::vec;

    use super::*;

    fn reading(lane: u16, acked_bytes: u64, busy_us: u64) -> LaneReading {
        LaneReading {
            lane,
            acked_bytes,
            delivered_bytes: acked_bytes,
            sent_bytes: acked_bytes,
            busy_us,
            rtt_us: 50_000,
            ..LaneReading::default()
        }
    }

    #[test]
    fn a_lane_that_was_dialled_again_counts_from_zero() {
        let mut steps = Steps::default();
        let mut to = |at_us, lanes| steps.to(&Sample { at_us, lanes, waiting_bytes: u64::MAX }, 2);
        assert_eq!(to(0, vec![reading(1, 900, 90)]), None);
        let step = to(100, vec![reading(1, 1_000, 190), reading(2, 30, 50)]).unwrap();
        assert_eq!((step.delivered_bytes, step.lanes.len()), (130, 2));
        let step = to(200, vec![reading(1, 40, 50)]).unwrap();
        assert_eq!((step.delivered_bytes, step.us, step.rtt_us), (40, 100, 50_000));
        assert_eq!(to(200, vec![]), None, "time did not pass");
    }

    #[test]
    fn a_lane_starves_while_it_has_nothing_to_send_unless_it_rests_or_never_began() {
        let mut steps = Steps::default();
        let mut to = |at_us, lanes| steps.to(&Sample { at_us, lanes, waiting_bytes: u64::MAX }, 4);
        let sends = |lane, busy_us| LaneReading { unsent_bytes: 1, ..reading(lane, 100_000, busy_us) };
        to(0, (1..=6).map(|lane| sends(lane, 100)).collect());
        let (new, resting) = (reading(4, 500, 100), reading(6, 100_000, 100));
        let step = to(100, vec![sends(1, 200), sends(2, 160), reading(3, 100_000, 200), new, resting]).unwrap();
        assert_eq!((step.lanes_us, step.starved_us), (300, 40 + 100));
    }

    #[test]
    fn a_full_send_buffer_is_seen_without_the_kernel_telling() {
        let check = |in_flight: u64, cwnd_bytes: u64, unsent_bytes: u64, full: bool, wants_data: bool| {
            let now = LaneReading {
                sent_bytes: in_flight,
                busy_us: 100,
                cwnd_bytes,
                unsent_bytes,
                mss_bytes: 1448,
                send_buffer_bytes: 4 << 20,
                ..LaneReading::default()
            };
            let lane = lane_step(None, &now, 100).unwrap();
            assert_eq!((lane.send_buffer_full, lane.wants_data), (full, wants_data), "{in_flight} of {cwnd_bytes}");
        };
        check(2_900_000, 6_000_000, 0, true, false);
        check(2_900_000, 2_900_000, 0, false, false);
        check(500_000, 500_000, 1_000_000, false, false);
        check(500_000, 6_000_000, 0, false, true);
    }
}
