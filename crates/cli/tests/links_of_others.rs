//! Another user's links on named paths: nothing is made, changed or copied behind them. Links of root and the user lead
//! where they lead.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, lchown, symlink};
use std::path::Path;
use std::process::{Command, Output};

const STRANGER: u32 = 12_345;

fn haul(home: &Path, args: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
    command.args(args.split(' ')).current_dir(home).env("HOME", home);
    command.env_remove("XDG_STATE_HOME").env_remove("XDG_CONFIG_HOME").output().expect("the program starts")
}

fn is_root() -> bool {
    std::os::unix::fs::MetadataExt::uid(&fs::metadata("/proc/self").unwrap()) == 0
}

/// `shared` belongs to all; its links lead to `victim`.
fn stage() -> tempfile::TempDir {
    let home = tempfile::tempdir().unwrap();
    let top = home.path();
    for directory in ["source", "shared", "victim", "victim/empty"] {
        fs::create_dir(top.join(directory)).unwrap();
    }
    fs::set_permissions(top.join("shared"), fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(top.join("source/passwd"), "new").unwrap();
    fs::write(top.join("shared/passwd"), "of the stranger").unwrap();
    fs::write(top.join("victim/passwd"), "new").unwrap();
    fs::write(top.join("victim/list"), "passwd\n").unwrap();
    let same_time = fs::metadata(top.join("source/passwd")).unwrap().modified().unwrap();
    fs::File::options().write(true).open(top.join("victim/passwd")).unwrap().set_modified(same_time).unwrap();
    for (link, owner) in [("planted", STRANGER), ("ours", 0)] {
        symlink("../victim", top.join("shared").join(link)).unwrap();
        lchown(top.join("shared").join(link), Some(owner), Some(owner)).unwrap();
    }
    home
}

#[test]
fn nothing_is_written_changed_or_believed_behind_a_planted_link() {
    if !is_root() {
        return eprintln!("skipped: only root can give a link to another user");
    }
    for args in [
        "cp -r -t -b --backup-dir=LINK source/ shared/",
        "cp -r -t -b --backup-dir=LINK/new source/ shared/",
        "cp -r -t -b --backup-dir=/TOP/shared/LINK source/ shared/",
        "cp -r -t -n --link-dest=LINK source/ shared/",
        "cp -r -t --link-dest=../shared/LINK source/ new/",
        "cp -r -t --copy-dest=../shared/LINK source/ new/",
        "cp -r -t --compare-dest=../shared/LINK source/ new/",
        "cp -r source/ shared/LINK",
        "cp -r source/ shared/LINK/",
        "cp -r source/ shared/LINK/empty/",
        "cp source/passwd shared/LINK/new",
        "cp --files-from shared/LINK/list source/ new/",
        "cp --manifest-out shared/LINK/m source/passwd new",
        "cp --log-file shared/LINK/log source/passwd new",
        "mkdir shared/LINK/new",
        "mkdir -p shared/LINK/new/er",
        "mv source/passwd shared/LINK/new",
        "mv source/passwd shared/LINK",
        "rm shared/LINK/passwd",
        "rm -r shared/LINK/empty",
    ] {
        for (link, leads) in [("planted", false), ("ours", true)] {
            let home = stage();
            let top = home.path();
            let victim = || -> Vec<_> {
                let mut names: Vec<_> =
                    fs::read_dir(top.join("victim")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
                names.sort();
                names
            };
            let before = victim();
            let shown = args.replace("LINK", link).replace("/TOP", top.to_str().unwrap());
            let out = haul(top, &shown);
            let words = String::from_utf8_lossy(&out.stderr).into_owned();
            assert_eq!(out.status.success(), leads, "{shown}: {words}");
            if !leads {
                assert!(words.contains("another user (number 12345)"), "{shown}: {words}");
                assert_eq!(victim(), before, "{shown}");
                assert!(!top.join("new/passwd").exists(), "{shown}");
                assert_eq!(fs::read(top.join("victim/passwd")).unwrap(), b"new", "{shown}");
                assert_eq!(fs::read(top.join("shared/passwd")).unwrap(), b"of the stranger", "{shown}");
                assert!(top.join("source/passwd").exists(), "{shown}");
            }
        }
    }
}

#[test]
fn what_is_only_read_is_found_through_any_link_as_cp_finds_it() {
    if !is_root() {
        return eprintln!("skipped: only root can give a link to another user");
    }
    let home = stage();
    let top = home.path();
    // In a directory like /tmp, the kernel itself follows none.
    fs::set_permissions(top.join("shared"), fs::Permissions::from_mode(0o777)).unwrap();
    for args in ["cp -r shared/planted/ new/", "ls shared/planted/", "hash shared/planted/passwd", "du shared/planted/"]
    {
        let out = haul(top, args);
        assert!(out.status.success(), "{args}: {}", String::from_utf8_lossy(&out.stderr));
    }
    assert_eq!(fs::read(top.join("new/passwd")).unwrap(), b"new");
}
