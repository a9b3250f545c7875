//! `haul why`: a copy's full report: its time, path, hosts and remedies.

pub mod flags;

use std::borrow::Cow;
use std::fmt::Write as _;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_job::{Error, Fault, LanePath};
use jiff::tz::TimeZone;
use serde::Serialize;

use crate::json::error;
use crate::json::line::to_line;
use crate::json::values::Named;
use crate::process::output;
use crate::report::class;
use crate::report::hosts::side_by_side;
use crate::report::json::ReportLine;
use crate::report::kept::{self, Kept};
use crate::report::outages;
use crate::report::paths::{OnePathLine, SubflowLine};
use crate::text::failure;
use crate::text::figures::{self, bits, bytes, count, counted, duration, latency, parts, percent, rate};
use crate::text::printable::printable;
use crate::text::rows::{self, LABEL_WIDTH, paragraph, row};
use crate::why::flags::Why;

pub fn run(typed: &Why) -> ExitCode {
    let now_s = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    match files().and_then(|files| if typed.list { every(&files, typed, now_s) } else { one(&files, typed, now_s) }) {
        Ok(text) => {
            output::say(text);
            ExitCode::SUCCESS
        }
        Err(error) => {
            let _ = write!(std::io::stderr(), "{}", failure::text(&error));
            ExitCode::from(failure::of_fault(error.fault).code)
        }
    }
}

fn files() -> Result<Vec<PathBuf>, Error> {
    let no_home = || Error::new(Fault::Usage, "there is no home directory for reports").try_this("set HOME");
    let directory = kept::directory().ok_or_else(no_home)?;
    let shown = printable(directory.as_os_str().as_encoded_bytes());
    let files = kept::list(&directory)
        .map_err(|error| Error::new(Fault::FileIo, format!("cannot list {shown}")).because(error))?;
    if files.is_empty() {
        return Err(Error::new(Fault::Usage, "no report is kept yet")
            .because(format!("nothing is in {shown}"))
            .try_this("each 'haul cp' keeps a report"));
    }
    Ok(files)
}

fn one(files: &[PathBuf], typed: &Why, now_s: u64) -> Result<String, Error> {
    let nth = usize::from(typed.nth);
    let file = files.get(nth - 1).ok_or_else(|| {
        Error::new(Fault::Usage, format!("there is no report number {nth}"))
            .because(format!("{} are kept", files.len()))
            .try_this("haul why --list")
    })?;
    let kept = read(file)?;
    Ok(if typed.json { to_line(&kept) } else { in_full(&kept, now_s) })
}

fn every(files: &[PathBuf], typed: &Why, now_s: u64) -> Result<String, Error> {
    let mut text = String::new();
    for (nth, file) in (1..).zip(files) {
        match (read(file), typed.json) {
            (Ok(kept), true) => text.push_str(&to_line(&kept)),
            (Ok(kept), false) => text.push_str(&in_short(nth, &kept, now_s)),
            // An unreadable report does not hide the others.
            (Err(error), true) => text.push_str(&unreadable(file, &error)),
            (Err(error), false) => {
                let _ = writeln!(text, "{nth:>2}  {}: {}", error.what, error.cause.unwrap_or_default());
            }
        }
    }
    Ok(text)
}

fn read(file: &Path) -> Result<Kept, Error> {
    let shown = printable(file.as_os_str().as_encoded_bytes());
    kept::read(file).map_err(|error| Error::new(Fault::FileIo, format!("cannot read {shown}")).because(error))
}

fn unreadable(file: &Path, error: &Error) -> String {
    #[derive(Serialize)]
    struct Unreadable<'a> {
        unreadable: Cow<'a, str>,
        why: &'a str,
    }
    let why = error.cause.as_deref().unwrap_or(&error.what);
    to_line(&Unreadable { unreadable: file.to_string_lossy(), why })
}

/// ` 1  12 min 05 s ago  data/run42 -> host-b:/data: copied 3 files, ...`
fn in_short(nth: usize, kept: &Kept, now_s: u64) -> String {
    let what = match (&kept.summary, &kept.error) {
        (Some(summary), _) => printable(summary),
        (None, Some(error)) => format!("error: {}", printable(&error.what)),
        (None, None) => "nothing is known".to_owned(),
    };
    let mut text = String::new();
    paragraph(&mut text, &format!("{nth:>2}  "), &format!("{}  {}", ago(kept, now_s), route(kept)));
    paragraph(&mut text, "    ", &what);
    text
}

fn in_full(kept: &Kept, now_s: u64) -> String {
    let mut text = String::new();
    paragraph(&mut text, "", &format!("{}, {}", route(kept), ago(kept, now_s)));
    if let Some(summary) = &kept.summary {
        paragraph(&mut text, "", &printable(summary));
    }
    if let Some(error) = &kept.error {
        broken_off(&mut text, kept, error);
    }
    if let Some(report) = &kept.report {
        if report.limited_by.is_some() {
            limit(&mut text, report);
        }
        job(&mut text, report);
        path(&mut text, report);
        each_path(&mut text, report);
        hosts(&mut text, report);
    }
    text
}

fn broken_off(text: &mut String, kept: &Kept, error: &error::ErrorLine) {
    paragraph(text, "error: ", &printable(&error.what));
    for (label, words) in [("  cause: ", &error.cause), ("  hint:  ", &error.hint)] {
        if let Some(words) = words {
            for (label, line) in std::iter::once(label).chain(std::iter::repeat("         ")).zip(words.lines()) {
                paragraph(text, label, &printable(line));
            }
        }
    }
    let so_far = &kept.so_far;
    let _ = writeln!(text, "\nuntil then");
    row(text, "time", &duration(seconds(so_far.elapsed_s)));
    row(text, "files", &format!("{} of {}", count(so_far.files_done), count(so_far.files_found)));
    let there = so_far.bytes_moved + so_far.bytes_kept;
    let mean = so_far.bytes_moved as f64 / so_far.elapsed_s.max(1e-3);
    let rate = if so_far.bytes_moved > 0 { format!(", {}", rate(mean)) } else { String::new() };
    row(text, "data", &format!("{} of {}{rate}", bytes(there), bytes(so_far.bytes_found)));
    row(text, "lanes", &so_far.lanes.to_string());
    if let Some(held_by) = &so_far.held_by {
        row(text, "held by", &printable(held_by));
    }
    outages::rows(text, &so_far.outages, &TimeZone::system());
}

fn limit(text: &mut String, report: &ReportLine) {
    let of = match report.limit.as_str() {
        "start" | "flush" => "of the whole time",
        _ => "of the lanes' time",
    };
    let words = printable(report.limited_by.as_deref().unwrap_or_default());
    text.push('\n');
    paragraph(text, "", &format!("limited by {words}: {} {of}", percent(report.limit_share)));
    if !report.remedies.is_empty() {
        let _ = writeln!(text, "\nwhat would help");
    }
    for remedy in &report.remedies {
        paragraph(text, "  - ", &printable(&remedy.text));
        if let Some(command) = &remedy.command {
            rows::command(text, "      ", &printable(command));
        }
    }
    let _ = writeln!(text, "\nwhere the lanes' time went");
    for (name, share) in shares(report) {
        if share > 0.0 {
            let bar = "#".repeat((share.clamp(0.0, 1.0) * BAR_WIDTH).round() as usize);
            let _ = writeln!(text, "{}", format!("  {name:<LABEL_WIDTH$} {:>5}  {bar}", percent(share)).trim_end());
        }
    }
}

fn shares(report: &ReportLine) -> [(&'static str, f64); 16] {
    let time = &report.time;
    [
        ("source storage", time.source_storage),
        ("source CPU", time.source_cpu),
        ("path: ramp", time.ramp),
        ("path: capacity", time.capacity),
        ("path: contention", time.contention),
        ("path: receive window", time.receive_window),
        ("path: send buffer", time.send_buffer),
        ("path: loss", time.loss),
        ("path: jitter", time.jitter),
        ("path: outages", time.outage),
        ("path: latency", time.latency),
        ("network", time.network),
        ("target CPU", time.target_cpu),
        ("target storage", time.target_storage),
        ("rate limit", time.rate_limit),
        ("waiting for work", time.work),
    ]
}

fn job(text: &mut String, report: &ReportLine) {
    let _ = writeln!(text, "\nthe job");
    let elapsed_s = report.elapsed_s;
    let connected_s = report.connected_s.unwrap_or(0.0);
    let first_s = report.first_byte_s.unwrap_or(elapsed_s).max(connected_s);
    if report.connected_s.is_some() {
        row(text, "login, connecting", &duration(seconds(connected_s)));
    }
    row(text, "until the first byte", &duration(seconds(first_s - connected_s)));
    if let Some(last_s) = report.last_byte_s {
        row(text, "moving data", &duration(seconds(last_s - first_s)));
        row(text, "final flush", &duration(seconds(elapsed_s - last_s)));
    }
    row(text, "in all", &duration(seconds(elapsed_s)));
    outages::rows(text, &report.outages, &TimeZone::system());
    if report.bytes_again > 0 {
        row(text, "moved again", &bytes(report.bytes_again));
    }
    if report.bytes_reread > 0 {
        row(text, "read back", &format!("{} from the medium", bytes(report.bytes_reread)));
    }
    if report.bytes_read_again > 0 {
        row(text, "read again", &format!("{} of an earlier run", bytes(report.bytes_read_again)));
    }
    if report.bytes_trusted > 0 {
        row(text, "not read again", &format!("{} of an earlier run (--trust-journal)", bytes(report.bytes_trusted)));
    }
    if report.chunks_repaired > 0 {
        row(text, "repaired", &counted(report.chunks_repaired, "chunk", "chunks"));
    }
}

fn path(text: &mut String, report: &ReportLine) {
    let path = &report.path;
    if report.lanes == 0 {
        return;
    }
    if report.lane_path == HERE {
        return;
    }
    let _ = writeln!(text, "\nthe path");
    let at_end = if path.lanes > 0 { format!(", {} at the end", path.lanes) } else { String::new() };
    let named = [&report.lane_path, &report.cipher, &path.congestion_control];
    let named: Vec<String> = named.iter().filter(|name| !name.is_empty()).map(printable).collect();
    let is_server = [LanePath::FromServer, LanePath::ToServer].iter().any(|path| path.name() == report.lane_path);
    let label = if is_server { "connections" } else { "lanes" };
    row(text, label, &format!("{} at most{at_end}: {}", report.lanes, named.join(", ")));
    if path.rtt_min_us > 0 {
        let queues = format!("{} more in queues", latency(path.queueing_us));
        row(text, "round trip", &format!("{}, and {queues}", latency(path.rtt_min_us)));
        match report.lane_path == LanePath::FromServer.name() {
            true => row(text, "sent again", "not seen here: the server sends"),
            false => row(text, "sent again", &parts(path.resent_ppm)),
        }
    }
    // A rate limit that leaves a path unfilled measures nothing.
    if path.capacity_bytes_per_s > report.rate_bytes_per_s {
        row(text, "carries", &format!("{}, as far as it was seen", bits(path.capacity_bytes_per_s as f64)));
    }
    if path.window_bytes > 0 {
        row(text, "under way, a lane", &format!("{} at most", bytes(path.window_bytes)));
    }
    if path.outages > 0 {
        let times = counted(u64::from(path.outages), "time", "times");
        row(text, "passed nothing", &format!("{times}, for {} in all", duration(seconds(path.outage_s))));
    }
    if path.rate_variation_permille > 0 {
        let share = f64::from(path.rate_variation_permille) / 1e3;
        row(text, "rate varied by", &format!("{} from second to second", percent(share)));
    }
    for (label, words) in class::rows(&path.class) {
        row(text, label, &words);
    }
    for change in &report.class_changes {
        let label = format!("at {:.1} s", change.at_s);
        row(text, &label, &format!("{}: {}", printable(&change.class), printable(&change.reason)));
    }
}

fn each_path(text: &mut String, report: &ReportLine) {
    if report.paths.len() < 2 && report.paths.iter().all(|path| path.subflows.is_empty()) {
        return;
    }
    let _ = writeln!(text, "\nthe paths");
    for path in &report.paths {
        let device = if path.device.is_empty() { String::new() } else { format!("{}, ", printable(&path.device)) };
        let label = format!("path {}", path.number);
        let host = path.host.as_ref().map(|host| format!("{}, ", printable(host))).unwrap_or_default();
        row(text, &label, &format!("{host}{device}{} to {}, {}", path.local, path.remote, state(&path.state)));
        let carried =
            format!("{} ({}), {}", bytes(path.bytes), percent(path.share), bits(path.rate_bytes_per_s as f64));
        let queues = format!("{} more in queues", latency(path.path.queueing_us));
        row(text, "", &format!("{carried}; {} lanes", path.path.lanes));
        let again = format!("{} sent again{}", parts(path.path.resent_ppm), held_by(path));
        row(text, "", &format!("RTT {}, {queues}, {again}", latency(path.path.rtt_min_us)));
        for SubflowLine { local, remote, bytes: carried, rate_bytes_per_s, rtt_us, resent_ppm } in &path.subflows {
            let rate = bits(*rate_bytes_per_s as f64);
            row(text, "  by MPTCP", &format!("{local} to {remote}: {}, {rate}", bytes(*carried)));
            row(text, "", &format!("RTT {}, {} sent again", latency(*rtt_us), parts(*resent_ppm)));
        }
    }
}

fn held_by(path: &OnePathLine) -> String {
    match path.limit.as_str() {
        "" => String::new(),
        cause => format!("; limited by {}, {}", printable(cause), percent(path.limit_share)),
    }
}

fn state(name: &str) -> &'static str {
    match name {
        "rests" => "not used: it adds nothing to the others",
        "lost" => "lost at the end",
        _ => "in use",
    }
}

fn hosts(text: &mut String, report: &ReportLine) {
    let _ = writeln!(text, "\nthe hosts");
    side_by_side(text, "source, target", &report.source, &report.target, report.lane_path != HERE);
}

/// `data/run42 -> host-b:/data`
fn route(kept: &Kept) -> String {
    let shown = |named: &Named| printable(&named.path);
    let sources = match kept.sources.as_slice() {
        [] => String::new(),
        [one] => shown(one),
        [first, rest @ ..] => format!("{} and {} more", shown(first), rest.len()),
    };
    format!("{sources} -> {}", shown(&kept.target))
}

fn ago(kept: &Kept, now_s: u64) -> String {
    figures::ago(now_s.saturating_sub(kept.ended_at_s))
}

fn seconds(s: f64) -> Duration {
    Duration::try_from_secs_f64(s.max(0.0)).unwrap_or_default()
}

const HERE: &str = "this machine";

/// Two percent for each mark.
const BAR_WIDTH: f64 = 50.0;

#[cfg(test)]
mod tests {
    use haul_job::{Buffer, Cause, End, Limit, Remedy, Report};

    use super::*;
    use crate::cp::closing_lines;
    use crate::json::error;
    use crate::report::json;
    use crate::report::kept::SoFar;
    use crate::report::kept::tests::kept;
    use crate::report::outages::{OutageLine, OutageLines};
    use crate::text::rows::tests::fits;

    fn windowed() -> Report {
        let cause = Cause::ReceiveWindow;
        let parts = [
            (Cause::SourceStorage, 0.02),
            (Cause::SourceCpu, 0.08),
            (Cause::Ramp, 0.11),
            (cause, 0.71),
            (Cause::TargetCpu, 0.05),
            (Cause::TargetStorage, 0.026),
            (Cause::Work, 0.004),
        ];
        let buffer = Buffer {
            at: End::Target,
            grants_bytes: 3_100_000,
            path_bytes: Some(28_500_000),
            capacity_bytes_per_s: 125_000_000,
            rtt_us: 228_000,
            setting_bytes: 64 << 20,
        };
        Report {
            time: parts.into_iter().collect(),
            limit: Some(Limit { cause, share: 0.71 }),
            remedies: vec![Remedy::Buffer(buffer), Remedy::Lanes { lanes: 16, instead_of: 4, cause }],
            ..closing_lines::tests::report()
        }
    }

    #[test]
    fn a_report_in_full() {
        let report = windowed();
        let summary = Some(closing_lines::summary(&report));
        let kept = Kept { report: Some(json::of_report(&report, 0)), summary, ..kept() };
        fits(&in_full(&kept, 1_700_000_725));
        fits(&in_short(1, &kept, 1_700_000_725));
        insta::assert_snapshot!("why_in_full", in_full(&kept, 1_700_000_725));
    }

    #[test]
    fn a_copy_that_broke_off_says_how_far_it_came() {
        let error = Error::new(Fault::Timeout, "the far side has been silent for 60 s").because("the network is gone");
        let so_far = SoFar {
            elapsed_s: 72.5,
            files_done: 3,
            files_found: 1_234,
            bytes_moved: 1 << 30,
            bytes_kept: 1 << 29,
            bytes_found: 6_012_954_214,
            lanes: 8,
            held_by: Some("loss".to_owned()),
            outages: OutageLines {
                outage_times: vec![OutageLine { began: "2023-11-14T22:12:20Z".to_owned(), length_s: 60.2 }],
                outage_times_more: 0,
            },
        };
        let kept = Kept { report: None, summary: None, error: Some(error::of_error(&error)), so_far, ..kept() };
        insta::assert_snapshot!("why_broken_off", in_full(&kept, 1_700_000_000));
        insta::assert_snapshot!(in_short(2, &kept, 1_700_007_500), @r"
         2  2 h 05 min ago  data/run42 -> host-b:/data
            error: the far side has been silent for 60 s
        ");
    }

    #[test]
    fn a_copy_that_moved_nothing_has_no_limit() {
        let nothing = Report { limit: None, lanes: 0, first_byte: None, last_byte: None, ..windowed() };
        let kept = Kept { report: Some(json::of_report(&nothing, 0)), ..kept() };
        let text = in_full(&kept, 1_700_000_010);
        assert!(!text.contains("\nlimited by") && !text.contains("the path") && text.contains("10 s ago"), "{text}");
    }

    #[test]
    fn a_path_carries_no_less_than_was_moved() {
        let mut report = json::of_report(&windowed(), 0);
        for (moved, is_told) in [(40_900_000 / 8, false), (28_000_000 / 8, true)] {
            (report.path.capacity_bytes_per_s, report.rate_bytes_per_s) = (28_700_000 / 8, moved);
            let text = in_full(&Kept { report: Some(report.clone()), ..kept() }, 1_700_000_010);
            assert_eq!(text.contains("28.7 Mbit/s"), is_told, "{text}");
        }
    }

    #[test]
    fn what_a_peer_said_cannot_drive_the_terminal() {
        let mut report = json::of_report(&windowed(), 0);
        report.source.congestion_control = "cubic\x1b[2J".to_owned();
        report.elapsed_s = f64::MAX;
        let kept = Kept { report: Some(report), ..kept() };
        assert!(!in_full(&kept, 0).contains('\x1b'));
    }

    #[test]
    fn a_report_that_cannot_be_read_stays_in_the_list_and_hides_no_other() {
        let dir = tempfile::tempdir().unwrap();
        let (damaged, good) = (dir.path().join("1.json"), dir.path().join("2.json"));
        std::fs::write(&damaged, "{").unwrap();
        std::fs::write(&good, to_line(&kept())).unwrap();
        let typed = Why { nth: 1, list: true, json: true };
        let text = every(&[damaged.clone(), good], &typed, 0).unwrap();
        let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(lines.len(), 2, "{text}");
        assert_eq!(lines[0]["unreadable"], damaged.to_str().unwrap());
        assert!(!lines[0]["why"].as_str().unwrap().is_empty() && lines[1]["schema"].is_number(), "{text}");
    }
}
