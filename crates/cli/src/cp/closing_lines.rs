//! The closing lines: the result on standard output, missing entries on standard error.

use std::fmt::Write as _;

use haul_job::{Earlier, End, LanePath, OnePath, Proof, Remedy, Report, SumKind};

use crate::report::limit::limited_by;
use crate::text::failure;
use crate::text::figures::{bytes, count, counted, duration, rate};
use crate::text::printable::{printable, printable_path};
use crate::text::proof::as_read;

pub fn closing_line(report: &Report) -> String {
    let look = if report.remedies.iter().any(Remedy::is_a_setting) { " (see 'haul why')" } else { "" };
    line(report, look)
}

/// A tree's hash, as `haul hash -m` and the manifest have it; with `-v`.
pub fn tree_line(report: &Report) -> Option<String> {
    if report.dry_run || report.root_files < 2 {
        return None;
    }
    let of = if report.files_kept > 0 {
        format!("the {} that were read", files(report.root_files))
    } else {
        files(report.root_files)
    };
    Some(format!("tree BLAKE3 {} of {of}", hex(&report.root_blake3)))
}

pub fn summary(report: &Report) -> String {
    line(report, "")
}

fn line(report: &Report, look: &str) -> String {
    if report.dry_run {
        return dry_run_line(report);
    }
    let mut parts = Vec::new();
    let stood = report.files_kept.saturating_sub(report.files_linked + report.files_copied_there);
    let here_already = || match report.bytes_kept {
        size if stood == report.files_kept => format!("{}, {} already there", files(stood), bytes(size)),
        _ => format!("{} already there", files(stood)),
    };
    if report.files_moved > 0 || report.bytes_moved > 0 {
        let seconds = report.elapsed.as_secs_f64().max(1e-9);
        parts.push(format!(
            "copied {}, {} in {}",
            files(report.files_moved),
            bytes(report.bytes_moved),
            duration(report.elapsed)
        ));
        if report.bytes_moved > 0 {
            parts.push(rate(report.bytes_moved as f64 / seconds));
        }
        parts.extend(verification(report));
        if report.files_between_servers > 0 {
            parts.push(between_servers(report));
        }
        if report.bytes_moved > 0 && report.proof != Proof::ByBothServers {
            parts.push(lanes(report));
        }
        if let Some(words) = limited_by(report) {
            parts.push(format!("limited by {words}{look}"));
        }
        let earlier = of_earlier_runs(report);
        parts.extend(of_references(report));
        if stood > 0 {
            parts.push(format!("{} already there", files(stood)));
        } else if report.bytes_kept > report.bytes_matched && report.files_kept == 0 && earlier.is_empty() {
            parts.push(format!("{} already there", bytes(report.bytes_kept - report.bytes_matched)));
        }
        if report.bytes_matched > 0 {
            parts.push(format!("{} of changed files already there", bytes(report.bytes_matched)));
        }
        parts.extend(earlier);
    } else if report.others_made > 0 || stood < report.files_kept {
        if report.others_made > 0 {
            parts.push(format!("made {}", counted(report.others_made, "directory or link", "directories and links")));
        }
        parts.extend(of_references(report));
        if stood > 0 {
            parts.push(here_already());
        }
    } else if report.failed > 0 {
        parts.push("copied nothing".to_owned());
    } else {
        parts.push(format!("nothing to copy: {}", here_already()));
    }
    parts.extend(after_tries(report));
    if report.deleted > 0 {
        parts.push(format!("deleted {}", counted(report.deleted, "entry", "entries")));
    }
    if report.removed > 0 {
        parts.push(format!("removed {} at the source", counted(report.removed, "entry", "entries")));
    }
    if report.left_out > 0 {
        parts.push(format!("left out {} by a rule", counted(report.left_out, "entry", "entries")));
    }
    if report.skipped > 0 {
        parts.push(format!("skipped {}", counted(report.skipped, "entry", "entries")));
    }
    if report.failed > 0 {
        parts.push(format!("{} FAILED", counted(report.failed, "entry", "entries")));
    }
    parts.join(", ")
}

fn of_references(report: &Report) -> Vec<String> {
    let part = |verb: &str, n| (n > 0).then(|| format!("{verb} {}", files(n)));
    let (linked, copied) =
        (part("linked", report.files_linked), part("copied at the target", report.files_copied_there));
    linked.into_iter().chain(copied).collect()
}

fn dry_run_line(report: &Report) -> String {
    let mut parts = vec![format!("would copy {}, {}", files(report.files_moved), bytes(report.bytes_moved))];
    if report.others_made > 0 {
        parts.push(format!("make {}", counted(report.others_made, "directory or link", "directories and links")));
    }
    if report.deleted > 0 {
        parts.push(format!("delete {}", counted(report.deleted, "entry", "entries")));
    }
    if report.files_linked > 0 {
        parts.push(format!("link {}", files(report.files_linked)));
    }
    if report.files_copied_there > 0 {
        parts.push(format!("copy {} at the target", files(report.files_copied_there)));
    }
    let stood = report.files_kept.saturating_sub(report.files_linked + report.files_copied_there);
    if stood > 0 {
        parts.push(format!("keep {}", files(stood)));
    }
    if report.left_out > 0 {
        parts.push(format!("leave out {}", counted(report.left_out, "entry", "entries")));
    }
    if report.failed > 0 {
        parts.push(format!("{} FAILED", counted(report.failed, "entry", "entries")));
    }
    format!("{} (dry run, nothing was changed)", parts.join(", "))
}

/// Lines on standard error after a job that left something out. `list` repeats the first failures.
pub fn closing_failures(report: &Report, list: bool) -> String {
    let mut text = String::new();
    if report.failed == 0 && report.unverified == 0 {
        return text;
    }
    let what = match report {
        r if r.unverified > 0 => format!("{} did not verify", counted(r.unverified, "entry", "entries")),
        r if r.failed == r.vanished => format!("{} vanished during the copy", counted(r.failed, "source", "sources")),
        r => format!("{} could not be copied", counted(r.failed, "entry", "entries")),
    };
    let _ = writeln!(text, "error: {what} (exit status {})", failure::of_report(report).code);
    if list {
        for (path, why) in &report.failures {
            let _ = writeln!(text, "  {}: {}", printable_path(path), printable(why));
        }
        let more = report.failed.saturating_sub(report.failures.len() as u64);
        if more > 0 {
            let _ = writeln!(text, "  and {} more", count(more));
        }
    }
    let _ =
        writeln!(text, "  hint:  when the cause is gone, run the same command again: only what is missing is copied");
    text
}

/// Files with the sum that the source's server gave.
fn by_server(report: &Report) -> Option<String> {
    let sums = report.server_sums.filter(|sums| sums.files() > 0)?;
    let kinds = || join(sums.compared().map(|(kind, _)| kind.name()));
    let hash = report.only_blake3.map(|hash| format!("BLAKE3 {}, ", hex(&hash))).unwrap_or_default();
    Some(match report.verified_by_server() {
        Some(_) => format!("{hash}verified {} by the server{}", kinds(), on_disk(report)),
        None => format!(
            "{} of {} verified {} by the server, the others by size alone{}",
            count(sums.files().min(report.files_moved)),
            counted(report.files_moved, "file", "files"),
            kinds(),
            on_disk(report)
        ),
    })
}

fn join(names: impl Iterator<Item = &'static str>) -> String {
    names.collect::<Vec<_>>().join(" and ")
}

fn verification(report: &Report) -> Option<String> {
    if report.unverified > 0 {
        return Some(format!("{} NOT VERIFIED", counted(report.unverified, "entry", "entries")));
    }
    // Nothing got its name, so what was compared counts for nothing yet.
    if report.files_moved == 0 {
        return None;
    }
    // One file's hash, as `b3sum` prints it. A list's hash stays with `haul why` and JSON.
    let how = match report.proof {
        Proof::BothEnds => on_disk(report),
        Proof::InOneBuffer if report.bytes_reread > 0 => on_disk(report),
        Proof::InOneBuffer => " as read".to_owned(),
        Proof::AsRead => format!("{} {}", on_disk(report), as_read(report.proof).unwrap_or_default()),
        Proof::Confirmed if report.bytes_reread > 0 => ", read back".to_owned(),
        // The server hashes nothing: only data read back is proved.
        Proof::Confirmed => return Some(by_server(report).unwrap_or_else(|| SIZE_ONLY.to_owned())),
        Proof::AsSent => return Some(as_sent(report)),
        Proof::AsStored => format!("{} ({})", on_disk(report), as_read(report.proof).unwrap_or_default()),
        Proof::ByStore => {
            let read = report.verified_by_server().map(|kinds| join(kinds.into_iter().map(SumKind::name)));
            let read = read.map(|kinds| format!("{kinds} by the server and ")).unwrap_or_default();
            return Some(match report.only_blake3 {
                Some(hash) => format!("verified {read}CRC64NVME by the store (BLAKE3 {})", hex(&hash)),
                None if report.failed > 0 => format!("the others verified {read}CRC64NVME by the store"),
                None => format!("all verified {read}CRC64NVME by the store"),
            });
        }
        Proof::BySize => return Some("size only: this store takes no sum".to_owned()),
        Proof::ByBothServers => return Some("verified adler32 by both servers".to_owned()),
    };
    Some(match report.only_blake3 {
        Some(hash) => format!("verified BLAKE3 {}{how}", hex(&hash)),
        None if report.failed > 0 => format!("the others verified{how}"),
        None => format!("all verified{how}"),
    })
}

fn as_sent(report: &Report) -> String {
    if let Some(words) = by_server(report) {
        return words;
    }
    let what = match report.only_blake3 {
        Some(hash) => format!("BLAKE3 {}", hex(&hash)),
        None if report.failed > 0 => "the others complete".to_owned(),
        None => "all complete".to_owned(),
    };
    format!("{what}{} (compared with the server by size alone: it gives no sum)", on_disk(report))
}

const SIZE_ONLY: &str = "size only: the server confirmed each write (--verify disk reads it back)";

fn on_disk(report: &Report) -> String {
    match (report.bytes_reread, report.chunks_repaired) {
        (0, _) => String::new(),
        (_, 0) => " on disk".to_owned(),
        (_, repaired) => format!(" on disk ({} written again)", counted(repaired, "chunk", "chunks")),
    }
}

fn after_tries(report: &Report) -> Option<String> {
    let Earlier { tries, bytes_moved, elapsed } = report.earlier;
    (tries > 0).then(|| {
        let lost = counted(tries.into(), "try", "tries");
        format!(
            "after {lost} that broke off ({} moved before, {} in all)",
            bytes(bytes_moved),
            duration(elapsed + report.elapsed)
        )
    })
}

fn hex(hash: &[u8]) -> String {
    hash.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

/// Whether earlier runs' data was read again, and with which result.
fn of_earlier_runs(report: &Report) -> Vec<String> {
    let mut parts = Vec::new();
    if report.bytes_read_again > 0 {
        parts.push(format!("{} of an earlier run read again", bytes(report.bytes_read_again)));
    }
    if report.bytes_trusted > 0 {
        parts.push(format!("{} of an earlier run not read again (--trust-journal)", bytes(report.bytes_trusted)));
    }
    // `--verify disk` has it in its own line.
    if report.chunks_repaired > 0 && report.bytes_reread == 0 {
        parts.push(format!("{} had been changed and came again", counted(report.chunks_repaired, "chunk", "chunks")));
    }
    parts
}

/// Each host's part: `2 hosts (dtn1 55 %, dtn2 45 %)`.
fn hosts(report: &Report) -> String {
    let mut carried: Vec<(&str, u64)> = Vec::new();
    for (number, host) in &report.hosts {
        let path = report.paths.iter().find(|path| path.number == *number);
        let bytes = path.map_or(0, |path| path.delivered_bytes);
        match carried.iter_mut().find(|(known, _)| known == host) {
            Some((_, sum)) => *sum += bytes,
            None => carried.push((host, bytes)),
        }
    }
    let all = carried.iter().map(|(_, bytes)| bytes).sum::<u64>().max(1);
    let each: Vec<String> = carried
        .iter()
        .map(|(host, bytes)| format!("{} {:.0} %", printable(host.as_bytes()), 100.0 * *bytes as f64 / all as f64))
        .collect();
    format!("{} ({})", counted(carried.len() as u64, "host", "hosts"), each.join(", "))
}

fn lanes(report: &Report) -> String {
    if let Some(server) = report.lane_path.and_then(LanePath::server) {
        let (towards, host) = match server {
            End::Source => ("from", &report.source),
            End::Target => ("to", &report.target),
        };
        let connections = counted(report.lanes.into(), "connection", "connections");
        return format!("{connections} {towards} {}", printable(&host.place));
    }
    let mut text = counted(report.lanes.into(), "lane", "lanes");
    if let Some(path) = report.lane_path {
        let _ = write!(text, " {}", path.name());
    }
    let used: Vec<&OnePath> = report.paths.iter().filter(|path| path.delivered_bytes > 0).collect();
    if !report.hosts.is_empty() {
        let _ = write!(text, " to {}", hosts(report));
    } else if used.len() > 1 {
        let devices: Vec<String> = used.iter().map(|path| printable(&path.device)).collect();
        let _ = write!(text, " over {} paths ({})", used.len(), devices.join(", "));
    }
    if report.cipher.contains("clear") {
        text.push_str(" in the clear");
    } else if !report.cipher.is_empty() && !report.cipher.starts_with("none") {
        let _ = write!(text, " {}", printable(&report.cipher));
    }
    text
}

fn between_servers(report: &Report) -> String {
    let way = format!("from {} to {}", printable(&report.source.place), printable(&report.target.place));
    match report.files_between_servers == report.files_moved {
        true => format!("{way}, not through this host"),
        false => format!("{} {way}, not through this host", files(report.files_between_servers)),
    }
}

fn files(n: u64) -> String {
    counted(n, "file", "files")
}

#[cfg(test)]
pub mod tests {
    use std::time::Duration;

    use haul_job::{Cause, Host, HostLimits, LanePath, Limit, Outages, PathSummary, Shares, SumCounter};

    use super::*;

    pub fn report() -> Report {
        Report {
            files_found: 1_234,
            files_moved: 1_234,
            files_kept: 0,
            files_linked: 0,
            files_copied_there: 0,
            files_between_servers: 0,
            others_made: 17,
            deleted: 0,
            withheld: 0,
            failed: 0,
            vanished: 0,
            unverified: 0,
            skipped: 0,
            left_out: 0,
            removed: 0,
            bytes_found: 6_012_954_214,
            bytes_moved: 6_012_954_214,
            bytes_again: 0,
            bytes_reread: 0,
            chunks_repaired: 0,
            bytes_read_again: 0,
            bytes_trusted: 0,
            bytes_kept: 0,
            bytes_matched: 0,
            bytes_holes: 0,
            elapsed: Duration::from_millis(12_300),
            connected: Some(Duration::from_millis(250)),
            first_byte: Some(Duration::from_millis(310)),
            last_byte: Some(Duration::from_millis(12_200)),
            lanes: 4,
            lane_path: Some(LanePath::Direct),
            cipher: "AES-128-GCM".to_owned(),
            earlier: Earlier::default(),
            outages: Outages::default(),
            only_blake3: None,
            server_sums: None,
            root_blake3: [0x1a; 32],
            root_files: 1_234,
            source: host("this machine", 6 << 20),
            target: host("host-b", 6 << 20),
            paths: Vec::new(),
            hosts: Vec::new(),
            path: PathSummary {
                rtt_min_us: 228_000,
                queueing_us: 3_100,
                resent_ppm: 120,
                capacity_bytes_per_s: 125_000_000,
                window_bytes: 3_100_000,
                lanes: 4,
                congestion_control: "cubic".to_owned(),
                rate_variation_permille: 45,
                ..PathSummary::default()
            },
            time: shares(),
            limit: Some(Limit { cause: Cause::Network, share: 0.5 }),
            remedies: Vec::new(),
            dry_run: false,
            failures: Vec::new(),
            class_changes: Vec::new(),
            proof: Proof::BothEnds,
        }
    }

    fn host(place: &str, tcp_rmem_max_bytes: u64) -> Host {
        let limits = HostLimits {
            rmem_max_bytes: 212_992,
            wmem_max_bytes: 212_992,
            tcp_rmem_max_bytes,
            tcp_wmem_max_bytes: 4 << 20,
            congestion_control: "cubic".to_owned(),
            allowed_congestion_controls: vec!["reno".to_owned(), "cubic".to_owned()],
        };
        Host { place: place.to_owned(), cpus: 2, limits }
    }

    /// Half of the time for a network with an unknown limit.
    fn shares() -> Shares {
        let parts = [
            (Cause::SourceStorage, 0.125),
            (Cause::SourceCpu, 0.125),
            (Cause::Network, 0.5),
            (Cause::TargetCpu, 0.0625),
            (Cause::TargetStorage, 0.0625),
            (Cause::Work, 0.125),
        ];
        parts.into_iter().collect()
    }

    #[test]
    fn several_paths_are_named_and_those_that_carried_nothing_are_not() {
        let path = |number, device: &str, delivered_bytes| OnePath {
            number,
            device: device.to_owned(),
            delivered_bytes,
            ..OnePath::default()
        };
        let paths = vec![path(0, "eth0", 7), path(1, "eth1", 8), path(2, "wlan0", 0)];
        assert_eq!(lanes(&Report { paths, ..report() }), "4 lanes direct over 2 paths (eth0, eth1) AES-128-GCM");
        let paths = vec![path(0, "eth0", 30), path(1, "eth1", 30), path(7, "eth0", 40)];
        let hosts = vec![(0, "dtn1".to_owned()), (1, "dtn1".to_owned()), (7, "dtn2".to_owned())];
        let several = Report { paths, hosts, ..report() };
        assert_eq!(lanes(&several), "4 lanes direct to 2 hosts (dtn1 60 %, dtn2 40 %) AES-128-GCM");
        let paths = vec![path(0, "eth0", 7)];
        assert_eq!(lanes(&Report { paths, ..report() }), "4 lanes direct AES-128-GCM");
    }

    #[test]
    fn a_limit_that_can_be_lifted_points_to_haul_why() {
        let limit = Some(Limit { cause: Cause::ReceiveWindow, share: 0.5 });
        let lanes = Remedy::Lanes { lanes: 16, instead_of: 4, cause: Cause::ReceiveWindow };
        let window = Report { limit, remedies: vec![lanes], ..report() };
        assert!(closing_line(&window).ends_with(", limited by the receive window of host-b (see 'haul why')"));
        let others = Report { remedies: vec![Remedy::AskForPriority], ..window };
        assert!(closing_line(&others).ends_with(", limited by the receive window of host-b"));
    }

    #[test]
    fn the_closing_line_after_a_success() {
        insta::assert_snapshot!(closing_line(&report()), @"copied 1,234 files, 5.60 GiB in 12.3 s, 466 MiB/s (3.91 Gbit/s), all verified, 4 lanes direct AES-128-GCM, limited by network");
        assert_eq!(closing_failures(&report(), true), "");
    }

    #[test]
    fn what_has_no_data_has_no_rate_and_what_nobody_verified_is_not_called_so() {
        let empty =
            Report { files_moved: 1, bytes_moved: 0, only_blake3: Some([0xaf; 32]), limit: None, lanes: 0, ..report() };
        assert_eq!(closing_line(&empty), format!("copied 1 file, 0 B in 12.3 s, verified BLAKE3 {}", "af".repeat(32)));
        let over_sftp = |proof, bytes_reread| Report { proof, bytes_reread, ..report() };
        let says = |report: Report, words: &str| assert!(closing_line(&report).contains(words), "{words}");
        says(over_sftp(Proof::AsRead, 0), "all verified as read over sftp, ");
        says(over_sftp(Proof::InOneBuffer, 0), ", all verified as read, ");
        says(over_sftp(Proof::InOneBuffer, 5), ", all verified on disk, ");
        says(over_sftp(Proof::Confirmed, 0), ", size only: the server confirmed each write");
        assert!(!closing_line(&over_sftp(Proof::Confirmed, 0)).contains("verified"));
        says(over_sftp(Proof::Confirmed, 5), "all verified, read back, ");
        says(over_sftp(Proof::ByStore, 0), ", all verified CRC64NVME by the store, ");
        says(over_sftp(Proof::AsStored, 0), ", all verified (with the CRC64NVME that the store keeps), ");
        says(over_sftp(Proof::BySize, 0), ", size only: this store takes no sum, ");
        let between = Report { files_between_servers: 1_234, ..over_sftp(Proof::ByBothServers, 0) };
        says(between, ", verified adler32 by both servers, from ");
        let some = closing_line(&Report { files_between_servers: 3, ..over_sftp(Proof::Confirmed, 0) });
        assert!(some.contains("size only: ") && some.contains(", 3 files from "), "{some}");
        let broken = Report { files_moved: 0, failed: 1, ..report() };
        assert!(!closing_line(&broken).contains("verified"), "{}", closing_line(&broken));
        let sparse = Report { bytes_kept: 0, bytes_holes: 1 << 40, ..report() };
        assert!(!closing_line(&sparse).contains("already there"), "{}", closing_line(&sparse));
    }

    #[test]
    fn the_closing_line_when_all_is_there_already() {
        let again = Report {
            files_moved: 0,
            bytes_moved: 0,
            others_made: 0,
            files_kept: 1_234,
            bytes_kept: 6_012_954_214,
            limit: None,
            ..report()
        };
        insta::assert_snapshot!(closing_line(&again), @"nothing to copy: 1,234 files, 5.60 GiB already there");
        let cleaned = Report { deleted: 3, ..again.clone() };
        insta::assert_snapshot!(closing_line(&cleaned), @"nothing to copy: 1,234 files, 5.60 GiB already there, deleted 3 entries");
        let linked = Report { others_made: 1, ..again };
        insta::assert_snapshot!(closing_line(&linked), @"made 1 directory or link, 1,234 files, 5.60 GiB already there");
    }

    #[test]
    fn the_closing_line_of_a_resumed_copy_on_this_machine() {
        let resumed = Report {
            files_moved: 1,
            bytes_moved: 1 << 30,
            files_kept: 0,
            bytes_kept: 3 << 30,
            lanes: 1,
            lane_path: Some(LanePath::Here),
            cipher: "none (this machine)".to_owned(),
            limit: Some(Limit { cause: Cause::TargetStorage, share: 0.5 }),
            ..report()
        };
        insta::assert_snapshot!(closing_line(&resumed), @"copied 1 file, 1.00 GiB in 12.3 s, 83.3 MiB/s (698 Mbit/s), all verified, 1 lane this machine, limited by target storage, 3.00 GiB already there");
    }

    #[test]
    fn the_closing_line_says_whether_what_an_earlier_run_left_was_read_again() {
        let resumed = Report { bytes_kept: 3 << 30, ..report() };
        let read = Report { bytes_read_again: 3 << 30, ..resumed.clone() };
        assert!(closing_line(&read).ends_with(", 3.00 GiB of an earlier run read again"));
        let wrong = Report { chunks_repaired: 2, ..read };
        assert!(
            closing_line(&wrong).ends_with("of an earlier run read again, 2 chunks had been changed and came again")
        );
        let trusted = Report { bytes_trusted: 3 << 30, ..resumed };
        assert!(closing_line(&trusted).ends_with(", 3.00 GiB of an earlier run not read again (--trust-journal)"));
    }

    #[test]
    fn the_closing_line_says_how_much_of_changed_files_was_not_sent() {
        let changed = Report { bytes_kept: 3 << 30, bytes_matched: 3 << 30, ..report() };
        assert!(closing_line(&changed).ends_with(", 3.00 GiB of changed files already there"));
        let more = Report { files_kept: 2, bytes_kept: 4 << 30, ..changed };
        assert!(closing_line(&more).ends_with(", 2 files already there, 3.00 GiB of changed files already there"));
    }

    #[test]
    fn a_dry_run_says_would() {
        let dry = Report { dry_run: true, deleted: 2, files_kept: 10, ..report() };
        insta::assert_snapshot!(closing_line(&dry), @"would copy 1,234 files, 5.60 GiB, make 17 directories and links, delete 2 entries, keep 10 files (dry run, nothing was changed)");
    }

    #[test]
    fn what_was_read_back_from_the_medium_is_told() {
        let disk = Report { bytes_reread: 6_012_954_214, ..report() };
        assert!(closing_line(&disk).contains("all verified on disk, 4 lanes"));
        let repaired = Report { chunks_repaired: 2, ..disk };
        assert!(closing_line(&repaired).contains("all verified on disk (2 chunks written again), 4 lanes"));
    }

    #[test]
    fn what_a_server_without_sums_has_sent_is_not_called_verified() {
        let web = Report { proof: Proof::AsSent, ..report() };
        assert!(
            closing_line(&web)
                .contains("all complete (compared with the server by size alone: it gives no sum), 4 lanes")
        );
        let one = Report { only_blake3: Some([0xaf; 32]), ..web };
        assert!(closing_line(&one).contains(&format!("BLAKE3 {} (compared", "af".repeat(32))));
        assert!(!closing_line(&one).contains("verified"));
    }

    #[test]
    fn sums_of_the_server_are_named_and_files_without_one_are_told() {
        let sums = SumCounter::default();
        (0..3).for_each(|_| sums.compared(SumKind::Adler32));
        let web = |files_moved, sums: &SumCounter| {
            let server_sums = Some(sums.counts());
            closing_line(&Report { proof: Proof::AsSent, files_moved, server_sums, ..report() })
        };
        assert!(web(3, &sums).contains("verified adler32 by the server, 4 lanes"), "{}", web(3, &sums));
        assert!(
            web(5, &sums).contains("3 of 5 files verified adler32 by the server, the others by size alone, 4 lanes")
        );
        sums.compared(SumKind::Sha256);
        assert!(web(4, &sums).contains("verified adler32 and SHA-256 by the server"));
        let to_store = Report { proof: Proof::AsSent, files_moved: 4, server_sums: Some(sums.counts()), ..report() };
        let to_store = closing_line(&Report { proof: Proof::ByStore, ..to_store });
        let to_ftp = Report { proof: Proof::Confirmed, files_moved: 4, server_sums: Some(sums.counts()), ..report() };
        assert!(closing_line(&to_ftp).contains("verified adler32 and SHA-256 by the server"));
        let both = ", all verified adler32 and SHA-256 by the server and CRC64NVME by the store, ";
        assert!(to_store.contains(both), "{to_store}");
        sums.without();
        assert!(web(5, &sums).contains("4 of 5 files"));
        assert!(web(4, &SumCounter::default()).contains("by size alone: it gives no sum"));
    }

    #[test]
    fn failures_are_counted_named_and_never_verified_away() {
        let failures = vec![(b"a\x1b[m".to_vec(), "permission denied".to_owned()), (b"b".to_vec(), "gone".to_owned())];
        let partial = Report { failed: 25, vanished: 1, skipped: 1, failures, ..report() };
        assert!(closing_line(&partial).ends_with("limited by network, skipped 1 entry, 25 entries FAILED"));
        insta::assert_snapshot!(closing_failures(&partial, true), @r"
        error: 25 entries could not be copied (exit status 23)
          a\x1b[m: permission denied
          b: gone
          and 23 more
          hint:  when the cause is gone, run the same command again: only what is missing is copied
        ");
        let vanished = Report { failed: 1, vanished: 1, ..report() };
        insta::assert_snapshot!(closing_failures(&vanished, false), @r"
        error: 1 source vanished during the copy (exit status 24)
          hint:  when the cause is gone, run the same command again: only what is missing is copied
        ");
        let unverified = Report { failed: 2, unverified: 2, ..report() };
        assert!(closing_line(&unverified).contains("2 entries NOT VERIFIED"));
        assert!(closing_failures(&unverified, false).contains("2 entries did not verify (exit status 25)"));
    }
}
