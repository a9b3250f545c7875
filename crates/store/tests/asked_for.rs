//! An honest sender finds only paths that were asked for, for any tree, sources, list and rules; others would be refused.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use haul_store::{AskedFor, EntryKind, Extent, FileList, Filter, Found, ResolveOptions, SourceSet, WalkOptions};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

#[derive(Clone, Debug)]
enum Made {
    File,
    Directory,
    LinkTo(&'static str),
    NameOf(usize),
}

const NAMES: [&str; 8] = ["a", "b", ".c", "a.x", "[ab]", "*", "~", "ab"];

fn path() -> impl Strategy<Value = String> {
    vec(select(&NAMES[..]), 1..4).prop_map(|names| names.join("/"))
}

fn made() -> impl Strategy<Value = Made> {
    prop_oneof![
        3 => Just(Made::File),
        2 => Just(Made::Directory),
        1 => select(vec!["a", "b", "../a", ".", "nowhere"]).prop_map(Made::LinkTo),
        2 => (0..8usize).prop_map(Made::NameOf),
    ]
}

fn source() -> impl Strategy<Value = String> {
    let typed = vec![
        "", ".", "./", "a", "a/", "b/..", "*", "a*", "[ab]", "[!a]", "?", ".*", "*/a", "*/*", "a/*", "*/", "a/.", "~",
        "a\\*", "**", "a*/b",
    ];
    select(typed).prop_map(str::to_owned)
}

fn rule() -> impl Strategy<Value = (bool, Vec<u8>)> {
    let patterns =
        vec!["a", "b/", "/a", "a/b", "*", "*/", "**/a", "a/**", "/a/*", ".c", "*.x", "a/***", "[ab]", "/*/b"];
    (any::<bool>(), select(patterns).prop_map(|pattern| pattern.as_bytes().to_vec()))
}

fn make(top: &Path, tree: &[(String, Made)]) {
    for (path, made) in tree {
        let path = top.join(path);
        if fs::create_dir_all(path.parent().unwrap()).is_err() {
            continue;
        }
        let _ = match made {
            Made::File => fs::write(&path, "data"),
            Made::Directory => fs::create_dir(&path),
            Made::LinkTo(target) => symlink(target, &path),
            Made::NameOf(number) => fs::hard_link(top.join(&tree[number % tree.len()].0), &path),
        };
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, ..ProptestConfig::default() })]

    #[test]
    fn what_an_honest_sender_finds_was_asked_for(
        tree in vec((path(), made()), 1..12),
        typed in vec(source(), 1..3),
        list in proptest::option::of(vec((path(), select(&["", "/"][..])), 0..4)),
        recursive in any::<bool>(),
        rules in vec(rule(), 0..4),
        follow_links in any::<bool>(),
        confined in any::<bool>(),
    ) {
        let dir = tempfile::tempdir().unwrap();
        make(dir.path(), &tree);
        // A daemon's paths are beneath its root; an agent's may be anywhere.
        let top = if confined { Vec::new() } else { [dir.path().as_os_str().as_bytes(), b"/"].concat() };
        let typed = if list.is_some() { vec![String::new()] } else { typed };
        let typed: Vec<Vec<u8>> = typed.iter().map(|source| [&top, source.as_bytes()].concat()).collect();
        let confine = confined.then(|| dir.path().to_owned());
        let options = ResolveOptions { expand_globs: true, confine, follow_links, ..ResolveOptions::default() };
        let (set, _) = SourceSet::resolve_lossy(&typed, &options);
        let list = list.map(|paths| {
            let list = FileList::of(paths.iter().map(|(path, slash)| format!("{path}{slash}"))).unwrap();
            Arc::new(if recursive { list.recursive() } else { list })
        });
        let filter = Filter::new(&rules).unwrap();
        let mut asked = AskedFor::new(&typed, list.clone(), filter.clone());
        let walk = WalkOptions { filter, files_from: list, hard_links: true, ..WalkOptions::default() };
        for found in Arc::new(set).walk(walk) {
            let asked_for = match &found {
                Found::Entry(entry) => {
                    let is_dir = entry.kind == EntryKind::Directory;
                    let first = match &entry.kind {
                        EntryKind::HardLink { first } => asked.extent(first, false),
                        _ => Extent::All,
                    };
                    first != Extent::Nothing && asked.extent(&entry.path, is_dir) != Extent::Nothing
                }
                Found::DirEnd { path, complete: true } => asked.extent(path, true) == Extent::All,
                Found::DirEnd { path, complete: false } => asked.extent(path, true) != Extent::Nothing,
                Found::Skipped { .. } | Found::Failed { .. } => true,
            };
            prop_assert!(asked_for, "{found:?}");
        }
    }
}
