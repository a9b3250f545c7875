//! Tests each row of the table, and `docs/use/rsync.md`, which is made of them.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use haul_e2e::{code, contents_of, needs};

use super::stage::Stage;
use super::table::{ROWS, Row, ShownBy, Verdict};

/// The table's word for a row, or its fault.
fn judged(row: &Row) -> Result<String, String> {
    let stage = Stage::new();
    let (ours, theirs) = match row.shown_by {
        ShownBy::Both(flags) | ShownBy::Trees(flags) | ShownBy::Files(flags) | ShownBy::From(flags, _) => {
            (flags, flags)
        }
        ShownBy::Each(ours, theirs) => (ours, theirs),
        ShownBy::Taken(flags) | ShownBy::Refused(flags) => {
            let pair = stage.ours();
            let run = stage.haul().arg("cp").args(flags).arg(contents_of(&pair.source)).arg(&pair.target).run();
            let said = run.stderr_text();
            return match row.verdict {
                Verdict::NotOurs(words) if run.code() == code::USAGE && said.contains(words) => {
                    let hint = said.lines().find_map(|line| line.trim().strip_prefix("hint:"));
                    hint.map(|hint| hint.trim().to_owned()).ok_or(said)
                }
                Verdict::Same | Verdict::Better(_) | Verdict::Other(_) if run.code() == code::OK => Ok(String::new()),
                _ => Err(format!("{run}")),
            };
        }
    };
    let compared = match row.shown_by {
        ShownBy::Files(_) => stage.compare_files(ours, theirs),
        ShownBy::From(_, paths) => stage.compare_paths(paths, ours, theirs),
        _ => stage.compare(ours, theirs),
    };
    let found = if matches!(row.shown_by, ShownBy::Trees(_)) { compared.trees() } else { compared.all() };
    if found.is_empty() { Ok(String::new()) } else { Err(found.join("\n  ")) }
}

#[test]
fn each_flag_leaves_and_says_what_the_matrix_promises() {
    needs!(Haul, Tool("rsync"));
    let (mut lines, mut faults) = (String::new(), String::new());
    let mut same: BTreeMap<&str, Vec<String>> = BTreeMap::new();
    for row in ROWS {
        match judged(row) {
            Ok(_) if row.verdict == Verdict::Same => {
                same.entry(shown(row)).or_default().push(format!("`{}`", row.flag));
            }
            Ok(hint) => lines.push_str(&line(row, &hint)),
            Err(why) => faults.push_str(&format!("{}:\n  {why}\n", row.flag)),
        }
    }
    assert!(faults.is_empty(), "{faults}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/use/rsync.md");
    let page = fs::read_to_string(&path).expect("docs/use/rsync.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("its end");
    let same: String = same.iter().map(|(shown, flags)| format!("- same, {shown}: {}\n", flags.join(", "))).collect();
    let now = format!("{before}{BEGIN}\n{same}\n{HEAD}{lines}{END}{after}");
    if std::env::var_os("HAUL_WRITE_DOCS").is_some() {
        fs::write(&path, now).expect("docs/use/rsync.md");
    } else {
        assert!(now == page, "docs/use/rsync.md is not what the comparison makes; HAUL_WRITE_DOCS=1 writes it");
    }
}

const HEAD: &str = "| flag of rsync | haul | compared |\n|---|---|---|\n";
const BEGIN: &str = "<!-- made by the test rsync::matrix: do not edit -->";
const END: &str = "<!-- end -->";

/// A line for a flag that differs; `hint` is haul's when it refuses.
fn line(row: &Row, hint: &str) -> String {
    let (verdict, why) = match row.verdict {
        Verdict::Same => ("same", ""),
        Verdict::Better(why) => ("better", why),
        Verdict::Other(why) => ("other", why),
        Verdict::NotOurs(_) => ("not ours", hint),
    };
    let stop = if why.is_empty() { "" } else { ": " };
    format!("| `{}` | {verdict}{stop}{why} | {} |\n", row.flag, shown(row))
}

fn shown(row: &Row) -> &'static str {
    match row.shown_by {
        ShownBy::Both(_) | ShownBy::Each(..) | ShownBy::From(..) => "all",
        ShownBy::Files(_) => "files",
        ShownBy::Trees(_) => "tree",
        ShownBy::Taken(_) => "taken",
        ShownBy::Refused(_) => "refused",
    }
}
