//! Failures of one cause are few lines and a count, not ten thousand lines.
//!
//! ```text
//!   a directory could not be made     its line, and how many entries beneath it fail with it
//!   the target is full                the line of the first
//!   any other cause                   the lines of the first 20, then a count
//! ```
//! The log file and JSON have each.

use std::collections::BTreeMap;

use haul_job::WITH_ITS_DIRECTORY;

use crate::text::causes::{Causes, REMEMBERED, more_of};
use crate::text::figures::counted;
use crate::text::printable::{printable, printable_path};

#[derive(Debug, Default)]
pub struct Failures {
    is_full: bool,
    by_cause: Causes,
    /// Failed directories, with the entries lost in them.
    lost: BTreeMap<Vec<u8>, u64>,
}

impl Failures {
    /// `None`: the next ones are counted.
    pub fn line(&mut self, path: &[u8], why: &str) -> Option<String> {
        if FULL.iter().any(|words| why.ends_with(words)) && std::mem::replace(&mut self.is_full, true) {
            return None;
        }
        if why.ends_with(WITH_ITS_DIRECTORY)
            && let Some(above) = ancestors(path).find(|above| self.lost.contains_key(*above))
            && let Some(count) = self.lost.get_mut(above)
        {
            *count += 1;
            return None;
        }
        if self.lost.len() < REMEMBERED {
            self.lost.insert(path.to_vec(), 0);
        }
        if !self.by_cause.has_line(&cause(path, why)) {
            return None;
        }
        Some(format!("failed: {}: {}", printable_path(path), printable(why)))
    }

    pub fn rest(&mut self) -> Vec<String> {
        let entries = |count: u64| counted(count, "entry", "entries");
        let lost = std::mem::take(&mut self.lost).into_iter().filter(|(_, count)| *count > 0);
        let lost = lost.map(|(path, count)| {
            format!("failed: {}: and with it {} beneath it", printable_path(&path), entries(count))
        });
        let by_cause = self.by_cause.rest();
        let more = by_cause.map(|(cause, count)| format!("failed: {}", more_of(&cause, count)));
        lost.chain(more).collect()
    }
}

fn cause(path: &[u8], why: &str) -> String {
    if path.is_empty() { why.to_owned() } else { why.replacen(&printable_path(path), "…", 1) }
}

fn ancestors(path: &[u8]) -> impl Iterator<Item = &[u8]> {
    let ends = path.iter().enumerate().rev().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
    ends.chain([0]).map(|end| &path[..end])
}

/// A far side's messages for a full disk: strerror(3) of ENOSPC and EDQUOT, and ours for inodes. A full disk fails
/// every later file.
const FULL: [&str; 3] = ["No space left on device", "Disk quota exceeded", "whatever space is free (df -i)"];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_one_line() {
        let mut failures = Failures::default();
        assert!(failures.line(b"a", "cannot write a: No space left on device").is_some());
        assert_eq!(failures.line(b"b", "cannot write b: No space left on device"), None);
        assert!(failures.line(b"c", "cannot read c: Permission denied").is_some());
        assert!(failures.rest().is_empty());
    }

    #[test]
    fn what_lies_beneath_a_failed_directory_is_counted_in_its_line() {
        let mut failures = Failures::default();
        let file = "failed: data: cannot make directory data: a file has that name";
        assert_eq!(failures.line(b"data", "cannot make directory data: a file has that name").as_deref(), Some(file));
        for path in ["data/a", "data/sub", "data/sub/b"] {
            let why = format!("cannot copy {path}: its directory could not be copied");
            assert_eq!(failures.line(path.as_bytes(), &why), None);
        }
        assert!(failures.line(b"other/a", "cannot read other/a: Permission denied").is_some());
        assert_eq!(failures.rest(), ["failed: data: and with it 3 entries beneath it"]);
    }

    #[test]
    fn many_of_one_cause_are_twenty_lines_and_a_count() {
        let mut failures = Failures::default();
        let fail = |failures: &mut Failures, path: String| {
            failures.line(path.as_bytes(), &format!("cannot read {path}: Permission denied")).is_some()
        };
        let lines = (0..1000).filter(|number| fail(&mut failures, format!("dir/{number}"))).count();
        assert_eq!(lines, 20);
        assert_eq!(failures.rest(), ["failed: 980 entries more: cannot read …: Permission denied"]);
    }
}
