//! A list of files brings what the real rsync's `--files-from` brings: generated lists and rules.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use haul_store::{FileList, Filter, Found, ResolveOptions, SourceSet, WalkOptions};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

/// Generated lists; `HAUL_RSYNC_CASES` asks for more.
const CASES: usize = 60;

const FILES: [&str; 9] = ["a/f", "a/b/g", "a/b/deep/h", "a-b/f", "d/i", "d/sub/j", "d/sub/x/k", "top", "#c"];

fn make_tree(top: &Path) {
    for file in FILES {
        let file = top.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
    fs::create_dir(top.join("empty")).unwrap();
    symlink("a", top.join("a/link")).unwrap();
}

fn listed() -> impl Strategy<Value = String> {
    let paths = vec![
        "a",
        "a/f",
        "a/b",
        "a/b/g",
        "a/b/deep",
        "a/b/deep/h",
        "a-b",
        "d",
        "d/sub",
        "d/sub/j",
        "d/sub/x",
        "top",
        "#c",
        "empty",
        "missing",
        "a/missing",
        "missing/x",
        "top/x",
        "a/link",
        "d//sub",
        "/a/b",
        "a/b/missing/y",
        "./a/f",
        "./d",
        "./missing",
    ];
    let plain = (select(paths), select(vec!["", "", "/", "/."])).prop_map(|(path, end)| format!("{path}{end}"));
    // rsync takes a file with a slash behind it for a file, and a link for its target.
    let plain = plain.prop_filter("a directory", |path| !path.contains("top/") && !path.contains("link/"));
    prop_oneof![12 => plain, 1 => select(vec!["./", ".", "/"]).prop_map(str::to_owned)]
}

fn rule() -> impl Strategy<Value = (bool, String)> {
    let patterns = vec!["a", "b", "/a/", "g", "*", "*/", "d/*", "/a/b/**", "sub/", "/**/g", "x", "top"];
    (any::<bool>(), select(patterns).prop_map(str::to_owned))
}

struct Case {
    paths: Vec<String>,
    rules: Vec<(bool, String)>,
    recursive: bool,
}

/// The copied entries (directories with a slash), and whether something failed.
type Brought = (BTreeSet<String>, bool);

fn by_rsync(top: &Path, case: &Case) -> Brought {
    let list = top.join("../list");
    // rsync takes a leading `#` for a comment, also between NUL bytes; haul takes a name.
    let paths: Vec<_> = case.paths.iter().map(|path| path.replacen('#', "//#", 1)).collect();
    fs::write(&list, paths.join("\0")).unwrap();
    let mut command = Command::new("rsync");
    command.args(["-ln", "-0", "--out-format=%n", "--files-from"]).arg(&list);
    command.args(case.recursive.then_some("-r"));
    for (include, pattern) in &case.rules {
        command.arg(format!("--{}={pattern}", if *include { "include" } else { "exclude" }));
    }
    let out = command.arg(top).arg(top.join("../nothing/")).stderr(Stdio::null()).output().unwrap();
    let lines = String::from_utf8(out.stdout).unwrap();
    // A link comes with its target, and the target of a dry run is made.
    let lines = lines.lines().map(|line| line.split(" -> ").next().unwrap_or(line));
    let lines = lines.filter(|line| !line.starts_with("created directory") && !line.is_empty());
    (lines.map(str::to_owned).collect(), !out.status.success())
}

fn by_haul(top: &Path, case: &Case) -> Brought {
    let set = Arc::new(SourceSet::resolve_lossy(&[top.as_os_str().as_bytes().to_vec()], &ResolveOptions::default()).0);
    let rules: Vec<_> = case.rules.iter().map(|(include, text)| (*include, text.clone().into_bytes())).collect();
    let list = FileList::of(&case.paths).unwrap();
    let list = if case.recursive { list.recursive() } else { list };
    let options = WalkOptions {
        filter: Filter::new(&rules).unwrap(),
        files_from: Some(Arc::new(list)),
        ..WalkOptions::default()
    };
    let (mut brought, mut failed) = (BTreeSet::new(), false);
    let mut open: Vec<Vec<u8>> = Vec::new();
    for found in set.walk(options) {
        match found {
            Found::Entry(entry) => {
                let path = String::from_utf8(entry.path.clone()).unwrap();
                if entry.kind == haul_store::EntryKind::Directory {
                    brought.insert(if path.is_empty() { "./".to_owned() } else { format!("{path}/") });
                    open.push(entry.path);
                } else {
                    brought.insert(path);
                }
            }
            Found::DirEnd { path, complete } => {
                assert!(!complete || case.recursive, "nothing may be deleted beside what is listed");
                assert_eq!(open.pop(), Some(path), "each directory ends once, and was told of");
            }
            Found::Failed { .. } => failed = true,
            Found::Skipped { .. } => {}
        }
    }
    assert_eq!(open, Vec::<Vec<u8>>::new());
    (brought, failed)
}

#[test]
fn lists_bring_what_rsyncs_lists_bring() {
    if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no rsync here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    make_tree(&top);
    let cases = std::env::var("HAUL_RSYNC_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(CASES);
    let mut runner = TestRunner::deterministic();
    let strategy = (
        proptest::collection::vec(listed(), 1..5),
        proptest::collection::vec(rule(), 0..3),
        any::<bool>(),
        any::<bool>(),
    );
    let mut wrong = Vec::new();
    for _ in 0..cases {
        let (paths, rules, recursive, filtered) = strategy.new_tree(&mut runner).unwrap().current();
        let case = Case { paths, rules: if filtered { rules } else { Vec::new() }, recursive };
        let (theirs, ours) = (by_rsync(&top, &case), by_haul(&top, &case));
        if theirs != ours {
            let Case { paths, rules, recursive } = case;
            wrong.push(format!("{paths:?} {rules:?} recursive {recursive}:\n  rsync {theirs:?}\n  haul  {ours:?}"));
        }
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
