//! `docs/proof/faults.md` names the tests that show each row; a name without its test would be a promise that nobody keeps.

use std::fs;
use std::path::Path;

use crate::source::Source;

/// A row's state, and whether the row has to name a test. Without a state its tests show all of it.
const STATES: [(&str, bool); 4] = [("", true), ("partly: ", true), ("open", false), ("does not apply: ", false)];

/// Columns of a row: its name, what is injected, what is expected, tests.
const COLUMNS: usize = 4;

const TABLE: &str = "docs/proof/faults.md";

/// Rows that have to stand in the table, so that none is forgotten: letter, last number, and the numbers that were never given.
const ROWS: [(char, u32, &[u32]); 6] =
    [('N', 22, &[5, 17]), ('P', 8, &[]), ('S', 16, &[8, 11]), ('F', 18, &[13]), ('A', 23, &[]), ('D', 11, &[5])];

pub fn check(root: &Path, files: &[Source]) -> Vec<String> {
    match fs::read_to_string(root.join(TABLE)) {
        Ok(text) => check_table(&text, files, &expected_rows()),
        Err(error) => vec![format!("{TABLE}: {error}")],
    }
}

fn expected_rows() -> Vec<String> {
    let of_letter = |(letter, last, never): (char, u32, &'static [u32])| {
        (1..=last).filter(move |number| !never.contains(number)).map(move |number| format!("{letter}{number}"))
    };
    ROWS.into_iter().flat_map(of_letter).collect()
}

fn check_table(text: &str, files: &[Source], expected: &[String]) -> Vec<String> {
    let mut findings = Vec::new();
    let mut rows = Vec::new();
    // Other tables stand there, too: those of rows begin with that word.
    let mut has_rows = false;
    for (at, line) in text.lines().enumerate() {
        let cells: Vec<&str> = line.trim_matches('|').split('|').map(str::trim).collect();
        has_rows = line.starts_with('|') && (has_rows || cells[0] == "row");
        let is_row = has_rows && line.starts_with("| ") && cells[0] != "row";
        if !is_row {
            continue;
        }
        let place = format!("{TABLE}:{}", at + 1);
        let [row, _, _, shown_by] = cells[..] else {
            findings.push(format!("{place}: {} columns, not {COLUMNS}", cells.len()));
            continue;
        };
        if rows.contains(&row) {
            findings.push(format!("{place}: {row} stands there twice"));
        }
        rows.push(row);
        let tests: Vec<&str> = shown_by.split('`').skip(1).step_by(2).collect();
        let state = shown_by.split('`').step_by(2).collect::<String>();
        let state = state.trim();
        let says = |name: &str| if name.ends_with(": ") { state.starts_with(name) } else { state == name };
        match STATES.iter().find(|(name, _)| says(name)) {
            None => findings.push(format!("{place}: {row} names tests, or says partly, open, or does not apply")),
            Some((_, true)) if tests.is_empty() => findings.push(format!("{place}: {row} names no test")),
            Some(_) => {}
        }
        let missing = tests.iter().filter(|test| !exists(test, files));
        findings.extend(missing.map(|test| format!("{place}: there is no test {test}")));
    }
    if rows.is_empty() {
        findings.push(format!("{TABLE}: no rows"));
    }
    let forgotten = expected.iter().filter(|row| !rows.contains(&row.as_str()));
    findings.extend(forgotten.map(|row| format!("{TABLE}: {row} is not in the table")));
    findings
}

/// Whether a test `crate/name` stands in a file of that crate.
pub fn exists(test: &str, files: &[Source]) -> bool {
    let Some((name_of_crate, name)) = test.split_once('/') else { return false };
    files.iter().filter(|file| file.crate_name() == name_of_crate).any(|file| has_test(&file.text, name))
}

/// Looks for `#[test]` among the attributes above the function, also inside `proptest!`.
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
        let table = format!("| row | injected | expected | tests |\n|---|---|---|---|\n{rows}");
        check_table(&table, &[Source::new("crates/net/tests/a.rs", text)], &[])
    }

    #[test]
    fn no_row_is_forgotten() {
        let expected = expected_rows();
        assert_eq!(expected.len(), 20 + 8 + 14 + 17 + 23 + 10);
        let row = |name: &String| format!("| {name} | a | b | open |\n");
        let table = |rows: &[String]| format!("| row |\n|---|\n{}", rows.iter().map(row).collect::<String>());
        assert_eq!(check_table(&table(&expected), &[], &expected).len(), 0);
        let without_the_last = check_table(&table(&expected[..expected.len() - 1]), &[], &expected);
        assert_eq!(without_the_last, ["docs/proof/faults.md: D11 is not in the table"]);
    }

    #[test]
    fn a_row_names_tests_that_exist() {
        assert_eq!(check("| N1 | a | b | `net/holds` |\n").len(), 0);
        for missing in ["net/other", "net/no_test", "store/holds", "holds"] {
            let found = check(&format!("| N1 | a | b | `{missing}` |\n"));
            assert_eq!(found, [format!("docs/proof/faults.md:3: there is no test {missing}")]);
        }
    }

    #[test]
    fn a_row_has_a_state_with_what_belongs_to_it() {
        assert_eq!(check("| N1 | a | b | open |\n| N2 | | | does not apply: no clocks |\n").len(), 0);
        assert_eq!(check("| N1 | a | b | `net/holds` partly: not all |\n").len(), 0);
        assert_eq!(check("| N1 | a | b | |\n").len(), 1);
        assert_eq!(check("| N1 | a | b | `net/holds` partly |\n").len(), 1);
        assert_eq!(check("| N1 | a | b | `net/holds` fine |\n").len(), 1);
        assert_eq!(check("| N1 | a | open |\n").len(), 2, "too few columns, and so no row");
        assert_eq!(check("| N1 | a | b | open |\n| N1 | a | b | open |\n").len(), 1);
        assert_eq!(check("").len(), 1);
        let beside = check("| N1 | a | b | open |\n\n| other | table |\n|---|---|\n| a | b |\n");
        assert_eq!(beside.len(), 0, "{beside:?}");
    }
}
