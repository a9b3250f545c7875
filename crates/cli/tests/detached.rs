//! Detached copies, with the built program.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("small"), "words\n").unwrap();
        fs::write(dir.path().join("large"), vec![7; 4 << 20]).unwrap();
        Self { dir }
    }

    fn haul(&self, line: &[&str]) -> Output {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(line).current_dir(self.dir.path()).env("HOME", self.dir.path()).stdin(Stdio::null());
        for name in ["XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_RUNTIME_DIR", "COLUMNS"] {
            command.env_remove(name);
        }
        command.output().unwrap()
    }

    fn says(&self, line: &[&str]) -> String {
        let output = self.haul(line);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self, id: &str) -> serde_json::Value {
        let shown: serde_json::Value = serde_json::from_str(&self.says(&["status", "--json", id])).unwrap();
        shown["copies"][0].clone()
    }

    fn until(&self, id: &str, state: &str) -> serde_json::Value {
        let deadline = Instant::now() + Duration::from_secs(60);
        loop {
            let status = self.status(id);
            if status["state"] == state {
                return status;
            }
            assert!(Instant::now() < deadline, "{status}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a copy that takes a day.
    fn slow(&self) {
        let said = self.says(&["cp", "--detach", "--rate", "8kbit", "large", "slow/"]);
        assert!(said.contains("goes on by itself"), "{said}");
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }
}

impl Drop for Scene {
    fn drop(&mut self) {
        for id in ["1", "2"] {
            self.haul(&["stop", id]);
        }
    }
}

#[test]
fn a_detached_copy_has_no_terminal_and_is_seen_stopped_and_resumed() {
    let scene = Scene::new();
    assert!(scene.says(&["status"]).contains("no copy goes on by itself"));
    scene.slow();
    let status = scene.until("1", "running");
    let pid = status["pid"].as_u64().unwrap();
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    // proc(5): behind the name come state, parent, group, session, terminal.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    assert_eq!((fields[3], fields[4]), (pid.to_string().as_str(), "0"), "a session of its own, without a terminal");
    assert!(scene.says(&["status"]).contains("  1  running"));
    assert!(scene.says(&["stop", "1"]).contains("has stopped"));
    let ended = scene.until("1", "ended");
    assert_eq!(ended["ended"]["result"], "interrupted");
    assert!(
        scene.says(&["log", "1"]).contains("stopped by a signal") || scene.says(&["log", "1"]).contains("interrupted")
    );
    assert_eq!(scene.haul(&["stop", "1"]).status.code(), Some(1));
    assert_eq!(scene.haul(&["log", "7"]).status.code(), Some(1));
    scene.says(&["cp", "large", "slow/"]);
    assert_eq!(fs::read(scene.path("slow/large")).unwrap(), vec![7; 4 << 20]);
}

#[test]
fn the_rate_of_a_copy_is_shown_changed_and_lifted_while_it_runs() {
    let scene = Scene::new();
    scene.slow();
    scene.until("1", "running");
    assert_eq!(scene.says(&["rate", "1"]), "copy 1: at most 8.00 kbit/s\n");
    assert!(scene.says(&["status"]).contains(", at most 8.00 kbit/s"));
    assert_eq!(scene.says(&["rate", "1", "16kbit"]), "copy 1: at most 16.0 kbit/s from now on\n");
    assert_eq!(scene.status("1")["rate"]["limit_bytes_per_s"], 2000);
    let table = "00:00-24:00 32kbit, else 5Gbit";
    assert_eq!(scene.says(&["rate", "1", table]), format!("copy 1: at most 32.0 kbit/s from now on ({table})\n"));
    let shown: serde_json::Value = serde_json::from_str(&scene.says(&["rate", "--json", "1"])).unwrap();
    assert_eq!((&shown["asked"], &shown["limit_bytes_per_s"]), (&table.into(), &4000.into()), "{shown}");
    for wrong in ["fast", "16", "08:00-18:00 1Mbit, 17:00-19:00 2Mbit"] {
        assert_eq!(scene.haul(&["rate", "1", wrong]).status.code(), Some(1), "{wrong}");
    }
    assert_eq!(scene.says(&["rate", "1", "none"]), "copy 1: no limit from now on\n");
    scene.says(&["wait", "1"]);
    assert_eq!(fs::read(scene.path("slow/large")).unwrap(), vec![7; 4 << 20]);
    let log = scene.says(&["log", "1"]);
    assert!(log.contains("the rate limit is 16.0 kbit/s from now on"), "{log}");
    assert!(log.contains("there is no rate limit from now on"), "{log}");
    for line in [&["rate", "1", "1Mbit"][..], &["rate", "1"]] {
        let output = scene.haul(line);
        assert_eq!(output.status.code(), Some(1), "{output:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("copy 1 has ended"), "{output:?}");
    }
    let offered = scene.says(&["complete", "zsh", "--", "haul", "rate", ""]);
    assert!(offered.lines().any(|line| line.starts_with("1\tdone: large -> slow/")), "{offered}");
}

/// Entries of another user in the state directory are no wish.
#[test]
fn only_the_user_of_a_copy_changes_its_rate() {
    let scene = Scene::new();
    scene.slow();
    scene.until("1", "running");
    let record = scene.path(".local/state/haul/copies/1");
    std::os::unix::fs::symlink(scene.path("small"), record.join("rate")).unwrap();
    let mode = |mode| fs::set_permissions(&record, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    mode(0o777);
    let output = scene.haul(&["rate", "1", "none"]);
    assert_ne!(output.status.code(), Some(0), "others may write there: {output:?}");
    mode(0o700);
    assert_eq!(scene.status("1")["rate"]["limit_bytes_per_s"], 1000);
}

#[test]
fn a_copy_whose_process_was_killed_is_named_as_such() {
    let scene = Scene::new();
    scene.slow();
    let pid = scene.until("1", "running")["pid"].as_u64().unwrap();
    assert!(Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap().success());
    scene.until("1", "died");
    let said = scene.says(&["status", "1"]);
    assert!(said.contains("died") && said.contains("the same command goes on"), "{said}");
}

#[test]
fn a_copy_that_is_over_at_once_says_how_it_ended_and_notifies() {
    let scene = Scene::new();
    let told = scene.path("told by mail");
    let notify = format!("dd status=none 'of={}'", told.display());
    let said = scene.says(&["cp", "--detach", "--notify", &notify, "small", "to"]);
    assert!(said.contains("copied 1 file") || said.contains("goes on by itself"), "{said}");
    scene.until("1", "ended");
    assert_eq!(fs::read(scene.path("to")).unwrap(), b"words\n");
    let report: serde_json::Value = serde_json::from_slice(&fs::read(&told).unwrap()).unwrap();
    assert_eq!((&report["target"]["path"], &report["report"]["files_moved"]), (&"to".into(), &1.into()));
    assert!(scene.says(&["log", "1"]).contains("copied 1 file"));
    fs::create_dir(scene.path("dir")).unwrap();
    let output = scene.haul(&["cp", "--detach", "missing", "to"]);
    assert!(output.status.code() == Some(23), "{output:?}");
    assert!(String::from_utf8(output.stderr).unwrap().contains("missing"));
    let output = scene.haul(&["cp", "--detach", "--files-from", "-", "dir", "to"]);
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn copies_are_waited_for_and_their_log_is_followed() {
    let scene = Scene::new();
    scene.slow();
    scene.until("1", "running");
    let haul = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.current_dir(scene.dir.path()).env("HOME", scene.dir.path()).env_remove("XDG_STATE_HOME");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        command
    };
    let mut waiting = haul().args(["wait"]).spawn().unwrap();
    let mut following = haul().args(["log", "-f", "1"]).spawn().unwrap();
    let offered = scene.says(&["complete", "zsh", "--", "haul", "log", "-f", ""]);
    assert!(offered.lines().any(|line| line.starts_with("1\trunning: large -> slow/")), "{offered}");
    let done = scene.says(&["cp", "--detach", "small", "to"]);
    assert!(done.contains("copied 1 file") || done.contains("goes on by itself"), "{done}");
    assert!(scene.says(&["wait", "2"]).contains("  2  done"));
    let both = scene.says(&["status", "2", "1"]);
    assert!(both.find("  2  done").unwrap() < both.find("  1  running").unwrap(), "{both}");
    assert!(waiting.try_wait().unwrap().is_none() && following.try_wait().unwrap().is_none(), "copy 1 goes on");
    assert!(scene.says(&["stop", "1"]).contains("has stopped"));
    let waited = waiting.wait_with_output().unwrap();
    assert_eq!(waited.status.code(), Some(20), "as the copy ended: {waited:?}");
    assert!(String::from_utf8(waited.stdout).unwrap().contains("  1  stopped"));
    let followed = following.wait_with_output().unwrap();
    assert_eq!(followed.status.code(), Some(0));
    assert_eq!(String::from_utf8(followed.stdout).unwrap(), scene.says(&["log", "1"]), "to its last word");
    let shown: serde_json::Value = serde_json::from_slice(&scene.haul(&["wait", "--json", "1", "2"]).stdout).unwrap();
    assert_eq!((&shown["copies"][0]["state"], &shown["copies"][1]["id"]), (&"ended".into(), &2.into()));
    assert_eq!(scene.haul(&["wait", "7"]).status.code(), Some(1));
    assert_eq!(scene.says(&["wait"]), "", "nothing goes on");
}

#[test]
fn a_notification_that_fails_changes_no_exit_code() {
    let scene = Scene::new();
    let output = scene.haul(&["cp", "--notify", "false", "small", "to"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stderr).unwrap().contains("warning: --notify: false failed"));
    let output = scene.haul(&["cp", "--json", "--notify", "echo noise", "small", "again"]);
    assert!(String::from_utf8(output.stdout).unwrap().lines().all(|line| line.starts_with('{')));
    assert_eq!(scene.haul(&["cp", "--notify", "'", "small", "to"]).status.code(), Some(1));
}
