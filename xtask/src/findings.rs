//! Checks the tests named by `docs/proof/findings.md`, because `scripts/findings.sh` passes over a missing one.

use std::fs;
use std::path::Path;

use crate::faults::{exists, items, tests};
use crate::source::Source;

const PAGE: &str = "docs/proof/findings.md";

pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    match fs::read_to_string(root.join(PAGE)) {
        Ok(text) => check_page(&text, files),
        Err(error) => vec![format!("{PAGE}: {error}")],
    }
}

fn check_page(text: &str, files: &[Source]) -> Vec<String> {
    let mut findings = Vec::new();
    for (line, _, said) in items(text) {
        let place = format!("{PAGE}:{line}");
        let tests = tests(&said);
        if tests.is_empty() {
            findings.push(format!("{place}: the row names no test"));
        }
        let missing = tests.iter().filter(|test| !exists(test, files));
        findings.extend(missing.map(|test| format!("{place}: there is no test {test}")));
    }
    findings
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_row_names_tests_that_exist() {
        let files = [Source::new("crates/net/tests/a.rs", "//! Tests.\n#[test]\nfn dials() {}\n")];
        let check = |row: &str| check_page(row, &files).len();
        assert_eq!(check("- **1.1** It broke. `net/dials`"), 0);
        assert_eq!(check("- **1.1** `--flag` broke.\n  `net/listens`"), 1);
        assert_eq!(check("- **1.1** `--flag` broke."), 1);
        assert_eq!(check("- a list of another kind"), 0);
    }
}
