//! Signals to the built program. A pipe as manifest holds it at a known point: open at both ends, it shows that
//! handlers are set and the next line is awaited.

use std::fs::{self, File};
use std::io::Write;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use haul_transfer::manifest_file::{HEADER, RootHasher, Trailer};

/// Starts `haul verify PIPE` under a shell after `prepare`, and opens the pipe. The test's runner may ignore signals
/// (nohup, a background job).
fn start(dir: &Path, prepare: &str) -> (Child, File) {
    let pipe = dir.join("manifest");
    assert!(Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let child = Command::new("env")
        .args(["--default-signal=INT,TERM,HUP", "sh", "-c"])
        .args([&format!("{prepare} exec \"$0\" verify manifest tree"), env!("CARGO_BIN_EXE_haul")])
        .current_dir(dir)
        .stderr(Stdio::null())
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    fs::create_dir(dir.join("tree")).unwrap();
    let mut writer = File::options().write(true).open(&pipe).unwrap();
    writeln!(writer, "{HEADER}").unwrap();
    (child, writer)
}

fn signal(child: &Child, name: &str) {
    let kill = format!("kill -{name} {}", child.id());
    assert!(Command::new("sh").args(["-c", &kill]).status().unwrap().success());
}

fn finish(mut writer: File) {
    let (files, root) = RootHasher::default().finish();
    let _ = writeln!(writer, "{}", Trailer { files, bytes: 0, root }.format());
}

#[test]
fn the_first_signal_ends_at_the_next_safe_point_with_20() {
    for name in ["INT", "TERM", "HUP"] {
        let dir = tempfile::tempdir().unwrap();
        let (mut child, writer) = start(dir.path(), "");
        signal(&child, name);
        finish(writer);
        assert_eq!(child.wait().unwrap().code(), Some(20), "{name}");
    }
}

#[test]
fn a_second_signal_ends_at_once_with_20() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, _writer) = start(dir.path(), "");
    // The kernel merges pending signals of a kind, so a third may be necessary.
    for _ in 0..1000 {
        if child.try_wait().unwrap().is_some() {
            break;
        }
        signal(&child, "INT");
        std::thread::sleep(Duration::from_millis(5));
    }
    assert_eq!(child.wait().unwrap().code(), Some(20));
}

#[test]
fn a_signal_that_nohup_ignores_stays_ignored() {
    let dir = tempfile::tempdir().unwrap();
    let (mut child, writer) = start(dir.path(), "trap '' HUP;");
    signal(&child, "HUP");
    finish(writer);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}
