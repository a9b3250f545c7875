//! One TCP connection: how much may go, and what an acknowledgement or a loss does to that.

pub const MSS: f64 = 1448.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Control {
    Cubic,
    Reno,
    Bbr,
    /// A stream at a rate that yields to nobody.
    Constant,
}

impl Control {
    pub fn name(self) -> &'static str {
        match self {
            Self::Cubic => "cubic",
            Self::Reno => "reno",
            Self::Bbr => "bbr",
            Self::Constant => "none",
        }
    }

    pub fn named(name: &str) -> Self {
        match name {
            "bbr" => Self::Bbr,
            "reno" => Self::Reno,
            _ => Self::Cubic,
        }
    }
}

/// A connection. Bytes are fractions: it is a fluid.
#[derive(Clone, Debug)]
pub struct Flow {
    pub control: Control,
    pub cwnd: f64,
    pub ssthresh: f64,
    pub in_flight: f64,
    pub to_repeat: f64,
    /// The kernel's `delivered`, behind gaps, too.
    pub acked: f64,
    /// `acked` when the open gap was torn, and the arrival of its repair.
    acked_before_gap: f64,
    repaired_at_us: u64,
    pub sent: f64,
    pub resent: f64,
    pub busy_us: u64,
    pub receive_limited_us: u64,
    pub srtt_us: f64,
    pub rtt_min_us: f64,
    /// As the kernel reckons it.
    pub deviation_us: f64,
    pub send_window: f64,
    pub receive_window: f64,
    /// The kernel's bound at the host's own device (TCP small queues), which no window shows.
    pub in_flight_most: f64,
    pub pacing: Option<f64>,
    /// The kernel spreads each window over the round trip (`tcp_pacing_ss_ratio`, `tcp_pacing_ca_ratio`).
    pub is_paced: bool,
    pub active: bool,
    pub unsent: f64,
    /// `None`: what the source gives, or without end.
    pub size: Option<f64>,
    /// HyStart is on in Linux.
    pub hystart: Option<Hystart>,
    pub starts_us: u64,
    pub marked: bool,
    credit: f64,
    reduced_at_us: u64,
    last_sent_us: u64,
    recovery: Option<Recovery>,
    cubic: Cubic,
    bbr: Bbr,
}

/// Ends slow start by growth of the round trip: beside a standing queue it sees only its own.
#[derive(Clone, Copy, Debug, Default)]
pub struct Hystart {
    round_ends_us: u64,
    round_began_us: u64,
    round_min_us: f64,
}

impl Hystart {
    /// True if slow start is to end. The first quarter of a round stands for the kernel's first eight samples.
    fn on_ack(&mut self, rtt_us: f64, rtt_min_us: f64, now_us: u64) -> bool {
        if now_us >= self.round_ends_us {
            *self = Self { round_ends_us: now_us + rtt_us as u64, round_began_us: now_us, round_min_us: f64::INFINITY };
        }
        if (now_us - self.round_began_us) as f64 > rtt_us / 4.0 {
            return self.round_min_us.is_finite()
                && self.round_min_us > rtt_min_us + (rtt_min_us / 8.0).clamp(4_000.0, 16_000.0);
        }
        self.round_min_us = self.round_min_us.min(rtt_us);
        false
    }
}

/// Proportional rate reduction (RFC 6937): above the reduced window only a share of what is delivered may be sent.
#[derive(Clone, Copy, Debug)]
struct Recovery {
    until_us: u64,
    share: f64,
    room: f64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Cubic {
    w_max: f64,
    epoch_us: u64,
    k_s: f64,
    reno: f64,
}

#[derive(Clone, Debug)]
struct Bbr {
    rounds: [f64; 10],
    round: usize,
    round_ends_us: u64,
    full_bw: f64,
    full_rounds: u32,
    mode: Mode,
    cycle_us: u64,
    phase: usize,
    has_lost: bool,
    min_rtt_us: f64,
    min_rtt_at_us: u64,
    probe_until_us: u64,
    /// The window that comes back after the small one that measures the round trip.
    cwnd_before: f64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Mode {
    Startup,
    Drain,
    ProbeBw,
    ProbeRtt,
}

impl Flow {
    /// The wait of a segment for the next pair at the pacer's rate.
    pub fn pairing_us(&self) -> f64 {
        self.pacing.map_or(0.0, |bytes_per_s| (2.0 * MSS * 1e6 / bytes_per_s.max(1.0)).min(40_000.0))
    }

    pub fn new(control: Control, starts_us: u64, send_window: f64, receive_window: f64) -> Self {
        Self {
            control,
            cwnd: 10.0 * MSS,
            ssthresh: f64::INFINITY,
            in_flight: 0.0,
            to_repeat: 0.0,
            acked: 0.0,
            acked_before_gap: 0.0,
            repaired_at_us: 0,
            sent: 0.0,
            resent: 0.0,
            busy_us: 0,
            receive_limited_us: 0,
            srtt_us: 0.0,
            rtt_min_us: 0.0,
            deviation_us: 0.0,
            send_window,
            receive_window,
            in_flight_most: f64::INFINITY,
            pacing: None,
            is_paced: false,
            active: true,
            unsent: 0.0,
            size: None,
            hystart: None,
            starts_us,
            marked: false,
            credit: 0.0,
            reduced_at_us: 0,
            last_sent_us: starts_us,
            recovery: None,
            cubic: Cubic::default(),
            bbr: Bbr::new(starts_us),
        }
    }

    /// Makes the first round trip longer, as if somebody had to be found or woken.
    pub fn begin_late(&mut self, first_rtt_us: u64) {
        (self.srtt_us, self.deviation_us) = (first_rtt_us as f64, first_rtt_us as f64 / 2.0);
        self.rtt_min_us = self.srtt_us;
    }

    pub fn switch(&mut self, control: Control, now_us: u64) {
        if self.control != control {
            self.control = control;
            self.bbr = Bbr::new(now_us);
            self.bbr.phase = PHASES_AT_FIRST[(self.acked / MSS) as usize % PHASES_AT_FIRST.len()];
            self.cubic = Cubic::default();
            self.ssthresh = self.ssthresh.min(self.cwnd);
        }
    }

    /// The kernel grows a send buffer to twice the congestion window.
    pub fn send_buffer(&self) -> f64 {
        (2.0 * self.cwnd).clamp(60_000.0_f64.min(self.send_window), self.send_window) / 0.7
    }

    fn has_gap(&self, now_us: u64) -> bool {
        self.to_repeat >= 1.0 || now_us < self.repaired_at_us
    }

    /// The kernel's `bytes_acked`, which stands while a gap is open and then jumps.
    pub fn acked_in_order(&self, now_us: u64) -> f64 {
        if self.has_gap(now_us) { self.acked_before_gap } else { self.acked }
    }

    fn window(&self) -> f64 {
        self.cwnd.min(self.send_window).min(self.receive_window).min(self.in_flight_most)
    }

    pub fn may_send(&mut self, now_us: u64, step_us: u64) -> f64 {
        if now_us < self.starts_us {
            return 0.0;
        }
        let rto_us = self.srtt_us + 200_000.0;
        if matches!(self.control, Control::Cubic | Control::Reno)
            && self.in_flight < 1.0
            && (now_us - self.last_sent_us) as f64 > rto_us
        {
            // Slow start after idle (RFC 2861).
            self.ssthresh = self.ssthresh.max(0.75 * self.cwnd);
            self.cwnd = (self.cwnd / 2.0).max(10.0 * MSS);
            self.last_sent_us = now_us;
        }
        let own_rate = if self.control == Control::Bbr {
            self.bbr.pacing()
        } else {
            let ratio = if self.cwnd < self.ssthresh / 2.0 { 2.0 } else { 1.2 };
            (self.is_paced && self.srtt_us > 0.0).then(|| ratio * self.cwnd / self.srtt_us * 1e6)
        };
        let rate = match (self.pacing, own_rate) {
            (Some(a), Some(b)) => Some(a.min(b)),
            (a, b) => a.or(b),
        };
        let mut room = (self.window() - self.in_flight).max(0.0);
        if let Some(recovery) = &mut self.recovery {
            room = room.max(recovery.room);
            if now_us > recovery.until_us {
                self.recovery = None;
            }
        }
        let Some(rate) = rate else { return room };
        let step = rate * step_us as f64 / 1e6;
        // A held window is not made up for.
        self.credit = (self.credit + step).min(step + 2.0 * MSS);
        room.min(self.credit)
    }

    pub fn on_sent(&mut self, bytes: f64, now_us: u64) {
        if bytes <= 0.0 {
            return;
        }
        let repeated = bytes.min(self.to_repeat);
        if repeated > 0.0 {
            self.repaired_at_us = now_us + self.srtt_us as u64;
        }
        self.to_repeat -= repeated;
        self.resent += repeated;
        self.sent += bytes;
        self.in_flight += bytes;
        self.credit = (self.credit - bytes).max(0.0);
        if let Some(recovery) = &mut self.recovery {
            recovery.room = (recovery.room - bytes).max(0.0);
        }
        self.last_sent_us = now_us;
    }

    /// Counters that run with time; `waits`: a window holds data back.
    pub fn on_time(&mut self, step_us: u64, waits: bool) {
        if self.in_flight > 1.0 || waits {
            self.busy_us += step_us;
        }
        let full = self.in_flight >= self.receive_window - 2.0 * MSS;
        if waits && full && self.receive_window <= self.cwnd.min(self.send_window) {
            self.receive_limited_us += step_us;
        }
        if self.in_flight < 0.8 * self.window() {
            self.cubic.epoch_us += step_us;
        }
    }

    pub fn on_ack(&mut self, bytes: f64, rtt_us: f64, acked_at_sent: f64, now_us: u64) {
        let was_limited =
            self.in_flight >= 0.9 * self.cwnd || (self.cwnd < self.ssthresh && self.in_flight >= 0.5 * self.cwnd);
        self.in_flight = (self.in_flight - bytes).max(0.0);
        self.acked += bytes;
        if let Some(recovery) = &mut self.recovery {
            recovery.room += bytes * recovery.share;
        }
        let weight = (bytes / MSS / 8.0).min(1.0);
        if self.srtt_us > 0.0 {
            let error = rtt_us - self.srtt_us;
            // A falling time counts for an eighth (Linux, `tcp_rtt_estimator`).
            let gain = if error < -self.deviation_us { weight / 4.0 } else { 2.0 * weight };
            self.deviation_us += gain.min(1.0) * (error.abs() - self.deviation_us);
        }
        self.srtt_us = if self.srtt_us == 0.0 { rtt_us } else { self.srtt_us + weight * (rtt_us - self.srtt_us) };
        self.rtt_min_us = if self.rtt_min_us == 0.0 { rtt_us } else { self.rtt_min_us.min(rtt_us) };
        let is_in_slow_start = self.control == Control::Cubic && self.cwnd < self.ssthresh && self.cwnd >= 16.0 * MSS;
        if let Some(hystart) = self.hystart.as_mut().filter(|_| is_in_slow_start)
            && hystart.on_ack(rtt_us, self.rtt_min_us, now_us)
        {
            self.ssthresh = self.cwnd;
        }
        match self.control {
            Control::Bbr => {
                let rate = (self.acked - acked_at_sent) / (rtt_us / 1e6);
                self.cwnd = self.bbr.on_ack(rate, rtt_us, bytes, self.cwnd, self.in_flight, now_us);
            }
            Control::Constant => {}
            Control::Cubic | Control::Reno if !was_limited => {}
            Control::Cubic | Control::Reno if self.cwnd < self.ssthresh => self.cwnd += bytes,
            Control::Reno => self.cwnd += MSS * bytes / self.cwnd,
            Control::Cubic => self.cwnd = self.cubic.grown(self.cwnd, bytes, rtt_us, now_us),
        }
    }

    /// `sent_us`: when the lost bytes left.
    pub fn on_loss(&mut self, bytes: f64, sent_us: u64, now_us: u64) {
        if !self.has_gap(now_us) {
            self.acked_before_gap = self.acked;
        }
        self.in_flight = (self.in_flight - bytes).max(0.0);
        self.to_repeat += bytes;
        self.bbr.has_lost = true;
        if sent_us < self.reduced_at_us || matches!(self.control, Control::Bbr | Control::Constant) {
            return;
        }
        self.reduced_at_us = now_us;
        let factor = if self.control == Control::Reno { 0.5 } else { 0.7 };
        if self.control == Control::Cubic {
            self.cubic.reduced(self.cwnd, factor, now_us);
        }
        self.cwnd = (self.cwnd * factor).max(2.0 * MSS);
        self.ssthresh = self.cwnd;
        let share = (self.cwnd / self.in_flight.max(self.cwnd)).min(1.0);
        self.recovery = Some(Recovery { until_us: now_us + self.srtt_us as u64, share, room: 0.0 });
    }
}

/// RFC 9438.
impl Cubic {
    fn reduced(&mut self, cwnd: f64, factor: f64, now_us: u64) {
        let w = cwnd / MSS;
        // Fast convergence.
        self.w_max = if w < self.w_max { w * (1.0 + factor) / 2.0 } else { w };
        self.epoch_us = now_us;
        self.k_s = ((self.w_max - w * factor).max(0.0) / 0.4).cbrt();
        self.reno = w * factor;
    }

    fn grown(&mut self, cwnd: f64, bytes: f64, rtt_us: f64, now_us: u64) -> f64 {
        let w = cwnd / MSS;
        if self.w_max == 0.0 {
            (self.w_max, self.epoch_us, self.k_s, self.reno) = (w, now_us, 0.0, w);
        }
        let t = (now_us.saturating_sub(self.epoch_us) as f64 + rtt_us) / 1e6;
        let late_s = t - self.k_s;
        let target = (0.4 * late_s * late_s * late_s + self.w_max).min(1.5 * w);
        let acked = bytes / MSS;
        self.reno += 3.0 * 0.3 / 1.7 * acked / w;
        let grown = if target > w { w + (target - w) / w * acked } else { w + 0.01 * acked / w };
        grown.max(self.reno) * MSS
    }
}

/// The kernel begins anywhere but with the phase that drains (`bbr_reset_probe_bw_mode`).
const PHASES_AT_FIRST: [usize; 7] = [0, 2, 3, 4, 5, 6, 7];

/// After draft-cardwell-iccrg-bbr-congestion-control, version 1.
impl Bbr {
    fn new(now_us: u64) -> Self {
        Self {
            rounds: [0.0; 10],
            round: 0,
            round_ends_us: 0,
            full_bw: 0.0,
            full_rounds: 0,
            mode: Mode::Startup,
            cycle_us: now_us,
            // Flows do not start in step.
            phase: PHASES_AT_FIRST[(now_us / 7919) as usize % PHASES_AT_FIRST.len()],
            has_lost: false,
            min_rtt_us: 0.0,
            min_rtt_at_us: now_us,
            probe_until_us: 0,
            cwnd_before: 0.0,
        }
    }

    fn bw(&self) -> f64 {
        self.rounds.iter().copied().fold(0.0, f64::max)
    }

    fn pacing(&self) -> Option<f64> {
        let gain = match self.mode {
            Mode::Startup => 2.89,
            Mode::Drain => 1.0 / 2.89,
            Mode::ProbeRtt => 1.0,
            Mode::ProbeBw => [1.25, 0.75, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0][self.phase],
        };
        (self.bw() > 0.0).then(|| gain * self.bw())
    }

    /// As in `bbr_is_next_cycle_phase`: a lane below a bound of its pace goes on probing.
    fn phase_ends(&self, in_flight: f64, bdp: f64, now_us: u64) -> bool {
        let is_full_length = (now_us - self.cycle_us) as f64 > self.min_rtt_us;
        match self.phase {
            0 => is_full_length && (self.has_lost || in_flight >= 1.25 * bdp),
            1 => is_full_length || in_flight <= bdp,
            _ => is_full_length,
        }
    }

    fn on_ack(&mut self, rate: f64, rtt_us: f64, bytes: f64, cwnd: f64, in_flight: f64, now_us: u64) -> f64 {
        if now_us >= self.round_ends_us {
            self.round_ends_us = now_us + rtt_us as u64;
            if self.mode == Mode::Startup {
                if self.bw() > 1.25 * self.full_bw {
                    (self.full_bw, self.full_rounds) = (self.bw(), 0);
                } else {
                    self.full_rounds += 1;
                }
                if self.full_rounds >= 3 {
                    self.mode = Mode::Drain;
                }
            }
            // A window kept small says nothing of the path: the kernel keeps its samples.
            if self.mode != Mode::ProbeRtt {
                self.round = (self.round + 1) % 10;
                self.rounds[self.round] = 0.0;
            }
        }
        self.rounds[self.round] = self.rounds[self.round].max(rate);
        let expired = now_us > self.min_rtt_at_us + 10_000_000;
        if self.min_rtt_us == 0.0 || rtt_us <= self.min_rtt_us * 1.001 || expired {
            (self.min_rtt_us, self.min_rtt_at_us) = (rtt_us, now_us);
        }
        if expired && self.mode != Mode::ProbeRtt {
            self.mode = Mode::ProbeRtt;
            self.cwnd_before = cwnd;
            self.probe_until_us = now_us + 200_000 + rtt_us as u64;
        }
        let bdp = self.bw() * self.min_rtt_us / 1e6;
        match self.mode {
            Mode::Startup => return (cwnd + bytes).min((2.89 * bdp + 3.0 * MSS).max(cwnd)).max(10.0 * MSS),
            Mode::Drain if in_flight <= bdp => (self.mode, self.cycle_us) = (Mode::ProbeBw, now_us),
            Mode::ProbeRtt if now_us > self.probe_until_us => {
                self.mode = Mode::ProbeBw;
                return self.cwnd_before;
            }
            Mode::ProbeBw if self.phase_ends(in_flight, bdp, now_us) => {
                (self.cycle_us, self.phase, self.has_lost) = (now_us, (self.phase + 1) % 8, false);
            }
            _ => {}
        }
        match self.mode {
            Mode::ProbeRtt => 4.0 * MSS,
            Mode::Drain => (2.89 * bdp).max(4.0 * MSS),
            _ => (cwnd + bytes).min(2.0 * bdp + 3.0 * MSS).max(4.0 * MSS),
        }
    }
}
