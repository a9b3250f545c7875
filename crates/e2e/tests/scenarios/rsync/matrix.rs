//! Each row of the table against what it is shown by; and `docs/rsync.md`, which is made of them.

use std::fs;
use std::path::Path;

use haul_e2e::{code, contents_of, needs};

use super::stage::Stage;
use super::table::{ROWS, Row, ShownBy, Verdict};

/// What the table says of a row, or what is wrong with it.
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
    for row in ROWS {
        match judged(row) {
            Ok(hint) => lines.push_str(&line(row, &hint)),
            Err(why) => faults.push_str(&format!("{}:\n  {why}\n", row.flag)),
        }
    }
    assert!(faults.is_empty(), "{faults}");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/rsync.md");
    let page = fs::read_to_string(&path).expect("docs/rsync.md");
    let (before, rest) = page.split_once(BEGIN).expect("the beginning of the table");
    let (_, after) = rest.split_once(END).expect("its end");
    let now = format!("{before}{BEGIN}\n{HEAD}{lines}{END}{after}");
    if std::env::var_os("HAUL_WRITE_DOCS").is_some() {
        fs::write(&path, now).expect("docs/rsync.md");
    } else {
        assert!(now == page, "docs/rsync.md is not what the comparison makes; HAUL_WRITE_DOCS=1 writes it");
    }
}

const HEAD: &str = "| flag of rsync | haul | compared with rsync |\n|---|---|---|\n";
const BEGIN: &str = "<!-- made by the test rsync::matrix: do not edit -->";
const END: &str = "<!-- end -->";

/// A line of the table; `hint` is what haul says where it refuses.
fn line(row: &Row, hint: &str) -> String {
    let (verdict, why) = match row.verdict {
        Verdict::Same => ("same", ""),
        Verdict::Better(why) => ("better", why),
        Verdict::Other(why) => ("other", why),
        Verdict::NotOurs(_) => ("not ours", hint),
    };
    let stop = if why.is_empty() { "" } else { ": " };
    let shown = match row.shown_by {
        ShownBy::Both(flags) | ShownBy::Each(flags, _) => format!("tree and letters, `{}`", flags.join(" ")),
        ShownBy::Files(flags) => format!("files and their letters, `{}`", flags.join(" ")),
        ShownBy::From(flags, paths) => format!("tree and letters, `{} {} DST`", flags.join(" "), paths.join(" ")),
        ShownBy::Trees(flags) => format!("tree, `{}`", flags.join(" ")),
        ShownBy::Taken(_) => "taken".to_owned(),
        ShownBy::Refused(_) => "refused".to_owned(),
    };
    format!("| `{}` | {verdict}{stop}{why} | {shown} |\n", row.flag)
}
