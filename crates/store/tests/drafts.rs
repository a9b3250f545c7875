//! Where parts stand (`--partial-dir`, `--temp-dir`), and files that wait for their names (`--delay-updates`).

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;

use haul_store::{LocalTree, MayStay, Metadata, TargetOptions, Time};

const META: Metadata = Metadata {
    mode: Some(0o640),
    mode_if_new: None,
    mtime: Some(Time { s: 1_000_000_000, ns: 5 }),
    special_bits: false,
    owner: None,
    group: None,
    xattrs: None,
    may_stay: MayStay { mode: false, mtime: false },
};

fn tree(dir: &Path) -> LocalTree {
    LocalTree::open(dir.as_os_str().as_bytes(), &TargetOptions { make: true, ..TargetOptions::default() }).unwrap().0
}

fn names(dir: &Path) -> Vec<String> {
    let name = |entry: std::io::Result<fs::DirEntry>| entry.unwrap().file_name().into_string().unwrap();
    let mut names: Vec<String> = fs::read_dir(dir).unwrap().map(name).collect();
    names.sort();
    names
}

/// Leaves what a kill would leave: nothing is discarded.
fn write(tree: &LocalTree, path: &[u8], data: &[u8]) -> haul_store::Part {
    let part = tree.new_part(path, false).unwrap();
    part.write_at(data, 0).unwrap();
    part
}

#[test]
fn a_sweep_finds_what_no_later_run_asks_for_in_the_one_directory() {
    let dir = tempfile::tempdir().unwrap();
    let (root, elsewhere) = (dir.path().join("root"), dir.path().join("elsewhere"));
    let open = || {
        let tree = tree(&root);
        let options = TargetOptions { make: true, ..TargetOptions::default() };
        assert_eq!(tree.place_drafts(b"../elsewhere", false, &options).unwrap(), None);
        tree
    };
    let first = open();
    drop(write(&first, b"gone", b"of a source that is gone"));
    let resumable = write(&first, b"large", b"half");
    resumable.journal_start(b"header").unwrap();
    drop(resumable);
    let beside = first.new_part_beside(b"token").unwrap();
    assert_eq!((names(&elsewhere).len(), names(&root).len()), (3, 1), "a token stands in the tree itself");
    beside.discard().unwrap();
    let second = open();
    let live = write(&second, b"live", b"in hand");
    second.sweep_one_directory();
    assert_eq!(names(&elsewhere).len(), 3, "what is in hand, and what has a journal with its part");
    live.commit(&META, true).unwrap();
    let (part, journal) = second.resume_part(b"large", false).unwrap().unwrap();
    assert_eq!(journal, b"header");
    part.commit(&META, true).unwrap();
    assert_eq!((names(&elsewhere), names(&root)), (vec![], vec!["large".to_owned(), "live".to_owned()]));
}

#[test]
fn what_stands_beside_its_file_is_gone_on_with_from_a_directory_of_parts() {
    let dir = tempfile::tempdir().unwrap();
    let first = write(&tree(dir.path()), b"file", b"half");
    first.journal_start(b"header").unwrap();
    drop(first);
    let second = tree(dir.path());
    second.place_drafts(b".partial", true, &TargetOptions::default()).unwrap();
    let (part, _) = second.resume_part(b"file", false).unwrap().unwrap();
    part.commit(&META, true).unwrap();
    assert_eq!(names(dir.path()), ["file"]);
}

fn give(tree: &LocalTree) -> (Vec<Vec<u8>>, Vec<Vec<u8>>) {
    let (mut named, mut failed) = (Vec::new(), Vec::new());
    tree.give_delayed_names(&mut |path| named.push(path.to_vec()), &mut |path, _| failed.push(path.to_vec())).unwrap();
    (named, failed)
}

#[test]
fn what_waits_gets_its_name_at_the_end_with_the_metadata_of_now() {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("file"), "old").unwrap();
    let first = tree(dir.path());
    first.delay_names(b".~tmp~").unwrap();
    write(&first, b"file", b"new").commit(&META, true).unwrap();
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"old");
    drop(first);
    let second = tree(dir.path());
    second.delay_names(b".~tmp~").unwrap();
    assert_eq!(give(&second), (vec![], vec![]), "nobody has asked for it");
    let waiting = second.delayed(b"file").unwrap();
    second.set_delayed_metadata(b"file", &Metadata { mode: Some(0o600), ..META }).unwrap();
    second.delay_again(b"file", &waiting).unwrap();
    second.delay_hard_link(b"further", b"file").unwrap();
    assert_eq!(give(&second), (vec![b"file".to_vec(), b"further".to_vec()], vec![]));
    assert_eq!(names(dir.path()), ["file", "further"]);
    let file = fs::metadata(dir.path().join("file")).unwrap();
    assert_eq!((file.permissions().mode() & 0o777, file.nlink()), (0o600, 2));
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"new");
}

#[test]
fn a_file_that_cannot_wait_has_no_other_version_named() {
    let dir = tempfile::tempdir().unwrap();
    let first = tree(dir.path());
    first.delay_names(b".~tmp~").unwrap();
    write(&first, b"file", b"of an earlier run").commit(&META, true).unwrap();
    drop(first);
    let second = tree(dir.path());
    second.delay_names(b".~tmp~").unwrap();
    // The waiting file counts as another entry of this copy, so nothing replaces it.
    second.keep(&second.delayed(b"file").unwrap(), b"FILE");
    let part = write(&second, b"file", b"of now");
    assert!(part.commit(&META, true).unwrap_err().is_twin());
    assert_eq!(give(&second), (vec![], vec![]));
    assert!(!dir.path().join("file").exists());
}

#[test]
fn a_file_that_comes_twice_waits_once() {
    let dir = tempfile::tempdir().unwrap();
    let tree = tree(dir.path());
    tree.delay_names(b".~tmp~").unwrap();
    for data in [b"first", b"again"] {
        write(&tree, b"file", data).commit(&META, true).unwrap();
    }
    assert_eq!(give(&tree), (vec![b"file".to_vec()], vec![]));
    assert_eq!(fs::read(dir.path().join("file")).unwrap(), b"again");
}
