//! The tuner and the service class of a path, on a link that others use, too.

use haul_engine::path::{LaneReading, Marked, Sample, Tuner, Wishes, beside_own_bounds, bound_per_lane, bounds_at_end};
use haul_engine::service::ServiceClass;
use haul_engine::service::aware::{Aware, Change, Reason, Seen};
use haul_wire::service::MarkEffect;

use super::flow::{Control, Flow};
use super::link::{Link, Marks, NOT_SENT_LOW_WATER, World};
use super::run::{SAMPLE_US, STOCK, Windows, reading};

#[derive(Clone, Debug)]
pub struct Shared {
    pub link: Link,
    pub marks: Marks,
    /// Streams that yield to nobody: bytes per second, from, until, in seconds.
    pub others: Vec<(f64, f64, f64)>,
    /// Cubic flows: from, until, in seconds.
    pub cubic_others: Vec<(f64, f64)>,
    /// `None`: the class stays as asked for.
    pub floor: Option<Option<u64>>,
    pub fixed: ServiceClass,
    pub lanes: Option<u16>,
    /// Bytes of the job, and of a unit; `None`: no end.
    pub job: Option<(f64, f64)>,
    /// See [`World::pairs_wait`].
    pub pairs_wait: bool,
    /// See [`World::owed`].
    pub whole_packets: bool,
    pub control: Control,
    pub seconds: u64,
    pub seed: u64,
}

impl Shared {
    /// Runs with `--class auto`.
    pub fn auto(link: Link) -> Self {
        Self {
            link,
            marks: Marks::First(link.bytes_per_s * 0.96),
            others: Vec::new(),
            cubic_others: Vec::new(),
            floor: Some(None),
            fixed: ServiceClass::Normal,
            lanes: None,
            job: None,
            pairs_wait: false,
            whole_packets: false,
            control: Control::Cubic,
            seconds: 30,
            seed: 1,
        }
    }

    pub fn fixed(self, class: ServiceClass) -> Self {
        Self { floor: None, fixed: class, ..self }
    }

    pub fn others(mut self, share: f64, from_s: f64, until_s: f64) -> Self {
        self.others.push((self.link.bytes_per_s * share, from_s, until_s));
        self
    }

    pub fn marks(self, marks: Marks) -> Self {
        Self { marks, ..self }
    }

    pub fn run(self) -> Course {
        Runner::new(self).run()
    }
}

#[derive(Debug, Default)]
pub struct Course {
    /// Seconds, and what was delivered until then.
    points: Vec<(f64, f64)>,
    pub changes: Vec<(f64, Change)>,
    pub marked_bytes: f64,
    pub effect: MarkEffect,
    /// Seconds, and the lanes that were marked then.
    pub marked: Vec<(f64, usize, usize)>,
    pub done_s: Option<f64>,
}

impl Course {
    pub fn rate(&self, from_s: f64, to_s: f64) -> f64 {
        let at = |s: f64| self.points.iter().rev().find(|(at_s, _)| *at_s <= s).copied().unwrap_or((0.0, 0.0));
        let ((t0, a0), (t1, a1)) = (at(from_s), at(to_s));
        (a1 - a0) / (t1 - t0)
    }

    /// The first raise or release after a moment.
    pub fn changed_s(&self, class: ServiceClass, after_s: f64) -> Option<f64> {
        self.changes.iter().find(|(at_s, change)| *at_s >= after_s && change.class == class).map(|(at_s, _)| *at_s)
    }

    pub fn reasons(&self) -> Vec<Reason> {
        self.changes.iter().map(|(_, change)| change.reason).collect()
    }

    pub fn told(&self) -> String {
        let mut text = String::new();
        for s in 0..self.points.last().map_or(0, |(at_s, _)| *at_s as u64) {
            let from = s as f64;
            let marked = self.marked.iter().find(|(at_s, ..)| *at_s >= from).map_or((0, 0), |(_, k, n)| (*k, *n));
            text += &format!(
                "{s:3} s {:8.2} Mbit/s, {} of {} lanes marked\n",
                self.rate(from, from + 1.0) * 8e-6,
                marked.0,
                marked.1
            );
        }
        text + &format!("{:?}, {:?}, {:.1} MB marked\n", self.changes, self.effect, self.marked_bytes / 1e6)
    }
}

struct Runner {
    setting: Shared,
    world: World,
    tuner: Tuner,
    aware: Aware,
    foreign: usize,
    course: Course,
    marked: usize,
    /// Bytes of units that no lane has taken.
    waiting: f64,
}

impl Runner {
    fn new(setting: Shared) -> Self {
        let mut world = World::new(setting.link, setting.seed);
        (world.marks, world.pairs_wait) = (setting.marks, setting.pairs_wait);
        world.owed = setting.whole_packets.then(Vec::new);
        for (bytes_per_s, from_s, _) in &setting.others {
            let mut flow = Flow::new(Control::Constant, (from_s * 1e6) as u64, 45e6, 32e6);
            (flow.cwnd, flow.pacing) = (f64::INFINITY, Some(*bytes_per_s));
            world.flows.push(flow);
        }
        for (from_s, _) in &setting.cubic_others {
            world.flows.push(Flow::new(Control::Cubic, (from_s * 1e6) as u64, 45e6, 32e6));
        }
        let wishes = Wishes {
            lanes: setting.lanes,
            host_congestion_control: setting.control.name().into(),
            ..Wishes::default()
        };
        let tuner = Tuner::new(wishes, setting.link.rtt_us as u32, 2);
        let aware = Aware::new(setting.floor.flatten());
        let foreign = setting.others.len() + setting.cubic_others.len();
        let waiting = setting.job.map_or(f64::INFINITY, |(bytes, _)| bytes);
        Self { setting, world, tuner, aware, foreign, course: Course::default(), marked: 0, waiting }
    }

    fn run(mut self) -> Course {
        let first = self.tuner.first();
        self.have_lanes(first.lanes);
        let (mut bound, mut carrying) = (first.pacing_bytes_per_s, first.lanes);
        let mut next_us = SAMPLE_US;
        let mut sent = vec![0.0; self.world.flows.len()];
        while self.world.now_us < self.setting.seconds * 1_000_000 {
            self.have_others();
            self.have_units();
            if self.is_done() {
                self.course.done_s = Some(self.world.now_us as f64 / 1e6);
                break;
            }
            let foreign = self.foreign;
            self.world.step(|flow| flow >= foreign);
            sent.resize(self.world.flows.len(), 0.0);
            for (flow, sent) in self.world.flows.iter().zip(&mut sent).skip(foreign) {
                if flow.marked {
                    self.course.marked_bytes += flow.sent - *sent;
                }
                *sent = flow.sent;
            }
            if self.world.now_us >= next_us {
                next_us += SAMPLE_US;
                let lanes = self.readings();
                let sample =
                    Sample { at_us: self.world.now_us, lanes: lanes.clone(), waiting_bytes: self.waiting as u64 };
                if let Some(advice) = self.tuner.on_sample(&sample) {
                    (bound, carrying) = (advice.pacing_bytes_per_s, advice.lanes);
                    self.have_lanes(advice.lanes);
                }
                self.classify(&lanes, bound, carrying);
            }
        }
        self.course.effect = self.aware.effect();
        self.course
    }

    fn classify(&mut self, lanes: &[LaneReading], bound: Option<u64>, carrying: u16) {
        let at_s = self.world.now_us as f64 / 1e6;
        let count = usize::from(carrying).min(lanes.len());
        let estimate = self.tuner.estimate().clone();
        let (mut scout, mut of_class) = (None, None);
        if self.setting.floor.is_some() {
            let (at_us, ends) = (self.world.now_us, self.waiting == 0.0);
            let seen = Seen { at_us, estimate: &estimate, lanes: &lanes[..count], may_raise: true, ends };
            if let Some(change) = self.aware.judge(&seen) {
                self.course.changes.push((at_s, change));
                self.tuner.class_changed(change.class == ServiceClass::Priority);
            }
            self.marked = self.aware.marked_lanes(count);
            scout = self.aware.scout_bytes_per_s(estimate.rate_bytes_per_s).filter(|_| self.marked < count);
            of_class = self.aware.lane_bytes_per_s();
            self.tuner.marked_are(if self.marked > 0 { Marked::ByNeed } else { Marked::None });
        } else if self.setting.fixed == ServiceClass::Priority {
            self.marked = lanes.len();
        }
        let left = self.left();
        let bounds: Option<Vec<u64>> = bound.map(|bound| {
            if self.waiting == 0.0 {
                bounds_at_end(bound, lanes, &left, &[])
            } else {
                let per_lane = bound_per_lane(bound, lanes, carrying);
                let own: Vec<_> = (1..=count).map(|nth| scout.filter(|_| nth == count)).collect();
                let mut bounds = beside_own_bounds(per_lane, &own);
                bounds.resize(lanes.len(), per_lane);
                bounds
            }
        });
        for (at, flow) in self.world.flows[self.foreign..].iter_mut().enumerate() {
            let per_lane = bounds.as_ref().and_then(|bounds| bounds.get(at)).copied();
            let per_lane = [per_lane, of_class].into_iter().flatten().min().map(|bound| bound as f64);
            flow.marked = at < self.marked;
            flow.pacing = per_lane;
            if let Some(marked) = self.aware.marked_bytes_per_s().filter(|_| flow.marked) {
                let each = marked as f64 / self.marked.max(1) as f64;
                flow.pacing = Some(per_lane.unwrap_or(f64::INFINITY).min(each));
            }
            if at + 1 == count
                && let Some(scout) = scout
            {
                flow.pacing = Some(per_lane.unwrap_or(f64::INFINITY).min(scout as f64));
            }
        }
        let acked = self.world.flows[self.foreign..].iter().map(|flow| flow.acked).sum();
        self.course.points.push((at_s, acked));
        self.course.marked.push((at_s, self.marked, count));
    }

    fn readings(&self) -> Vec<LaneReading> {
        let lanes = self.world.flows[self.foreign..].iter().enumerate();
        lanes
            .filter(|(_, flow)| flow.starts_us <= self.world.now_us)
            .map(|(at, flow)| reading(at, flow, None))
            .collect()
    }

    /// A lane takes the next unit when nearly all of the last is sent.
    fn have_units(&mut self) {
        let Some((_, unit)) = self.setting.job else { return };
        let now_us = self.world.now_us;
        for flow in &mut self.world.flows[self.foreign..] {
            let size = flow.size.get_or_insert(0.0);
            let left = *size - flow.sent + flow.resent;
            if flow.active && flow.starts_us <= now_us && left < NOT_SENT_LOW_WATER {
                let taken = unit.min(self.waiting);
                *size += taken;
                self.waiting -= taken;
            }
        }
    }

    fn left(&self) -> Vec<u64> {
        let lanes = self.world.flows[self.foreign..].iter().filter(|flow| flow.starts_us <= self.world.now_us);
        lanes.map(|flow| flow.size.map_or(u64::MAX, |size| (size - flow.sent + flow.resent).max(0.0) as u64)).collect()
    }

    fn is_done(&self) -> bool {
        let Some((bytes, _)) = self.setting.job else { return false };
        let acked: f64 = self.world.flows[self.foreign..].iter().map(|flow| flow.acked).sum();
        acked >= bytes - 1.0
    }

    fn have_others(&mut self) {
        let now_s = self.world.now_us as f64 / 1e6;
        let until = self.setting.others.iter().map(|(_, _, until_s)| *until_s);
        let until: Vec<f64> = until.chain(self.setting.cubic_others.iter().map(|(_, until_s)| *until_s)).collect();
        for (flow, until_s) in self.world.flows.iter_mut().zip(until) {
            flow.active = now_s < until_s;
            if flow.control == Control::Constant {
                flow.to_repeat = 0.0;
            }
        }
    }

    fn have_lanes(&mut self, lanes: u16) {
        while self.world.flows.len() - self.foreign < usize::from(lanes) {
            let starts_us = if self.world.now_us == 0 { 0 } else { self.world.now_us + 2 * self.setting.link.rtt_us };
            let Windows { send, receive } = STOCK;
            let mut flow = Flow::new(self.setting.control, starts_us, send, receive);
            flow.is_paced = self.setting.link.rtt_us >= 2_000;
            self.world.flows.push(flow);
        }
        for (at, flow) in self.world.flows[self.foreign..].iter_mut().enumerate() {
            flow.active = at < usize::from(lanes);
        }
    }
}
