//! Incomplete copies are told, and nothing uncopied is removed.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Output};

fn shell(home: &Path, script: &str) -> Output {
    let mut command = Command::new("sh");
    command.args(["-ec", &script.replace("haul ", &format!("{} ", env!("CARGO_BIN_EXE_haul")))]).current_dir(home);
    command.env("HOME", home).env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME");
    command.output().expect("there is a shell")
}

fn words(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Files of procfs claim no bytes.
#[test]
fn a_file_that_is_longer_than_its_size_is_not_cut() {
    let home = tempfile::tempdir().unwrap();
    let out = shell(home.path(), "haul cp /proc/version file");
    assert_eq!(out.status.code(), Some(23), "{}", words(&out));
    assert!(words(&out).contains("its size says 0 bytes, and more can be read"), "{}", words(&out));
    assert!(!home.path().join("file").exists());
    let out = shell(home.path(), "haul cp - file < /proc/version");
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!(fs::read(home.path().join("file")).unwrap(), fs::read("/proc/version").unwrap());
}

#[test]
fn what_is_left_out_is_told_quietly_too() {
    let home = tempfile::tempdir().unwrap();
    let out = shell(home.path(), "mkdir tree; echo x > tree/file; mkfifo tree/fifo; haul cp -r -q tree copy");
    assert!(words(&out).contains("skipped: tree/fifo"), "{}", words(&out));
    assert!(home.path().join("copy").exists());
}

#[test]
fn special_bits_that_chmod_asks_for_are_set_and_no_others() {
    let home = tempfile::tempdir().unwrap();
    let mode = |name: &str| fs::metadata(home.path().join(name)).unwrap().permissions().mode() & 0o7777;
    let script = "echo x > file; chmod 755 file; haul cp --chmod=a+s file new; haul cp -p --chmod=a+s file kept; \
                  chmod 6755 file; haul cp --chmod=a+x file plain; haul cp --chmod=u+s file user";
    let out = shell(home.path(), script);
    assert!(out.status.success(), "{}", words(&out));
    assert_eq!([mode("new"), mode("kept"), mode("plain"), mode("user")], [0o6755, 0o6755, 0o755, 0o4755]);
}

/// One directory at two places: a bind mount keeps file numbers, FUSE has others.
#[test]
fn sources_that_are_the_target_by_another_way_are_not_removed() {
    if !is_root() {
        return eprintln!("skipped: only root can mount");
    }
    for way in ["mount --bind", "bindfs"] {
        for (args, is_refused) in [
            ("-r tree/ seen/", true),
            ("-r -t tree/ seen/", true),
            ("-a seen/ tree/", true),
            ("-a --inplace tree/ seen/", true),
            ("tree/file tree/other seen/", true),
            ("-r tree/sub seen/", true),
            ("-r seen/sub tree", true),
            // Another directory of the tree is another place.
            ("-r tree/sub/ seen/new/", false),
            ("-r -n tree/ seen/", false),
        ] {
            let home = tempfile::tempdir().unwrap();
            let script = format!(
                "unshare -m --propagation private sh -ec '\
                 mkdir tree tree/sub seen; echo x > tree/file; echo y > tree/other; echo z > tree/sub/file; \
                 {way} tree seen || exit 99; haul cp --remove-source-files {args}'"
            );
            let out = shell(home.path(), &script);
            if out.status.code() == Some(99) || words(&out).contains("unshare:") {
                eprintln!("skipped: {}", words(&out));
                break;
            }
            let shown = format!("{way} {args}: {}", words(&out));
            assert_eq!(out.status.code(), Some(i32::from(is_refused)), "{shown}");
            assert_eq!(words(&out).contains("onto itself"), is_refused, "{shown}");
            let below = |path: &str| fs::read(home.path().join("tree").join(path)).ok();
            let moved = if is_refused || args.contains("-n ") { "sub/file" } else { "new/file" };
            for (path, content) in [("file", "x\n"), ("other", "y\n"), (moved, "z\n")] {
                assert_eq!(below(path).as_deref(), Some(content.as_bytes()), "{path}: {shown}");
            }
            let names = fs::read_dir(home.path().join("tree")).unwrap().map(|entry| entry.unwrap().file_name());
            // FUSE keeps a removed open file as .fuse_hidden, and may drop it after the copy.
            let is_left = |name: &str| name.starts_with('.') && !name.starts_with(".fuse_hidden");
            assert!(names.into_iter().all(|name| !is_left(&name.to_string_lossy())), "{shown}");
        }
    }
}

/// The source holds the target by another way: what only the target has is no extra file.
#[test]
fn a_target_inside_of_the_source_by_another_way_loses_nothing() {
    if !is_root() {
        return eprintln!("skipped: only root can mount");
    }
    let home = tempfile::tempdir().unwrap();
    let script = "unshare -m --propagation private sh -ec '\
                  mkdir tree tree/sub seen; echo x > tree/file; echo y > tree/sub/precious; \
                  bindfs tree seen || exit 99; haul cp -r --delete tree/ seen/sub/'";
    let out = shell(home.path(), script);
    if out.status.code() == Some(99) || words(&out).contains("unshare:") {
        return eprintln!("skipped: {}", words(&out));
    }
    assert_eq!(out.status.code(), Some(23), "{}", words(&out));
    assert!(words(&out).contains("it is the target itself"), "{}", words(&out));
    assert_eq!(fs::read(home.path().join("tree/sub/precious")).unwrap(), b"y\n");
}
