//! A background job beside flows of others, on a link in virtual time.
#![allow(dead_code, reason = "each test program uses a part of it")]

use haul_engine::path::{LaneReading, bound_per_lane};
use haul_engine::service::background::{Background, Doing, SAMPLE_US};

use crate::simulated::flow::{Control, Flow, Hystart, MSS};
use crate::simulated::link::{Link, World};
use crate::simulated::run::reading;

#[derive(Clone, Debug)]
pub struct Setting {
    pub link: Link,
    pub seconds: u64,
    /// `None`: the others are alone.
    pub ours_from_s: Vec<f64>,
    /// Flows without end: congestion control, from when, until when.
    pub others: Vec<(Control, f64, f64)>,
    pub constant_bytes_per_s: f64,
    /// Bytes, and beginning.
    pub short: Vec<(f64, f64)>,
    pub jitter_us: u32,
    /// See [`crate::simulated::run::Setting::packets_vary_us`].
    pub packets_vary_us: f64,
    pub seed: u64,
}

pub struct Outcome {
    pub link: Link,
    /// Every 100 ms: seconds, our bytes, theirs, queue in ms.
    points: Vec<Point>,
    pub took_s: Vec<f64>,
}

#[derive(Clone, Debug)]
struct Point {
    at_s: f64,
    ours: Vec<f64>,
    theirs: f64,
    queue_ms: f64,
    pace: f64,
    doing: Vec<(Doing, u32)>,
}

impl Setting {
    pub fn on(link: Link) -> Self {
        Self {
            link,
            seconds: 40,
            ours_from_s: vec![0.0],
            others: Vec::new(),
            constant_bytes_per_s: 0.0,
            short: Vec::new(),
            jitter_us: 0,
            packets_vary_us: 0.0,
            seed: 1,
        }
    }

    pub fn cubic(mut self, from_s: f64, until_s: f64) -> Self {
        self.others.push((Control::Cubic, from_s, until_s));
        self
    }

    pub fn without_us(self) -> Self {
        Self { ours_from_s: Vec::new(), ..self }
    }

    pub fn run(&self) -> Outcome {
        let mut world = World::new(self.link, self.seed);
        // Short flows end between the usual steps.
        world.step_us = 1_000;
        for (control, from_s, _) in &self.others {
            let mut flow = Flow::new(*control, (from_s * 1e6) as u64, 45e6, 32e6);
            flow.hystart = Some(Hystart::default());
            if *control == Control::Constant {
                (flow.cwnd, flow.pacing) = (f64::INFINITY, Some(self.constant_bytes_per_s));
            }
            world.flows.push(flow);
        }
        for (bytes, from_s) in &self.short {
            let mut flow = Flow::new(Control::Cubic, (from_s * 1e6) as u64, 45e6, 32e6);
            (flow.size, flow.hystart) = (Some(*bytes), Some(Hystart::default()));
            world.flows.push(flow);
        }
        let others = world.flows.len();
        let mut jobs: Vec<Job> = Vec::new();
        let mut took_s = vec![f64::INFINITY; self.short.len()];
        let (mut next_us, mut next_point_us, mut points) = (0, 0, Vec::new());
        while world.now_us < self.seconds * 1_000_000 {
            for (flow, (_, _, until_s)) in world.flows.iter_mut().zip(&self.others) {
                flow.active = world.now_us < (until_s * 1e6) as u64;
            }
            world.step(|flow| flow >= others);
            for (at, (bytes, from_s)) in self.short.iter().enumerate() {
                if took_s[at].is_infinite() && world.flows[self.others.len() + at].acked >= bytes - 1.0 {
                    took_s[at] = world.now_us as f64 / 1e6 - from_s;
                }
            }
            if world.now_us >= next_us {
                next_us += SAMPLE_US;
                while jobs.len() < self.ours_from_s.len() && world.now_us as f64 >= self.ours_from_s[jobs.len()] * 1e6 {
                    let connect_us = self.link.rtt_us + world.queueing_us() as u64;
                    jobs.push(Job { background: Background::new(connect_us as u32, None), flows: Vec::new() });
                }
                for job in &mut jobs {
                    job.sample(&mut world, self.jitter_us, self.packets_vary_us);
                }
            }
            if world.now_us >= next_point_us {
                next_point_us += 100_000;
                let acked = |flows: &[usize]| flows.iter().map(|flow| world.flows[*flow].acked).sum::<f64>();
                points.push(Point {
                    at_s: world.now_us as f64 / 1e6,
                    ours: jobs.iter().map(|job| acked(&job.flows)).collect(),
                    theirs: world.flows[..others].iter().map(|flow| flow.acked).sum(),
                    queue_ms: world.queueing_us() / 1e3,
                    pace: jobs.iter().map(|job| job.background.advice().rate_bytes_per_s as f64).sum(),
                    doing: jobs
                        .iter()
                        .map(|job| (job.background.advice().doing, job.background.advice().queue_us))
                        .collect(),
                });
            }
        }
        Outcome { link: self.link, points, took_s }
    }
}

struct Job {
    background: Background,
    flows: Vec<usize>,
}

impl Job {
    fn sample(&mut self, world: &mut World, jitter_us: u32, sigma_us: f64) {
        let now_us = world.now_us;
        let lanes: Vec<LaneReading> = self
            .flows
            .iter()
            .enumerate()
            .filter(|(_, flow)| world.flows[**flow].starts_us <= now_us)
            .map(|(lane, flow)| reading(lane, &world.flows[*flow], None))
            .collect();
        let late_us = (world.uniform() * f64::from(jitter_us)) as u32;
        let lanes: Vec<LaneReading> = lanes
            .into_iter()
            .map(|lane| LaneReading { rtt_us: lane.rtt_us + late_us.min(lane.rtt_us), ..lane })
            .map(|lane| vary(lane, world, sigma_us))
            .collect();
        let modest = self.background.on_sample(now_us, &lanes);
        while self.flows.len() < usize::from(modest.lanes) {
            let starts_us = now_us + if self.flows.is_empty() { 0 } else { 2 * world.link.rtt_us };
            let mut flow = Flow::new(Control::Cubic, starts_us, 2.9e6, 3.1e6);
            flow.is_paced = true;
            self.flows.push(world.flows.len());
            world.flows.push(flow);
        }
        let per_lane = bound_per_lane(modest.rate_bytes_per_s, &lanes, modest.lanes) as f64;
        for (lane, flow) in self.flows.iter().enumerate() {
            let flow = &mut world.flows[*flow];
            flow.active = lane < usize::from(modest.lanes);
            flow.pacing = Some(per_lane);
        }
    }
}

/// As in [`crate::simulated::run`].
fn vary(lane: LaneReading, world: &mut World, sigma_us: f64) -> LaneReading {
    if sigma_us == 0.0 || lane.rtt_us == 0 {
        return lane;
    }
    let packets = (lane.acked_bytes as f64 / MSS).max(2.0);
    let below_us = (sigma_us * (2.0 * packets.ln()).sqrt()) as u32;
    let normal: f64 = (0..12).map(|_| world.uniform()).sum::<f64>() - 6.0;
    LaneReading {
        rtt_min_us: lane.rtt_min_us.saturating_sub(below_us).max(1),
        rtt_us: (f64::from(lane.rtt_us) + 0.26 * sigma_us * normal).max(1.0) as u32,
        rtt_deviation_us: (0.4 * sigma_us) as u32,
        ..lane
    }
}

impl Outcome {
    fn mean(&self, from_s: f64, to_s: f64, of: impl Fn(&Point) -> f64) -> f64 {
        let at = |s: f64| {
            self.points.iter().rev().find(|point| point.at_s <= s + 1e-3).map_or((0.0, 0.0), |p| (p.at_s, of(p)))
        };
        let ((t0, a0), (t1, a1)) = (at(from_s), at(to_s));
        (a1 - a0) / (t1 - t0)
    }

    pub fn theirs(&self, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.theirs) / self.link.bytes_per_s
    }

    pub fn ours(&self, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.ours.iter().sum()) / self.link.bytes_per_s
    }

    pub fn of(&self, job: usize, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.ours.get(job).copied().unwrap_or(0.0)) / self.link.bytes_per_s
    }

    pub fn queueing_ms(&self, from_s: f64) -> f64 {
        let mut all: Vec<f64> =
            self.points.iter().filter(|point| point.at_s >= from_s).map(|point| point.queue_ms).collect();
        all.sort_by(f64::total_cmp);
        all.get(all.len() / 2).copied().unwrap_or(0.0)
    }

    pub fn course(&self) -> String {
        let mut text = String::new();
        for point in self.points.iter().step_by(std::env::var("FINE").map_or(5, |_| 1)) {
            let (from, to) = (point.at_s, point.at_s + std::env::var("FINE").map_or(0.5, |_| 0.1));
            text += &format!(
                "{from:6.1} s ours {:5.1} %, others {:5.1} %, queue {:6.1} ms, pace {:6.2} Mbit/s, {:?}\n",
                100.0 * self.ours(from, to),
                100.0 * self.theirs(from, to),
                point.queue_ms,
                point.pace * 8e-6,
                point.doing,
            );
        }
        text
    }
}
