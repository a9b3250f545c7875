//! Jobs with a deadline, in simulated days of others' traffic.

use haul_engine::service::ServiceClass;
use haul_engine::service::schedule::{News, Progress, Schedule};

struct Chance(u64);

impl Chance {
    fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    fn next(&mut self) -> f64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as f64 / (1u64 << 53) as f64
    }

    fn between(&mut self, least: f64, most: f64) -> f64 {
        least + (most - least) * self.next()
    }
}

/// What a path of 1 carries for us in each class, second by second.
#[derive(Clone, Copy)]
struct Moment {
    background: f64,
    normal: f64,
    priority: f64,
}

const CAPACITY: f64 = 12.5e6;

/// Makes a day: others want more by day than by night, and no two minutes are equal.
fn day(chance: &mut Chance, seconds: usize) -> Vec<Moment> {
    let (busy, quiet) = (chance.between(0.5, 1.3), chance.between(0.0, 0.4));
    let night_from = chance.between(0.0, 1.0);
    let mut demand = busy;
    (0..seconds)
        .scan(0.0, |until, at| {
            let is_night = (at as f64 / seconds as f64 + 1.0 - night_from).fract() < 0.4;
            if at as f64 >= *until {
                *until = at as f64 + chance.between(20.0, 900.0);
                let usual = if is_night { quiet } else { busy };
                demand = (usual * chance.between(0.3, 1.7)).min(1.5);
            }
            let noise = 0.97 + 0.03 * chance.next();
            let free = (1.0 - demand).max(0.0);
            // Streams that do not yield leave little to TCP.
            let share = if demand >= 1.0 { 0.04 } else { 0.1 };
            Some(Moment { background: 0.95 * free * noise, normal: free.max(share) * noise, priority: 0.98 * noise })
        })
        .collect()
}

struct Outcome {
    done_s: Option<usize>,
    marked: f64,
    said_s: Option<usize>,
    changes: usize,
}

fn run(day: &[Moment], all: f64, most: ServiceClass) -> Outcome {
    let mut schedule = Schedule::new(0, day.len() as u64 * 1_000_000);
    let (mut left, mut marked, mut said_s, mut changes) = (all, 0.0, None, 0);
    let mut class = ServiceClass::Normal;
    for (at, moment) in day.iter().enumerate() {
        let progress = Progress {
            done_bytes: ((all - left) * CAPACITY) as u64,
            done_files: 0,
            left_bytes: (left * CAPACITY) as u64,
            left_files: 1,
            class,
            allowed_most: most,
        };
        let wanted = schedule.on_sample(at as u64 * 1_000_000, progress);
        if matches!(wanted.news, Some(News::CannotBeMet { .. })) {
            said_s = said_s.or(Some(at));
        }
        changes += usize::from(wanted.class != class);
        class = wanted.class;
        let carried = match class {
            ServiceClass::Background => moment.background,
            ServiceClass::Normal => moment.normal,
            ServiceClass::Priority => moment.priority,
        };
        if class == ServiceClass::Priority {
            marked += carried.min(left);
        }
        left -= carried;
        if left <= 0.0 {
            return Outcome { done_s: Some(at + 1), marked, said_s, changes };
        }
    }
    Outcome { done_s: None, marked, said_s, changes }
}

/// The least that has to be marked, knowing the day: where priority gains most for each byte. `None`: even all would not do.
fn oracle(day: &[Moment], all: f64) -> Option<f64> {
    let mut missing = all - day.iter().map(|moment| moment.normal).sum::<f64>();
    let mut moments: Vec<&Moment> = day.iter().collect();
    let gain = |moment: &Moment| moment.priority - moment.normal;
    moments.sort_by(|a, b| (gain(b) / b.priority).total_cmp(&(gain(a) / a.priority)));
    let mut marked = 0.0;
    for moment in moments {
        if missing <= 0.0 {
            return Some(marked);
        }
        if gain(moment) <= 0.0 {
            break;
        }
        let part = (missing / gain(moment)).min(1.0);
        missing -= part * gain(moment);
        marked += part * moment.priority;
    }
    (missing <= 1e-6 * all).then_some(marked)
}

#[test]
fn a_deadline_is_met_whenever_it_can_be_and_little_more_is_marked_than_must_be() {
    let (mut ours, mut least) = (0.0, 0.0);
    for seed in 1..=200 {
        let mut chance = Chance::of(seed);
        let hours = chance.between(0.5, 10.0);
        let day = day(&mut chance, (hours * 3600.0) as usize);
        // Up to 95 % of what the path can give.
        let all = day.len() as f64 * chance.between(0.2, 0.92);
        let outcome = run(&day, all, ServiceClass::Priority);
        let marked = oracle(&day, all).unwrap_or(f64::INFINITY);
        assert!(outcome.done_s.is_some(), "seed {seed}: {hours:.1} h, {:.2} of the path", all / day.len() as f64);
        assert!(
            outcome.marked < 1.2 * marked + 0.25 * all,
            "seed {seed}: {:.3}, {:.3}",
            outcome.marked / all,
            marked / all
        );
        assert!(outcome.changes as f64 / hours < 120.0, "seed {seed} flaps: {} changes", outcome.changes);
        ours += outcome.marked;
        least += marked;
    }
    assert!(ours < 1.2 * least, "{:.3} times what an oracle marks", ours / least);
}

#[test]
fn a_free_path_marks_nothing_and_is_used_as_background() {
    let day = vec![Moment { background: 0.95, normal: 0.97, priority: 0.98 }; 7_200];
    for share in [0.2, 0.5, 0.8, 0.9] {
        let outcome = run(&day, share * 7_200.0, ServiceClass::Priority);
        assert!(outcome.done_s.is_some() && outcome.marked == 0.0, "{share}: {:?}, {}", outcome.done_s, outcome.marked);
    }
}

#[test]
fn what_cannot_be_met_is_said_within_ten_seconds() {
    let free = Moment { background: 0.95, normal: 0.97, priority: 0.98 };
    let full = Moment { background: 0.01, normal: 0.04, priority: 0.98 };
    for (moment, most) in [(free, ServiceClass::Priority), (full, ServiceClass::Priority), (free, ServiceClass::Normal)]
    {
        let outcome = run(&vec![moment; 3_600], 1.2 * 3_600.0, most);
        assert!(outcome.said_s.is_some_and(|said_s| said_s <= 10), "{:?}", outcome.said_s);
        assert!(outcome.done_s.is_none());
    }
}

/// Only priority shows that a path lost half of its capacity, and not to others.
#[test]
fn a_path_that_becomes_slower_is_noticed_while_it_matters() {
    let mut day = vec![Moment { background: 0.95, normal: 0.97, priority: 0.98 }; 3_600];
    day[1_800..].fill(Moment { background: 0.3, normal: 0.3, priority: 0.3 });
    let outcome = run(&day, 0.9 * 3_600.0, ServiceClass::Priority);
    assert!(outcome.said_s.is_some_and(|said_s| (1_800..2_400).contains(&said_s)), "{:?}", outcome.said_s);
}

#[test]
fn without_leave_for_priority_nothing_is_marked() {
    let day = vec![Moment { background: 0.0, normal: 0.2, priority: 0.98 }; 3_600];
    let outcome = run(&day, 0.5 * 3_600.0, ServiceClass::Normal);
    assert_eq!((outcome.marked, outcome.done_s), (0.0, None));
}

#[test]
fn a_job_of_many_small_files_is_measured_by_its_files() {
    let mut schedule = Schedule::new(0, 1_000_000_000);
    let mut classes = Vec::new();
    for at_s in 0..200u64 {
        // A hundred files a second, and 1,000 s for 98,000 of them; the large ones came first.
        let progress = Progress {
            done_bytes: 5_000_000_000 + at_s * 100_000,
            done_files: at_s * 100,
            left_bytes: 100_000 * (980 - at_s),
            left_files: 100 * (980 - at_s),
            class: classes.last().copied().unwrap_or(ServiceClass::Normal),
            allowed_most: ServiceClass::Priority,
        };
        classes.push(schedule.on_sample(at_s * 1_000_000, progress).class);
    }
    assert!(classes.contains(&ServiceClass::Priority), "98 of 100 files a second are needed");
}
