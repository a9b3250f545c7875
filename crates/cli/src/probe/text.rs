//! The result for a person: directions and hosts side by side, and remedies.

use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::time::Duration;

use haul_job::{Cause, OnePath};
use haul_transfer::probe::{Found, Way};

use crate::report::hosts::side_by_side;
use crate::report::json;
use crate::report::limit::{self, Case};
use crate::report::paths::{OnePathLine, of_paths};
use crate::text::figures::{bits, bytes, duration, latency, parts, percent};
use crate::text::printable::printable;
use crate::text::rows::{self, paragraph, row};

pub fn table(found: &Found) -> String {
    let far = printable(&found.far.place);
    let named = [found.lane_path.name().to_owned(), printable(&found.cipher)];
    let named: Vec<&str> = named.iter().map(String::as_str).filter(|name| !name.is_empty()).collect();
    let mut text = String::new();
    paragraph(&mut text, "", &format!("{far}: {} each way, {}", duration(found.time), named.join(", ")));
    text.push('\n');
    path(&mut text, found);
    each_path(&mut text, found);
    let _ = writeln!(text, "\nthe hosts");
    side_by_side(&mut text, "here, there", &json::of_host(&found.here), &json::of_host(&found.far), true);
    helps(&mut text, found);
    text
}

fn path(text: &mut String, found: &Found) {
    let mut pair = |label: &str, of: &dyn Fn(&Way) -> Option<String>| {
        let cells = [&found.there, &found.back].map(|way| of(way).unwrap_or_else(|| "unknown".to_owned()));
        rows::pair(text, label, &cells);
    };
    let round_trip = |way: &Way, us: u32| (way.path.rtt_min_us > 0).then(|| latency(us));
    pair("", &|way| Some(if std::ptr::eq(way, &found.there) { "there" } else { "back" }.to_owned()));
    pair("carried", &|way| Some(bits(way.bytes_per_s as f64)));
    pair("1 TB takes", &|way| Some(time_for(TERABYTE, way.bytes_per_s)));
    pair("could carry", &|way| Some(could_carry(way)).filter(|_| way.path.capacity_bytes_per_s > 0));
    pair("limited by", &|way| {
        Some(way.limit.map_or_else(
            || "nothing arrived".to_owned(),
            |limit| format!("{}, {}", limit.cause.name(), percent(limit.share)),
        ))
    });
    pair("round trip, smallest", &|way| round_trip(way, way.path.rtt_min_us));
    pair("  median under load", &|way| round_trip(way, loaded_us(way)));
    pair("  of it in queues", &|way| round_trip(way, way.path.queueing_us));
    pair("  jitter", &|way| round_trip(way, way.jitter_us));
    pair("sent again", &|way| (way.path.rtt_min_us > 0).then(|| parts(way.path.resent_ppm)));
    pair("path MTU, segment", &|way| {
        (way.mtu_bytes > 0).then(|| format!("{}, {} bytes", way.mtu_bytes, way.segment_bytes))
    });
    pair("lanes that carried", &|way| Some(way.path.lanes).filter(|n| *n > 0).map(|n| n.to_string()));
    pair("under way, a lane", &|way| {
        Some(match way.path.window_bytes {
            0 => "no window was full".to_owned(),
            n => format!("{} at most", bytes(n)),
        })
    });
    pair("congestion control", &|way| Some(printable(&way.path.congestion_control)).filter(|name| !name.is_empty()));
}

fn each_path(text: &mut String, found: &Found) {
    let [there, back] = [&found.there, &found.back].map(paths);
    let numbers: BTreeSet<u16> = there.iter().chain(&back).map(|path| path.number).collect();
    if numbers.len() < 2 {
        return;
    }
    let _ = writeln!(text, "\nthe paths");
    for number in numbers {
        let ways = [&there, &back].map(|paths| paths.iter().find(|path| path.number == number));
        let Some(any) = ways.iter().flatten().next() else { continue };
        let device = if any.device.is_empty() { String::new() } else { format!("{}, ", printable(&any.device)) };
        row(text, &format!("path {number}"), &format!("{device}{} to {}", any.local, any.remote));
        let mut pair = |label: &str, of: &dyn Fn(&OnePathLine) -> Option<String>| {
            let cells = ways.map(|way| way.and_then(of).unwrap_or_else(|| "unknown".to_owned()));
            rows::pair(text, label, &cells);
        };
        pair("  carried", &|path| {
            Some(match path.state.as_str() {
                "carries" => bits(path.rate_bytes_per_s as f64),
                other => state_in_short(other).to_owned(),
            })
        });
        let known = |path: &OnePathLine, us: u32| (path.path.rtt_min_us > 0).then(|| latency(us));
        pair("  limited by", &|path| {
            (!path.limit.is_empty()).then(|| format!("{}, {}", path.limit, percent(path.limit_share)))
        });
        pair("  round trip, least", &|path| known(path, path.path.rtt_min_us));
        pair("    of it in queues", &|path| known(path, path.path.queueing_us));
        pair("  sent again", &|path| (path.path.rtt_min_us > 0).then(|| parts(path.path.resent_ppm)));
        pair("  lanes that carried", &|path| (path.path.lanes > 0).then(|| path.path.lanes.to_string()));
    }
}

pub fn paths(way: &Way) -> Vec<OnePathLine> {
    let rate =
        |path: &OnePath| way.paths.iter().find(|one| one.path.number == path.number).map_or(0, |one| one.bytes_per_s);
    of_paths(way.paths.iter().map(|one| &one.path), rate)
}

fn state_in_short(name: &str) -> &'static str {
    match name {
        "rests" => "not used: adds nothing",
        _ => "lost",
    }
}

/// The highest rate seen, whatever limited the lanes.
fn could_carry(way: &Way) -> String {
    format!("{} at least", bits(way.path.capacity_bytes_per_s.max(way.bytes_per_s) as f64))
}

fn helps(text: &mut String, found: &Found) {
    let ways = [("there", Case::there(found), &found.there), ("back", Case::back(found), &found.back)];
    for (name, case, way) in ways {
        let Some(words) = limit::limited_by(case) else { continue };
        text.push('\n');
        paragraph(text, "", &format!("{name}: limited by {words}"));
        if way.limit.is_some_and(|limit| limit.cause == Cause::Ramp) {
            paragraph(text, "  - ", "The time was too short to reach full speed: --time 30 shows more.");
        }
        for remedy in limit::remedies(case) {
            paragraph(text, "  - ", &remedy.words);
            if let Some(command) = &remedy.command {
                rows::command(text, "      ", &printable(command));
            }
        }
    }
    if let Some(command) = tune(found) {
        text.push('\n');
        paragraph(text, "", "what a host should be set to for this path, with the arithmetic; run it at both ends");
        rows::command(text, "  ", &command);
    }
}

pub fn tune(found: &Found) -> Option<String> {
    let ways = [&found.there, &found.back];
    let rate = ways.map(|way| way.path.capacity_bytes_per_s.max(way.bytes_per_s)).into_iter().max()?;
    let rtt_us = ways.into_iter().map(|way| way.path.rtt_min_us).filter(|us| *us > 0).max()?;
    let mbit = rate.saturating_mul(8).div_ceil(1_000_000);
    (mbit > 0).then(|| format!("haul tune --rate {mbit}Mbit --rtt {}ms", f64::from(rtt_us) / 1e3))
}

pub fn loaded_us(way: &Way) -> u32 {
    way.path.rtt_min_us.saturating_add(way.path.queueing_us)
}

fn time_for(size_bytes: u64, bytes_per_s: u64) -> String {
    match bytes_per_s {
        0 => "for ever".to_owned(),
        n => duration(Duration::from_secs_f64(size_bytes as f64 / n as f64)),
    }
}

/// As disks are sold: 10^12 bytes.
const TERABYTE: u64 = 1_000_000_000_000;

#[cfg(test)]
mod tests {
    use std::net::IpAddr;

    use haul_job::{LanePath, PathState, PathSummary, PathTime};
    use haul_transfer::probe::OneWay;

    use super::*;
    use crate::probe::tests::found;
    use crate::text::rows::tests::fits;

    #[test]
    fn a_probe_in_full() {
        fits(&table(&found()));
        insta::assert_snapshot!("probe_in_full", table(&found()));
    }

    #[test]
    fn each_of_several_paths_has_its_own_figures_both_ways() {
        let mut found = found();
        let path = |number: u16, device: &str, state, time| OnePath {
            number,
            local: Some(IpAddr::from([10, 99, number as u8, 1]).into()),
            remote: Some(IpAddr::from([10, 99, number as u8, 2]).into()),
            device: device.to_owned(),
            state,
            subflows: Vec::new(),
            delivered_bytes: 1 << 30,
            summary: PathSummary { rtt_min_us: 20_000, queueing_us: 1_500, lanes: 2, time, ..PathSummary::default() },
        };
        let full = PathTime { capacity_us: 90, loss_us: 10, ..PathTime::default() };
        let lossy = PathTime { capacity_us: 10, loss_us: 90, ..PathTime::default() };
        let one = |path, bytes_per_s| OneWay { path, bytes_per_s };
        found.there.paths = vec![
            one(path(0, "eth0", PathState::Carries, full), 60_000_000),
            one(path(1, "eth1", PathState::Carries, lossy), 41_000_000),
        ];
        found.back.paths = vec![
            one(path(0, "eth0", PathState::Carries, full), 60_000_000),
            one(path(1, "eth1", PathState::Rests, PathTime::default()), 0),
        ];
        let text = table(&found);
        let paths = text.split("\nthe ").find(|part| part.starts_with("paths")).unwrap();
        insta::assert_snapshot!("probe_paths", paths);
        found.there.paths.truncate(1);
        found.back.paths.truncate(1);
        assert!(!table(&found).contains("the paths"), "what one path is like is told already");
    }

    #[test]
    fn a_path_inside_ssh_has_a_rate_and_nothing_else() {
        let mut found = found();
        for way in [&mut found.there, &mut found.back] {
            way.path = PathSummary::default();
            (way.mtu_bytes, way.segment_bytes, way.jitter_us) = (0, 0, 0);
            (way.limit, way.remedies) = (None, Vec::new());
            (way.bytes_per_s, way.arrived_bytes) = (0, 0);
        }
        found.lane_path = LanePath::Ssh;
        let text = table(&found);
        assert!(text.contains("unknown                   unknown\n") && text.contains("for ever"), "{text}");
        assert_eq!(tune(&found), None);
    }

    #[test]
    fn what_a_peer_said_cannot_drive_the_terminal() {
        let mut found = found();
        found.back.path.congestion_control = "cubic\x1b[2J".to_owned();
        found.far.limits.congestion_control = "cubic\x1b[2J".to_owned();
        (found.back.path.rtt_min_us, found.back.path.queueing_us) = (u32::MAX, u32::MAX);
        (found.back.bytes_per_s, found.back.path.capacity_bytes_per_s) = (u64::MAX, u64::MAX);
        assert!(!table(&found).contains('\x1b'));
    }

    #[test]
    fn a_terabyte_takes_its_time() {
        assert_eq!(time_for(TERABYTE, 117_500_000), "2 h 21 min");
        assert_eq!(time_for(TERABYTE, 1), "11574074 d 01 h");
    }
}
