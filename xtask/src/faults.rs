//! Checks that the tests named by `docs/proof/faults.md` exist.

use std::fs;
use std::path::Path;

use crate::source::Source;

/// A row's state before its tests, and whether it needs a test. Without a state the tests show all.
const STATES: [(&str, bool); 4] = [("", true), ("partly: ", true), ("open", false), ("does not apply: ", false)];

const PAGE: &str = "docs/proof/faults.md";

/// Rows that must exist: letter, last number, and numbers never given.
const ROWS: [(char, u32, &[u32]); 6] =
    [('N', 22, &[5, 17]), ('P', 8, &[]), ('S', 16, &[8, 11]), ('F', 18, &[13]), ('A', 23, &[]), ('D', 11, &[5])];

pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    match fs::read_to_string(root.join(PAGE)) {
        Ok(text) => check_page(&text, files, &expected_rows()),
        Err(error) => vec![format!("{PAGE}: {error}")],
    }
}

fn expected_rows() -> Vec<String> {
    let of_letter = |(letter, last, never): (char, u32, &'static [u32])| {
        (1..=last).filter(move |number| !never.contains(number)).map(move |number| format!("{letter}{number}"))
    };
    ROWS.into_iter().flat_map(of_letter).collect()
}

fn check_page(text: &str, files: &[Source], expected: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    for (line, row, said) in items(text) {
        let place = format!("{PAGE}:{line}");
        if rows.contains(&row) {
            findings.push(format!("{place}: {row} stands there twice"));
        }
        let Some((_, does)) = said.split_once(": ") else {
            findings.push(format!("{place}: {row} says what is injected, and not what haul does"));
            rows.push(row);
            continue;
        };
        let tests = tests(&said);
        let state = match tests.last() {
            Some(last) => said.rsplit_once(&format!("`{last}`")).map_or("", |(_, behind)| behind.trim()),
            None => does,
        };
        let says = |name: &str| if name.ends_with(": ") { state.starts_with(name) } else { state == name };
        match STATES.iter().find(|(name, _)| says(name)) {
            None => findings.push(format!("{place}: {row} names tests, or says partly, open, or does not apply")),
            Some((_, true)) if tests.is_empty() => findings.push(format!("{place}: {row} names no test")),
            Some(_) => {}
        }
        let missing = tests.iter().filter(|test| !exists(test, files));
        findings.extend(missing.map(|test| format!("{place}: there is no test {test}")));
        rows.push(row);
    }
    if rows.is_empty() {
        findings.push(format!("{PAGE}: no rows"));
    }
    let forgotten = expected.iter().filter(|row| !rows.contains(row));
    findings.extend(forgotten.map(|row| format!("{PAGE}: {row} is not on the page")));
    findings
}

/// Finds points `- **N1** ...`: line from 1, name, text behind.
pub fn items(text: &str) -> Vec<(usize, String, String)> {
    let mut found: Vec<(usize, String, String)> = Vec::new();
    let mut is_open = false;
    for (at, line) in text.lines().enumerate() {
        let begins = line.strip_prefix("- **").and_then(|rest| rest.split_once("** "));
        match (begins, found.last_mut()) {
            (Some((name, said)), _) => found.push((at + 1, name.to_owned(), said.to_owned())),
            (None, Some((_, _, said))) if is_open && line.starts_with("  ") => {
                said.push(' ');
                said.push_str(line.trim());
            }
            _ => {
                is_open = false;
                continue;
            }
        }
        is_open = true;
    }
    found
}

/// Finds `crate/name` between backquotes.
pub fn tests(said: &str) -> Vec<&str> {
    let is_name = |part: &str| !part.is_empty() && part.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
    let is_test = |word: &&str| word.split_once('/').is_some_and(|(house, name)| is_name(house) && is_name(name));
    said.split('`').skip(1).step_by(2).filter(is_test).collect()
}

pub fn exists(test: &str, files: &[Source]) -> bool {
    let Some((name_of_crate, name)) = test.split_once('/') else { return false };
    files.iter().filter(|file| file.crate_name() == name_of_crate).any(|file| has_test(&file.text, name))
}

/// Looks for `#[test]` above the function, also inside `proptest!`.
fn has_test(text: &str, name: &str) -> bool {
    let declaration = format!("fn {name}(");
    let lines: Vec<&str> = text.lines().map(str::trim).collect();
    lines.iter().enumerate().filter(|(_, line)| line.starts_with(&declaration)).any(|(at, _)| {
        let above = lines[..at].iter().rev();
        above.take_while(|line| line.starts_with("#[") || line.starts_with("//")).any(|line| *line == "#[test]")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(rows: &str) -> Vec<String> {
        let text = "//! Tests.\n#[test]\n/// Why.\n#[cfg(unix)]\nfn holds() {}\nfn no_test() {}\n";
        check_page(rows, &[Source::new("crates/net/tests/a.rs", text)], &[])
    }

    #[test]
    fn no_row_is_forgotten() {
        let expected = expected_rows();
        assert_eq!(expected.len(), 20 + 8 + 14 + 17 + 23 + 10);
        let row = |name: &String| format!("- **{name}** a: open\n");
        let page = |rows: &[String]| rows.iter().map(row).collect::<String>();
        assert_eq!(check_page(&page(&expected), &[], &expected).len(), 0);
        let without_the_last = check_page(&page(&expected[..expected.len() - 1]), &[], &expected);
        assert_eq!(without_the_last, ["docs/proof/faults.md: D11 is not on the page"]);
    }

    #[test]
    fn a_row_names_tests_that_exist() {
        assert_eq!(check("- **N1** a: b. `net/holds`\n").len(), 0);
        assert_eq!(check("- **N1** `--a` of\n  two lines: b.\n  `net/holds`\n\n- of another list\n").len(), 0);
        for missing in ["net/other", "net/no_test", "store/holds"] {
            let found = check(&format!("words\n\n- **N1** a: b. `net/holds`\n- **N2** a: b.\n  `{missing}`\n"));
            assert_eq!(found, [format!("docs/proof/faults.md:4: there is no test {missing}")]);
        }
        assert_eq!(check("- **N1** a: b. `holds`\n").len(), 1, "a name without its crate is no test");
    }

    #[test]
    fn a_row_has_a_state_with_what_belongs_to_it() {
        assert_eq!(check("- **N1** a: open\n- **N2** a: does not apply: no clocks\n").len(), 0);
        assert_eq!(check("- **N1** a: b. `net/holds` partly: not all\n").len(), 0);
        assert_eq!(check("- **N1** a: b.\n").len(), 1);
        assert_eq!(check("- **N1** a: b. `net/holds` partly\n").len(), 1);
        assert_eq!(check("- **N1** a: b. `net/holds` fine\n").len(), 1);
        assert_eq!(check("- **N1** a `net/holds`\n").len(), 1, "what haul does is not said");
        assert_eq!(check("- **N1** a: open\n- **N1** a: open\n").len(), 1);
        assert_eq!(check("").len(), 1);
        let beside = check("- **N1** a: open\n\n- N1: a remark\n");
        assert_eq!(beside.len(), 0, "{beside:?}");
    }
}
