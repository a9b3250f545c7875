//! `docs/proof/findings.md` names the tests of what strangers found; `scripts/findings.sh` runs them, and would pass over a name that is gone.

use std::fs;
use std::path::Path;

use crate::faults::exists;
use crate::source::Source;

const PAGE: &str = "docs/proof/findings.md";

/// Findings: a row without a test, or with a test that does not exist.
pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    match fs::read_to_string(root.join(PAGE)) {
        Ok(text) => check_page(&text, files),
        Err(error) => vec![format!("{PAGE}: {error}")],
    }
}

fn check_page(text: &str, files: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for (at, line) in text.lines().enumerate().filter(|(_, line)| is_row(line)) {
        let place = format!("{PAGE}:{}", at + 1);
        let tests: Vec<&str> = line.rsplit('|').nth(1).unwrap_or_default().split('`').skip(1).step_by(2).collect();
        if tests.is_empty() {
            findings.push(format!("{place}: the row names no test"));
        }
        let missing = tests.iter().filter(|test| !exists(test, files));
        findings.extend(missing.map(|test| format!("{place}: there is no test {test}")));
    }
    findings
}

/// A row of findings begins with the number of its round.
fn is_row(line: &str) -> bool {
    line.strip_prefix("| ").is_some_and(|rest| rest.starts_with(|letter: char| letter.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_tests_that_exist() {
        let files = [Source::new("crates/net/tests/a.rs", "//! Tests.\n#[test]\nfn dials() {}\n")];
        let check = |row: &str| check_page(row, &files).len();
        assert_eq!(check("| 1.1 | It broke. | `net/dials` |"), 0);
        assert_eq!(check("| 1.1 | `--flag` broke. | `net/listens` |"), 1);
        assert_eq!(check("| 1.1 | `net/dials` broke. | |"), 1);
        assert_eq!(check("| finding | what broke | tests |"), 0);
    }
}
