//! Another user with write access replaces files while they are written, or moves the target.

use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::symlink;
use std::path::Path;

use haul_store::{LocalTree, Metadata, TargetOptions, part_name};

fn bytes(path: impl AsRef<Path>) -> Vec<u8> {
    path.as_ref().as_os_str().as_bytes().to_vec()
}

fn setup() -> (tempfile::TempDir, LocalTree) {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("root")).unwrap();
    let (tree, _) = LocalTree::open(&bytes(dir.path().join("root")), &TargetOptions::default()).unwrap();
    (dir, tree)
}

fn on_disk(directory: &Path, name: &[u8]) -> std::path::PathBuf {
    directory.join(OsStr::from_bytes(name))
}

#[test]
fn only_the_file_that_was_written_gets_the_name() {
    // An attack on the part, and its error message.
    type Act = fn(&Path);
    let acts: [(Act, &str); 5] = [
        (|part| fs::remove_file(part).unwrap(), "has removed it"),
        (
            |part| {
                fs::remove_file(part).unwrap();
                fs::write(part, b"12345").unwrap();
            },
            "in the place of its temporary file",
        ),
        (
            |part| {
                fs::remove_file(part).unwrap();
                fs::create_dir(part).unwrap();
            },
            "in the place of its temporary file",
        ),
        (|part| fs::File::options().write(true).open(part).unwrap().set_len(3).unwrap(), "cut or extended"),
        (|part| fs::File::options().write(true).open(part).unwrap().set_len(7).unwrap(), "cut or extended"),
    ];
    for (act, why) in acts {
        let (dir, tree) = setup();
        let part = tree.new_part(b"file", false).unwrap();
        part.write_at(b"12345", 0).unwrap();
        part.prepare(&Metadata::default(), false).unwrap();
        act(&on_disk(&dir.path().join("root"), &part_name(b"file")));
        let error = part.give_name().unwrap_err();
        assert!(error.to_string().contains(why), "{error}");
        assert!(!dir.path().join("root/file").exists(), "{why}");
    }
}

#[test]
fn a_target_is_where_it_was_until_its_path_leads_elsewhere() {
    let (dir, tree) = setup();
    let root = dir.path().join("root");
    tree.check_place().unwrap();
    symlink("root", dir.path().join("link")).unwrap();
    let (through_link, _) = LocalTree::open(
        &bytes(dir.path().join("link/new")),
        &TargetOptions { single_file: true, ..Default::default() },
    )
    .unwrap();
    let confine = Some(dir.path().to_owned());
    let (confined, _) = LocalTree::open(b"/root/", &TargetOptions { confine, ..Default::default() }).unwrap();
    through_link.check_place().unwrap();
    confined.check_place().unwrap();
    fs::rename(&root, dir.path().join("elsewhere")).unwrap();
    let gone = tree.check_place().unwrap_err().to_string();
    assert!(gone.contains("renamed, removed or unmounted during the copy"), "{gone}");
    assert!(confined.check_place().is_err() && through_link.check_place().is_err());
    fs::create_dir(&root).unwrap();
    let other = tree.check_place().unwrap_err().to_string();
    assert!(other.contains("another directory stands there now"), "{other}");
    fs::remove_dir(&root).unwrap();
    fs::rename(dir.path().join("elsewhere"), &root).unwrap();
    tree.check_place().unwrap();
}
