//! The built program against hosts that do not behave: a script in place of ssh is all that it sees of them.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};

/// A home of its own, with a file to send and a host that does what `script` says.
struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new(script: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("file"), "words\n").unwrap();
        fs::write(dir.path().join("host"), script).unwrap();
        Self { dir }
    }

    /// Sends the file to it.
    fn cp(&self) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["cp", "-S", SSH, "file", "host:file"]).current_dir(self.dir.path());
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::null());
        command
    }
}

const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/ssh");

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

/// What the start script says where haul is missing, and what it then takes.
const ASK: &str = r#"printf 'HAUL-NEED Linux %s\n' "$(uname -m)""#;
const TAKE: &str = r#"head -c "$n" >/dev/null"#;

/// Longer than any test waits for a host; a program that waits for it fails its test then, and does not hang.
const SILENT: &str = "exec sleep 60";

#[test]
fn a_host_that_asks_for_our_program_again_is_refused() {
    let scene = Scene::new(&format!("read -r w n; {ASK}; {TAKE}; {ASK}; {TAKE}"));
    let output = scene.cp().output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("asks for our program again"), "{said}");
    assert_eq!(output.status.code(), Some(12), "{said}");
}

#[test]
fn a_host_that_asks_for_our_program_and_stops_is_given_up() {
    for does in [SILENT.to_owned(), format!("{TAKE}; {SILENT}")] {
        let scene = Scene::new(&format!("read -r w n; {ASK}; {does}"));
        let output = scene.cp().args(["--timeout", "1"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(30), "{does}: {said}");
    }
}

#[test]
fn an_interrupt_ends_the_wait_for_a_host_whatever_it_does() {
    // It does not read what it asked for; it prints a little now and then, and never a word of ours. After half a minute (600
    // times 50 ms) it has waited in vain, and says so.
    let lasts =
        |doing: &str| format!("i=0; while [ $i -lt 600 ]; do {doing} sleep 0.05; i=$((i + 1)); done; : >in-vain");
    let deaf = format!("read -r w n; {ASK}; {}", lasts(""));
    for (does, sign) in [(deaf, "putting haul"), (lasts("printf x;"), "connecting")] {
        let scene = Scene::new(&does);
        let cp = scene.cp();
        // Whatever runs the tests may ignore signals itself; that is not handed on.
        let mut command = Command::new("env");
        command.arg("--default-signal=INT").arg(cp.get_program()).args(cp.get_args()).arg("-v");
        command.current_dir(scene.dir.path()).env("HOME", scene.dir.path()).stdin(Stdio::null());
        let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
        assert!(lines.by_ref().any(|line| line.unwrap().contains(sign)), "{does}");
        assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
        let said: Vec<String> = lines.map(Result::unwrap).collect();
        assert_eq!(child.wait().unwrap().code(), Some(20), "{does}: {said:?}");
        assert!(!scene.dir.path().join("in-vain").exists(), "it ended only with the host: {does}");
    }
}
