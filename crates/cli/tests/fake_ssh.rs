//! The built program against hosts that misbehave; a script stands for ssh.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A home with a file to send, and a host by `script`.
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

    fn cp(&self) -> Command {
        self.cp_from_to("file", "host:file")
    }

    fn cp_from_to(&self, source: &str, target: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(["cp", "-S", SSH, source, target]).current_dir(self.dir.path());
        command.env("HOME", self.dir.path()).env_remove("XDG_STATE_HOME").env_remove("XDG_CACHE_HOME");
        command.stdin(Stdio::null());
        command
    }
}

const SSH: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stand-ins/ssh");

#[test]
fn what_the_far_side_says_through_ssh_is_escaped_and_shown_at_once() {
    // The script waits for an answer that never comes; the time limit is for a program that hides the question.
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

#[test]
fn a_list_on_a_host_that_refuses_the_login_ends_as_any_other_question_to_it() {
    let scene = Scene::new("echo 'me@host: Permission denied (publickey).' >&2; exit 255");
    let words = |words: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(words).args(["-S", SSH]).current_dir(scene.dir.path()).env("HOME", scene.dir.path());
        let output = command.stdin(Stdio::null()).output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    let (asked, listed) = (words(&["ls", "host:"]), words(&["verify", "host:list", "."]));
    assert_eq!((listed.0, &listed.1), (asked.0, &asked.1));
    assert_eq!(listed.0, Some(5), "{}", listed.1);
}

/// The start script's request for haul where it is missing. `TAKE` reads it; the command has the size.
const ASK: &str = r#"n=${*#*; n=}; n=${n%%;*}; printf 'HAUL-NEED Linux %s\n' "$(uname -m)""#;
const TAKE: &str = r#"head -c "$n" >/dev/null"#;

/// Longer than any test waits: a program that waits for the host fails its test.
const SILENT: &str = "exec sleep 60";

#[test]
fn a_host_that_asks_for_our_program_again_is_refused() {
    let scene = Scene::new(&format!("{ASK}; {TAKE}; {ASK}; {TAKE}"));
    let output = scene.cp().output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("asks for our program again"), "{said}");
    assert_eq!(output.status.code(), Some(12), "{said}");
}

#[test]
fn a_host_that_asks_for_our_program_and_stops_is_given_up() {
    for does in [SILENT.to_owned(), format!("{TAKE}; {SILENT}")] {
        let scene = Scene::new(&format!("{ASK}; {does}"));
        let output = scene.cp().args(["--timeout", "1"]).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(30), "{does}: {said}");
    }
}

/// Runs with `-v` until `sign`, then interrupts. Returns status and further output.
fn interrupted(scene: &Scene, cp: &Command, sign: &str) -> (Option<i32>, Vec<String>) {
    let mut command = Command::new("env");
    command.arg("--default-signal=INT").arg(cp.get_program()).args(cp.get_args()).arg("-v");
    command.current_dir(scene.dir.path()).env("HOME", scene.dir.path()).stdin(Stdio::null());
    let mut child = command.stderr(Stdio::piped()).spawn().unwrap();
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines();
    assert!(lines.by_ref().any(|line| line.unwrap().contains(sign)), "{sign}");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let said: Vec<String> = lines.map(Result::unwrap).collect();
    (child.wait().unwrap().code(), said)
}

#[test]
fn an_interrupt_ends_the_wait_for_a_host_whatever_it_does() {
    // A host that never reads what it asked for, prints a little, and speaks no word of our protocol. After half a
    // minute (600 times 50 ms) it gives up and says so.
    let lasts =
        |doing: &str| format!("i=0; while [ $i -lt 600 ]; do {doing} sleep 0.05; i=$((i + 1)); done; : >in-vain");
    let deaf = format!("{ASK}; {}", lasts(""));
    for (does, sign) in [(deaf, "putting haul"), (lasts("printf x;"), "connecting")] {
        let scene = Scene::new(&does);
        let (status, said) = interrupted(&scene, &scene.cp(), sign);
        assert_eq!(status, Some(20), "{does}: {said:?}");
        assert!(!scene.dir.path().join("in-vain").exists(), "it ended only with the host: {does}");
    }
}

impl Scene {
    /// Whether the host's ssh is still there, long before its own end.
    fn is_ssh_left(&self) -> bool {
        let pid = fs::read_to_string(self.dir.path().join("pid")).unwrap();
        let (command, begun) = (format!("/proc/{}/cmdline", pid.trim()), Instant::now());
        while fs::read(&command).is_ok_and(|command| !command.is_empty()) {
            if begun.elapsed() > Duration::from_secs(20) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        false
    }
}

#[test]
fn ssh_is_not_left_behind_at_a_host_that_hangs_after_its_first_word() {
    let greet = format!("{} agent </dev/null | head -n 1", env!("CARGO_BIN_EXE_haul"));
    // The next byte shows that the first message was heard.
    let heard = "head -c 1 >/dev/null; echo it hangs now >&2";
    let scene = Scene::new(&format!("echo $$ >pid; {greet}; {heard}; {SILENT}"));
    let (status, said) = interrupted(&scene, &scene.cp(), "it hangs now");
    assert_eq!(status, Some(20), "{said:?}");
    assert!(!scene.is_ssh_left());
}

#[test]
fn the_ssh_of_the_first_of_two_hosts_is_not_left_behind_when_the_second_cannot_be_reached() {
    let first = format!("echo $$ >pid; {} agent; {SILENT}", env!("CARGO_BIN_EXE_haul"));
    let scene = Scene::new(&format!("case \"$*\" in *'-- first '*) {first};; esac; exit 255"));
    let output = scene.cp_from_to("first:file", "second:file").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(14), "{said}");
    assert!(!scene.is_ssh_left());
}

#[test]
fn the_far_side_of_a_pull_learns_that_it_ended_well() {
    // As with ssh, one process takes our words from the pipe, few bytes at a time; another is the far side.
    let far = format!("({} agent <words; echo $? >status.new; mv status.new status) &", env!("CARGO_BIN_EXE_haul"));
    let takes = "i=0; while [ $i -lt 5000 ]; do sleep 0.002; dd bs=16 count=1 2>/dev/null; i=$((i + 1)); done >words";
    let scene = Scene::new(&format!("mkfifo words; {far} {takes}"));
    let output = scene.cp_from_to("host:file", "copy").output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{said}");
    let (status, begun) = (scene.dir.path().join("status"), Instant::now());
    while !status.exists() {
        assert!(begun.elapsed() < Duration::from_secs(20), "it still runs");
        std::thread::sleep(Duration::from_millis(20));
    }
    assert_eq!(fs::read_to_string(status).unwrap(), "0\n");
}

#[test]
fn a_host_over_ssh_is_reached_before_a_daemon_which_waits_a_minute_only() {
    let scene = Scene::new("exit 255");
    for (source, target) in [("haul://127.0.0.1:1/file", "host:file"), ("host:file", "haul://127.0.0.1:1/file")] {
        let output = scene.cp_from_to(source, target).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(14), "{source} {target}: {said}");
    }
}
