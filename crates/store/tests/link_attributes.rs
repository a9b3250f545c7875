//! Attributes of symbolic links, and labels of SELinux, from a source to a target.

use std::fs;
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

use haul_store::{EntryKind, Found, LocalTree, Metadata, SourceSet, TargetOptions, WalkOptions};
use haul_sys::condition::unmet;
use haul_sys::xattr;

fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

/// root gives links `trusted.` attributes: links have no user attributes. Labels are set where rsync sets them, and never
/// removed.
#[test]
fn attributes_of_links_and_labels_come_along() {
    if !haul_sys::process::is_root() {
        return unmet("only root can give attributes to a link");
    }
    let dir = tempfile::tempdir().unwrap();
    let (from, root) = (dir.path().join("from"), dir.path().join("root"));
    fs::create_dir(&from).unwrap();
    fs::create_dir(&root).unwrap();
    symlink("file", from.join("link")).unwrap();
    fs::write(from.join("file"), "x").unwrap();
    let source = fs::File::open(&from).unwrap();
    let source = source.as_fd();
    if xattr::set_at(source, b"link", b"trusted.of", b"link").is_err() {
        return unmet("the file system of the temporary directory has no attributes");
    }
    let has_labels = xattr::set_at(source, b"file", b"security.selinux", b"label").is_ok();
    let options_of_target = TargetOptions { xattrs: true, ..Default::default() };
    let tree = LocalTree::open(&bytes(&root), &options_of_target).unwrap().0;
    let target = fs::File::open(&root).unwrap();
    let target = target.as_fd();
    let copy = |with_label: bool| {
        let set = SourceSet::resolve(&[bytes(from.join(""))], &Default::default()).unwrap();
        for found in Arc::new(set).walk(WalkOptions { xattrs: true, ..Default::default() }) {
            let Found::Entry(entry) = found else { continue };
            let mut xattrs = entry.xattrs.clone();
            xattrs.retain(|(name, _)| with_label || name != b"security.selinux");
            let meta = Metadata { xattrs: Some(xattrs), owner: Some(0), ..Default::default() };
            match &entry.kind {
                EntryKind::Symlink { target } => {
                    tree.make_symlink(&entry.path, target, &meta).unwrap();
                }
                EntryKind::File { .. } => {
                    fs::write(root.join("file"), "x").unwrap();
                    tree.set_metadata(&entry.path, &meta).unwrap();
                }
                _ => {}
            }
        }
    };
    copy(true);
    assert_eq!(xattr::get_at(target, b"link", b"trusted.of").unwrap().as_deref(), Some(&b"link"[..]));
    if has_labels {
        assert_eq!(xattr::get_at(target, b"file", b"security.selinux").unwrap().as_deref(), Some(&b"label"[..]));
        copy(false);
        assert!(xattr::get_at(target, b"file", b"security.selinux").unwrap().is_some(), "a label stays");
    }
    xattr::set_at(target, b"link", b"trusted.extra", b"x").unwrap();
    copy(false);
    assert_eq!(xattr::get_at(target, b"link", b"trusted.extra").unwrap(), None);
}
