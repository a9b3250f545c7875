//! A lane that is sampled.

use std::io;
use std::time::Duration;

use haul_engine::path::LaneReading;
use haul_net::Probe;
use haul_net::policy::Dscp;

/// The longest pause of a lane that watches, after a packet that was lost: the shortest that Linux takes.
const WATCHES_EVERY: Duration = Duration::from_secs(1);

/// A lane that is sampled.
pub(super) struct Lane {
    pub(super) number: u16,
    pub(super) probe: Probe,
    delivered: Delivered,
    /// What it was asked for last.
    follows: LaneAdvice,
    /// The mark that it came with: the host's, or that of a row of the operator's table.
    own_mark: Option<Dscp>,
    marked: Marked,
    /// See [`Lane::watches`].
    is_watching: bool,
    /// What it had counted when it was first sampled.
    before: Before,
}

/// What a lane counted while it carried jobs before this one.
#[derive(Clone, Copy, Debug, Default)]
struct Before {
    acked_bytes: u64,
    sent_bytes: u64,
    resent_bytes: u64,
    resent_in_vain_bytes: u64,
    busy_us: u64,
    receive_window_limited_us: u64,
    send_buffer_limited_us: u64,
}

impl Before {
    fn of(reading: &LaneReading) -> Self {
        Self {
            acked_bytes: reading.acked_bytes,
            sent_bytes: reading.sent_bytes,
            resent_bytes: reading.resent_bytes,
            resent_in_vain_bytes: reading.resent_in_vain_bytes,
            busy_us: reading.busy_us,
            receive_window_limited_us: reading.receive_window_limited_us,
            send_buffer_limited_us: reading.send_buffer_limited_us,
        }
    }

    /// The counters without what was before.
    fn since(&self, reading: LaneReading) -> LaneReading {
        LaneReading {
            acked_bytes: reading.acked_bytes.saturating_sub(self.acked_bytes),
            sent_bytes: reading.sent_bytes.saturating_sub(self.sent_bytes),
            resent_bytes: reading.resent_bytes.saturating_sub(self.resent_bytes),
            resent_in_vain_bytes: reading.resent_in_vain_bytes.saturating_sub(self.resent_in_vain_bytes),
            busy_us: reading.busy_us.saturating_sub(self.busy_us),
            receive_window_limited_us: reading.receive_window_limited_us.saturating_sub(self.receive_window_limited_us),
            send_buffer_limited_us: reading.send_buffer_limited_us.saturating_sub(self.send_buffer_limited_us),
            ..reading
        }
    }
}

/// What went with a mark that was asked for here.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    bytes: u64,
    /// The connection's count when it was last looked at.
    sent_bytes: u64,
}

/// What one lane shall do from now on.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct LaneAdvice {
    /// Bound of its rate; `None` lifts it.
    pub(super) pace_bytes_per_s: Option<u64>,
    /// `None`: the one that it has.
    pub(super) congestion_control: Option<String>,
    /// The mark of its packets; `None`: the one that it came with.
    pub(super) dscp: Option<Dscp>,
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

impl Marked {
    fn since(&self, sent_bytes: u64, is_marked: bool) -> u64 {
        if is_marked { sent_bytes.saturating_sub(self.sent_bytes) } else { 0 }
    }
}

impl Lane {
    pub(super) fn new(number: u16, probe: Probe) -> Self {
        let (own_mark, follows) = (probe.dscp(), LaneAdvice::default());
        let (delivered, marked, before) = Default::default();
        Self { number, probe, delivered, follows, own_mark, marked, is_watching: false, before }
    }

    /// A lane that has carried jobs before this one.
    pub(super) fn counting_from_now(number: u16, probe: Probe) -> Self {
        let mut lane = Self::new(number, probe);
        if let Some((reading, _)) = lane.reading() {
            lane.before = Before::of(&reading);
        }
        (lane.delivered.bytes, lane.marked.bytes) = (0, 0);
        lane
    }

    /// Its counters, and how often in a row the kernel repeated the same segment in vain. `None` when the lane does not run over TCP, or
    /// has just ended.
    pub(super) fn reading(&mut self) -> Option<(LaneReading, u8)> {
        let is_marked = self.is_marked();
        let Self { number, probe, delivered, marked, before, .. } = self;
        let info = probe.tcp_info()?;
        marked.bytes += marked.since(info.bytes_sent.unwrap_or(0), is_marked);
        marked.sent_bytes = info.bytes_sent.unwrap_or(0);
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
            delivered_bytes: info.delivered.map_or(acked_bytes.saturating_sub(before.acked_bytes), |segments| {
                delivered.up_to(segments, info.snd_mss_bytes)
            }),
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
        Some((self.before.since(reading), info.timeouts))
    }

    /// Bytes that arrived, as far as they were read.
    pub(super) fn delivered_bytes(&self) -> u64 {
        self.delivered.bytes
    }

    /// Compares the advice with what the lane follows, and asks the kernel for what is new. Returns what the kernel refuses; of a pace
    /// nothing is told, because a lane that just ended has none.
    pub(super) fn follow(&mut self, advice: LaneAdvice) -> io::Result<()> {
        if advice.pace_bytes_per_s != self.follows.pace_bytes_per_s {
            let _ = self.probe.set_max_pacing_rate(advice.pace_bytes_per_s);
        }
        let congestion_control = advice.congestion_control.as_ref().filter(|name| !self.has(name));
        let chosen = congestion_control.map_or(Ok(()), |name| self.probe.set_congestion_control(name));
        let is_new = advice.dscp != self.follows.dscp;
        let dscp = advice.dscp.or(self.own_mark).filter(|_| is_new);
        let marked = dscp.map_or_else(Vec::new, |dscp| self.probe.set_dscp(dscp));
        let short = marked.into_iter().find(|applied| applied.falls_short);
        self.follows = advice;
        chosen.and_then(|()| short.map_or(Ok(()), |short| Err(io::Error::other(short.to_string()))))
    }

    /// It follows no advice any more.
    pub(super) fn let_go(&mut self) {
        // A lane that has ended needs nothing.
        let _ = self.follow(LaneAdvice::default());
    }

    /// It shows whether others are still there, so it may not be silent for long after each loss. Only for paths much shorter than a second.
    pub(super) fn watches(&mut self) {
        if !std::mem::replace(&mut self.is_watching, true) {
            // A kernel without that option asks more seldom.
            let _ = self.probe.set_rto_max(WATCHES_EVERY);
        }
    }

    /// The same with another pace.
    pub(super) fn pace(&mut self, bytes_per_s: Option<u64>) {
        // Nothing else is new, and a pace is not refused.
        let _ = self.follow(LaneAdvice { pace_bytes_per_s: bytes_per_s, ..self.follows.clone() });
    }

    /// The same with another mark. Returns what the kernel refuses.
    pub(super) fn mark(&mut self, dscp: Option<Dscp>) -> io::Result<()> {
        if dscp == self.follows.dscp {
            return Ok(());
        }
        // What was sent so far had the mark of before.
        self.reading();
        self.follow(LaneAdvice { dscp, ..self.follows.clone() })
    }

    /// The mark that it was asked for.
    pub(super) fn dscp(&self) -> Option<Dscp> {
        self.follows.dscp
    }

    fn is_marked(&self) -> bool {
        self.follows.dscp.is_some_and(|dscp| dscp.code_point() != 0)
    }

    /// Bytes that it sent with a mark that was asked for, up to now.
    pub(super) fn marked_bytes(&self) -> u64 {
        let sent_bytes = self.probe.tcp_info().and_then(|info| info.bytes_sent).unwrap_or(self.marked.sent_bytes);
        self.marked.bytes + self.marked.since(sent_bytes, self.is_marked())
    }

    /// The bound of its rate.
    pub(super) fn pace_bytes_per_s(&self) -> Option<u64> {
        self.follows.pace_bytes_per_s
    }

    /// The congestion control that the kernel granted.
    pub(super) fn granted(&self) -> Option<String> {
        self.probe.congestion_control()
    }

    fn has(&self, congestion_control: &str) -> bool {
        self.granted().is_some_and(|granted| granted == congestion_control)
    }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use haul_net::Stream;

    use super::*;

    #[test]
    fn each_lane_follows_its_own_advice_and_keeps_what_is_not_advised() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let streams: Vec<Stream> =
            (0..2).map(|_| Stream::plain_tcp(TcpStream::connect(listener.local_addr().unwrap()).unwrap())).collect();
        let mut lanes: Vec<Lane> =
            (0..).zip(&streams).map(|(number, stream)| Lane::new(number, stream.probe())).collect();
        let expedited = Dscp::new(46).unwrap();
        let advice = LaneAdvice { pace_bytes_per_s: Some(1_000_000), dscp: Some(expedited), congestion_control: None };
        lanes[0].follow(advice).unwrap();
        lanes[1].follow(LaneAdvice { congestion_control: Some("reno".into()), ..LaneAdvice::default() }).unwrap();
        lanes[1].pace(Some(2_000_000));
        let paces: Vec<_> = streams.iter().map(|s| s.tcp_info().unwrap().max_pacing_rate_bytes_per_s).collect();
        assert_eq!(paces, [Some(1_000_000), Some(2_000_000)]);
        assert_eq!(lanes[1].granted().as_deref(), Some("reno"), "a new pace changes nothing else");
        let marks =
            streams.iter().map(|s| haul_sys::socket::dscp(s.tcp().unwrap(), haul_sys::socket::Family::V4).unwrap());
        assert_eq!(marks.collect::<Vec<_>>(), [46, 0], "one lane is marked, and the other is not");
    }

    #[test]
    fn what_arrived_counts_on_when_the_count_wraps_around_or_segments_change_their_size() {
        let mut delivered = Delivered { segments: u32::MAX - 9, bytes: 5_000 };
        assert_eq!(delivered.up_to(u32::MAX, 1_000), 5_000 + 9_000);
        assert_eq!(delivered.up_to(20, 1_000), 14_000 + 21_000, "the count wrapped around");
        assert_eq!(delivered.up_to(21, 500), 35_000 + 500, "what arrived before keeps its size");
        assert_eq!(delivered.up_to(21, 9_000), 35_500, "nothing arrived");
    }
}
