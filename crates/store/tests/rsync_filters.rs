//! Rules select what the real rsync selects: generated patterns over a tree with awkward names.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use haul_store::{Filter, Found, ResolveOptions, SourceSet, WalkOptions};
use proptest::prelude::*;
use proptest::sample::select;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::TestRunner;

const FILES: [&str; 24] = [
    "f", "g", "abc", "a*", "a[b", "a\\b", "b]", "-", "d/f", "d/g", "d/ab", "d/d/f", "d/d/d/f", "d/d/d/ab", "d/e/f",
    "e/d/f", "e/e/f", "e/ab/f", "ab/f", "ab/d/g", "x/y/z/f", "x/y/z/a*", "x/a\\b/g", "é/f",
];

/// Generated lists of rules; `HAUL_RSYNC_CASES` asks for more.
const CASES: usize = 100;

fn piece() -> impl Strategy<Value = &'static str> {
    select(vec![
        "f",
        "d",
        "e",
        "a",
        "b",
        "ab",
        "x",
        "y",
        "/",
        "/",
        "/",
        "*",
        "*",
        "**",
        "**",
        "***",
        "?",
        "[a-f]",
        "[!d]",
        "[^a]",
        "[",
        "]",
        "\\",
        "\\*",
        "[[:alpha:]]",
        "[[:odd:]]",
        "[]a]",
        "[d/e]",
        "**/",
        "/**/",
        "/**",
        "/*",
        "*/",
    ])
}

fn pattern() -> impl Strategy<Value = String> {
    proptest::collection::vec(piece(), 1..6).prop_map(|pieces| pieces.concat())
}

fn rules() -> impl Strategy<Value = Vec<(bool, String)>> {
    prop_oneof![
        4 => pattern().prop_map(|pattern| vec![(false, pattern)]),
        1 => proptest::collection::vec((any::<bool>(), pattern()), 2..4),
    ]
}

fn make_tree(top: &Path) {
    for file in FILES {
        let file = top.join(file);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        fs::write(file, "").unwrap();
    }
}

fn by_rsync(top: &Path, rules: &[(bool, String)]) -> BTreeSet<Vec<u8>> {
    let mut command = Command::new("rsync");
    command.args(["-rn", "-8", "--out-format=%n"]);
    for (include, pattern) in rules {
        command.arg(format!("--{}={pattern}", if *include { "include" } else { "exclude" }));
    }
    let out =
        command.arg(format!("{}/", top.display())).arg(top.join("nothing/")).stderr(Stdio::inherit()).output().unwrap();
    assert!(out.status.success(), "{rules:?}");
    out.stdout
        .split(|byte| *byte == b'\n')
        .map(|line| line.strip_suffix(b"/").unwrap_or(line))
        .filter(|path| !matches!(*path, b"" | b".") && !path.starts_with(b"created directory"))
        .map(<[u8]>::to_vec)
        .collect()
}

fn by_haul(top: &Path, rules: &[(bool, String)]) -> BTreeSet<Vec<u8>> {
    let typed = [top.as_os_str().as_bytes(), b"/"].concat();
    let set = Arc::new(SourceSet::resolve_lossy(&[typed], &ResolveOptions::default()).0);
    let rules: Vec<_> = rules.iter().map(|(include, pattern)| (*include, pattern.clone().into_bytes())).collect();
    let options = WalkOptions { filter: Filter::new(&rules).unwrap(), ..WalkOptions::default() };
    let entries = set.walk(options).filter_map(|found| match found {
        Found::Entry(entry) => Some(entry.path),
        _ => None,
    });
    entries.filter(|path| !path.is_empty()).collect()
}

fn compare(top: &Path, rules: &[(bool, String)]) -> Result<(), String> {
    let (theirs, ours) = (by_rsync(top, rules), by_haul(top, rules));
    let shown = |paths: Vec<&Vec<u8>>| -> Vec<String> {
        paths
            .into_iter()
            .map(|path| std::ffi::OsString::from_vec(path.clone()).to_string_lossy().into_owned())
            .collect()
    };
    if theirs == ours {
        return Ok(());
    }
    let only = (shown(theirs.difference(&ours).collect()), shown(ours.difference(&theirs).collect()));
    Err(format!("{rules:?}: only rsync brings {:?}, only haul brings {:?}", only.0, only.1))
}

#[test]
fn rules_select_what_rsync_selects() {
    if Command::new("rsync").arg("--version").stdout(Stdio::null()).status().is_err() {
        eprintln!("skipped: there is no rsync here");
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let known = [
        "/**/f",
        "**/f",
        "***/f",
        "/**",
        "**",
        "***",
        "/***",
        "/",
        "//",
        "*/",
        "**/",
        "/*/",
        "d/***",
        "d/***/",
        "/*/*****/",
        "[!d]***/**/****/",
        "/d/***",
        "d/**",
        "d/**/f",
        "d**f",
        "/d**f",
        "*/f",
        "*/*/f",
        "**/d/f",
        "d/f",
        "/d/f",
        "d//f",
        "a[b",
        "a\\[b",
        "a\\b",
        "a\\\\b",
        "a\\\\?",
        "a\\*",
        "[a]*",
        "[!d]*",
        "[^d]*/",
        "**[e]/f",
        "**f",
        "e/**",
        "e/**/",
        "e***",
        "d/d/***",
        "[d/e]f",
        "d[/]f",
        "*\\",
        "[[:alpha:]",
        "[[:odd:]]",
        "[[:alpha:]-z]",
        "[z-a]",
        "[]]",
        "[!]]",
        "[]-a]*",
        "?",
        "??",
        "d?f",
        "**?",
        "/**/d/**/f",
        "**/**/f",
        "/**/**/f",
        "d/**/d/f",
    ];
    let mut wrong: Vec<String> = Vec::new();
    let mut check = |rules: &[(bool, String)]| wrong.extend(compare(dir.path(), rules).err());
    known.iter().for_each(|pattern| check(&[(false, (*pattern).to_owned())]));
    let cases = std::env::var("HAUL_RSYNC_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(CASES);
    let mut runner = TestRunner::deterministic();
    for _ in 0..cases {
        let rules = rules().new_tree(&mut runner).unwrap().current();
        check(&rules);
    }
    assert!(wrong.is_empty(), "{} differ:\n{}", wrong.len(), wrong.join("\n"));
}
