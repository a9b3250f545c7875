//! The closing table of `--stats`: the report's totals.

use std::fmt::Write as _;
use std::time::Duration;

use haul_job::Report;

use crate::text::figures::{bytes, count, counted, duration, rate};

pub fn table(report: &Report) -> String {
    let files = |files: u64, size: u64| format!("{}, {}", counted(files, "file", "files"), bytes(size));
    let entries = |n: u64| counted(n, "entry", "entries");
    let moved = if report.dry_run { "would copy" } else { "copied" };
    let seconds = report.elapsed.as_secs_f64().max(1e-9);
    let rows = [
        ("found", true, files(report.files_found, report.bytes_found)),
        (moved, true, files(report.files_moved, report.bytes_moved)),
        ("already there", true, files(report.files_kept, report.bytes_kept)),
        ("of changed files", report.bytes_matched > 0, bytes(report.bytes_matched)),
        ("made", true, counted(report.others_made, "directory or link", "directories and links")),
        ("left out by a rule", report.left_out > 0, entries(report.left_out)),
        ("skipped", report.skipped > 0, entries(report.skipped)),
        ("deleted", true, entries(report.deleted)),
        ("removed at the source", report.removed > 0, entries(report.removed)),
        ("failed", true, entries(report.failed)),
        ("sent again", report.bytes_again > 0, bytes(report.bytes_again)),
        ("read again", report.bytes_read_again > 0, bytes(report.bytes_read_again)),
        ("time", true, times(report)),
        ("rate", report.bytes_moved > 0 && !report.dry_run, rate(report.bytes_moved as f64 / seconds)),
        ("lanes", report.lanes > 0, count(report.lanes.into())),
    ];
    let mut text = String::new();
    for (name, _, value) in rows.iter().filter(|(_, is_shown, _)| *is_shown) {
        let _ = writeln!(text, "  {name:<22} {value}");
    }
    text
}

/// `12.3 s: connected after 0.25 s, first byte after 0.31 s, last after 12.2 s`
fn times(report: &Report) -> String {
    let marks = [("connected", report.connected), ("first byte", report.first_byte), ("last", report.last_byte)];
    let shown = |(name, at): (&str, Option<Duration>)| at.map(|at| format!("{name} after {}", duration(at)));
    let marks: Vec<String> = marks.into_iter().filter_map(shown).collect();
    let all = duration(report.elapsed);
    if marks.is_empty() { all } else { format!("{all}: {}", marks.join(", ")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cp::closing_lines::tests::report;

    #[test]
    fn the_table_has_all_totals_in_one_column() {
        let report = Report { left_out: 2, removed: 1_234, ..report() };
        insta::assert_snapshot!(table(&report), @r"
          found                  1,234 files, 5.60 GiB
          copied                 1,234 files, 5.60 GiB
          already there          0 files, 0 B
          made                   17 directories and links
          left out by a rule     2 entries
          deleted                0 entries
          removed at the source  1,234 entries
          failed                 0 entries
          time                   12.3 s: connected after 0.25 s, first byte after 0.31 s, last after 12.2 s
          rate                   466 MiB/s (3.91 Gbit/s)
          lanes                  4
        ");
    }
}
