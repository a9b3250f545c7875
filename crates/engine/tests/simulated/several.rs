//! Several paths of one job, each over its own link or all over one.

use haul_engine::path::{Advice, Wishes, bound_per_lane};
use haul_engine::paths::{Joined, PathEvent, PathReading, Paths, PathsSample, Verdict};

use super::flow::{Control, Flow};
use super::link::{Link, World};
use super::run::{SAMPLE_US, STOCK, Windows, reading};

#[derive(Clone, Debug)]
pub struct Network {
    pub link: Link,
    /// Congestion control, start and end in microseconds.
    pub foreign: Vec<(Control, u64, u64)>,
    pub outage_us: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug)]
pub struct Route {
    pub network: usize,
    pub joins_us: u64,
}

#[derive(Clone, Debug)]
pub struct Several {
    pub networks: Vec<Network>,
    pub routes: Vec<Route>,
    pub wishes: Wishes,
    pub windows: Windows,
    pub seconds: u64,
    pub seed: u64,
    /// Added to smoothed round-trip times.
    pub jitter_us: u32,
    /// The interface of a path goes down, and the host says so.
    pub goes_down_us: Option<(usize, u64)>,
    pub limits: Vec<(u64, Option<u64>)>,
}

impl Several {
    pub fn over(links: &[Link]) -> Self {
        let network = |link: &Link| Network { link: *link, foreign: Vec::new(), outage_us: None };
        let wishes = Wishes {
            allowed_congestion_controls: vec!["reno".into(), "cubic".into(), "bbr".into()],
            host_congestion_control: "cubic".into(),
            ..Wishes::default()
        };
        Self {
            networks: links.iter().map(network).collect(),
            routes: (0..links.len()).map(|network| Route { network, joins_us: 0 }).collect(),
            wishes,
            windows: STOCK,
            seconds: 30,
            seed: 1,
            jitter_us: 0,
            goes_down_us: None,
            limits: Vec::new(),
        }
    }

    pub fn limited(mut self, from_s: u64, bytes_per_s: Option<u64>) -> Self {
        self.limits.push((from_s * 1_000_000, bytes_per_s));
        self
    }

    pub fn sharing(link: Link, paths: usize) -> Self {
        let mut several = Self::over(&[link]);
        several.routes = vec![Route { network: 0, joins_us: 0 }; paths];
        several
    }

    pub fn seconds(self, seconds: u64) -> Self {
        Self { seconds, ..self }
    }

    pub fn seed(self, seed: u64) -> Self {
        Self { seed, ..self }
    }

    pub fn foreign(mut self, network: usize, control: Control, from_s: u64, to_s: u64) -> Self {
        self.networks[network].foreign.push((control, from_s * 1_000_000, to_s * 1_000_000));
        self
    }

    pub fn joins(mut self, path: usize, at_ms: u64) -> Self {
        self.routes[path].joins_us = at_ms * 1000;
        self
    }

    pub fn goes_down(self, path: usize, at_ms: u64) -> Self {
        Self { goes_down_us: Some((path, at_ms * 1000)), ..self }
    }

    pub fn outage(mut self, network: usize, from_ms: u64, until_ms: u64) -> Self {
        self.networks[network].outage_us = Some((from_ms * 1000, until_ms * 1000));
        self
    }

    pub fn run(self) -> Outcome {
        Runner::new(self).run()
    }
}

/// One sample interval. Each path has its delivered bytes, its lanes, and its bound.
#[derive(Clone, Debug)]
pub struct Point {
    pub at_us: u64,
    pub acked: Vec<f64>,
    pub foreign_acked: f64,
    pub queueing_us: Vec<f64>,
    pub lanes: Vec<u16>,
    pub bounds: Vec<Option<u64>>,
}

pub struct Outcome {
    pub links: Vec<Link>,
    pub points: Vec<Point>,
    pub events: Vec<(u64, PathEvent)>,
    pub verdicts: Vec<(u64, Verdict)>,
    pub paths: Paths,
}

impl Outcome {
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.acked.iter().sum())
    }

    pub fn rate_of(&self, path: usize, from_s: f64, to_s: f64) -> f64 {
        self.mean(from_s, to_s, |point| point.acked[path])
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

    /// Longest time without any delivery, in milliseconds.
    pub fn longest_stall_ms(&self) -> u64 {
        let (mut longest_us, mut since) = (0, (0, 0.0));
        for point in &self.points {
            let all: f64 = point.acked.iter().sum();
            if all > since.1 {
                longest_us = longest_us.max(point.at_us - since.0 - SAMPLE_US);
                since = (point.at_us, all);
            }
        }
        longest_us / 1000
    }

    pub fn times(&self, of: impl Fn(&PathEvent) -> bool) -> Vec<f64> {
        self.events.iter().filter(|(_, event)| of(event)).map(|(at_us, _)| *at_us as f64 / 1e6).collect()
    }

    pub fn course(&self) -> String {
        let mut text = String::new();
        let mbit = |rate: f64| rate * 8e-6;
        for s in 0..self.points.last().map_or(0, |point| point.at_us / 1_000_000) {
            let (from, to) = (s as f64, s as f64 + 1.0);
            let Some(point) = self.points.iter().rev().find(|point| point.at_us as f64 <= to * 1e6 + 1.0) else {
                continue;
            };
            text += &format!(
                "{s:3} s {:8.1} Mbit/s, others {:6.1}:",
                mbit(self.rate(from, to)),
                mbit(self.foreign_rate(from, to))
            );
            for path in 0..point.acked.len() {
                text += &format!(
                    "  [{:7.1} queue {:5.1} ms, {:2} lanes, bound {:7.1}]",
                    mbit(self.rate_of(path, from, to)),
                    point.queueing_us[path] / 1e3,
                    point.lanes[path],
                    point.bounds[path].map_or(0.0, |bound| mbit(bound as f64)),
                );
            }
            text += "\n";
            let within = |at_us: u64| (at_us as f64) > from * 1e6 && at_us as f64 <= to * 1e6;
            for (at_us, verdict) in self.verdicts.iter().filter(|(at_us, _)| within(*at_us)) {
                text += &format!("      {:7.2} {verdict:?}\n", *at_us as f64 / 1e6);
            }
            for (at_us, event) in self.events.iter().filter(|(at_us, _)| within(*at_us)) {
                let told = match event {
                    PathEvent::Advice { path, advice } => {
                        let bound = advice.pacing_bytes_per_s.map_or(0.0, |bound| mbit(bound as f64));
                        format!("advice {path}: {} lanes, {bound:.1} Mbit/s: {}", advice.lanes, advice.reasons.pacing)
                    }
                    other => format!("{other:?}"),
                };
                text += &format!("      {:7.2} {told}\n", *at_us as f64 / 1e6);
            }
        }
        text
    }
}

struct Runner {
    setting: Several,
    worlds: Vec<World>,
    paths: Paths,
    states: Vec<State>,
    events: Vec<(u64, PathEvent)>,
    verdicts: Vec<(u64, Verdict)>,
}

#[derive(Clone, Debug, Default)]
struct State {
    /// Flows of its network; cut lanes are in no list.
    lanes: Vec<usize>,
    advice: Option<Advice>,
    control: Option<Control>,
    acked_before: f64,
    dials_us: Option<u64>,
}

impl Runner {
    fn new(setting: Several) -> Self {
        let world = |(at, network): (u64, &Network)| {
            let mut world = World::new(network.link, setting.seed + 1000 * at);
            world.outage = network.outage_us;
            let flow = |(control, from_us, _): &(Control, u64, u64)| Flow::new(*control, *from_us, 45e6, 32e6);
            world.flows = network.foreign.iter().map(flow).collect();
            world
        };
        let worlds = (0..).zip(&setting.networks).map(world).collect();
        let state = |route: &Route| State { dials_us: Some(route.joins_us), ..State::default() };
        let states = setting.routes.iter().map(state).collect();
        let paths = Paths::new(setting.wishes.clone(), 8);
        Self { setting, worlds, paths, states, events: Vec::new(), verdicts: Vec::new() }
    }

    fn run(mut self) -> Outcome {
        let mut points = Vec::new();
        let mut now_us = 0;
        while now_us < self.setting.seconds * 1_000_000 {
            self.dial(now_us);
            for (_, limit) in self.setting.limits.iter().filter(|(at_us, _)| *at_us == now_us) {
                self.paths.limit_rate(*limit);
            }
            now_us += SAMPLE_US;
            for (world, network) in self.worlds.iter_mut().zip(&self.setting.networks) {
                while world.now_us < now_us {
                    for (flow, (_, _, until_us)) in world.flows.iter_mut().zip(&network.foreign) {
                        flow.active = world.now_us < *until_us;
                    }
                    world.step(|_| false);
                }
            }
            if let Some((path, _)) = self.setting.goes_down_us.filter(|(_, at_us)| *at_us == now_us) {
                let events = self.paths.path_down(path as u16);
                self.cut(path, u64::MAX - DIAL_AGAIN_US);
                self.carry_out_all(events, now_us);
            }
            points.push(self.sample(now_us));
        }
        let links = self.setting.networks.iter().map(|network| network.link).collect();
        Outcome { links, points, events: self.events, verdicts: self.verdicts, paths: self.paths }
    }

    /// Connects the unconnected paths where something comes through.
    fn dial(&mut self, now_us: u64) {
        for path in 0..self.states.len() {
            let network = self.setting.routes[path].network;
            let outage_us = self.setting.networks[network].outage_us;
            let is_down = outage_us.is_some_and(|(from_us, until_us)| (from_us..until_us).contains(&now_us));
            if self.states[path].dials_us.is_none_or(|at_us| now_us < at_us) {
                continue;
            }
            if is_down {
                self.states[path].dials_us = Some(now_us + DIAL_AGAIN_US);
                continue;
            }
            self.states[path].dials_us = None;
            let world = &self.worlds[network];
            let rtt_us = world.link.rtt_us + world.queueing_us() as u64;
            let joined = Joined { rtt_us_at_connect: rtt_us as u32, ..Joined::default() };
            let advice = self.paths.path_up(path as u16, joined);
            self.carry_out(path, advice);
        }
    }

    fn sample(&mut self, now_us: u64) -> Point {
        let mut sample = PathsSample { at_us: now_us, waiting_bytes: u64::MAX, ..PathsSample::default() };
        for path in 0..self.states.len() {
            if self.states[path].advice.is_none() {
                continue;
            }
            let world = &mut self.worlds[self.setting.routes[path].network];
            let mut lanes = Vec::new();
            for (lane, flow) in self.states[path].lanes.iter().enumerate() {
                if world.flows[*flow].starts_us <= now_us {
                    lanes.push(reading(lane, &world.flows[*flow], None));
                }
            }
            for lane in &mut lanes {
                lane.rtt_us += (world.uniform() * f64::from(self.setting.jitter_us)) as u32;
                lane.lane += 256 * path as u16;
            }
            sample.paths.push(PathReading { path: path as u16, lanes, timeouts: 0 });
        }
        let verdict_before = self.paths.last_verdict();
        let events = self.paths.on_sample(&sample);
        if self.paths.last_verdict() != verdict_before {
            self.verdicts.extend(self.paths.last_verdict().map(|verdict| (now_us, verdict)));
        }
        self.carry_out_all(events, now_us);
        for reading in &sample.paths {
            self.pace(reading);
        }
        self.point(now_us)
    }

    fn carry_out_all(&mut self, events: Vec<PathEvent>, now_us: u64) {
        for event in events {
            match &event {
                PathEvent::Advice { path, advice } => self.carry_out(usize::from(*path), advice.clone()),
                PathEvent::Rests { path, .. } | PathEvent::Resumes { path, .. } => self.activate(usize::from(*path)),
                PathEvent::Dead { path, .. } => self.cut(usize::from(*path), now_us),
            }
            self.events.push((now_us, event));
        }
    }

    fn pace(&mut self, reading: &PathReading) {
        let path = usize::from(reading.path);
        let Some(advice) = &self.states[path].advice else { return };
        let bound = advice.pacing_bytes_per_s;
        let per_lane = bound.map(|bound| bound_per_lane(bound, &reading.lanes, advice.lanes) as f64);
        let world = &mut self.worlds[self.setting.routes[path].network];
        for flow in &self.states[path].lanes {
            world.flows[*flow].pacing = per_lane;
        }
    }

    fn carry_out(&mut self, path: usize, advice: Advice) {
        let world = &mut self.worlds[self.setting.routes[path].network];
        let state = &mut self.states[path];
        let host = Control::named(&self.setting.wishes.host_congestion_control);
        let control = advice.congestion_control.as_deref().map_or(state.control.unwrap_or(host), Control::named);
        state.control = Some(control);
        self.paths.on_granted(path as u16, control.name());
        while state.lanes.len() < usize::from(advice.lanes) {
            let starts_us = world.now_us + if state.advice.is_none() { 0 } else { 2 * world.link.rtt_us };
            let Windows { send, receive } = self.setting.windows;
            let mut flow = Flow::new(control, starts_us, send, receive);
            flow.is_paced = world.link.rtt_us >= 2_000;
            state.lanes.push(world.flows.len());
            world.flows.push(flow);
        }
        for flow in &state.lanes {
            world.flows[*flow].switch(control, world.now_us);
        }
        state.advice = Some(advice);
        self.activate(path);
    }

    fn activate(&mut self, path: usize) {
        let world = &mut self.worlds[self.setting.routes[path].network];
        let state = &self.states[path];
        let rests = self.paths.rests(path as u16);
        let lanes = state.advice.as_ref().map_or(0, |advice| usize::from(advice.lanes));
        for (lane, flow) in state.lanes.iter().enumerate() {
            world.flows[*flow].active = lane < lanes && !rests;
        }
    }

    fn cut(&mut self, path: usize, now_us: u64) {
        let world = &mut self.worlds[self.setting.routes[path].network];
        let state = &mut self.states[path];
        for flow in state.lanes.drain(..) {
            let flow = &mut world.flows[flow];
            state.acked_before += flow.acked;
            (flow.active, flow.to_repeat, flow.cwnd) = (false, 0.0, 0.0);
        }
        (state.advice, state.dials_us) = (None, Some(now_us + DIAL_AGAIN_US));
    }

    fn point(&self, now_us: u64) -> Point {
        let acked = |(state, route): (&State, &Route)| {
            let world = &self.worlds[route.network];
            state.acked_before + state.lanes.iter().map(|flow| world.flows[*flow].acked).sum::<f64>()
        };
        let theirs = |(world, network): (&World, &Network)| -> f64 {
            world.flows.iter().take(network.foreign.len()).map(|flow| flow.acked).sum()
        };
        let advice = |of: fn(&Advice) -> Option<u64>| {
            self.states.iter().map(move |state| state.advice.as_ref().and_then(of)).collect::<Vec<_>>()
        };
        Point {
            at_us: now_us,
            acked: self.states.iter().zip(&self.setting.routes).map(acked).collect(),
            foreign_acked: self.worlds.iter().zip(&self.setting.networks).map(theirs).sum(),
            queueing_us: self.setting.routes.iter().map(|route| self.worlds[route.network].queueing_us()).collect(),
            lanes: advice(|advice| Some(u64::from(advice.lanes)))
                .into_iter()
                .map(|lanes| lanes.unwrap_or(0) as u16)
                .collect(),
            bounds: advice(|advice| advice.pacing_bytes_per_s),
        }
    }
}

const DIAL_AGAIN_US: u64 = 500_000;
