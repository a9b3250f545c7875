//! A file's cost on a path beside its bytes, from earlier copies to the same place.

use crate::progress::outlook::Usual;
use crate::report::json::ReportLine;
use crate::report::kept::{self, Kept};

/// `None`: kept reports lack a copy of large files or of small ones there.
pub fn usual(target: &str) -> Option<Usual> {
    let files = kept::list(&kept::directory()?).ok()?;
    let kept: Vec<Kept> = files.iter().filter_map(|file| kept::read(file).ok()).collect();
    of(target, &kept)
}

fn of(target: &str, kept: &[Kept]) -> Option<Usual> {
    let there =
        || kept.iter().filter(|kept| place(&kept.target.path) == place(target)).filter_map(|kept| kept.report.as_ref());
    let moved = |report: &ReportLine| report.last_byte_s.unwrap_or(0.0) - report.first_byte_s.unwrap_or(0.0);
    let rate = there()
        .filter(|report| {
            report.files_moved > 0 && report.bytes_moved / report.files_moved >= LARGE_BYTES && moved(report) > 1.0
        })
        .map(|report| report.bytes_moved as f64 / moved(report))
        .reduce(f64::max)?;
    let bytes_per_file = there()
        .filter(|report| {
            report.files_moved >= MANY && report.bytes_moved / report.files_moved <= SMALL_BYTES && moved(report) > 1.0
        })
        .map(|report| (moved(report) * rate - report.bytes_moved as f64) / report.files_moved as f64)
        .filter(|bytes| *bytes > 0.0)
        .reduce(f64::min)?;
    Some(Usual { bytes_per_s: rate, bytes_per_file })
}

/// `host:` of `host:dir/file`; empty for this machine.
fn place(target: &str) -> &str {
    if let Some((scheme, rest)) = target.split_once("://") {
        let end = scheme.len() + "://".len() + rest.find('/').unwrap_or(rest.len());
        return &target[..end];
    }
    match target.find([':', '/']) {
        Some(colon) if target.as_bytes()[colon] == b':' => &target[..colon],
        _ => "",
    }
}

/// A file so large costs its bytes, and hardly anything by itself.
const LARGE_BYTES: u64 = 16 << 20;
/// A file so small costs itself, and hardly anything for its bytes.
const SMALL_BYTES: u64 = 64 << 10;
/// Below so many files, a copy's time tells little of the cost of one.
const MANY: u64 = 1000;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::kept::tests::kept;

    fn copy(target: &str, files_moved: u64, bytes_moved: u64, seconds: f64) -> Kept {
        let kept = kept();
        let target = crate::json::values::named(target.as_bytes());
        let report = kept.report.map(|report| ReportLine {
            files_moved,
            bytes_moved,
            first_byte_s: Some(0.5),
            last_byte_s: Some(0.5 + seconds),
            ..report
        });
        Kept { target, report, ..kept }
    }

    #[test]
    fn a_copy_of_large_files_and_one_of_small_ones_tell_what_a_file_costs() {
        let large = copy("host:a", 4, 40_000_000_000, 40.0);
        let small = copy("host:b", 100_000, 1_000_000_000, 11.0);
        let other = copy("other:b", 100_000, 1_000_000_000, 500.0);
        let usual = Usual { bytes_per_s: 1e9, bytes_per_file: 100_000.0 };
        assert_eq!(of("host:c", &[small.clone(), other, large.clone()]), Some(usual));
        assert_eq!(of("host:c", &[small]), None);
        assert_eq!(of("elsewhere:c", &[large]), None);
    }

    #[test]
    fn the_place_of_a_target_has_no_path() {
        for (target, expected) in [
            ("host:dir/x", "host"),
            ("./a:b", ""),
            ("dir/a", ""),
            ("haul://h:1/x/y", "haul://h:1"),
            ("ssh://h", "ssh://h"),
        ] {
            assert_eq!(place(target), expected);
        }
    }
}
