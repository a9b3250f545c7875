//! Samples one lane, and makes it follow advice.

use std::io;
use std::time::Duration;

use haul_engine::path::LaneReading;
use haul_net::policy::Dscp;
use haul_net::{OutboundConnection, Probe};

/// A lost packet is asked for again within this; Linux takes no shorter time.
const WATCHES_EVERY: Duration = Duration::from_secs(1);

/// A sampled lane.
pub struct Lane {
    /// The lane's number.
    pub number: u16,
    /// The kernel's counters.
    pub probe: Probe,
    delivered: Delivered,
    follows: LaneAdvice,
    /// The host's mark, or its row's.
    own_mark: Option<Dscp>,
    marked: Marked,
    is_watching: bool,
    before: Counters,
    /// Counters of earlier connections in its place.
    earlier: Counters,
    /// The last reading of a connection that is closed.
    ended: Option<LaneReading>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Counters {
    acked_bytes: u64,
    sent_bytes: u64,
    resent_bytes: u64,
    resent_in_vain_bytes: u64,
    busy_us: u64,
    receive_window_limited_us: u64,
    send_buffer_limited_us: u64,
}

impl Counters {
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

    fn and(&self, reading: LaneReading) -> LaneReading {
        LaneReading {
            acked_bytes: reading.acked_bytes.saturating_add(self.acked_bytes),
            sent_bytes: reading.sent_bytes.saturating_add(self.sent_bytes),
            resent_bytes: reading.resent_bytes.saturating_add(self.resent_bytes),
            resent_in_vain_bytes: reading.resent_in_vain_bytes.saturating_add(self.resent_in_vain_bytes),
            busy_us: reading.busy_us.saturating_add(self.busy_us),
            receive_window_limited_us: reading.receive_window_limited_us.saturating_add(self.receive_window_limited_us),
            send_buffer_limited_us: reading.send_buffer_limited_us.saturating_add(self.send_buffer_limited_us),
            ..reading
        }
    }
}

/// Bytes with a mark asked for here.
#[derive(Clone, Copy, Debug, Default)]
struct Marked {
    bytes: u64,
    sent_bytes: u64,
}

/// Settings for one lane.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LaneAdvice {
    /// The rate's bound; `None` lifts it.
    pub(crate) pace_bytes_per_s: Option<u64>,
    /// `None` keeps the present one.
    pub congestion_control: Option<String>,
    /// `None` restores the first mark.
    pub dscp: Option<Dscp>,
}

/// Sums the kernel's count of segments, which wraps around; each step has its own size of segments.
#[derive(Clone, Copy, Debug, Default)]
struct Delivered {
    segments: u32,
    bytes: u64,
}

impl Delivered {
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
    /// Makes an unsampled lane.
    pub fn new(number: u16, probe: Probe) -> Self {
        let (own_mark, follows) = (probe.dscp(), LaneAdvice::default());
        let (delivered, marked, before, earlier) = Default::default();
        Self { number, probe, delivered, follows, own_mark, marked, is_watching: false, before, earlier, ended: None }
    }

    pub(crate) fn counting_from_now(number: u16, probe: Probe) -> Self {
        let mut lane = Self::new(number, probe);
        if let Some((reading, _)) = lane.reading() {
            lane.before = Counters::of(&reading);
        }
        (lane.delivered.bytes, lane.marked.bytes) = (0, 0);
        lane
    }

    /// Makes one of a connection to a server, which may have its mark from its first byte on.
    pub(crate) fn of_outbound(number: u16, connection: OutboundConnection) -> Self {
        let OutboundConnection { probe, own_mark, mark, unmarked_bytes, .. } = connection;
        let mut lane = Self::new(number, probe);
        (lane.own_mark, lane.follows.dscp, lane.marked.sent_bytes) = (own_mark, mark, unmarked_bytes);
        lane
    }

    /// Ends its connection to a server. The counters stay: another connection carries the next file.
    pub(crate) fn end(&mut self) {
        let Some((reading, _)) = self.reading() else { return };
        // What nobody has confirmed is gone.
        let sent_bytes = reading.acked_bytes.saturating_add(reading.resent_bytes);
        self.ended = Some(LaneReading { unsent_bytes: 0, sent_bytes, ..reading });
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.is_some()
    }

    /// Goes on with another connection to that server.
    pub(crate) fn go_on(&mut self, connection: OutboundConnection) {
        let OutboundConnection { probe, own_mark, mark, unmarked_bytes, .. } = connection;
        let earlier = self.ended.take().map_or(self.earlier, |ended| Counters::of(&ended));
        let advice = std::mem::take(&mut self.follows);
        (self.probe, self.own_mark, self.follows.dscp) = (probe, own_mark, mark);
        (self.earlier, self.before, self.is_watching) = (earlier, Counters::default(), false);
        (self.delivered.segments, self.marked.sent_bytes) = (0, unmarked_bytes);
        // Good enough until the next sample.
        let _ = self.follow(LaneAdvice { dscp: mark, ..advice });
    }

    /// Returns counters, and repeats of a segment in a row. `None`: not TCP, or just ended.
    pub fn reading(&mut self) -> Option<(LaneReading, u8)> {
        if let Some(ended) = self.ended {
            return Some((ended, 0));
        }
        let is_marked = self.is_marked();
        let Self { number, probe, delivered, marked, before, earlier, .. } = self;
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
            delivered_bytes: info.delivered.map_or(
                acked_bytes.saturating_sub(before.acked_bytes).saturating_add(earlier.acked_bytes),
                |segments| delivered.up_to(segments, info.snd_mss_bytes),
            ),
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
        Some((self.earlier.and(self.before.since(reading)), info.timeouts))
    }

    /// Bytes arrived at the last reading.
    pub fn delivered_bytes(&self) -> u64 {
        self.delivered.bytes
    }

    /// Asks the kernel for new advice. Returns a refusal, except of a pace, which an ended lane lacks.
    pub fn follow(&mut self, advice: LaneAdvice) -> io::Result<()> {
        if self.has_ended() {
            self.follows = advice;
            return Ok(());
        }
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

    /// Takes advice back.
    pub fn release(&mut self) {
        let _ = self.follow(LaneAdvice::default());
    }

    /// Repeats lost packets sooner, on paths much shorter than a second.
    pub fn watches(&mut self) {
        if !std::mem::replace(&mut self.is_watching, true) {
            // Some kernels lack the option.
            let _ = self.probe.set_rto_max(WATCHES_EVERY);
        }
    }

    /// Changes its pace.
    pub fn pace(&mut self, bytes_per_s: Option<u64>) {
        let _ = self.follow(LaneAdvice { pace_bytes_per_s: bytes_per_s, ..self.follows.clone() });
    }

    /// Changes its mark. Returns the kernel's refusal.
    pub fn mark(&mut self, dscp: Option<Dscp>) -> io::Result<()> {
        if dscp == self.follows.dscp {
            return Ok(());
        }
        // Earlier bytes count for the old mark.
        self.reading();
        self.follow(LaneAdvice { dscp, ..self.follows.clone() })
    }

    /// The mark asked for.
    pub fn dscp(&self) -> Option<Dscp> {
        self.follows.dscp
    }

    fn is_marked(&self) -> bool {
        self.follows.dscp.is_some_and(|dscp| dscp.code_point() != 0)
    }

    /// Bytes with such a mark.
    pub fn marked_bytes(&self) -> u64 {
        let sent_bytes = self.probe.tcp_info().and_then(|info| info.bytes_sent).unwrap_or(self.marked.sent_bytes);
        self.marked.bytes + self.marked.since(sent_bytes, self.is_marked())
    }

    pub(crate) fn pace_bytes_per_s(&self) -> Option<u64> {
        self.follows.pace_bytes_per_s
    }

    /// The granted congestion control.
    pub fn granted(&self) -> Option<String> {
        self.probe.congestion_control()
    }

    fn has(&self, congestion_control: &str) -> bool {
        self.granted().is_some_and(|granted| granted == congestion_control)
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::time::Instant;

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

    /// A marked connection over which so many bytes went, and were confirmed.
    fn outbound(bytes: usize) -> (OutboundConnection, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let probe = Stream::plain_tcp(near.try_clone().unwrap()).probe();
        let mark = Dscp::new(46);
        probe.set_dscp(mark.unwrap());
        near.write_all(&vec![0; bytes]).unwrap();
        far.read_exact(&mut vec![0; bytes]).unwrap();
        let deadline = Instant::now() + Duration::from_secs(10);
        while probe.tcp_info().unwrap().bytes_acked.unwrap() < bytes as u64 && Instant::now() < deadline {
            std::thread::yield_now();
        }
        (OutboundConnection { number: 0, probe, own_mark: None, mark, unmarked_bytes: 0 }, near, far)
    }

    #[test]
    fn a_lane_counts_the_connections_together_that_follow_each_other_in_its_place() {
        let (first, _near, _far) = outbound(3_000);
        let mut lane = Lane::of_outbound(0, first);
        lane.end();
        let (ended, _) = lane.reading().unwrap();
        assert!(lane.has_ended() && ended.unsent_bytes == 0 && ended.sent_bytes == ended.acked_bytes, "{ended:?}");
        lane.pace(Some(1_000_000));
        let (second, near, _far) = outbound(500);
        lane.go_on(second);
        let (reading, _) = lane.reading().unwrap();
        assert!((3_500..3_510).contains(&reading.acked_bytes) && reading.sent_bytes >= 3_500, "{reading:?}");
        assert!(reading.delivered_bytes >= ended.delivered_bytes, "{reading:?}");
        assert_eq!(lane.marked_bytes(), 3_500);
        let info = Stream::plain_tcp(near).tcp_info().unwrap();
        assert_eq!(info.max_pacing_rate_bytes_per_s, Some(1_000_000), "it keeps to the bound of the one before");
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
