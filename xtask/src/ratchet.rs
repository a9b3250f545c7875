//! Long files may shrink, not grow. `xtask/ratchet.txt` lists those older than the rule.

use std::collections::BTreeMap;
use std::path::Path;

use crate::source::Source;

/// A longer file holds more than one thing.
const LINES_MAX: usize = 700;

const LIST: &str = "xtask/ratchet.txt";

/// Finds long files and outdated lines of the list.
pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    let list = std::fs::read_to_string(root.join(LIST)).unwrap_or_default();
    compare(&parse(&list), files)
}

/// Reads `PATH LINES`, one file a line; `#` begins a comment.
fn parse(text: &str) -> BTreeMap<&str, usize> {
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).filter_map(|(path, n)| Some((path, n.trim().parse().ok()?))).collect()
}

fn compare(list: &BTreeMap<&str, usize>, files: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for file in files {
        let lines = file.text.lines().count();
        let path = file.path.as_str();
        match list.get(path) {
            None if lines > LINES_MAX => {
                findings.push(format!("{path}: {lines} lines; part it, or (for a reason) list it in {LIST}"));
            }
            Some(&allowed) if lines > allowed => {
                findings.push(format!("{path}: {lines} lines; it was {allowed} and may only shrink"));
            }
            Some(_) if lines <= LINES_MAX => {
                findings.push(format!("{LIST}: {path} is short enough; take it off the list"))
            }
            _ => {}
        }
    }
    for path in list.keys().filter(|path| files.iter().all(|file| file.path != **path)) {
        findings.push(format!("{LIST}: {path} is gone; take it off the list"));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_files_may_shrink_and_not_grow() {
        let file = |lines: usize| Source::new("a.rs", &"x\n".repeat(lines));
        let check = |list: &str, lines: usize| compare(&parse(list), &[file(lines)]).len();
        assert_eq!(check("", 700), 0);
        assert_eq!(check("", 701), 1);
        assert_eq!(check("# why\na.rs 800\n", 790), 0);
        assert_eq!(check("a.rs 800\n", 801), 1);
        assert_eq!(check("a.rs 800\n", 600), 1);
        assert_eq!(check("b.rs 800\n", 600), 1);
    }
}
