//! The loop that tunes a sender's lanes while they work: sample -> estimate -> advice -> applied.
//!
//! Runs at the turns of the session's loop, ten times a second: a reading of a lane is one system call. What to do is decided in
//! `haul_engine::path`; here it is done, and what the kernel refused is told once.

use std::fmt;
use std::net::IpAddr;
use std::time::{Duration, Instant};

use haul_engine::path::{
    Advice, LaneReading, Limit, Phase, Remembered, Sample, Tuner, Wishes, better_given_up, bound_per_lane,
    bounds_at_end, too_slow_for_more,
};
use haul_job::Subject;
use haul_net::{Probe, host};
use haul_wire::control::{Carriage, Notice};
use haul_wire::summary::{HeldBy, KnownPath, PathNow, PathSummary};

use crate::kept::known_paths::{self, Direction, KnownPaths};
use crate::session::clock::TICK;
use crate::session::foreseen::Foreseen;
use crate::session::{convert, host_facts};

/// Between two samples.
const SAMPLE_EVERY: Duration = Duration::from_millis(100);

/// Between two divisions of the bound while lanes finish their last chunk. With 48 lanes on 1 Gbit/s a chunk takes 430 ms. All
/// lanes finish within a tenth of that, and a lane that has finished must leave its part to the others at once.
const DIVIDE_EVERY: Duration = Duration::from_millis(20);

/// Between two words about the path to whoever watches.
const TELL_EVERY: Duration = Duration::from_secs(1);

/// The congestion control that the engine may choose by itself.
const BBR: &str = "bbr";

/// Tunes the lanes of one sender.
pub(crate) struct Tuning {
    wishes: Wishes,
    foreseen: Foreseen,
    /// Processors of the smaller host.
    cpus: u16,
    /// What earlier jobs found of the path is looked up with the first lane, which says where it leads.
    remembers: Option<KnownPaths>,
    /// From the first lane on that runs over TCP.
    tuner: Option<Tuner>,
    lanes: Vec<Lane>,
    advice: Option<Advice>,
    /// The last bound that was the same for each lane, in bytes per second.
    paced_to: Option<u64>,
    /// Lanes have bounds of their own, by what each has left.
    is_divided: bool,
    /// Lanes that get no more units, although they do not rest: the others are done sooner.
    too_slow: Vec<u16>,
    /// Lanes that were given up. Once is enough: what follows under the same number begins as new.
    given_up: Vec<u16>,
    /// Lanes will soon leave their part.
    some_finish: bool,
    divided_at: Instant,
    started: Instant,
    sampled_at: Instant,
    told_at: Instant,
    was_refused: bool,
    swallowed: Option<Swallowed>,
}

/// What the lanes have to do.
pub(crate) trait Work {
    /// Bytes of the units that wait for a lane, 0 when none does; `u64::MAX` when some do and more may come.
    fn waiting_bytes(&self) -> u64;

    /// What a lane takes at once of the units that wait, in bytes.
    fn unit_bytes(&self) -> u64;

    /// What is left for these lanes, once fewer units wait than so many lanes carry, and nothing can follow.
    fn ending(&self, lanes: &[u16], carrying: usize) -> Option<Ending>;
}

/// There is always more to send.
pub(crate) struct Endless;

impl Work for Endless {
    fn waiting_bytes(&self) -> u64 {
        u64::MAX
    }

    fn unit_bytes(&self) -> u64 {
        0
    }

    fn ending(&self, _lanes: &[u16], _carrying: usize) -> Option<Ending> {
        None
    }
}

/// The last units of a job.
pub(crate) struct Ending {
    /// Of each lane: what it has taken, and not given to its connection.
    pub(crate) left_bytes: Vec<u64>,
    /// Of each unit that no lane has taken.
    pub(crate) waiting_bytes: Vec<u64>,
}

/// A segment that was lost three times in a row is dropped by rule, and not by chance: with a loss of 5 %, chance does that to
/// one segment of 8,000.
const TIMEOUTS_IN_A_ROW: u8 = 3;

/// What a path does not let through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Swallowed {
    /// Payload of the packets that vanish.
    pub(crate) segment_bytes: u32,
    /// Others of that size came through before.
    pub(crate) ever: bool,
}

impl fmt::Display for Swallowed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.ever {
            return f.write_str("nothing that is sent on the data connections is acknowledged any more");
        }
        let bytes = self.segment_bytes;
        write!(f, "the data connections stand, but no full packet gets through ({bytes} bytes of data): ")?;
        f.write_str("something on the path drops large packets without a word")
    }
}

/// A lane that is sampled.
struct Lane {
    number: u16,
    probe: Probe,
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

/// What a turn of the loop brought.
#[derive(Default)]
pub(crate) struct Turn {
    /// So many lanes shall carry data from now on.
    pub(crate) lanes: Option<u16>,
    /// Others than before get no units: see [`Tuning::resting`].
    pub(crate) work_moves: bool,
    /// These lanes are to be cut: others carry what they have sooner.
    pub(crate) give_up: Vec<u16>,
    /// Choices with their reasons, for whoever watches.
    pub(crate) notices: Vec<Notice>,
    /// The path as it is, when it is time to tell it.
    pub(crate) path: Option<PathNow>,
}

impl Tuning {
    /// For a job that sends at least what is foreseen by the time of its first lane.
    pub(crate) fn new(carriage: &Carriage, foreseen: Foreseen) -> Self {
        let now = Instant::now();
        Self {
            wishes: wishes(carriage),
            foreseen,
            cpus: cpus_of_smaller(carriage),
            remembers: None,
            tuner: None,
            lanes: Vec::new(),
            advice: None,
            paced_to: None,
            is_divided: false,
            too_slow: Vec::new(),
            given_up: Vec::new(),
            some_finish: false,
            divided_at: now,
            started: now,
            sampled_at: now,
            told_at: now,
            was_refused: false,
            swallowed: None,
        }
    }

    /// With what earlier jobs of this host found of the path to whom the first lane leads.
    pub(crate) fn remembering(self, paths: KnownPaths) -> Self {
        Self { remembers: Some(paths), ..self }
    }

    /// A lane to `peer` is there; from now on it is sampled.
    pub(crate) fn lane_up(&mut self, lane: u16, probe: Probe, peer: Option<IpAddr>) {
        let Some(info) = probe.tcp_info() else { return };
        self.lane_down(lane);
        if self.tuner.is_none() {
            self.wishes.foreseen_bytes = self.foreseen.bytes();
        }
        if let (Some(paths), None) = (&self.remembers, &self.tuner) {
            let known = peer.and_then(|peer| paths.towards(peer, Direction::To));
            self.wishes.remembered = known.as_ref().map(remembered);
        }
        let wishes = &self.wishes;
        let tuner = self.tuner.get_or_insert_with(|| Tuner::new(wishes.clone(), info.rtt_us, self.cpus));
        let advice = self.advice.get_or_insert_with(|| tuner.first());
        // What the lane has now is good enough until the next sample.
        let _ = choose_congestion_control(&probe, advice).and_then(|()| probe.set_max_pacing_rate(self.paced_to));
        if let Some(granted) = probe.congestion_control() {
            tuner.on_granted(&granted);
        }
        self.lanes.push(Lane { number: lane, probe, delivered: Delivered::default() });
        self.lanes.sort_unstable_by_key(|lane| lane.number);
    }

    pub(crate) fn lane_down(&mut self, lane: u16) {
        self.lanes.retain(|other| other.number != lane);
    }

    /// How long the session may wait for its next event.
    pub(crate) fn tick(&self) -> Duration {
        if self.some_finish { DIVIDE_EVERY } else { TICK }
    }

    /// Samples when it is time, and applies what follows.
    pub(crate) fn turn(&mut self, work: &dyn Work) -> Turn {
        let now = Instant::now();
        if now.duration_since(self.sampled_at) < SAMPLE_EVERY {
            if self.some_finish && now.duration_since(self.divided_at) >= DIVIDE_EVERY {
                let lanes: Vec<LaneReading> = self.lanes.iter_mut().filter_map(reading).collect();
                self.divide(&lanes, work);
            }
            return Turn::default();
        }
        self.sampled_at = now;
        let Some(tuner) = &mut self.tuner else { return Turn::default() };
        let at_us = u64::try_from(now.duration_since(self.started).as_micros()).unwrap_or(u64::MAX);
        let lanes: Vec<LaneReading> = self.lanes.iter_mut().filter_map(reading).collect();
        let sample = Sample { at_us, lanes, waiting_bytes: work.waiting_bytes() };
        let advice = tuner.on_sample(&sample);
        let mut turn = Turn::default();
        if now.duration_since(self.told_at) >= TELL_EVERY {
            self.told_at = now;
            turn.path = Some(path_now(tuner, self.advice.as_ref()));
            // A cable that is out for a moment looks the same once data had passed.
            if let Some(swallowed) = self.look_for_swallowed().filter(|swallowed| !swallowed.ever) {
                turn.notices.push(Notice::Warning { text: swallowed.to_string() });
            }
        }
        if let Some(advice) = advice {
            self.apply(advice, &mut turn);
        }
        self.divide(&sample.lanes, work);
        turn.work_moves = self.look_for_slow(&sample, work.unit_bytes());
        turn.give_up = self.look_for_last(&sample.lanes, work);
        turn
    }

    /// Looks which lanes would hold up the end of the job: what they carry is to go over others.
    fn look_for_last(&mut self, lanes: &[LaneReading], work: &dyn Work) -> Vec<u16> {
        let carrying = self.advice.as_ref().map_or(lanes.len(), |advice| usize::from(advice.lanes));
        let numbers: Vec<u16> = lanes.iter().map(|lane| lane.lane).collect();
        let Some(ending) = work.ending(&numbers, carrying) else { return Vec::new() };
        let left = lanes.iter().zip(ending.left_bytes).map(|(lane, left)| lane.unsent_bytes.saturating_add(left));
        let left: Vec<u64> = left.collect();
        let slow = numbers.into_iter().zip(better_given_up(lanes, &left)).filter(|(_, slow)| *slow);
        let slow: Vec<u16> = slow.map(|(number, _)| number).filter(|lane| !self.given_up.contains(lane)).collect();
        self.given_up.extend(&slow);
        slow
    }

    /// Looks which lanes would be the last to be done, with what they would take now. True when these are others than before.
    fn look_for_slow(&mut self, sample: &Sample, unit_bytes: u64) -> bool {
        let carrying = self.advice.as_ref().map_or(usize::MAX, |advice| usize::from(advice.lanes));
        let lanes = &sample.lanes[..sample.lanes.len().min(carrying)];
        let too_slow = match sample.waiting_bytes {
            0 | u64::MAX => Vec::new(),
            waiting_bytes => {
                let slow = too_slow_for_more(lanes, waiting_bytes, unit_bytes);
                lanes.iter().zip(slow).filter(|(_, slow)| *slow).map(|(lane, _)| lane.lane).collect()
            }
        };
        let is_new = too_slow != self.too_slow;
        self.too_slow = too_slow;
        is_new
    }

    /// Divides the bound among the lanes as they are now. Those that have sent all they had, and get no more, leave their part to the others.
    fn divide(&mut self, lanes: &[LaneReading], work: &dyn Work) {
        self.divided_at = Instant::now();
        let Some((advice, bound)) = self.advice.as_ref().and_then(|advice| Some((advice, advice.pacing_bytes_per_s?)))
        else {
            self.some_finish = false;
            return self.pace_all(None);
        };
        let numbers: Vec<u16> = lanes.iter().map(|lane| lane.lane).collect();
        match work.ending(&numbers, usize::from(advice.lanes)) {
            Some(Ending { left_bytes, waiting_bytes }) => {
                let left = lanes.iter().zip(left_bytes).map(|(lane, left)| lane.unsent_bytes.saturating_add(left));
                let left: Vec<u64> = left.collect();
                self.some_finish = left.iter().chain(&waiting_bytes).any(|bytes| *bytes > 0);
                let bounds = bounds_at_end(bound, lanes, &left, &waiting_bytes);
                self.is_divided = true;
                for (number, bound) in numbers.into_iter().zip(bounds) {
                    if let Some(lane) = self.lanes.iter().find(|lane| lane.number == number) {
                        // A lane that just ended is bounded by nothing any more.
                        let _ = lane.probe.set_max_pacing_rate(Some(bound));
                    }
                }
            }
            None => {
                let carrying = if work.waiting_bytes() > 0 { advice.lanes } else { 0 };
                self.some_finish = lanes.iter().skip(usize::from(carrying)).any(|lane| lane.unsent_bytes > 0);
                self.pace_all(Some(bound_per_lane(bound, lanes, carrying)));
            }
        }
    }

    fn pace_all(&mut self, bytes_per_s: Option<u64>) {
        if bytes_per_s == self.paced_to && !self.is_divided {
            return;
        }
        self.is_divided = false;
        self.paced_to = bytes_per_s;
        for lane in &self.lanes {
            let _ = lane.probe.set_max_pacing_rate(bytes_per_s);
        }
    }

    /// The lanes that get no units: those with the highest numbers, when fewer carry data, and towards the end those that are too slow.
    pub(crate) fn resting(&self) -> Vec<u16> {
        let active = self.advice.as_ref().map_or(usize::MAX, |advice| usize::from(advice.lanes));
        let rests = |(at, lane): &(usize, &Lane)| *at >= active || self.too_slow.contains(&lane.number);
        self.lanes.iter().enumerate().filter(rests).map(|(_, lane)| lane.number).collect()
    }

    /// The path, for the report.
    pub(crate) fn summary(&self) -> PathSummary {
        let Some(tuner) = &self.tuner else { return PathSummary::default() };
        // The name of a home-made congestion control may be one that nobody else would believe.
        let known = tuner.remembered().map(known_path).filter(KnownPath::is_within_limits);
        PathSummary { known, ..tuner.summary() }
    }

    /// What the path did not let through when it was last looked at, for a peer that is alive on another connection.
    pub(crate) fn swallowed(&self) -> Option<Swallowed> {
        self.swallowed
    }

    /// Looks whether every lane sends the same segment again and again, and nothing is acknowledged. Returns what was not so before.
    fn look_for_swallowed(&mut self) -> Option<Swallowed> {
        let infos: Vec<_> = self.lanes.iter().filter_map(|lane| lane.probe.tcp_info()).collect();
        if infos.is_empty() || infos.iter().any(|info| info.timeouts < TIMEOUTS_IN_A_ROW) {
            // Lanes that were given up and dialled again say nothing yet.
            if infos
                .iter()
                .any(|info| info.timeouts == 0 && info.bytes_acked.unwrap_or(0) > 2 * u64::from(info.snd_mss_bytes))
            {
                self.swallowed = None;
            }
            return None;
        }
        let segment_bytes = infos.iter().map(|info| info.snd_mss_bytes).max().unwrap_or(0);
        // The handshake alone comes to a segment, in small packets.
        let ever = infos.iter().any(|info| info.bytes_acked.unwrap_or(0) > 2 * u64::from(info.snd_mss_bytes));
        let now = Swallowed { segment_bytes, ever };
        (self.swallowed.replace(now) != Some(now)).then_some(now)
    }

    fn apply(&mut self, advice: Advice, turn: &mut Turn) {
        let before = self.advice.replace(advice.clone());
        let mut refused = None;
        for lane in &self.lanes {
            refused = choose_congestion_control(&lane.probe, &advice).err().or(refused);
        }
        let granted = self.lanes.first().and_then(|lane| lane.probe.congestion_control());
        if let (Some(tuner), Some(granted)) = (&mut self.tuner, granted) {
            tuner.on_granted(&granted);
        }
        let changed = |part: fn(&Advice) -> String| {
            let now = part(&advice);
            (before.as_ref().map(part) != Some(now.clone())).then_some(now)
        };
        if let Some(lanes) = changed(|advice| advice.lanes.to_string()) {
            turn.lanes = Some(advice.lanes);
            turn.notices.push(convert::chose(Subject::Lanes, lanes, advice.reasons.lanes));
        }
        let name =
            changed(|advice| advice.congestion_control.clone().unwrap_or_default()).filter(|name| !name.is_empty());
        if let Some(name) = name {
            turn.notices.push(convert::chose(Subject::CongestionControl, name, advice.reasons.congestion_control));
        }
        if let Some(error) = refused.filter(|_| !self.was_refused) {
            self.was_refused = true;
            turn.notices.push(Notice::Warning { text: format!("a lane could not be tuned to the path: {error}") });
        }
    }
}

/// How many lanes a job begins with on a path whose connections take `rtt_us` to open, and why.
pub(crate) fn first_lanes(carriage: &Carriage, foreseen: &Foreseen, rtt_us: u32, cpus: u16) -> (u16, &'static str) {
    let wishes = Wishes { foreseen_bytes: foreseen.bytes(), ..wishes(carriage) };
    let advice = Tuner::new(wishes, rtt_us, cpus).first();
    (advice.lanes, advice.reasons.lanes)
}

fn wishes(carriage: &Carriage) -> Wishes {
    let limits = host::limits();
    let mut allowed = limits.allowed_congestion_controls;
    if !allowed.iter().any(|name| name == BBR) && host::may_choose_congestion_control(BBR) {
        allowed.push(BBR.to_owned());
    }
    Wishes {
        lanes: carriage.lanes,
        congestion_control: carriage.congestion_control.clone(),
        rate_bytes_per_s: carriage.rate_bytes_per_s,
        allowed_congestion_controls: allowed,
        host_congestion_control: limits.congestion_control.unwrap_or_default(),
        foreseen_bytes: 0,
        remembered: carriage.path.as_ref().filter(|known| known_paths::is_sound(known)).map(remembered),
    }
}

/// Processors of the smaller of both hosts. Without the word of an initiator only this one is known.
pub(crate) fn cpus_of_smaller(carriage: &Carriage) -> u16 {
    let told = if carriage.cpus > 0 { carriage.cpus } else { u16::MAX };
    host_facts::cpus().min(told)
}

fn choose_congestion_control(probe: &Probe, advice: &Advice) -> std::io::Result<()> {
    match &advice.congestion_control {
        Some(name) if probe.congestion_control().as_ref() != Some(name) => probe.set_congestion_control(name),
        _ => Ok(()),
    }
}

/// `None` when the lane does not run over TCP, or has just ended.
fn reading(lane: &mut Lane) -> Option<LaneReading> {
    let Lane { number, probe, delivered } = lane;
    let info = probe.tcp_info()?;
    let mss_bytes = u64::from(info.snd_mss_bytes);
    let acked_bytes = info.bytes_acked.unwrap_or(0);
    Some(LaneReading {
        lane: *number,
        rtt_us: info.rtt_us,
        rtt_min_us: info.rtt_min_us.unwrap_or(info.rtt_us),
        rtt_deviation_us: info.rtt_var_us,
        mss_bytes: info.snd_mss_bytes,
        cwnd_bytes: u64::from(info.snd_cwnd) * mss_bytes,
        in_slow_start: info.snd_cwnd < info.snd_ssthresh,
        acked_bytes,
        delivered_bytes: info.delivered.map_or(acked_bytes, |segments| delivered.up_to(segments, info.snd_mss_bytes)),
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
    })
}

fn path_now(tuner: &Tuner, advice: Option<&Advice>) -> PathNow {
    let estimate = tuner.estimate();
    PathNow {
        rate_bytes_per_s: estimate.rate_bytes_per_s,
        rtt_us: estimate.rtt_us,
        rtt_min_us: estimate.rtt_min_us,
        resent_ppm: tuner.summary().resent_ppm,
        lanes: advice.map_or(0, |advice| advice.lanes),
        pacing_bytes_per_s: advice.and_then(|advice| advice.pacing_bytes_per_s),
        held_by: match (estimate.phase, estimate.limit) {
            (Phase::Ramp, _) => HeldBy::Ramp,
            (_, Limit::Capacity) => HeldBy::Capacity,
            (_, Limit::Contention) => HeldBy::Contention,
            (_, Limit::ReceiveWindow) => HeldBy::ReceiveWindow,
            (_, Limit::SendBuffer) => HeldBy::SendBuffer,
            (_, Limit::Loss) => HeldBy::Loss,
            (_, Limit::Jitter) => HeldBy::Jitter,
            (_, Limit::Source) => HeldBy::Source,
            (_, Limit::Unknown) => HeldBy::Unknown,
        },
    }
}

fn known_path(remembered: Remembered) -> KnownPath {
    let Remembered { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control } = remembered;
    KnownPath { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control }
}

fn remembered(known: &KnownPath) -> Remembered {
    let KnownPath { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control } = known.clone();
    Remembered { rtt_min_us, capacity_bytes_per_s, lanes, random_loss_ppm, congestion_control }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use haul_net::Stream;

    use super::*;

    /// A lane over loopback, as the side that sends samples it, and its other end.
    fn lane() -> (Stream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (Stream::plain_tcp(near), listener.accept().unwrap().0)
    }

    #[test]
    fn the_smaller_host_decides_how_many_processors_there_are() {
        let of = |cpus| Tuning::new(&Carriage { cpus, ..Carriage::default() }, Foreseen::default()).cpus;
        assert_eq!(of(1), 1, "the other one has a single processor");
        assert_eq!(
            (of(0), of(u16::MAX)),
            (host_facts::cpus(), host_facts::cpus()),
            "nothing is known of the other, or it has more"
        );
    }

    #[test]
    fn the_report_has_the_congestion_control_that_the_lanes_have() {
        let (stream, _other) = lane();
        let asked = Some("no-such-thing".to_owned());
        let mut tuning =
            Tuning::new(&Carriage { congestion_control: asked, ..Carriage::default() }, Foreseen::default());
        tuning.lane_up(0, stream.probe(), None);
        assert_eq!(Some(tuning.summary().congestion_control), stream.probe().congestion_control());
    }

    /// The last units of a job: one lane has nearly all of them.
    struct Last;

    impl Work for Last {
        fn waiting_bytes(&self) -> u64 {
            0
        }

        fn unit_bytes(&self) -> u64 {
            0
        }

        fn ending(&self, lanes: &[u16], _carrying: usize) -> Option<Ending> {
            let left_bytes = lanes.iter().map(|lane| if *lane == 0 { 1 << 20 } else { 10 }).collect();
            Some(Ending { left_bytes, waiting_bytes: Vec::new() })
        }
    }

    /// What has to go again would otherwise go at the rate of the few bytes that its lane had left.
    #[test]
    fn a_bound_that_is_lifted_at_the_end_of_a_job_is_lifted_for_every_lane() {
        let (streams, _others): (Vec<_>, Vec<_>) = (0..2).map(|_| lane()).unzip();
        let mut tuning = Tuning::new(&Carriage::default(), Foreseen::default());
        for (number, stream) in (0..).zip(&streams) {
            tuning.lane_up(number, stream.probe(), None);
        }
        let mut bounds = |bound| {
            tuning.advice.as_mut().unwrap().pacing_bytes_per_s = bound;
            let lanes: Vec<LaneReading> = tuning.lanes.iter_mut().filter_map(reading).collect();
            tuning.divide(&lanes, &Last);
            streams.iter().map(|stream| stream.tcp_info().unwrap().max_pacing_rate_bytes_per_s).collect::<Vec<_>>()
        };
        let divided = bounds(Some(100_000_000));
        assert!(divided.iter().all(|bound| *bound < Some(u64::MAX)), "{divided:?}");
        assert_eq!(bounds(None), [Some(u64::MAX); 2]);
    }

    #[test]
    fn while_a_lane_that_comes_to_rest_has_something_to_send_the_bound_is_divided_often() {
        let (streams, _others): (Vec<_>, Vec<_>) = (0..2).map(|_| lane()).unzip();
        let mut tuning = Tuning::new(&Carriage { lanes: Some(1), ..Carriage::default() }, Foreseen::default());
        for (number, stream) in (0..).zip(&streams) {
            tuning.lane_up(number, stream.probe(), None);
        }
        tuning.advice.as_mut().unwrap().pacing_bytes_per_s = Some(100_000_000);
        let mut lanes: Vec<LaneReading> = tuning.lanes.iter_mut().filter_map(reading).collect();
        for (unsent_bytes, tick) in [(1, DIVIDE_EVERY), (0, TICK)] {
            lanes[1].unsent_bytes = unsent_bytes;
            tuning.divide(&lanes, &Endless);
            assert_eq!(tuning.tick(), tick, "{unsent_bytes}");
        }
    }

    #[test]
    fn lanes_with_the_highest_numbers_rest_and_those_that_ended_do_not() {
        let (streams, _others): (Vec<_>, Vec<_>) = (0..4).map(|_| lane()).unzip();
        let mut tuning = Tuning::new(&Carriage { lanes: Some(2), ..Carriage::default() }, Foreseen::default());
        for (number, stream) in [3, 0, 2, 1].into_iter().zip(&streams) {
            tuning.lane_up(number, stream.probe(), None);
        }
        assert_eq!(tuning.resting(), [2, 3]);
        tuning.lane_up(3, streams[0].probe(), None);
        assert_eq!(tuning.resting(), [2, 3], "dialled again it is the same lane");
        tuning.lane_down(0);
        assert_eq!(tuning.resting(), [3]);
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
