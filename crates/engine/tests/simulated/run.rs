//! The tuner on a link: samples go in, advice is carried out, and what came of it is kept.

use haul_engine::path::{Advice, LaneReading, Remembered, Sample, Tuner, Wishes, bound_per_lane};

use super::flow::{Control, Flow, MSS};
use super::link::{Link, NOT_SENT_LOW_WATER, World};

/// What hosts let one connection have under way, in bytes.
#[derive(Clone, Copy, Debug)]
pub struct Windows {
    pub send: f64,
    pub receive: f64,
}

/// `tcp_wmem[2]` = 4 MiB and `tcp_rmem[2]` = 6 MiB.
pub const STOCK: Windows = Windows { send: 2.9e6, receive: 3.1e6 };
/// 64 MB each.
pub const TUNED: Windows = Windows { send: 45e6, receive: 32e6 };

#[derive(Clone, Debug)]
pub struct Setting {
    pub link: Link,
    pub windows: Windows,
    pub wishes: Wishes,
    pub seconds: u64,
    /// Congestion control and start of foreign flows; their end.
    pub foreign: Vec<(Control, u64, u64)>,
    pub changes: Vec<(u64, f64)>,
    pub supply: f64,
    /// See [`World::outage`].
    pub outage: Option<(u64, u64)>,
    /// See [`World::supply_every_us`].
    pub supply_every_us: u64,
    /// Data behind a gap is acknowledged when it is closed, as in the kernel's `bytes_acked`.
    pub gaps: bool,
    /// Packets of different lanes, sent in pairs, meet in front of a busy link, also where no window fills a queue.
    pub pairs: bool,
    /// The time between clumps of acknowledgements; 0: none.
    pub clumps_us: u64,
    /// See [`Flow::in_flight_most`].
    pub in_flight_most: f64,
    pub job_bytes: f64,
    /// New rates of the source.
    pub supplies: Vec<(u64, f64)>,
    /// No more lanes can be connected.
    pub lanes_most: u16,
    pub refuses_choice: bool,
    /// Without the tuner, this many lanes.
    pub plain_lanes: Option<u16>,
    /// The time of the foreign flows alone.
    pub late_s: u64,
    /// Added to smoothed round-trip times.
    pub jitter_us: u32,
    /// Standard deviation of single packets' round-trip time; they overtake each other.
    pub packets_vary_us: f64,
    /// Repeats were only overtaken.
    pub are_only_late: bool,
    /// See [`Flow::begin_late`]; 0: usual.
    pub first_rtt_us: u64,
    /// The share of samples that a busy host delays for all lanes, and microseconds at most.
    pub stalls: (f64, u32),
    pub constant_bytes_per_s: f64,
    pub seed: u64,
}

impl Setting {
    pub fn on(link: Link) -> Self {
        let wishes = Wishes {
            allowed_congestion_controls: vec!["reno".into(), "cubic".into(), "bbr".into()],
            host_congestion_control: "cubic".into(),
            ..Wishes::default()
        };
        Self {
            link,
            windows: STOCK,
            wishes,
            seconds: 60,
            foreign: Vec::new(),
            changes: Vec::new(),
            supply: f64::INFINITY,
            outage: None,
            supply_every_us: 0,
            gaps: false,
            pairs: false,
            clumps_us: 0,
            in_flight_most: f64::INFINITY,
            job_bytes: f64::INFINITY,
            supplies: Vec::new(),
            lanes_most: u16::MAX,
            refuses_choice: false,
            plain_lanes: None,
            late_s: 0,
            jitter_us: 0,
            packets_vary_us: 0.0,
            are_only_late: false,
            first_rtt_us: 0,
            stalls: (0.0, 0),
            constant_bytes_per_s: 0.0,
            seed: 1,
        }
    }

    pub fn tuned(self) -> Self {
        Self { windows: TUNED, ..self }
    }

    pub fn windows(self, send: f64, receive: f64) -> Self {
        Self { windows: Windows { send, receive }, ..self }
    }

    pub fn only_cubic(mut self) -> Self {
        self.wishes.allowed_congestion_controls = vec!["reno".into(), "cubic".into()];
        self
    }

    pub fn seconds(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    pub fn foreign(mut self, control: Control, from_s: u64, to_s: u64) -> Self {
        self.foreign.push((control, from_s * 1_000_000, to_s * 1_000_000));
        self
    }

    pub fn outage(self, from_ms: u64, until_ms: u64) -> Self {
        Self { outage: Some((from_ms * 1000, until_ms * 1000)), ..self }
    }

    /// Gives the supply every 130 ms, as a rate-limited disk does, out of step with the samples.
    pub fn bursts(self, bytes_per_s: f64) -> Self {
        Self { supply: bytes_per_s, supply_every_us: 130_000, ..self }
    }

    pub fn supply_from(mut self, at_s: u64, bytes_per_s: f64) -> Self {
        self.supplies.push((at_s * 1_000_000, bytes_per_s));
        self
    }

    pub fn rate_from(mut self, at_s: u64, mbit_per_s: f64) -> Self {
        self.changes.push((at_s * 1_000_000, mbit_per_s * 1e6 / 8.0));
        self
    }

    pub fn remembered(mut self, remembered: Remembered) -> Self {
        self.wishes.remembered = Some(remembered);
        self
    }

    pub fn run(self) -> Outcome {
        Runner::new(self).run()
    }
}

#[derive(Clone, Copy, Debug)]
pub struct Point {
    pub at_us: u64,
    pub acked: f64,
    pub foreign_acked: f64,
    pub queueing_us: f64,
    pub lanes: u16,
    pub bound: Option<u64>,
}

pub struct Outcome {
    pub link: Link,
    pub points: Vec<Point>,
    pub advice: Vec<(u64, Advice)>,
    pub tuner: Tuner,
}

impl Outcome {
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.acked)
    }

    pub fn foreign_rate(&self, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.foreign_acked)
    }

    fn mean(&self, from_s: f64, to_s: f64, of: impl Fn(&Point) -> f64) -> f64 {
        let at = |s: f64| {
            let found = self.points.iter().rev().find(|point| point.at_us as f64 <= s * 1e6 + 1.0);
            found.map_or((0.0, 0.0), |point| (point.at_us as f64 / 1e6, of(point)))
        };
        let ((t0, a0), (t1, a1)) = (at(from_s), at(to_s));
        (a1 - a0) / (t1 - t0)
    }

    pub fn end_s(&self) -> f64 {
        self.points.last().map_or(0.0, |point| point.at_us as f64 / 1e6)
    }

    /// Share of the link over the last two thirds.
    pub fn utilisation(&self) -> f64 {
        self.rate(self.end_s() / 3.0, self.end_s()) / self.link.bytes_per_s
    }

    pub fn queueing_ms(&self, from_s: f64) -> f64 {
        let late = self.points.iter().filter(|point| point.at_us as f64 >= from_s * 1e6);
        let mut all: Vec<f64> = late.map(|point| point.queueing_us / 1e3).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    /// Coefficient of variation of the 1 s rates.
    pub fn variation(&self, from_s: f64) -> f64 {
        let seconds: Vec<f64> =
            (from_s as u64..self.end_s() as u64).map(|s| self.rate(s as f64, s as f64 + 1.0)).collect();
        let mean = seconds.iter().sum::<f64>() / seconds.len() as f64;
        let squares = seconds.iter().map(|rate| (rate - mean) * (rate - mean)).sum::<f64>();
        (squares / seconds.len() as f64).sqrt() / mean
    }

    /// The first time at which half a second (or two round trips) had this share of the link.
    pub fn reaches_s(&self, share: f64) -> Option<f64> {
        let span_s = (2e-6 * self.link.rtt_us as f64).max(0.5);
        self.points
            .iter()
            .map(|point| point.at_us as f64 / 1e6)
            .filter(|at_s| *at_s >= span_s)
            .find(|at_s| self.rate(at_s - span_s, *at_s) >= share * self.link.bytes_per_s)
            .map(|at_s| at_s - span_s / 2.0)
    }

    pub fn lanes(&self) -> u16 {
        self.points.last().map_or(0, |point| point.lanes)
    }

    pub fn course(&self) -> String {
        let mut text = String::new();
        for s in 0..self.end_s() as u64 {
            let (from, to) = (s as f64, s as f64 + 1.0);
            let point = self.points.iter().rev().find(|point| point.at_us as f64 <= to * 1e6 + 1.0);
            let (queue, lanes, bound) =
                point.map_or((0.0, 0, None), |point| (point.queueing_us / 1e3, point.lanes, point.bound));
            let mbit = |rate: f64| rate * 8e-6;
            text += &format!(
                "{s:3} s {:8.1} Mbit/s, others {:6.1}, queue {queue:6.1} ms, {lanes:2} lanes, bound {:8.1}\n",
                mbit(self.rate(from, to)),
                mbit(self.foreign_rate(from, to)),
                bound.map_or(0.0, |bound| mbit(bound as f64)),
            );
        }
        text
    }
}

struct Runner {
    setting: Setting,
    world: World,
    tuner: Tuner,
    control: Control,
    advice: Vec<(u64, Advice)>,
    foreign: usize,
    /// The last clump of acknowledgements, and what they had reached on each lane.
    clump: (u64, Vec<f64>),
}

impl Runner {
    fn new(setting: Setting) -> Self {
        let mut world = World::new(setting.link, setting.seed);
        (world.supply, world.supply_every_us) = (setting.supply, setting.supply_every_us);
        world.left_bytes = setting.job_bytes;
        world.outage = setting.outage;
        for (control, from_us, _) in &setting.foreign {
            let mut flow = Flow::new(*control, *from_us, 45e6, 32e6);
            if *control == Control::Constant {
                (flow.cwnd, flow.pacing) = (f64::INFINITY, Some(setting.constant_bytes_per_s));
            }
            world.flows.push(flow);
        }
        let tuner = Tuner::new(Wishes::default(), 0, 8);
        let control = Control::named(&setting.wishes.host_congestion_control);
        let foreign = setting.foreign.len();
        Self { setting, world, tuner, control, advice: Vec::new(), foreign, clump: (0, Vec::new()) }
    }

    fn run(mut self) -> Outcome {
        let seconds = self.setting.seconds + self.setting.late_s;
        while self.world.now_us < self.setting.late_s * 1_000_000 {
            self.surroundings();
            self.world.step(|_| false);
        }
        let connect_us = self.setting.link.rtt_us.max(self.setting.first_rtt_us) + self.world.queueing_us() as u64;
        self.tuner = Tuner::new(self.setting.wishes.clone(), connect_us as u32, 8);
        let mut first = self.tuner.first();
        if let Some(lanes) = self.setting.plain_lanes {
            (first.lanes, first.pacing_bytes_per_s, first.congestion_control) = (lanes, None, None);
        }
        self.carry_out(&first);
        self.advice.push((self.world.now_us, first));
        let mut points = Vec::new();
        let mut next_us = self.world.now_us + SAMPLE_US;
        while self.world.now_us < seconds * 1_000_000 {
            self.surroundings();
            let foreign = self.foreign;
            self.world.step(|flow| flow >= foreign);
            self.clump();
            if self.world.now_us >= next_us {
                next_us += SAMPLE_US;
                points.push(self.sample());
            }
        }
        Outcome { link: self.setting.link, points, advice: self.advice, tuner: self.tuner }
    }

    fn surroundings(&mut self) {
        for (at_us, bytes_per_s) in &self.setting.changes {
            if self.world.now_us >= *at_us {
                self.world.link.bytes_per_s = *bytes_per_s;
            }
        }
        for (at_us, bytes_per_s) in &self.setting.supplies {
            if self.world.now_us >= *at_us {
                self.world.supply = *bytes_per_s;
            }
        }
        for (flow, (_, _, until_us)) in self.world.flows.iter_mut().zip(&self.setting.foreign) {
            flow.active = self.world.now_us < *until_us;
        }
    }

    fn sample(&mut self) -> Point {
        let now_us = self.world.now_us;
        let lanes = self.world.flows[self.foreign..].iter().enumerate();
        let connected = lanes.filter(|(_, flow)| flow.starts_us <= self.world.now_us);
        let mut lanes: Vec<LaneReading> =
            connected.map(|(lane, flow)| reading(lane, flow, self.setting.gaps.then_some(now_us))).collect();
        for (lane, acked) in lanes.iter_mut().zip(&self.clump.1) {
            (lane.acked_bytes, lane.delivered_bytes) = (*acked as u64, *acked as u64);
        }
        self.vary(&mut lanes);
        let meeting_us = if self.setting.pairs { self.meeting_us() } else { 0 };
        let (share, most_us) = self.setting.stalls;
        let is_stalled = share > 0.0 && self.world.uniform() < share;
        let stall_us = if is_stalled { (self.world.uniform() * f64::from(most_us)) as u32 } else { 0 };
        for lane in &mut lanes {
            lane.rtt_us += meeting_us + stall_us + (self.world.uniform() * f64::from(self.setting.jitter_us)) as u32;
        }
        let sample = Sample { at_us: now_us, lanes, waiting_bytes: self.world.left_bytes as u64 };
        if let Some(advice) = self.tuner.on_sample(&sample)
            && self.setting.plain_lanes.is_none()
        {
            self.carry_out(&advice);
            self.advice.push((self.world.now_us, advice));
        }
        let bound = self.advice.last().and_then(|(_, advice)| advice.pacing_bytes_per_s);
        let carrying = self.advice.last().filter(|_| sample.waiting_bytes > 0).map_or(0, |(_, advice)| advice.lanes);
        let per_lane = bound.map(|bound| bound_per_lane(bound, &sample.lanes, carrying) as f64);
        self.world.flows[self.foreign..].iter_mut().for_each(|flow| flow.pacing = per_lane);
        let (theirs, ours) = self.world.flows.split_at(self.foreign);
        let sum = |flows: &[Flow]| flows.iter().map(|flow| flow.acked).sum();
        let given = self.advice.last().map(|(_, advice)| advice);
        Point {
            at_us: self.world.now_us,
            acked: sum(ours),
            foreign_acked: sum(theirs),
            queueing_us: self.world.queueing_us(),
            lanes: given.map_or(0, |advice| advice.lanes),
            bound: given.and_then(|advice| advice.pacing_bytes_per_s),
        }
    }

    /// Varies readings as a kernel does with scattered packets. The smallest of n lies sqrt(2 ln n) standard deviations below the
    /// mean, the smoothed time moves by a quarter of one, and the mean deviation was 0.4 of one (200 Mbit/s x 50 ms).
    fn vary(&mut self, lanes: &mut [LaneReading]) {
        let sigma_us = self.setting.packets_vary_us;
        for lane in lanes {
            let flow = &self.world.flows[self.foreign + usize::from(lane.lane)];
            if self.setting.first_rtt_us > 0 {
                lane.rtt_deviation_us = flow.deviation_us as u32;
            }
            if sigma_us > 0.0 && lane.rtt_us > 0 {
                let packets = (flow.acked / MSS).max(2.0);
                let below_us = (sigma_us * (2.0 * packets.ln()).sqrt()) as u32;
                // The sum of twelve is normally distributed, with a deviation of one.
                let normal: f64 = (0..12).map(|_| self.world.uniform()).sum::<f64>() - 6.0;
                lane.rtt_min_us = lane.rtt_min_us.saturating_sub(below_us).max(1);
                lane.rtt_us = (f64::from(lane.rtt_us) + 0.26 * sigma_us * normal).max(1.0) as u32;
                lane.rtt_deviation_us = (0.4 * sigma_us) as u32;
                lane.resent_in_vain_bytes = if self.setting.are_only_late { lane.resent_bytes } else { 0 };
            }
        }
    }

    fn clump(&mut self) {
        let Some(clump) = self.world.now_us.checked_div(self.setting.clumps_us) else { return };
        let lanes = &self.world.flows[self.foreign..];
        if clump > self.clump.0 {
            self.clump = (clump, lanes.iter().map(|flow| flow.acked).collect());
        }
        self.clump.1.resize(lanes.len(), 0.0);
    }

    /// 1.3 packets of each lane wait, as with 1 and 8 lanes of real kernels on 20 Mbit/s x 20 ms.
    fn meeting_us(&self) -> u32 {
        let link = &self.world.link;
        let busy = self.world.flows.iter().filter(|flow| flow.in_flight > MSS).count();
        let in_flight: f64 = self.world.flows.iter().map(|flow| flow.in_flight).sum();
        let used = (in_flight * 1e6 / (link.bytes_per_s * link.rtt_us as f64)).min(1.0);
        (1.3e6 * busy as f64 * MSS / link.bytes_per_s * used * used) as u32
    }

    fn carry_out(&mut self, advice: &Advice) {
        let (now_us, foreign) = (self.world.now_us, self.foreign);
        if let Some(name) = advice.congestion_control.as_ref().filter(|_| !self.setting.refuses_choice) {
            self.control = Control::named(name);
        }
        self.tuner.on_granted(self.control.name());
        while self.world.flows.len() - foreign < usize::from(advice.lanes.min(self.setting.lanes_most)) {
            // Connect, then the handshake of the session.
            let starts_us = now_us + if self.advice.is_empty() { 0 } else { 2 * self.setting.link.rtt_us };
            let Windows { send, receive } = self.setting.windows;
            // As `haul` sets it up on far paths.
            let mut flow = Flow::new(self.control, starts_us, send, receive);
            flow.in_flight_most = self.setting.in_flight_most;
            flow.is_paced = self.setting.link.rtt_us >= 2_000;
            if self.setting.first_rtt_us > 0 {
                flow.begin_late(self.setting.first_rtt_us);
            }
            self.world.flows.push(flow);
        }
        for (lane, flow) in self.world.flows[foreign..].iter_mut().enumerate() {
            flow.active = lane < usize::from(advice.lanes);
            flow.switch(self.control, now_us);
        }
    }
}

pub fn reading(lane: usize, flow: &Flow, with_gaps_at_us: Option<u64>) -> LaneReading {
    LaneReading {
        lane: lane as u16,
        rtt_us: flow.srtt_us as u32,
        rtt_min_us: flow.rtt_min_us as u32,
        rtt_deviation_us: 0,
        resent_in_vain_bytes: 0,
        mss_bytes: MSS as u32,
        cwnd_bytes: flow.cwnd as u64,
        in_slow_start: flow.cwnd < flow.ssthresh,
        acked_bytes: with_gaps_at_us.map_or(flow.acked, |now_us| flow.acked_in_order(now_us)) as u64,
        delivered_bytes: flow.acked as u64,
        sent_bytes: flow.sent as u64,
        resent_bytes: flow.resent as u64,
        unsent_bytes: flow.unsent.min(NOT_SENT_LOW_WATER).min((0.7 * flow.send_buffer() - flow.in_flight).max(0.0))
            as u64,
        busy_us: flow.busy_us,
        receive_window_limited_us: flow.receive_limited_us,
        silent_us: 0,
        send_buffer_limited_us: 0,
        peer_window_bytes: flow.receive_window as u64,
        send_buffer_bytes: flow.send_buffer() as u64,
    }
}

pub(super) const SAMPLE_US: u64 = 100_000;
