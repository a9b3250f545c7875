//! Writing: opening the target, making entries, finishing and resuming files, and planted ways out.

use std::cell::RefCell;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::Path;

use haul_store::{Kind, LocalTree, Metadata, SourceNames, StoreError, TargetOptions, Time, journal_name, part_name};
use haul_sys::condition::unmet;

fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

fn open(path: &Path) -> LocalTree {
    LocalTree::open(&bytes(path), &TargetOptions::default()).unwrap().0
}

fn setup() -> (tempfile::TempDir, LocalTree) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let tree = open(&dir.path().join("root"));
    (dir, tree)
}

fn on_disk(directory: &Path, name: &[u8]) -> std::path::PathBuf {
    directory.join(OsStr::from_bytes(name))
}

fn is_locked(error: &StoreError) -> bool {
    error.source.kind() == std::io::ErrorKind::WouldBlock
}

const OLD: Time = Time { s: 1_000_000_000, ns: 123_456_789 };

#[test]
fn the_typed_path_is_a_directory_or_a_new_name_by_cps_rule() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| bytes(dir.path().join(name));
    let one = TargetOptions { single_file: true, ..Default::default() };
    let many = TargetOptions { make: true, ..Default::default() };
    fs::write(dir.path().join("file"), b"").unwrap();
    symlink("sub/deeper", dir.path().join("alias")).unwrap();

    assert_eq!(LocalTree::open(&at("file"), &one).unwrap().1, Some(b"file".to_vec()));
    assert_eq!(LocalTree::open(&at("new"), &one).unwrap().1, Some(b"new".to_vec()));
    assert!(LocalTree::open(&at("no/new"), &one).is_err());
    assert_eq!(LocalTree::open(&at(""), &one).unwrap().1, None);
    for (path, options) in [("file", &many), ("file/", &one)] {
        let error = LocalTree::open(&at(path), options).unwrap_err();
        assert_eq!(error.source.kind(), std::io::ErrorKind::NotADirectory, "{path}");
    }
    assert!(LocalTree::open(&at("new"), &TargetOptions::default()).is_err());
    let dry = TargetOptions { dry_run: true, ..many.clone() };
    let (tree, _) = LocalTree::open(&at("sub/deeper"), &dry).unwrap();
    assert_eq!(tree.stat(b"anything").unwrap(), None);
    assert!(!dir.path().join("sub").exists());
    assert_eq!(LocalTree::open(&at("sub/deeper/"), &many).unwrap().1, None);
    assert!(dir.path().join("sub/deeper").is_dir());
    assert_eq!(LocalTree::open(&at("alias"), &one).unwrap().1, None);
    let _socket = std::os::unix::net::UnixListener::bind(dir.path().join("socket")).unwrap();
    let error = LocalTree::open(&at("socket"), &one).unwrap_err();
    assert!(error.to_string().contains("which a file would replace"), "{error}");
    assert!(!haul_store::is_null_device(&at("socket"), &one).unwrap());
    assert!(haul_store::is_null_device(b"/dev/null", &one).unwrap());
    assert!(!haul_store::is_null_device(b"/dev/zero", &one).unwrap());
}

#[test]
fn a_confined_target_cannot_leave_its_directory() {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    symlink("..", root.join("up")).unwrap();
    let options = TargetOptions { confine: Some(root.clone()), make: true, ..Default::default() };
    for path in ["..", "/..", "up", "up/x", "new/../../x", "../x/"] {
        assert!(LocalTree::open(path.as_bytes(), &options).is_err(), "{path}");
    }
    LocalTree::open(b"/a/b", &options).unwrap();
    assert!(root.join("a/b").is_dir());
    assert!(LocalTree::open(b"/", &options).is_ok());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_file_appears_only_when_it_is_committed() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    fs::write(root.join("file"), b"old").unwrap();
    let part = tree.new_part(b"file", false).unwrap();
    part.write_at(b"world", 6).unwrap();
    part.write_at(b"hello ", 0).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"old");
    let mut back = [0; 16];
    assert_eq!(part.read_at(&mut back, 0).unwrap(), 11);
    let meta = Metadata { mode: Some(0o6750), mtime: Some(OLD), ..Default::default() };
    part.commit(&meta, true).unwrap();
    tree.flush_dir(b"").unwrap();
    let stat = tree.stat(b"file").unwrap().unwrap();
    assert_eq!((stat.kind, stat.mode, stat.mtime, stat.size), (Kind::File, 0o750, OLD, 11));
    assert_eq!(part.id(), (stat.id.dev, stat.id.ino));
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    let plain = tree.new_part(b"plain", false).unwrap();
    plain.commit(&Metadata::default(), false).unwrap();
    assert_eq!(tree.stat(b"plain").unwrap().unwrap().mode, tree.default_mode(false));
    plain.discard().unwrap();
    assert!(root.join("plain").exists());
}

#[test]
fn long_and_strange_names_work() {
    let (dir, tree) = setup();
    let names: [&[u8]; 4] = [&[b'n'; 255], b"new\nline", b"\xff\xfe", b"-rf *"];
    for name in names {
        let part = tree.new_part(name, false).unwrap();
        part.write_at(name, 0).unwrap();
        part.journal_start(b"header").unwrap();
        part.commit(&Metadata::default(), false).unwrap();
        assert_eq!(fs::read(on_disk(&dir.path().join("root"), name)).unwrap(), name);
    }
    assert_eq!(fs::read_dir(dir.path().join("root")).unwrap().count(), names.len());
    assert!(tree.new_part(&part_name(b"x"), false).is_err());
    for path in ["../x", "/x", "a/../../x", "", ".", "a//b"] {
        assert!(tree.new_part(path.as_bytes(), false).is_err(), "{path}");
    }
}

#[test]
fn an_interrupted_file_resumes_with_its_journal() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    assert!(tree.resume_part(b"file", false).unwrap().is_none());
    let part = tree.new_part(b"file", false).unwrap();
    part.write_at(b"first", 0).unwrap();
    part.flush().unwrap();
    part.journal_start(b"header;").unwrap();
    part.journal_append(b"one;").unwrap();
    part.journal_append(b"to").unwrap();
    let other = open(&root);
    assert!(is_locked(&other.new_part(b"file", false).unwrap_err()));
    assert!(is_locked(&other.resume_part(b"file", false).unwrap_err()));
    drop(part);

    let (part, journal) = tree.resume_part(b"file", false).unwrap().unwrap();
    assert_eq!(journal, b"header;one;to");
    part.journal_keep(11).unwrap();
    part.journal_append(b"two;").unwrap();
    drop(part);
    let (part, journal) = tree.resume_part(b"file", false).unwrap().unwrap();
    assert_eq!(journal, b"header;one;two;");
    part.journal_start(b"anew;").unwrap();
    part.write_at(b" second", 5).unwrap();
    part.commit(&Metadata::default(), true).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"first second");
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
    assert!(tree.resume_part(b"file", false).unwrap().is_none());
}

#[test]
fn a_new_part_takes_nothing_over_from_an_old_one() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let part = tree.new_part(b"file", false).unwrap();
    part.write_at(b"stale content", 0).unwrap();
    part.journal_start(b"stale journal").unwrap();
    drop(part);
    let part = tree.new_part(b"file", false).unwrap();
    assert!(!on_disk(&root, &journal_name(b"file")).exists());
    part.write_at(b"new", 0).unwrap();
    part.commit(&Metadata::default(), false).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"new");
    let part = tree.new_part(b"file", false).unwrap();
    part.journal_start(b"header").unwrap();
    part.discard().unwrap();
    assert_eq!(fs::read_dir(&root).unwrap().count(), 1);
}

#[test]
fn a_discarded_part_never_names_what_took_its_place() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let old = tree.new_part(b"file", false).unwrap();
    old.write_at(b"of the old version", 0).unwrap();
    // The source changed; a lane with all of the old version is about to name it.
    old.discard().unwrap();
    let new = tree.new_part(b"file", false).unwrap();
    new.write_at(b"half of the ne", 0).unwrap();
    assert!(old.commit(&Metadata::default(), false).is_err());
    assert!(old.journal_start(b"of the old version").is_err());
    assert!(!root.join("file").exists(), "half a file has the final name");
    new.journal_start(b"of the new version").unwrap();
    new.write_at(b"w version", 14).unwrap();
    new.commit(&Metadata::default(), false).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"half of the new version");
}

#[test]
fn parts_that_nobody_will_go_on_with_are_swept() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let part = |name: &str| on_disk(&root, &part_name(name.as_bytes()));
    for name in ["stale", "read-only", "with-journal", "linked", "foreign"] {
        fs::write(part(name), b"half").unwrap();
    }
    fs::set_permissions(part("read-only"), fs::Permissions::from_mode(0o444)).unwrap();
    fs::write(on_disk(&root, &journal_name(b"with-journal")), b"journal").unwrap();
    fs::write(on_disk(&root, &journal_name(b"alone")), b"journal").unwrap();
    fs::hard_link(part("linked"), root.join("other name")).unwrap();
    fs::write(root.join("file"), b"whole").unwrap();
    fs::write(root.join(".haul-0123.part"), b"not ours").unwrap();
    symlink("file", part("symlink")).unwrap();
    fs::create_dir(part("directory")).unwrap();
    let is_root = haul_sys::process::is_root();
    if is_root {
        std::os::unix::fs::chown(part("foreign"), Some(12345), None).unwrap();
    } else {
        eprintln!("skipped in part: only root can give files away");
        fs::remove_file(part("foreign")).unwrap();
    }
    let held = tree.new_part(b"held", false).unwrap();
    let count = || fs::read_dir(&root).unwrap().count();
    let before = count();

    assert!(tree.sweep_parts(b""));
    assert!(!part("stale").exists() && !part("read-only").exists());
    assert_eq!(count(), before - 2, "all else stays");
    assert!(!tree.sweep_parts(b""));
    assert!(!tree.sweep_parts(b"missing") && !tree.sweep_parts(b"file"), "what cannot be listed is no error");

    for name in ["held", "with-journal", "linked", "symlink", "directory", "none"] {
        assert!(!tree.sweep_part_of(name.as_bytes()), "{name}");
    }
    held.commit(&Metadata::default(), false).unwrap();
    fs::write(part("held"), b"half").unwrap();
    assert!(tree.sweep_part_of(b"held"), "the lock went with the file");
    assert_eq!((count(), root.join("held").exists()), (before - 2, true));
}

#[test]
fn writing_in_place_removes_what_a_run_beside_the_file_left() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let left = tree.new_part(b"file", false).unwrap();
    left.write_at(b"half", 0).unwrap();
    left.journal_start(b"header").unwrap();
    drop(left);
    assert_eq!(fs::read_dir(&root).unwrap().count(), 2, "the part and its journal");
    let part = tree.new_part(b"file", true).unwrap();
    part.write_at(b"whole", 0).unwrap();
    part.commit(&Metadata::default(), true).unwrap();
    let names: Vec<_> = fs::read_dir(&root).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert_eq!(names, ["file"]);
}

#[test]
fn in_place_writes_into_the_file_itself() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    fs::write(root.join("file"), b"0123456789").unwrap();
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o604)).unwrap();
    let inode = fs::metadata(root.join("file")).unwrap().ino();
    let part = tree.new_part(b"file", true).unwrap();
    part.write_at(b"xx", 2).unwrap();
    part.journal_start(b"header").unwrap();
    drop(part);
    let (part, journal) = tree.resume_part(b"file", true).unwrap().unwrap();
    assert_eq!(journal, b"header");
    part.set_size(8).unwrap();
    part.commit(&Metadata { mtime: Some(OLD), ..Default::default() }, true).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"01xx4567");
    let stat = fs::metadata(root.join("file")).unwrap();
    assert_eq!((stat.ino(), stat.mode() & 0o7777, stat.mtime()), (inode, 0o604, OLD.s));
    fs::write(dir.path().join("outside"), b"safe").unwrap();
    symlink("../outside", root.join("link")).unwrap();
    tree.new_part(b"link", true).unwrap().write_at(b"evil", 0).unwrap();
    assert_eq!(fs::read(dir.path().join("outside")).unwrap(), b"safe");
    assert_eq!(fs::read(root.join("link")).unwrap(), b"evil");
    fs::create_dir(root.join("directory")).unwrap();
    assert!(tree.new_part(b"directory", true).is_err());
}

#[test]
fn a_planted_part_or_journal_is_never_followed_or_trusted() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let victim = dir.path().join("victim");
    fs::write(&victim, b"precious").unwrap();
    type Plant<'a> = &'a dyn Fn(&Path);
    let plants: [(&str, Plant); 3] = [
        ("link", &|place| symlink(&victim, place).unwrap()),
        ("hard link", &|place| fs::hard_link(&victim, place).unwrap()),
        ("FIFO", &|place| {
            let (fifo, mode) = (rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU);
            rustix::fs::mknodat(rustix::fs::CWD, place, fifo, mode, 0).unwrap();
        }),
    ];
    for (what, plant) in plants {
        plant(&on_disk(&root, &part_name(b"file")));
        plant(&on_disk(&root, &journal_name(b"file")));
        assert!(tree.resume_part(b"file", false).unwrap().is_none(), "{what}");
        let part = tree.new_part(b"file", false).unwrap();
        plant(&on_disk(&root, &journal_name(b"file")));
        part.write_at(b"ours", 0).unwrap();
        part.journal_start(b"header").unwrap();
        part.journal_append(b"record").unwrap();
        part.commit(&Metadata { mode: Some(0o777), ..Default::default() }, false).unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious", "{what}");
        assert_eq!(fs::read(root.join("file")).unwrap(), b"ours", "{what}");
        assert_eq!(fs::metadata(root.join("file")).unwrap().nlink(), 1, "{what}");
        assert!(!on_disk(&root, &journal_name(b"file")).exists(), "{what}");
    }
}

#[test]
fn a_planted_parent_link_is_refused_by_every_operation() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let outside = dir.path().join("outside");
    fs::create_dir_all(outside.join("sub")).unwrap();
    fs::write(outside.join("file"), b"precious").unwrap();
    fs::set_permissions(outside.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    symlink("../outside", root.join("link")).unwrap();
    fs::write(root.join("own"), b"own").unwrap();
    let meta = Metadata { mode: Some(0o777), mtime: Some(OLD), ..Default::default() };
    let listing = |path: &Path| {
        let mut names: Vec<_> = fs::read_dir(path).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        names
    };
    let before = listing(&outside);

    assert!(tree.make_dir(b"link").is_err());
    assert!(tree.make_dir(b"link/made").is_err());
    assert!(tree.make_dir(b"link/sub/made").is_err());
    assert!(tree.stat(b"link/file").is_err());
    assert!(tree.make_symlink(b"link/made", b"x", &meta).is_err());
    assert!(tree.make_hard_link(b"link/made", b"own").is_err());
    assert!(tree.make_hard_link(b"made", b"link/file").is_err());
    assert!(tree.make_hard_link(b"another", b"link").unwrap());
    assert!(matches!(tree.stat(b"another").unwrap().unwrap().kind, Kind::Symlink { .. }));
    assert!(tree.set_metadata(b"link", &meta).is_err());
    assert!(tree.set_metadata(b"link/file", &meta).is_err());
    assert!(tree.flush_dir(b"link").is_err());
    assert!(tree.open_file(b"link/file").is_err());
    assert!(tree.open_file(b"link").is_err());
    for inplace in [false, true] {
        assert!(tree.new_part(b"link/made", inplace).is_err());
        assert!(!matches!(tree.resume_part(b"link/file", inplace), Ok(Some(_))));
    }
    let mut deleted = Vec::new();
    let errors = tree
        .delete_extraneous(b"link", &SourceNames::default(), &|_, _| false, false, &mut |path, _| deleted.push(path));
    assert_eq!((errors.len(), deleted.len()), (1, 0));

    assert_eq!(listing(&outside), before);
    assert_eq!(fs::read(outside.join("file")).unwrap(), b"precious");
    assert_eq!(fs::metadata(outside.join("file")).unwrap().mode() & 0o7777, 0o600);
    assert_eq!(tree.stat(b"link").unwrap().unwrap().kind, Kind::Symlink { target: b"../outside".to_vec() });
}

#[test]
fn a_parent_swapped_for_a_link_between_steps_leads_nowhere() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::create_dir(outside.join("sub")).unwrap();
    fs::write(outside.join("victim"), b"precious").unwrap();
    fs::set_permissions(outside.join("victim"), fs::Permissions::from_mode(0o600)).unwrap();
    let state = |path: &Path| {
        let meta = fs::metadata(path).unwrap();
        (meta.mode(), meta.nlink(), (meta.mtime(), meta.mtime_nsec()), (meta.ctime(), meta.ctime_nsec()))
    };
    let all = || ["", "sub", "victim"].map(|name| state(&outside.join(name)));
    let before = all();
    tree.make_dir(b"d").unwrap();
    let part = tree.new_part(b"d/file", false).unwrap();
    part.write_at(b"x", 0).unwrap();
    fs::rename(root.join("d"), root.join("moved")).unwrap();
    symlink("../outside", root.join("d")).unwrap();
    part.commit(&Metadata::default(), true).unwrap();
    // These go to the opened directory, or are refused; never through the link.
    let _ = tree.new_part(b"d/other", false);
    let _ = tree.new_part(b"d/victim", true);
    let meta = Metadata { mode: Some(0o777), mtime: Some(OLD), ..Default::default() };
    let _ = tree.set_metadata(b"d/victim", &meta);
    let _ = tree.set_metadata(b"d/sub", &meta);
    let _ = tree.make_hard_link(b"taken", b"d/victim");
    let _ = tree.make_dir(b"d/made");
    let _ = tree.delete_extraneous(b"d", &SourceNames::default(), &|_, _| false, false, &mut |_, _| ());
    assert_eq!(all(), before);
    assert_eq!(fs::read(outside.join("victim")).unwrap(), b"precious");
    assert_eq!(fs::read(root.join("moved/file")).unwrap(), b"x");
}

#[test]
fn directories_links_and_hard_links_are_made_once() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    assert!(tree.make_dir(b"d").unwrap());
    assert!(!tree.make_dir(b"d").unwrap());
    assert!(!tree.make_dir(b"").unwrap());
    assert_eq!(tree.stat(b"d").unwrap().unwrap().mode, 0o700);
    fs::write(root.join("file"), b"content").unwrap();
    assert_eq!(tree.make_dir(b"file").unwrap_err().source.kind(), std::io::ErrorKind::NotADirectory);
    assert!(tree.make_dir(b"missing/d").is_err());

    let meta = Metadata { mtime: Some(OLD), ..Default::default() };
    assert!(tree.make_symlink(b"d/link", b"../\xff", &meta).unwrap());
    assert!(!tree.make_symlink(b"d/link", b"../\xff", &meta).unwrap());
    let stat = tree.stat(b"d/link").unwrap().unwrap();
    assert_eq!((stat.kind, stat.mtime), (Kind::Symlink { target: b"../\xff".to_vec() }, OLD));
    assert!(tree.make_symlink(b"d/link", b"other", &meta).unwrap());
    assert!(tree.make_symlink(b"d", b"other", &meta).is_err());

    assert!(tree.make_hard_link(b"d/again", b"file").unwrap());
    assert!(!tree.make_hard_link(b"d/again", b"file").unwrap());
    fs::write(root.join("d/different"), b"").unwrap();
    assert!(tree.make_hard_link(b"d/different", b"file").unwrap());
    assert!(tree.make_hard_link(b"d/link", b"file").unwrap());
    assert!(tree.make_hard_link(b"d", b"file").is_err());
    assert_eq!(fs::metadata(root.join("file")).unwrap().nlink(), 4);
    let part = tree.new_part(b"d/again", false).unwrap();
    part.write_at(b"new", 0).unwrap();
    part.commit(&Metadata::default(), false).unwrap();
    assert_eq!(fs::read(root.join("file")).unwrap(), b"content");
    assert_eq!(fs::read_dir(root.join("d")).unwrap().count(), 3);

    // A directory gets its time last, and also a mode that locks its owner out.
    tree.set_metadata(b"d", &Metadata { mode: Some(0o1555), mtime: Some(OLD), ..Default::default() }).unwrap();
    let stat = tree.stat(b"d").unwrap().unwrap();
    assert_eq!((stat.mode, stat.mtime), (0o1555, OLD));
    for time in [Time { s: -5, ns: 1 }, Time { s: 253_402_300_799, ns: u32::MAX }, Time { s: i64::MAX, ns: 0 }] {
        tree.set_metadata(b"file", &Metadata { mtime: Some(time), ..Default::default() }).unwrap();
    }
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o000)).unwrap();
    tree.set_metadata(b"file", &Metadata { mode: Some(0o640), mtime: Some(OLD), ..Default::default() }).unwrap();
    assert_eq!(tree.stat(b"file").unwrap().unwrap().mode, 0o640);
    tree.set_metadata(b"d", &Metadata { mode: Some(0o755), ..Default::default() }).unwrap();
}

#[test]
fn a_file_never_replaces_a_directory() {
    let (dir, tree) = setup();
    fs::create_dir_all(dir.path().join("root/d/inner")).unwrap();
    let part = tree.new_part(b"d", false).unwrap();
    let error = part.commit(&Metadata::default(), false).unwrap_err();
    assert_eq!(error.source.kind(), std::io::ErrorKind::IsADirectory);
    part.discard().unwrap();
    assert_eq!(fs::read_dir(dir.path().join("root")).unwrap().count(), 1);
    fs::write(dir.path().join("root/file"), b"").unwrap();
    assert!(tree.new_part(b"file/x", false).is_err());
}

#[test]
fn two_names_that_are_one_at_the_target_do_not_replace_each_other() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let committed = |tree: &LocalTree, name: &str, words: &[u8]| {
        let part = tree.new_part(name.as_bytes(), false).unwrap();
        part.write_at(words, 0).unwrap();
        part.commit(&Metadata::default(), false)
    };
    let refused = |result: Result<(), StoreError>| {
        let error = result.unwrap_err();
        assert!(
            error.source.kind() == std::io::ErrorKind::AlreadyExists && error.to_string().contains("for one"),
            "{error}"
        );
    };
    // A file system that takes both names for one shows the first entry under the second.
    let fold = |first: &str, second: &str| fs::rename(root.join(first), root.join(second)).unwrap();
    committed(&tree, "README", b"first").unwrap();
    fold("README", "readme");
    refused(committed(&tree, "readme", b"second"));
    refused(tree.check_twin(&tree.stat(b"readme").unwrap().unwrap(), b"readme"));
    assert_eq!(fs::read(root.join("readme")).unwrap(), b"first");
    refused(tree.new_part(b"readme", true).map(drop));
    tree.make_dir(b"Data").unwrap();
    fold("Data", "data");
    refused(tree.make_dir(b"data").map(drop));
    tree.make_symlink(b"Link", b"there", &Metadata::default()).unwrap();
    fold("Link", "link");
    refused(tree.make_symlink(b"link", b"elsewhere", &Metadata::default()).map(drop));
    // The next run keeps the first entry, and refuses the second as before.
    let tree = open(&root);
    let standing = tree.stat(b"readme").unwrap().unwrap();
    tree.keep(&standing, b"README");
    refused(tree.check_twin(&standing, b"readme"));
    refused(committed(&tree, "readme", b"second"));
    assert_eq!(fs::read(root.join("readme")).unwrap(), b"first");
    // A replaced link's inode may become any other entry's.
    for round in 0..20 {
        let link = format!("link-{round}");
        symlink("before", root.join(&link)).unwrap();
        tree.make_symlink(link.as_bytes(), b"between", &Metadata::default()).unwrap();
        tree.make_symlink(link.as_bytes(), b"after", &Metadata::default()).unwrap();
        tree.new_part(format!("new-{round}").as_bytes(), true).unwrap();
    }
    // The same name once more is no other name; an entry from before the job is replaced.
    fold("readme", "README");
    committed(&tree, "README", b"again").unwrap();
    fs::write(root.join("old"), b"old").unwrap();
    committed(&tree, "old", b"new").unwrap();
    assert_eq!(fs::read(root.join("old")).unwrap(), b"new");
}

#[test]
fn holes_stay_holes() {
    let (_dir, tree) = setup();
    let part = tree.new_part(b"sparse", false).unwrap();
    part.set_size(1 << 40).unwrap();
    part.write_at(&vec![7; 1 << 20], 1 << 30).unwrap();
    part.punch((1 << 30) + 65536, 65536).unwrap();
    part.punch(1 << 41, 4096).unwrap();
    part.punch(0, 0).unwrap();
    part.start_writeback(1 << 30, 1 << 20);
    part.commit(&Metadata::default(), true).unwrap();
    let stat = tree.stat(b"sparse").unwrap().unwrap();
    assert_eq!(stat.size, 1 << 40);
    assert!(stat.blocks * 512 < 2 << 20, "{} blocks", stat.blocks);
    let file = tree.open_file(b"sparse").unwrap();
    let mut buffer = [1; 4096];
    file.read_at(&mut buffer, (1 << 30) + 65536).unwrap();
    assert_eq!(buffer, [0; 4096]);
    let data = file.next_data(0, 1 << 40).unwrap().unwrap();
    if data != (0, 1 << 40) {
        assert_eq!(data, (1 << 30, (1 << 30) + 65536));
    }
}

#[test]
fn too_little_room_is_told_before_writing() {
    let (_dir, tree) = setup();
    let part = tree.new_part(b"huge", false).unwrap();
    part.reserve(1 << 20).unwrap();
    assert!(part.reserve(1 << 60).unwrap_err().is_no_space());
}

#[test]
fn deletion_takes_what_is_not_kept_and_never_follows_links() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let outside = dir.path().join("outside");
    fs::create_dir(&outside).unwrap();
    fs::write(outside.join("precious"), b"").unwrap();
    fs::create_dir_all(root.join("d/old/deep")).unwrap();
    fs::write(root.join("d/old/deep/file"), b"").unwrap();
    symlink(&outside, root.join("d/old/link")).unwrap();
    symlink(&outside, root.join("d/link")).unwrap();
    fs::create_dir(root.join("d/kept")).unwrap();
    fs::write(root.join("d/kept/inner"), b"").unwrap();
    tree.stat(b"d/old/deep/file").unwrap();
    for dry_run in [true, false] {
        let asked = RefCell::new(Vec::new());
        let mut deleted = Vec::new();
        let spare = |path: &[u8], is_dir: bool| {
            asked.borrow_mut().push((String::from_utf8(path.to_vec()).unwrap(), is_dir));
            false
        };
        let errors =
            tree.delete_extraneous(b"d", &SourceNames::from_iter([&b"kept"[..]]), &spare, dry_run, &mut |path, _| {
                deleted.push(String::from_utf8(path).unwrap())
            });
        assert!(errors.is_empty(), "{errors:?}");
        let asked = asked.into_inner();
        let all = ["d/link", "d/old", "d/old/deep", "d/old/deep/file", "d/old/link"];
        assert!(asked.iter().map(|(path, _)| path.as_str()).eq(all), "{asked:?}");
        assert!(asked.iter().all(|(path, is_dir)| *is_dir == (path.ends_with("old") || path.ends_with("deep"))));
        assert_eq!(deleted, ["d/link", "d/old/deep/file", "d/old/deep", "d/old/link", "d/old"]);
        assert_eq!(root.join("d/old").exists(), dry_run);
    }
    assert!(root.join("d/kept/inner").exists() && outside.join("precious").exists());
    assert!(
        tree.delete_extraneous(b"missing", &SourceNames::default(), &|_, _| false, false, &mut |_, _| ()).is_empty()
    );
    tree.make_dir(b"d/old").unwrap();
    tree.make_dir(b"d/old/deep").unwrap();
    tree.new_part(b"d/old/deep/file", false).unwrap().commit(&Metadata::default(), false).unwrap();
    assert!(root.join("d/old/deep/file").exists());
}

#[test]
fn a_directory_replaced_by_somebody_else_is_found_again() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    tree.make_dir(b"d").unwrap();
    tree.new_part(b"d/a", false).unwrap().commit(&Metadata::default(), false).unwrap();
    fs::remove_dir_all(root.join("d")).unwrap();
    fs::create_dir(root.join("d")).unwrap();
    tree.new_part(b"d/a", false).unwrap().commit(&Metadata::default(), false).unwrap();
    assert!(root.join("d/a").exists());
}

#[test]
fn attributes_become_equal_to_the_sources() {
    let (dir, _) = setup();
    let root = dir.path().join("root");
    let options = TargetOptions { xattrs: true, ..Default::default() };
    let tree = LocalTree::open(&bytes(&root), &options).unwrap().0;
    let pair = |name: &str, value: &[u8]| (name.as_bytes().to_vec(), value.to_vec());
    let set = |xattrs: Vec<_>| {
        let meta = Metadata { xattrs: Some(xattrs), mode: Some(0o444), ..Default::default() };
        tree.new_part(b"new", false).unwrap().commit(&meta, false).unwrap();
        tree.set_metadata(b"file", &meta)
    };
    fs::write(root.join("file"), b"").unwrap();
    set(vec![pair("user.a", b"1"), pair("user.b", b"2"), pair("system.odd", b"3"), pair("security.selinux", b"4")])
        .unwrap();
    if tree.xattrs_unsupported().is_some() {
        return unmet("the file system of the temporary directory has no attributes");
    }
    fs::set_permissions(root.join("file"), fs::Permissions::from_mode(0o600)).unwrap();
    set(vec![pair("user.b", b"changed")]).unwrap();
    for name in ["file", "new"] {
        let file = fs::File::open(root.join(name)).unwrap();
        let mut names = haul_sys::xattr::list(std::os::fd::AsFd::as_fd(&file)).unwrap();
        names.retain(|name| !name.starts_with(b"security."));
        assert_eq!(names, [b"user.b".to_vec()]);
    }
}

#[test]
fn ownership_is_set_by_root_only() {
    let (_dir, tree) = setup();
    let part = tree.new_part(b"file", false).unwrap();
    let is_root = haul_sys::process::is_root();
    let group = is_root.then_some(23456);
    let meta = Metadata { mode: Some(0o4755), special_bits: true, owner: Some(12345), group, ..Default::default() };
    part.commit(&meta, false).unwrap();
    let stat = tree.stat(b"file").unwrap().unwrap();
    if is_root {
        assert_eq!((stat.uid, stat.gid, stat.mode), (12345, 23456, 0o4755));
    } else {
        eprintln!("skipped in part: only root can give files away");
        assert_eq!((stat.uid, stat.mode), (haul_sys::process::effective_user(), 0o4755));
    }
}

#[test]
fn many_threads_write_neighbours() {
    let (dir, tree) = setup();
    for number in 0..10 {
        tree.make_dir(format!("d{number}").as_bytes()).unwrap();
    }
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let tree = &tree;
            scope.spawn(move || {
                for number in 0..100 {
                    let path = format!("d{}/{thread}-{number}", number % 10);
                    let part = tree.new_part(path.as_bytes(), false).unwrap();
                    part.write_at(path.as_bytes(), 0).unwrap();
                    part.commit(&Metadata { mtime: Some(OLD), ..Default::default() }, false).unwrap();
                }
            });
        }
    });
    for number in 0..10 {
        assert_eq!(fs::read_dir(dir.path().join(format!("root/d{number}"))).unwrap().count(), 40);
    }
}

#[test]
fn the_journal_that_a_crash_left_beside_a_complete_file_is_removed_and_no_other() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    let journal = |name: &[u8]| on_disk(&root, &journal_name(name));
    for name in ["complete", "unfinished", "written"] {
        fs::write(root.join(name), b"whole").unwrap();
        fs::write(journal(name.as_bytes()), b"journal").unwrap();
    }
    fs::write(journal(b"missing"), b"journal").unwrap();
    fs::write(on_disk(&root, &part_name(b"unfinished")), b"half").unwrap();
    let writer = tree.resume_part(b"written", true).unwrap().expect("somebody goes on with it in place");

    for name in ["complete", "unfinished", "written", "missing", "never"] {
        tree.remove_left_journal(name.as_bytes());
    }
    assert!(!journal(b"complete").exists());
    for name in ["unfinished", "written", "missing"] {
        assert!(journal(name.as_bytes()).exists(), "{name}");
    }
    drop(writer);
    tree.remove_left_journal(b"written");
    assert!(!journal(b"written").exists());
}
