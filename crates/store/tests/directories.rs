//! Which directory is written into, and which names are deleted.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_store::{LocalTree, Metadata, SourceNames, TargetOptions, part_name};

fn setup() -> (tempfile::TempDir, LocalTree) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().join("root");
    fs::create_dir(&root).unwrap();
    let tree = LocalTree::open(root.as_os_str().as_bytes(), &TargetOptions::default()).unwrap().0;
    (dir, tree)
}

fn on_disk(directory: &Path, name: &[u8]) -> std::path::PathBuf {
    directory.join(OsStr::from_bytes(name))
}

/// A job that has written `d/a`, in its own tree: a freed inode number comes again.
fn begun() -> (tempfile::TempDir, LocalTree) {
    let (dir, tree) = setup();
    tree.make_dir(b"d").unwrap();
    tree.enter(b"d").unwrap();
    write(&tree, b"d/a").unwrap();
    (dir, tree)
}

fn write(tree: &LocalTree, name: &[u8]) -> Result<(), haul_store::StoreError> {
    tree.new_part(name, false).and_then(|part| part.commit(&Metadata::default(), false)).map(drop)
}

#[test]
fn a_directory_that_is_written_into_is_not_replaced_unseen() {
    let (_dir, tree) = begun();
    tree.leave(b"d").unwrap();

    let (dir, tree) = begun();
    let directory = dir.path().join("root/d");
    fs::rename(&directory, dir.path().join("away")).unwrap();
    fs::create_dir(&directory).unwrap();
    assert!(tree.flush_dir(b"d").is_err(), "what is opened anew is another one");
    assert!(!tree.delete_extraneous(b"d", &SourceNames::default(), &|_, _| false, false, &mut |_, _| ()).is_empty());
    assert!(tree.leave(b"d").unwrap_err().to_string().contains("another directory stands there"));

    let (dir, tree) = begun();
    let directory = dir.path().join("root/d");
    fs::remove_dir_all(&directory).unwrap();
    fs::create_dir(&directory).unwrap();
    assert!(write(&tree, b"d/b").is_err() && !directory.join("b").exists());
    assert!(tree.leave(b"d").is_err());

    let (dir, tree) = begun();
    let directory = dir.path().join("root/d");
    fs::rename(&directory, dir.path().join("away")).unwrap();
    symlink("../away", &directory).unwrap();
    assert!(tree.leave(b"d").is_err());
}

#[test]
fn names_that_were_made_to_have_one_hash_are_two_for_a_deletion() {
    let (dir, tree) = setup();
    // Both have the same FNV-1a hash of 64 bits.
    let (one, other) = ("8yn0iYCKYHlIj4-BwPqk", "GReLUrM4wMqfg9yzV3KQ");
    for name in [one, other] {
        fs::write(dir.path().join("root").join(name), name).unwrap();
    }
    fs::write(on_disk(&dir.path().join("root"), &part_name(one.as_bytes())), "goes on").unwrap();
    fs::write(on_disk(&dir.path().join("root"), &part_name(other.as_bytes())), "of no use").unwrap();
    let has = SourceNames::from_iter([one.as_bytes()]);
    let mut deleted = Vec::new();
    assert!(tree.delete_extraneous(b"", &has, &|_, _| false, false, &mut |path, _| deleted.push(path)).is_empty());
    deleted.sort();
    assert_eq!(deleted, [part_name(other.as_bytes()), other.as_bytes().to_vec()]);
    let parts = [one, other].map(|name| tree.new_part(name.as_bytes(), false).unwrap());
    parts.iter().for_each(|part| part.commit(&Metadata::default(), false).unwrap());
}

#[test]
fn a_tree_lacks_only_names_that_nothing_has() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    fs::create_dir(root.join("d")).unwrap();
    fs::write(root.join("d/f"), b"").unwrap();
    symlink("nowhere", root.join("l")).unwrap();
    for (path, lacks) in [("", false), ("d", false), ("d/f", false), ("l", false), ("d/g", true), ("e/f", true)] {
        assert_eq!(tree.lacks(path.as_bytes()), lacks, "{path}");
    }
    // What cannot be looked at is not known to be missing.
    assert!(!tree.lacks(b"d/f/under-a-file") && !tree.lacks(&[b'n'; 300]));
}
