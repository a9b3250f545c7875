//! Reading: resolving typed paths, walking them, opening their files.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

use haul_store::{
    EntryKind, FileList, Filter, Found, FoundEntry, ResolveOptions, SourceSet, SourceTree, WalkOptions, printable,
};
use haul_sys::condition::unmet;
use haul_sys::intercept::{Call, Verdict, watch_this_thread};
use rustix::io::Errno;

fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

fn resolve(paths: &[PathBuf], options: &ResolveOptions) -> Arc<SourceSet> {
    let paths: Vec<_> = paths.iter().map(bytes).collect();
    Arc::new(SourceSet::resolve(&paths, options).unwrap())
}

/// `d` directory, `f` file, `l` link, `h` hard link, `.` end (`!` incomplete), `s` skipped, `x` failed.
fn lines<T: SourceTree + ?Sized>(set: &Arc<T>, options: WalkOptions) -> Vec<String> {
    let line = |found| match found {
        Found::Entry(entry) => match entry.kind {
            EntryKind::File { .. } => format!("f {}", printable(&entry.path)),
            EntryKind::Directory => format!("d {}", printable(&entry.path)),
            EntryKind::Symlink { target } => format!("l {} -> {}", printable(&entry.path), printable(&target)),
            EntryKind::HardLink { first } => format!("h {} = {}", printable(&entry.path), printable(&first)),
            EntryKind::Special(special) => format!("n {} {special:?}", printable(&entry.path)),
        },
        Found::DirEnd { path, complete } => format!("{} {}", if complete { "." } else { "!" }, printable(&path)),
        Found::Skipped { path, why } => format!("s {} {why}", printable(&path)),
        Found::Failed { path, .. } => format!("x {}", printable(&path)),
    };
    Arc::clone(set).items(options).map(line).collect()
}

fn tree() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    fs::create_dir_all(top.join("b/inner")).unwrap();
    fs::create_dir(top.join("empty")).unwrap();
    fs::write(top.join("a.txt"), b"a").unwrap();
    fs::write(top.join("b/x.o"), b"x").unwrap();
    fs::write(top.join("b/inner/deep"), b"deep").unwrap();
    fs::write(top.join("b-c"), b"").unwrap();
    symlink("../nowhere", top.join("link")).unwrap();
    dir
}

#[test]
fn a_walk_of_directories_of_one_size_knows_its_share_at_each_file() {
    const EACH: usize = 10;
    let dir = tempfile::tempdir().unwrap();
    for folder in 0..4 {
        let folder = dir.path().join(format!("top/{folder}"));
        fs::create_dir_all(&folder).unwrap();
        (0..EACH).for_each(|file| fs::write(folder.join(file.to_string()), b"x").unwrap());
    }
    let mut items = resolve(&[dir.path().join("top/")], &ResolveOptions::default()).items(WalkOptions::default());
    let mut files = 0;
    while let Some(found) = items.next() {
        if matches!(found, Found::Entry(FoundEntry { kind: EntryKind::File { .. }, .. })) {
            files += 1;
            let truth = f64::from(files) / (4 * EACH) as f64;
            let share = items.share().unwrap();
            assert!((share - truth).abs() < 1e-9, "{files}: {share}");
        }
    }
    assert_eq!((files, items.share()), (40, Some(1.0)));
}

#[test]
fn a_walk_is_depth_first_and_sorted_and_the_slash_decides_about_the_name() {
    let dir = tree();
    let named = lines(&resolve(&[dir.path().join("top")], &ResolveOptions::default()), WalkOptions::default());
    let expected = [
        "d top",
        "f top/a.txt",
        "d top/b",
        "d top/b/inner",
        "f top/b/inner/deep",
        ". top/b/inner",
        "f top/b/x.o",
        ". top/b",
        "f top/b-c",
        "d top/empty",
        ". top/empty",
        "l top/link -> ../nowhere",
        ". top",
    ];
    assert_eq!(named, expected);
    for contents in ["top/", "top/.", "top/b/.."] {
        let found = lines(&resolve(&[dir.path().join(contents)], &ResolveOptions::default()), WalkOptions::default());
        let stripped: Vec<_> =
            expected.map(|line| line.replace(" top/", " ").replace(" top", " ")).into_iter().collect();
        assert_eq!(found, stripped, "{contents}");
    }
}

#[test]
fn filters_prune_special_files_are_skipped_and_what_is_called_like_our_parts_fails() {
    let dir = tree();
    let top = dir.path().join("top");
    rustix::fs::mknodat(rustix::fs::CWD, top.join("pipe"), rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0)
        .unwrap();
    fs::write(top.join(OsStr::from_bytes(&haul_store::part_name(b"a.txt"))), b"half").unwrap();
    let filter =
        Filter::new(&[(true, b"x.o".to_vec()), (false, b"inner/".to_vec()), (false, b"/b-c".to_vec())]).unwrap();
    let found = lines(
        &resolve(&[dir.path().join("top/")], &ResolveOptions::default()),
        WalkOptions { filter, ..Default::default() },
    );
    let part = printable(&haul_store::part_name(b"a.txt"));
    let expected = [
        "d ",
        &format!("x {part}"),
        "f a.txt",
        "d b",
        "f b/x.o",
        ". b",
        "d empty",
        ". empty",
        "l link -> ../nowhere",
        "s pipe is a FIFO, a socket or a device",
        ". ",
    ];
    assert_eq!(found, expected);
}

#[test]
fn what_is_no_file_is_skipped_also_where_a_link_leads_to_it_or_it_was_named_itself() {
    let dir = tempfile::tempdir().unwrap();
    let top = dir.path().join("top");
    fs::create_dir(&top).unwrap();
    let mode = rustix::fs::Mode::RUSR;
    rustix::fs::mknodat(rustix::fs::CWD, top.join("pipe"), rustix::fs::FileType::Fifo, mode, 0).unwrap();
    let _socket = std::os::unix::net::UnixListener::bind(top.join("socket")).unwrap();
    symlink("pipe", top.join("to-pipe")).unwrap();
    symlink("/dev/null", top.join("to-device")).unwrap();
    let skipped = |name: &str| format!("s {name} is a FIFO, a socket or a device");
    let found = |source: PathBuf, follow_links| {
        lines(&resolve(&[source], &ResolveOptions { follow_links, ..Default::default() }), WalkOptions::default())
    };
    let (pipe, socket, device, to_pipe) =
        (skipped("pipe"), skipped("socket"), skipped("to-device"), skipped("to-pipe"));
    let copied = found(top.join(""), false);
    assert_eq!(copied, ["d ", &pipe, &socket, "l to-device -> /dev/null", "l to-pipe -> pipe", ". "]);
    assert_eq!(found(top.join(""), true), ["d ", &pipe, &socket, &device, &to_pipe, ". "]);
    for follow_links in [false, true] {
        assert_eq!(found(top.join("pipe"), follow_links), [skipped("pipe")]);
        assert_eq!(found(PathBuf::from("/dev/null"), follow_links), [skipped("null")]);
    }
}

#[test]
fn a_list_selects_paths_and_the_directories_that_lead_to_them() {
    let dir = tree();
    let files_from = Some(Arc::new(FileList::of(["b/inner", "./a.txt", "missing"]).unwrap()));
    let set = resolve(&[dir.path().join("top")], &ResolveOptions::default());
    let found = lines(&set, WalkOptions { files_from, ..Default::default() });
    // As in rsync: a listed directory comes alone, and the source directory because of the dot.
    assert_eq!(found, ["d ", "f a.txt", "d b", "d b/inner", "! b/inner", "! b", "x missing", "! "]);
    let files_from = Some(Arc::new(FileList::of(["b/inner/", "a.txt"]).unwrap()));
    let found = lines(&set, WalkOptions { files_from, ..Default::default() });
    assert_eq!(found, ["f a.txt", "d b", "d b/inner", "f b/inner/deep", "! b/inner", "! b"]);
}

#[test]
fn only_what_was_found_and_is_gone_has_vanished() {
    let dir = tree();
    let top = dir.path().join("top");
    let why = |found| match found {
        Found::Failed { path, error, .. } => Some((printable(&path), error.is_vanished(), error.to_string())),
        _ => None,
    };
    let files_from = Some(Arc::new(FileList::of(["b/missing", "no/such/directory", "b-c"]).unwrap()));
    let set = resolve(std::slice::from_ref(&top), &ResolveOptions::default());
    let found: Vec<_> = set.walk(WalkOptions { files_from, ..Default::default() }).filter_map(why).collect();
    let [(missing, false, why_missing), (no, false, _)] = &found[..] else { panic!("{found:?}") };
    assert_eq!((missing.as_str(), no.as_str()), ("b/missing", "no"));
    assert!(why_missing.contains("in the list of files"), "{why_missing}");

    symlink("b/nowhere", top.join("inner-link")).unwrap();
    for confine in [None, Some(top.clone())] {
        let source = if confine.is_some() { PathBuf::from("/") } else { top.clone() };
        let set = resolve(&[source], &ResolveOptions { follow_links: true, confine, ..Default::default() });
        let found: Vec<_> = set.walk(WalkOptions::default()).filter_map(why).collect();
        let [(inner, false, why), (link, false, _)] = &found[..] else { panic!("{found:?}") };
        assert!(inner.ends_with("inner-link") && link.ends_with("link"), "{found:?}");
        assert!(why.contains("leads to nothing"), "{why}");
    }

    let set = resolve(std::slice::from_ref(&top), &ResolveOptions::default());
    let mut walk = set.walk(WalkOptions::default());
    assert!(matches!(walk.next(), Some(Found::Entry(_))), "the names of this directory are read");
    fs::remove_file(top.join("b-c")).unwrap();
    let found: Vec<_> = walk.filter_map(why).collect();
    assert!(matches!(&found[..], [(path, true, _)] if path == "top/b-c"), "{found:?}");
}

#[test]
fn files_that_are_named_one_by_one_hold_their_directory_open_once() {
    let dir = tree();
    let names: Vec<String> = (0..3000).map(|number| format!("top/n{number}")).collect();
    names.iter().for_each(|name| fs::write(dir.path().join(name), name).unwrap());
    let set = resolve(&names.iter().map(|name| dir.path().join(name)).collect::<Vec<_>>(), &ResolveOptions::default());
    assert_eq!(set.roots().unwrap().len(), 1);
    assert_eq!(lines(&set, WalkOptions::default()).len(), names.len());
    let elsewhere = resolve(&[dir.path().join("top/n1"), dir.path().join("top/b")], &ResolveOptions::default());
    assert_eq!(elsewhere.roots().unwrap().len(), 2);
}

#[test]
fn several_sources_one_missing_and_one_file() {
    let dir = tree();
    let path = |name: &str| bytes(dir.path().join(name));
    let paths = [path("top/a.txt"), path("gone"), path("top/b/inner")];
    let (set, errors) = SourceSet::resolve_lossy(&paths, &ResolveOptions::default());
    assert_eq!(errors.len(), 1);
    assert!(errors[0].is_vanished());
    assert!(!set.is_single_file());
    assert_eq!(lines(&Arc::new(set), WalkOptions::default()), ["f a.txt", "d inner", "f inner/deep", ". inner"]);
    assert!(SourceSet::resolve(&paths, &ResolveOptions::default()).is_err());
    assert!(SourceSet::resolve(&[path("top/a.txt")], &ResolveOptions::default()).unwrap().is_single_file());
    assert!(SourceSet::resolve(&[path("top/a.txt/")], &ResolveOptions::default()).is_err());
    // The same name twice would overwrite itself; the same file is one.
    fs::write(dir.path().join("a.txt"), b"other").unwrap();
    assert!(SourceSet::resolve(&[path("top/a.txt"), path("a.txt")], &ResolveOptions::default()).is_err());
    assert!(SourceSet::resolve(&[path("a.txt"), path("a.txt")], &ResolveOptions::default()).is_ok());
}

#[test]
fn zeros_are_one_file_that_is_full_and_takes_no_room() {
    let set = haul_store::zeros(3 << 40).unwrap();
    assert!(set.is_single_file());
    assert_eq!(lines(&set, WalkOptions::default()), ["f zero"]);
    let found = Arc::clone(&set).items(WalkOptions::default()).find_map(entry).unwrap();
    assert_eq!((found.stat.size, found.stat.blocks * 512), (3 << 40, 3 << 40), "so that its zeros are sent");
    let file = set.open(found.source, &found.source_path).unwrap();
    assert_eq!(file.stat().unwrap().size, 3 << 40);
    assert_eq!(file.next_data(1 << 40, 2 << 40).unwrap(), Some((1 << 40, 2 << 40)), "none of it is a hole");
    let mut got = vec![1; 100_000];
    assert_eq!(file.read_at(&mut got, (3 << 40) - 70_000).unwrap(), 70_000, "up to its end");
    assert!(got[..70_000].iter().all(|byte| *byte == 0));
    assert_eq!(file.stat().unwrap().blocks, 0, "reading makes no page of it");
    assert!(set.open(0, b"other").is_err());
    let none = WalkOptions { filter: Filter::new(&[(false, b"zero".to_vec())]).unwrap(), ..WalkOptions::default() };
    assert!(lines(&set, none).is_empty());
}

#[test]
fn a_name_that_looks_like_a_wildcard_counts_and_so_does_what_it_matches() {
    let dir = tree();
    let options = ResolveOptions { expand_globs: true, ..Default::default() };
    let found = |path: &str, options| lines(&resolve(&[dir.path().join(path)], options), WalkOptions::default());
    assert_eq!(found("t*/b/[x-z].o", &options), ["f x.o"]);
    assert!(SourceSet::resolve(&[bytes(dir.path().join("top/*.nothing"))], &options).is_err());
    assert!(SourceSet::resolve(&[bytes(dir.path().join("top/*.txt"))], &ResolveOptions::default()).is_err());
    fs::write(dir.path().join("top/*.txt"), b"star").unwrap();
    fs::write(dir.path().join("top/[a].txt"), b"brackets").unwrap();
    assert_eq!(found("top/*.txt", &options), ["f *.txt", "f [a].txt", "f a.txt"]);
    assert_eq!(found("top/[a].txt", &options), ["f [a].txt", "f a.txt"], "which does not match itself");
    assert_eq!(found("top/\\*.txt", &options), ["f *.txt"], "where only that is meant");
    // A shell has expanded the wildcards here.
    assert_eq!(found("top/*.txt", &ResolveOptions::default()), ["f *.txt"]);
}

#[test]
fn names_that_are_not_text_and_long_names_survive() {
    let dir = tempfile::tempdir().unwrap();
    let names: [&[u8]; 5] = [b"new\nline", b"\xff\xfe", b"-rf", b"$(x) *?[", &[b'n'; 255]];
    for name in names {
        fs::write(dir.path().join(OsStr::from_bytes(name)), name).unwrap();
    }
    let set = resolve(&[dir.path().join("")], &ResolveOptions::default());
    let mut found: Vec<FoundEntry> = set.walk(WalkOptions::default()).filter_map(entry).collect();
    found.remove(0);
    let mut expected = names;
    expected.sort();
    assert_eq!(found.iter().map(|entry| entry.path.as_slice()).collect::<Vec<_>>(), expected);
    for entry in found {
        let mut content = vec![0; 300];
        let len = set.open(entry.source, &entry.source_path).unwrap().read_at(&mut content, 0).unwrap();
        assert_eq!(content[..len], entry.path);
    }
}

fn entry(found: Found) -> Option<FoundEntry> {
    match found {
        Found::Entry(entry) => Some(entry),
        _ => None,
    }
}

#[test]
fn trees_deeper_than_open_directories_and_paths_longer_than_the_kernel_takes() {
    let dir = tempfile::tempdir().unwrap();
    let name = "deep-directory-name-of-some-length";
    let mut at = rustix::fs::open(dir.path(), rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    for _ in 0..300 {
        rustix::fs::mkdirat(&at, name, rustix::fs::Mode::RWXU).unwrap();
        // A file after the directory makes the walk come back to each level.
        let flags = rustix::fs::OFlags::CREATE | rustix::fs::OFlags::WRONLY;
        rustix::fs::openat(&at, "file", flags, rustix::fs::Mode::RUSR).unwrap();
        at = rustix::fs::openat(&at, name, rustix::fs::OFlags::PATH, rustix::fs::Mode::empty()).unwrap();
    }
    let set = resolve(&[dir.path().join("")], &ResolveOptions::default());
    let (mut files, mut ends) = (0, 0);
    for found in set.walk(WalkOptions::default()) {
        match found {
            Found::Entry(entry) if matches!(entry.kind, EntryKind::File { .. }) => {
                files += 1;
                set.open(0, &entry.source_path).unwrap();
            }
            Found::Entry(_) => {}
            Found::DirEnd { complete, .. } => {
                assert!(complete);
                ends += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((files, ends), (300, 301));
    // The temporary directory's own removal would meet the same limits.
    let tree = haul_store::LocalTree::open(&bytes(dir.path()), &Default::default()).unwrap().0;
    let mut deleted = 0;
    assert!(
        tree.delete_extraneous(b"", &Default::default(), &|_, _| false, false, &mut |_, _| deleted += 1).is_empty()
    );
    assert_eq!(deleted, 600);
}

#[test]
fn links_in_the_tree_lead_nowhere_unless_followed() {
    let dir = tree();
    let secret = dir.path().join("secret");
    fs::create_dir(&secret).unwrap();
    fs::write(secret.join("key"), b"key").unwrap();
    let top = dir.path().join("top");
    symlink(&secret, top.join("out")).unwrap();
    let set = resolve(std::slice::from_ref(&top), &ResolveOptions::default());
    assert!(set.open(0, b"out/key").is_err());
    assert!(set.open(0, b"../secret/key").is_err());
    assert!(set.open(0, b"b").is_err());
    assert!(set.open(0, b"b/x.o").is_ok());
    assert!(set.open(1, b"b/x.o").is_err());
    fs::rename(top.join("empty"), top.join("was-empty")).unwrap();
    symlink(&secret, top.join("empty")).unwrap();
    assert!(set.open(0, b"empty/key").is_err());

    let follow = ResolveOptions { follow_links: true, ..Default::default() };
    symlink("..", top.join("loop")).unwrap();
    let set = resolve(&[dir.path().join("top/")], &follow);
    let found = lines(&set, WalkOptions::default());
    for line in ["d out", "f out/key", "x loop/top", "x link"] {
        assert!(found.iter().any(|found| found == line), "{line} in {found:#?}");
    }
    assert!(set.open(0, b"out/key").is_ok());

    let confined = ResolveOptions { follow_links: true, confine: Some(top.clone()), ..Default::default() };
    let set = resolve(&[PathBuf::from("/")], &confined);
    let found = lines(&set, WalkOptions::default());
    assert!(found.iter().any(|line| line == "x out") && !found.iter().any(|line| line.contains("key")), "{found:#?}");
    assert!(set.open(0, b"out/key").is_err());
    for escape in ["../secret", "/../secret/key", "out/key", "/b/../../secret"] {
        assert!(SourceSet::resolve(&[escape.as_bytes().to_vec()], &confined).is_err(), "{escape}");
    }
    assert!(SourceSet::resolve(&[b"/b/x.o".to_vec()], &confined).unwrap().is_single_file());
}

#[test]
fn a_typed_link_is_copied_as_a_link_unless_a_slash_follows() {
    let dir = tree();
    symlink("top", dir.path().join("alias")).unwrap();
    symlink("top/a.txt", dir.path().join("short")).unwrap();
    let plain = ResolveOptions::default();
    let set = resolve(&[dir.path().join("alias")], &plain);
    assert_eq!(lines(&set, WalkOptions::default()), ["l alias -> top"]);
    assert!(set.is_single_file());
    let set = resolve(&[dir.path().join("alias/")], &plain);
    assert_eq!(lines(&set, WalkOptions::default())[..2], ["d ", "f a.txt"]);
    let follow = ResolveOptions { follow_links: true, ..Default::default() };
    let set = resolve(&[dir.path().join("short")], &follow);
    assert_eq!(lines(&set, WalkOptions::default()), ["f short"]);
    assert!(set.open(0, b"short").is_ok());
    assert!(set.open(0, b"top/a.txt").is_err());
}

#[test]
fn further_names_of_a_file_are_hard_links() {
    let dir = tree();
    let top = dir.path().join("top");
    fs::hard_link(top.join("a.txt"), top.join("b/again")).unwrap();
    fs::hard_link(top.join("a.txt"), top.join("z")).unwrap();
    let set = resolve(&[top], &ResolveOptions::default());
    let found = lines(&set, WalkOptions { hard_links: true, ..Default::default() });
    assert!(
        found.contains(&"h top/b/again = top/a.txt".to_string()) && found.contains(&"h top/z = top/a.txt".to_string())
    );
    let found = lines(&set, WalkOptions::default());
    assert!(found.contains(&"f top/z".to_string()));
}

#[test]
fn a_file_that_grows_while_its_names_are_found_keeps_them() {
    let dir = tree();
    let top = dir.path().join("top");
    fs::hard_link(top.join("a.txt"), top.join("b/again")).unwrap();
    fs::hard_link(top.join("a.txt"), top.join("z")).unwrap();
    for source in [top.clone(), top.join("")] {
        let set = resolve(&[source], &ResolveOptions::default());
        let mut linked = 0;
        for found in set.walk(WalkOptions { hard_links: true, ..WalkOptions::default() }) {
            let Found::Entry(entry) = found else { continue };
            linked += u32::from(matches!(entry.kind, EntryKind::HardLink { .. }));
            let mut log = fs::File::options().append(true).open(top.join("a.txt")).unwrap();
            std::io::Write::write_all(&mut log, b"one more line\n").unwrap();
        }
        assert_eq!(linked, 2);
    }
}

#[test]
fn attributes_are_read_when_asked_for() {
    let dir = tree();
    let file = fs::File::open(dir.path().join("top/a.txt")).unwrap();
    if rustix::fs::fsetxattr(&file, "user.note", b"value", rustix::fs::XattrFlags::empty()).is_err() {
        return unmet("the file system of the temporary directory has no attributes");
    }
    let set = resolve(&[dir.path().join("top/a.txt")], &ResolveOptions::default());
    let read = |xattrs| set.walk(WalkOptions { xattrs, ..Default::default() }).find_map(entry).unwrap().xattrs;
    assert_eq!(read(true), [(b"user.note".to_vec(), b"value".to_vec())]);
    assert_eq!(read(false), []);
}

/// The steps of a walk while the call about `name` fails with `errno`. `None`: no tracing here.
fn lines_while_failing(set: &Arc<SourceSet>, call: Call, name: &str, errno: Errno) -> Option<Vec<String>> {
    let set = Arc::clone(set);
    let (sender, receiver) = channel();
    let worker = std::thread::spawn(move || {
        sender.send(watch_this_thread(&[call])).unwrap();
        lines(&set, WalkOptions::default())
    });
    let watcher = match receiver.recv().unwrap() {
        Ok(watcher) => watcher,
        Err(error) => {
            unmet(format_args!("this host does not let us watch system calls: {error}"));
            return None;
        }
    };
    while !worker.is_finished() {
        let Some(stopped) = watcher.next(Duration::from_millis(10)).unwrap() else { continue };
        let fails = stopped.path() == name.as_bytes();
        let verdict = if fails { Verdict::Fail(errno.raw_os_error()) } else { Verdict::Proceed };
        watcher.answer(stopped, verdict).unwrap();
    }
    Some(worker.join().unwrap())
}

#[test]
fn an_unreadable_directory_ends_incomplete() {
    let dir = tree();
    let set = resolve(&[dir.path().join("top/b")], &ResolveOptions::default());
    // Stands for a user who may not read it: root may read all.
    let Some(found) = lines_while_failing(&set, Call::Open, "inner", Errno::ACCESS) else { return };
    assert_eq!(found, ["d b", "d b/inner", "x b/inner", "! b/inner", "f b/x.o", ". b"]);
}

#[test]
fn a_directory_with_a_name_that_cannot_be_looked_at_ends_incomplete() {
    let dir = tree();
    let set = resolve(&[dir.path().join("top/b")], &ResolveOptions::default());
    for errno in [Errno::IO, Errno::ACCESS, Errno::NOENT] {
        let Some(found) = lines_while_failing(&set, Call::Look, "x.o", errno) else { return };
        assert_eq!(found, ["d b", "d b/inner", "f b/inner/deep", ". b/inner", "x b/x.o", "! b"], "{errno}");
        let Some(found) = lines_while_failing(&set, Call::Look, "inner", errno) else { return };
        assert_eq!(found, ["d b", "x b/inner", "f b/x.o", "! b"], "{errno}");
    }
}

#[test]
fn a_source_set_serves_many_threads() {
    let dir = tempfile::tempdir().unwrap();
    for number in 0..200 {
        let parent = dir.path().join(format!("d{}", number % 100));
        fs::create_dir_all(&parent).unwrap();
        fs::write(parent.join(number.to_string()), number.to_string()).unwrap();
    }
    let set = resolve(&[dir.path().join("")], &ResolveOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| {
                for number in 0..200 {
                    let path = format!("d{}/{number}", number % 100);
                    let mut content = [0; 8];
                    let len = set.open(0, path.as_bytes()).unwrap().read_at(&mut content, 0).unwrap();
                    assert_eq!(&content[..len], number.to_string().as_bytes());
                }
            });
        }
    });
}
