//! Several sources that meet at the target: the first source of a name counts.

use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::sync::Arc;

use haul_store::{EntryKind, Filter, Found, Hidden, ResolveOptions, SourceSet, WalkOptions, printable};

/// Makes a directory with these files, with their paths as content; a slash makes an empty directory.
fn with(paths: &[&str]) -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    for path in paths {
        let full = dir.path().join(path);
        fs::create_dir_all(if path.ends_with('/') { &full } else { full.parent().unwrap() }).unwrap();
        if !path.ends_with('/') {
            fs::write(full, path).unwrap();
        }
    }
    dir
}

fn set(dir: &Path, sources: &[&str], options: &ResolveOptions) -> Arc<SourceSet> {
    let path = |source: &&str| dir.join(source).as_os_str().as_bytes().to_vec();
    Arc::new(SourceSet::resolve(&sources.iter().map(path).collect::<Vec<_>>(), options).unwrap())
}

/// `d` directory, `f` file with content, `l` link, `h` further name, `.` end (`!` incomplete), `s` skipped, `x` failed.
fn found(set: &Arc<SourceSet>, options: WalkOptions) -> (Vec<String>, u64) {
    let mut walk = set.walk(options);
    let lines = walk.by_ref().map(|found| match found {
        Found::Entry(entry) => {
            let path = printable(&entry.path);
            match entry.kind {
                EntryKind::File { .. } => {
                    let mut content = vec![0; 100];
                    let len = set.open(entry.source, &entry.source_path).unwrap().read_at(&mut content, 0).unwrap();
                    format!("f {path} {}", printable(&content[..len]))
                }
                EntryKind::Directory => format!("d {path}"),
                EntryKind::Symlink { .. } => format!("l {path}"),
                EntryKind::HardLink { first } => format!("h {path} = {}", printable(&first)),
                EntryKind::Special(_) => format!("n {path}"),
            }
        }
        Found::DirEnd { path, complete } => format!("{} {}", if complete { "." } else { "!" }, printable(&path)),
        Found::Skipped { path, .. } => format!("s {}", printable(&path)),
        Found::Failed { path, hides, .. } => format!("x {} {hides:?}", printable(&path)),
    });
    (lines.collect(), walk.duplicates().count())
}

#[track_caller]
fn check(dir: &Path, sources: &[&str], expected: &[&str], duplicates: u64) {
    let (lines, left_out) = found(&set(dir, sources, &ResolveOptions::default()), WalkOptions::default());
    assert_eq!((lines.iter().map(String::as_str).collect::<Vec<_>>(), left_out), (expected.to_vec(), duplicates));
}

#[test]
fn directories_that_meet_are_one_sorted_listing_in_which_the_first_source_counts() {
    let dir = with(&["a/both", "a/d/both", "a/d/one", "a/x", "b/both", "b/d/both", "b/d/two", "b/e/", "b/a"]);
    let expected = [
        "d ",
        "f a b/a",
        "f both a/both",
        "d d",
        "f d/both a/d/both",
        "f d/one a/d/one",
        "f d/two b/d/two",
        ". d",
        "d e",
        ". e",
        "f x a/x",
        ". ",
    ];
    check(dir.path(), &["a/", "b/"], &expected, 2);
    let other = expected.map(|line| line.replace("a/both", "b/both").replace("a/d/both", "b/d/both"));
    check(dir.path(), &["b/", "a/"], &other.each_ref().map(String::as_str), 2);
}

#[test]
fn what_is_named_itself_stands_among_the_contents_of_the_others() {
    let dir = with(&["a/d/one", "a/m", "p/d/two", "p/m", "p/z"]);
    let tree = ["d ", "d d", "f d/one a/d/one", "f d/two p/d/two", ". d"];
    check(dir.path(), &["a/", "p/d", "p/m", "p/z"], &[&tree[..], &["f m a/m", "f z p/z", ". "]].concat(), 1);
    check(dir.path(), &["p/m", "p/d", "a/"], &[&tree[..], &["f m p/m", ". "]].concat(), 1);
    // Without the contents of a directory there is no top.
    let named = ["d d", "f d/one a/d/one", "f d/two p/d/two", ". d", "f m a/m"];
    check(dir.path(), &["a/m", "a/d", "p/d"], &named, 0);
}

#[test]
fn a_directory_comes_before_a_file_of_its_name() {
    let dir = with(&["a/x", "b/x/f"]);
    let expected = ["d ", "s x", "d x", "f x/f b/x/f", ". x", ". "];
    for sources in [["a/", "b/"], ["b/", "a/"]] {
        check(dir.path(), &sources, &expected, 1);
    }
    check(dir.path(), &["a/x", "b/x"], &expected[1..5], 1);
}

#[test]
fn a_source_that_is_named_twice_or_lies_in_another_is_walked_once() {
    let dir = with(&["a/s/f", "a/g"]);
    let expected = ["d ", "f g a/g", "d s", "f s/f a/s/f", ". s", ". "];
    for sources in [&["a/", "a/"][..], &["a/s", "a/"], &["a/", "a/s"], &["a/", "a/.", "a/s/..", "a/g"]] {
        check(dir.path(), sources, &expected, 0);
    }
    check(dir.path(), &["a", "a"], &["d a", "f a/g a/g", "d a/s", "f a/s/f a/s/f", ". a/s", ". a"], 0);
    check(dir.path(), &["a/", "a/s/"], &["d ", "f f a/s/f", "f g a/g", "d s", "f s/f a/s/f", ". s", ". "], 0);
}

#[test]
fn a_directory_may_come_twice_on_the_way_down_when_two_sources_lead_there() {
    let dir = with(&["a/s/s/f"]);
    let expected = ["d ", "d s", "f s/f a/s/s/f", "d s/s", "f s/s/f a/s/s/f", ". s/s", ". s", ". "];
    check(dir.path(), &["a/", "a/s/"], &expected, 0);
    // A directory that contains itself through a link is not merged.
    symlink(".", dir.path().join("a/loop")).unwrap();
    let follow = ResolveOptions { follow_links: true, ..ResolveOptions::default() };
    let (lines, _) = found(&set(dir.path(), &["a/s/", "a/"], &follow), WalkOptions::default());
    assert!(lines.contains(&"x loop Anything".to_owned()) && lines.contains(&"! loop".to_owned()), "{lines:?}");
}

#[test]
fn the_metadata_of_a_directory_are_those_of_the_first_source() {
    let dir = with(&["a/d/f", "b/d/f"]);
    for (name, mode) in [("a", 0o751), ("b", 0o711), ("a/d", 0o700), ("b/d", 0o755)] {
        fs::set_permissions(dir.path().join(name), fs::Permissions::from_mode(mode)).unwrap();
    }
    for (sources, modes) in [(["a/", "b/"], [0o751, 0o700]), (["b/", "a/"], [0o711, 0o755])] {
        let walk = set(dir.path(), &sources, &ResolveOptions::default()).walk(WalkOptions::default());
        let directories = walk.filter_map(|found| match found {
            Found::Entry(entry) if entry.kind == EntryKind::Directory => Some(entry.stat.mode & 0o777),
            _ => None,
        });
        assert_eq!(directories.collect::<Vec<_>>(), modes);
    }
}

#[test]
fn what_a_filter_excludes_of_one_source_is_taken_from_the_other() {
    let dir = with(&["a/x/f", "b/x", "b/y/f", "c/y"]);
    let filter = Filter::new(&[(false, b"/*/".to_vec())]).unwrap();
    let sources = set(dir.path(), &["a/", "b/", "c/"], &ResolveOptions::default());
    let (lines, _) = found(&sources, WalkOptions { filter, ..WalkOptions::default() });
    assert_eq!(lines, ["d ", "f x b/x", "f y c/y", ". "]);
}

#[test]
fn names_of_one_file_are_hard_links_across_sources() {
    let dir = with(&["a/f", "a/s/", "b/x"]);
    fs::hard_link(dir.path().join("a/f"), dir.path().join("a/s/again")).unwrap();
    fs::hard_link(dir.path().join("a/f"), dir.path().join("b/other")).unwrap();
    let options = || WalkOptions { hard_links: true, ..WalkOptions::default() };
    let sources = set(dir.path(), &["a/", "b/", "a/s"], &ResolveOptions::default());
    let expected = ["d ", "f f a/f", "h other = f", "d s", "h s/again = f", ". s", "f x b/x", ". "];
    assert_eq!(found(&sources, options()).0, expected);
}

#[test]
fn many_sources_hold_no_more_directories_open_than_one() {
    let names: Vec<String> = (0..150).map(|number| format!("s{number:03}/d/e/f{number:03}")).collect();
    let dir = with(&names.iter().map(String::as_str).collect::<Vec<_>>());
    let typed: Vec<String> = (0..150).map(|number| format!("s{number:03}/")).collect();
    let sources = set(dir.path(), &typed.iter().map(String::as_str).collect::<Vec<_>>(), &ResolveOptions::default());
    let open = || fs::read_dir("/proc/self/fd").unwrap().count();
    let (before, mut most, mut files) = (open(), 0, 0);
    for found in sources.walk(WalkOptions::default()) {
        most = most.max(open() - before.min(open()));
        match found {
            Found::Entry(entry) if matches!(entry.kind, EntryKind::File { .. }) => {
                assert_eq!(entry.path, format!("d/e/f{files:03}").as_bytes());
                assert!(sources.open(entry.source, &entry.source_path).is_ok());
                files += 1;
            }
            Found::Entry(_) | Found::DirEnd { complete: true, .. } => {}
            other => panic!("{other:?}"),
        }
    }
    // Other tests of this program may have some open meanwhile.
    assert!(files == 150 && most < 64 + 120, "{files} files, {most} open");
}

#[test]
fn a_look_ahead_finds_what_cannot_be_listed_and_yields_no_file() {
    let dir = with(&["a/f", "b/d/g"]);
    symlink("..", dir.path().join("b/d/up")).unwrap();
    let look = |follow_links| {
        let options = ResolveOptions { follow_links, ..ResolveOptions::default() };
        found(&set(dir.path(), &["a/", "b/"], &options), WalkOptions { listing_only: true, ..WalkOptions::default() })
    };
    assert_eq!(look(false).0, ["d ", "d d", ". d", ". "]);
    let lines = look(true).0;
    assert!(lines.contains(&format!("x d/up {:?}", Hidden::Anything)), "{lines:?}");
}
