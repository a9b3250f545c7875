//! A lane that is sampled.

use std::io;

use haul_engine::path::{Advice, LaneReading};
use haul_net::Probe;

/// A lane that is sampled.
pub(super) struct Lane {
    pub(super) number: u16,
    pub(super) probe: Probe,
    delivered: Delivered,
}

/// Bytes that arrived, from the kernel's count of segments. The count wraps around, and segments change their size with the path, so each
/// step counts with the size of its own.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    segments: u32,
    bytes: u64,
}

impl Delivered {
    /// All bytes up to this count.
    fn up_to(&mut self, segments: u32, segment_bytes: u32) -> u64 {
        let step = segments.wrapping_sub(self.segments);
        self.segments = segments;
        self.bytes = self.bytes.saturating_add(u64::from(step) * u64::from(segment_bytes));
        self.bytes
    }
}

impl Lane {
    pub(super) fn new(number: u16, probe: Probe) -> Self {
        Self { number, probe, delivered: Delivered::default() }
    }

    /// Its counters, and how often in a row the kernel repeated the same segment in vain. `None` when the lane does not run over TCP, or
    /// has just ended.
    pub(super) fn reading(&mut self) -> Option<(LaneReading, u8)> {
        let Self { number, probe, delivered } = self;
        let info = probe.tcp_info()?;
        let mss_bytes = u64::from(info.snd_mss_bytes);
        let acked_bytes = info.bytes_acked.unwrap_or(0);
        let reading = LaneReading {
            lane: *number,
            rtt_us: info.rtt_us,
            rtt_min_us: info.rtt_min_us.unwrap_or(info.rtt_us),
            rtt_deviation_us: info.rtt_var_us,
            mss_bytes: info.snd_mss_bytes,
            cwnd_bytes: u64::from(info.snd_cwnd) * mss_bytes,
            in_slow_start: info.snd_cwnd < info.snd_ssthresh,
            acked_bytes,
            delivered_bytes: info
                .delivered
                .map_or(acked_bytes, |segments| delivered.up_to(segments, info.snd_mss_bytes)),
            sent_bytes: info.bytes_sent.unwrap_or(0),
            resent_bytes: info.bytes_retrans.unwrap_or(0),
            resent_in_vain_bytes: u64::from(info.dsack_dups.unwrap_or(0)) * mss_bytes,
            unsent_bytes: u64::from(info.notsent_bytes.unwrap_or(0)),
            busy_us: info.busy_time_us.unwrap_or(0),
            receive_window_limited_us: info.rwnd_limited_us.unwrap_or(0),
            send_buffer_limited_us: info.sndbuf_limited_us.unwrap_or(0),
            silent_us: info.silent_us,
            peer_window_bytes: u64::from(info.snd_wnd_bytes.unwrap_or(0)),
            send_buffer_bytes: probe.send_buffer_bytes().map_or(0, |bytes| bytes as u64),
        };
        Some((reading, info.timeouts))
    }

    /// Bytes that arrived, as far as they were read.
    pub(super) fn delivered_bytes(&self) -> u64 {
        self.delivered.bytes
    }

    /// Bounds its rate. A lane that just ended is bounded by nothing any more.
    pub(super) fn pace(&self, bytes_per_s: Option<u64>) {
        let _ = self.probe.set_max_pacing_rate(bytes_per_s);
    }

    /// Gives it the congestion control of the advice, where it has another one.
    pub(super) fn choose_congestion_control(&self, advice: &Advice) -> io::Result<()> {
        match &advice.congestion_control {
            Some(name) if self.probe.congestion_control().as_ref() != Some(name) => {
                self.probe.set_congestion_control(name)
            }
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_arrived_counts_on_when_the_count_wraps_around_or_segments_change_their_size() {
        let mut delivered = Delivered { segments: u32::MAX - 9, bytes: 5_000 };
        assert_eq!(delivered.up_to(u32::MAX, 1_000), 5_000 + 9_000);
        assert_eq!(delivered.up_to(20, 1_000), 14_000 + 21_000, "the count wrapped around");
        assert_eq!(delivered.up_to(21, 500), 35_000 + 500, "what arrived before keeps its size");
        assert_eq!(delivered.up_to(21, 9_000), 35_500, "nothing arrived");
    }
}
