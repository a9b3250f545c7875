//! The bar's words by importance. A narrow terminal has fewer fields, each whole.

use std::time::Duration;

use haul_job::Progress;

use crate::progress::outlook::Left;
use crate::text::figures::{bytes, clock, count, counted, rate, whole_seconds};

/// `45 %  0:12 left  466 MiB/s (3.91 Gbit/s)  1.20 GiB of 2.60 GiB  1,234 of 5,678 files  4 lanes`. `~` marks a rough
/// figure: the source is still being listed.
pub fn fields(progress: &Progress, bytes_per_s: Option<f64>, left: Left) -> Vec<String> {
    let done = progress.bytes_moved + progress.bytes_kept;
    let (rough, more) = if left.is_rough { ("~", "+") } else { ("", "") };
    let mut parts = Vec::new();
    parts.extend(left.done.map(|done| format!("{rough}{:.0} %", (done * 100.0).floor())));
    // All data came; the target's disk still writes it, and files get names.
    let is_flushing = progress.found_all && left.bytes == 0 && left.files > 0 && progress.bytes_moved > 0;
    if let Some(silent_for) = progress.no_data_for {
        parts.push(format!("no data for {}", whole_seconds(silent_for.as_secs())));
    } else if is_flushing {
        let size = match progress.bytes_to_flush {
            0 => String::new(),
            to_flush => format!(", {}", bytes(to_flush)),
        };
        parts.push(format!("flushing {}{size}", counted(left.files, "file", "files")));
    } else if let Some(time) = left.time.filter(|_| left.bytes > 0 || left.files > 0) {
        parts.push(format!("{rough}{} left", clock(Duration::from_secs_f64(time.as_secs_f64().ceil()))));
    }
    // A rate of zero means nothing: files come, or the far side compares.
    parts.extend(bytes_per_s.filter(|rate| *rate >= 1.0 && progress.no_data_for.is_none()).map(rate));
    parts.push(format!("{} of {}{more}", bytes(done), bytes(progress.bytes_found)));
    parts.push(format!("{} of {}{more} files", count(progress.files_done), count(progress.files_found)));
    if progress.bytes_read_again > 0 {
        parts.push(format!("{} of an earlier run read again", bytes(progress.bytes_read_again)));
    }
    if progress.lanes > 0 {
        parts.push(counted(progress.lanes.into(), "lane", "lanes"));
    }
    if progress.failed > 0 {
        parts.push(format!("{} failed", count(progress.failed)));
    }
    parts
}

pub fn status(progress: &Progress, bytes_per_s: Option<f64>, left: Left) -> String {
    fields(progress, bytes_per_s, left).join(GAP)
}

/// Whether the bar has room, and as many fields as do.
pub fn fit(fields: &[String], columns: usize) -> (bool, String) {
    // The bar says less than the first words.
    let first = in_columns(fields, usize::MAX, BESIDE_BAR);
    let beside_bar = columns.saturating_sub(BAR_COLUMNS + 1);
    let has_bar = first.chars().count() <= beside_bar;
    (has_bar, in_columns(fields, if has_bar { beside_bar } else { columns }, usize::MAX))
}

fn in_columns(fields: &[String], columns: usize, most: usize) -> String {
    let mut line = String::new();
    for field in fields.iter().take(most) {
        let gap = if line.is_empty() { "" } else { GAP };
        if line.chars().count() + gap.len() + field.chars().count() > columns {
            break;
        }
        line.extend([gap, field]);
    }
    line
}

const GAP: &str = "  ";

pub const BAR_COLUMNS: usize = 16;

/// The bar stands beside two fields: how far the copy is, and how long it takes.
const BESIDE_BAR: usize = 2;

#[cfg(test)]
mod tests {
    use super::*;

    const KNOWN: Progress = Progress {
        files_done: 1_234,
        files_kept: 0,
        files_found: 5_678,
        files_left: 4_444,
        bytes_moved: 1 << 30,
        bytes_kept: 1 << 29,
        bytes_matched: 0,
        bytes_read_again: 0,
        bytes_to_read_again: 0,
        bytes_found: 3 << 30,
        bytes_left: 3 << 29,
        bytes_to_flush: 0,
        found_all: true,
        seen_ppm: 0,
        lanes: 4,
        failed: 1,
        no_data_for: None,
    };

    fn left() -> Left {
        let time = Some(Duration::from_millis(12_300));
        Left { files: 4_444, bytes: 3 << 29, time, done: Some(0.509), is_rough: false }
    }

    #[test]
    fn the_status_shows_what_is_known() {
        insta::assert_snapshot!(status(&KNOWN, Some(131_072_000.0), left()), @"50 %  0:13 left  125 MiB/s (1.05 Gbit/s)  1.50 GiB of 3.00 GiB  1,234 of 5,678 files  4 lanes  1 failed");
        let resumed = Progress { bytes_read_again: 1 << 29, failed: 0, lanes: 0, ..KNOWN };
        assert!(status(&resumed, None, left()).ends_with("files  512 MiB of an earlier run read again"));
        let walking = Progress { found_all: false, failed: 0, ..KNOWN };
        let rough = Left { is_rough: true, ..left() };
        insta::assert_snapshot!(status(&walking, None, rough), @"~50 %  ~0:13 left  1.50 GiB of 3.00 GiB+  1,234 of 5,678+ files  4 lanes");
    }

    #[test]
    fn while_nothing_comes_the_bar_says_so_in_place_of_rate_and_time() {
        let out = Progress { no_data_for: Some(Duration::from_millis(7_900)), failed: 0, ..KNOWN };
        insta::assert_snapshot!(status(&out, Some(131_072_000.0), left()), @"50 %  no data for 7 s  1.50 GiB of 3.00 GiB  1,234 of 5,678 files  4 lanes");
        let out = Progress { no_data_for: Some(Duration::from_secs(125)), ..out };
        assert!(status(&out, None, left()).starts_with("50 %  no data for 2 min 05 s  "));
        let flushing = Left { bytes: 0, ..left() };
        assert!(status(&out, None, flushing).starts_with("50 %  no data for 2 min 05 s  "));
    }

    #[test]
    fn a_narrow_terminal_drops_whole_fields_and_the_bar_before_the_first_two() {
        let fields = fields(&KNOWN, Some(131_072_000.0), left());
        let at = |columns| fit(&fields, columns);
        assert_eq!(at(8), (false, "50 %".to_owned()));
        assert_eq!(at(20), (false, "50 %  0:13 left".to_owned()));
        assert_eq!(at(40), (true, "50 %  0:13 left".to_owned()));
        assert_eq!(at(60), (true, "50 %  0:13 left  125 MiB/s (1.05 Gbit/s)".to_owned()));
        assert_eq!(at(80), (true, "50 %  0:13 left  125 MiB/s (1.05 Gbit/s)  1.50 GiB of 3.00 GiB".to_owned()));
        let wide =
            "50 %  0:13 left  125 MiB/s (1.05 Gbit/s)  1.50 GiB of 3.00 GiB  1,234 of 5,678 files  4 lanes  1 failed";
        assert_eq!(at(120), (true, wide.to_owned()));
        for columns in 0..200 {
            let (has_bar, line) = at(columns);
            let bar = if has_bar { BAR_COLUMNS + 1 } else { 0 };
            assert!(bar + line.chars().count() <= columns, "{columns}: {line}");
            let shown: Vec<&str> = line.split(GAP).filter(|field| !field.is_empty()).collect();
            assert!(shown.iter().zip(&fields).all(|(shown, field)| shown == field), "{columns}: {line}");
        }
        let out = vec!["50 %".to_owned(), "no data for 2 min 05 s".to_owned(), "1.50 GiB of 3.00 GiB".to_owned()];
        assert_eq!(fit(&out, 40), (false, "50 %  no data for 2 min 05 s".to_owned()));
    }

    #[test]
    fn when_all_data_is_there_the_flush_is_named() {
        let all = Progress {
            files_done: 8,
            files_found: 20,
            bytes_moved: 9,
            bytes_found: 9,
            found_all: true,
            ..Progress::default()
        };
        let left = Left { files: 12, bytes: 0, time: Some(Duration::from_secs(3)), done: Some(0.99), is_rough: false };
        insta::assert_snapshot!(status(&all, Some(0.0), left), @"99 %  flushing 12 files  9 B of 9 B  8 of 20 files");
        let all = Progress { bytes_to_flush: 5 << 20, ..all };
        insta::assert_snapshot!(status(&all, Some(0.0), left), @"99 %  flushing 12 files, 5.00 MiB  9 B of 9 B  8 of 20 files");
    }

    #[test]
    fn nothing_found_yet_divides_by_nothing() {
        let empty = Progress { found_all: true, ..Progress::default() };
        let left = Left { files: 0, bytes: 0, time: None, done: None, is_rough: false };
        insta::assert_snapshot!(status(&empty, Some(0.0), left), @"0 B of 0 B  0 of 0 files");
    }
}
