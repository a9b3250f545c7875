//! What the service observed of each network class, and its best floor.

use std::fmt::Write as _;

use haul_transfer::networks_observed::{BestFloor, ObservedClass, Why};
use serde::Serialize;

use crate::json::line::to_line;
use crate::json::values::SCHEMA;
use crate::text::printable::printable;

pub fn text(classes: &[ObservedClass]) -> String {
    if classes.is_empty() {
        return "nothing was observed yet: `haul serve` of this user writes it down each minute\n".to_owned();
    }
    let mut text = String::new();
    for class in classes {
        let ObservedClass { connections, rtt_us: [half, most, nearly_all], timeouts, recoveries, .. } = class;
        let _ = writeln!(text, "{}: {connections} connections", printable(class.name.as_bytes()));
        let _ = writeln!(
            text,
            "  round trip      half within {}, 90 % within {}, 99 % within {}",
            ms(u64::from(*half)),
            ms(u64::from(*most)),
            ms(u64::from(*nearly_all))
        );
        let _ = writeln!(
            text,
            "  timeouts        {timeouts}; {recoveries} times data was sent again, for {} s; {} segments had arrived already",
            seconds(class.recovery_ms * 1000),
            class.spurious
        );
        let floor = class.floor_us.map_or_else(|| "unknown".to_owned(), |us| ms(us.into()));
        let _ = writeln!(text, "  floor           {floor} in effect");
        let _ = match &class.best {
            None => writeln!(text, "  best floor      not known: too few connections"),
            Some(best) => writeln!(text, "  best floor      {}", words(best, class)),
        };
    }
    text
}

fn words(best: &BestFloor, class: &ObservedClass) -> String {
    let why = match best.why {
        Why::DelayedAcknowledgements => {
            format!("acknowledgements were at most {} late, and a peer may delay one by 40 ms", ms(best.late_us.into()))
        }
        Why::Late => format!("99.9 % of the acknowledgements were at most {} late", ms(best.late_us.into())),
        Why::Spurious => format!(
            "with the floor in effect {} segments were sent again for nothing, beside {} timeouts",
            class.spurious, class.timeouts
        ),
    };
    let mut words = format!("{}: {why}", ms(best.floor_us.into()));
    if class.timeouts > 0 {
        let _ = write!(
            words,
            "\n                  {} timeouts waited {} s at least; with this floor {} s",
            class.timeouts,
            seconds(best.waited_us),
            seconds(best.would_wait_us)
        );
    }
    words
}

fn ms(us: u64) -> String {
    if us < 1_000 {
        format!("{us} us")
    } else if us < 10_000 {
        format!("{:.1} ms", us as f64 / 1e3)
    } else {
        format!("{:.0} ms", us as f64 / 1e3)
    }
}

fn seconds(us: u64) -> String {
    format!("{:.1}", us as f64 / 1e6)
}

#[derive(Serialize)]
struct Line<'a> {
    event: &'static str,
    schema: u32,
    version: &'static str,
    classes: Vec<ClassLine<'a>>,
}

#[derive(Serialize)]
struct ClassLine<'a> {
    name: &'a str,
    connections: u64,
    round_trips_us: &'a [(u32, u64)],
    sent_bytes: u64,
    timeouts: u64,
    recoveries: u64,
    recovery_ms: u64,
    spurious_segments: u64,
    floor_us: Option<u32>,
    best: Option<BestLine>,
}

#[derive(Serialize)]
struct BestLine {
    floor_us: u32,
    waited_us: u64,
    would_wait_us: u64,
    late_us: u32,
    /// delayed-acknowledgements, late or spurious
    why: &'static str,
}

pub fn json(classes: &[ObservedClass]) -> String {
    let best = |best: &BestFloor| BestLine {
        floor_us: best.floor_us,
        waited_us: best.waited_us,
        would_wait_us: best.would_wait_us,
        late_us: best.late_us,
        why: match best.why {
            Why::DelayedAcknowledgements => "delayed-acknowledgements",
            Why::Late => "late",
            Why::Spurious => "spurious",
        },
    };
    let class = |class: &'_ ObservedClass| class.best.as_ref().map(best);
    let lines = classes.iter().map(|one| ClassLine {
        name: &one.name,
        connections: one.connections,
        round_trips_us: &one.round_trips,
        sent_bytes: one.sent_bytes,
        timeouts: one.timeouts,
        recoveries: one.recoveries,
        recovery_ms: one.recovery_ms,
        spurious_segments: one.spurious,
        floor_us: one.floor_us,
        best: class(one),
    });
    to_line(&Line {
        event: "networks_observed",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        classes: lines.collect(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_floor_is_told_with_its_arithmetic() {
        let best = BestFloor {
            floor_us: 50_000,
            waited_us: 1_200_000,
            would_wait_us: 300_000,
            late_us: 4_000,
            why: Why::DelayedAcknowledgements,
        };
        let class = ObservedClass {
            name: "inside".into(),
            connections: 40,
            rtt_us: [1_000, 2_000, 12_000],
            round_trips: vec![(1_000, 40)],
            sent_bytes: 7,
            timeouts: 6,
            recoveries: 5,
            recovery_ms: 900,
            spurious: 1,
            floor_us: Some(200_000),
            best: Some(best),
        };
        assert_eq!(
            text(&[class]),
            "inside: 40 connections\n  \
             round trip      half within 1.0 ms, 90 % within 2.0 ms, 99 % within 12 ms\n  \
             timeouts        6; 5 times data was sent again, for 0.9 s; 1 segments had arrived already\n  \
             floor           200 ms in effect\n  \
             best floor      50 ms: acknowledgements were at most 4.0 ms late, and a peer may delay one by 40 ms\n                  \
             6 timeouts waited 1.2 s at least; with this floor 0.3 s\n"
        );
    }
}
