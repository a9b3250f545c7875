//! `--keep-dirlinks`: which links are followed at a target, and where they lead.

use std::fs;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::{lchown, symlink};
use std::path::Path;

use haul_store::{LocalTree, Metadata, SourceNames, TargetOptions};
use haul_sys::condition::unmet;

fn open(path: &Path, options: TargetOptions) -> LocalTree {
    let options = TargetOptions { keep_dirlinks: true, ..options };
    LocalTree::open(path.as_os_str().as_bytes(), &options).unwrap().0
}

fn setup() -> (tempfile::TempDir, LocalTree) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir_all(dir.path().join("root/inside")).unwrap();
    fs::create_dir_all(dir.path().join("outside/sub")).unwrap();
    let tree = open(&dir.path().join("root"), TargetOptions::default());
    (dir, tree)
}

#[test]
fn what_lies_beneath_a_followed_link_lies_where_it_leads() {
    let (dir, tree) = setup();
    symlink(dir.path().join("outside"), dir.path().join("root/data")).unwrap();
    symlink("../outside/sub", dir.path().join("root/relative")).unwrap();
    symlink("../root/inside", dir.path().join("outside/back")).unwrap();
    assert!(tree.make_dir(b"data").is_err(), "nobody has asked to follow it");
    for path in ["data", "data", "relative", "data/back"] {
        assert!(tree.keep_dirlink(path.as_bytes()).unwrap(), "{path}");
        assert!(!tree.make_dir(path.as_bytes()).unwrap());
        tree.enter(path.as_bytes()).unwrap();
    }
    for path in ["data/new", "relative/new", "data/back/new"] {
        assert!(tree.make_dir(path.as_bytes()).unwrap());
        tree.set_metadata(path.as_bytes(), &Metadata { mode: Some(0o750), ..Metadata::default() }).unwrap();
    }
    for path in ["outside/new", "outside/sub/new", "root/inside/new"] {
        assert!(dir.path().join(path).is_dir(), "{path}");
    }
    // The link may lead elsewhere by now: the job stays where it was.
    fs::remove_file(dir.path().join("root/data")).unwrap();
    symlink("inside", dir.path().join("root/data")).unwrap();
    tree.make_dir(b"data/later").unwrap();
    assert!(dir.path().join("outside/later").is_dir());
    for path in ["data", "relative", "data/back"] {
        tree.leave(path.as_bytes()).unwrap();
        tree.flush_dir(path.as_bytes()).unwrap();
    }
}

#[test]
fn what_is_no_link_to_a_directory_is_not_followed() {
    let (dir, tree) = setup();
    fs::write(dir.path().join("root/file"), "x").unwrap();
    symlink("file", dir.path().join("root/to-file")).unwrap();
    symlink("nowhere", dir.path().join("root/dangling")).unwrap();
    for path in ["file", "to-file", "dangling", "missing", "inside"] {
        assert!(!tree.keep_dirlink(path.as_bytes()).unwrap(), "{path}");
    }
    let plain = LocalTree::open(dir.path().join("root").as_os_str().as_bytes(), &TargetOptions::default()).unwrap().0;
    symlink("inside", dir.path().join("root/link")).unwrap();
    assert!(!plain.keep_dirlink(b"link").unwrap());
}

#[test]
fn two_names_of_one_directory_are_refused() {
    let (dir, tree) = setup();
    symlink("inside", dir.path().join("root/also")).unwrap();
    symlink(".", dir.path().join("root/loop")).unwrap();
    assert!(!tree.make_dir(b"inside").unwrap());
    assert!(tree.keep_dirlink(b"also").unwrap_err().is_twin());
}

#[test]
fn a_link_that_the_job_has_made_leads_nowhere_outside() {
    let (dir, tree) = setup();
    let outside = dir.path().join("outside");
    tree.make_symlink(b"planted", outside.as_os_str().as_bytes(), &Metadata::default()).unwrap();
    tree.make_hard_link(b"planted-too", b"planted").unwrap();
    symlink("inside", dir.path().join("root/replaced")).unwrap();
    tree.make_symlink(b"replaced", outside.as_os_str().as_bytes(), &Metadata::default()).unwrap();
    for path in ["planted", "planted-too", "replaced"] {
        let error = tree.keep_dirlink(path.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("that this copy has brought"), "{error}");
        assert!(tree.make_dir([path, "/in"].concat().as_bytes()).is_err());
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
}

#[test]
fn a_confined_target_follows_no_link_out_of_it() {
    let (dir, _) = setup();
    symlink(dir.path().join("outside"), dir.path().join("root/out")).unwrap();
    symlink("../outside", dir.path().join("root/up")).unwrap();
    symlink("inside", dir.path().join("root/within")).unwrap();
    let confined = open(Path::new("/root"), TargetOptions { confine: Some(dir.path().into()), ..Default::default() });
    for path in ["out", "up"] {
        let error = confined.keep_dirlink(path.as_bytes()).unwrap_err();
        assert!(error.to_string().contains("leads out of its directory"), "{error}");
    }
    assert!(confined.keep_dirlink(b"within").unwrap());
}

#[test]
fn a_link_of_another_user_leads_within_the_target_alone() {
    if !haul_sys::process::is_root() {
        return unmet("only root makes links of others");
    }
    let (dir, tree) = setup();
    for (name, leads) in [("out", dir.path().join("outside")), ("within", "inside".into())] {
        symlink(leads, dir.path().join("root").join(name)).unwrap();
        lchown(dir.path().join("root").join(name), Some(12_345), None).unwrap();
    }
    let error = tree.keep_dirlink(b"out").unwrap_err();
    assert!(error.to_string().contains("of another user"), "{error}");
    assert!(tree.keep_dirlink(b"within").unwrap());
}

#[test]
fn where_a_followed_link_leads_is_not_deleted() {
    let (dir, tree) = setup();
    fs::create_dir_all(dir.path().join("root/away/deep")).unwrap();
    fs::write(dir.path().join("root/away/deep/kept"), "x").unwrap();
    fs::write(dir.path().join("root/away/gone"), "x").unwrap();
    symlink("away/deep", dir.path().join("root/data")).unwrap();
    assert!(tree.keep_dirlink(b"data").unwrap());
    let mut names = SourceNames::default();
    names.add(b"data").unwrap();
    names.seal();
    let mut deleted = Vec::new();
    let errors = tree.delete_extraneous(b"", &names, &|_, _| false, false, &mut |path, _| deleted.push(path));
    assert!(errors.is_empty(), "{errors:?}");
    deleted.sort();
    assert_eq!(deleted, [&b"away/gone"[..], b"inside"]);
    assert!(dir.path().join("root/data/kept").exists());
}
