//! The built program against hosts that do not behave: a script in place of ssh is all that it sees of them.

use std::fs;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Stdio};

/// A home of its own, with a file to send and a host that does what `script` says.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "words\n").unwrap();
        let ssh = dir.path().join("ssh");
        fs::write(&ssh, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&ssh, fs::Permissions::from_mode(0o700)).unwrap();
        Self { dir }
    }

    /// Sends the file to it.
    fn cp(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["cp", "-S", "./ssh", "file", "host:file"]).current_dir(self.dir.path());
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::null());
        command
    }
}

#[test]
fn what_the_far_side_says_through_ssh_is_escaped_and_shown_at_once() {
    // It waits for an answer that never comes; the time limit is for a program that does not show the question.
    let scene =
        Scene::new(r"printf 'Passwort f\303\274r a\033]0;owned\007\302\2332Jb\rc? ' >&2; timeout 60 cat >/dev/null");
    let mut child = scene.cp().stderr(Stdio::piped()).spawn().unwrap();
    let mut shown = vec![0; r"Passwort für a\x1b]0;owned\x07\u{9b}2Jb\x0dc? ".len()];
    child.stderr.take().unwrap().read_exact(&mut shown).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert_eq!(String::from_utf8(shown).unwrap(), r"Passwort für a\x1b]0;owned\x07\u{9b}2Jb\x0dc? ");
}

#[test]
fn lines_of_the_far_side_stay_lines() {
    let scene = Scene::new(r"printf 'one\r\ntwo\tb\n\377three' >&2; exit 255");
    let output = scene.cp().output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.starts_with("one\r\ntwo\tb\n\\xffthree"), "{said:?}");
    assert_eq!(output.status.code(), Some(14), "{said:?}");
}
