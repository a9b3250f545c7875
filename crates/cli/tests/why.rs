//! `haul why` after copies on this machine: what is kept, where, and what is shown.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

struct Scene {
    dir: tempfile::TempDir,
}

impl Scene {
    fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        fs::create_dir(dir.path().join("tree")).unwrap();
        fs::write(dir.path().join("tree/a"), vec![7; 3 << 20]).unwrap();
        Self { dir }
    }

    fn path(&self) -> &Path {
        self.dir.path()
    }

    fn haul(&self, args: &[&str]) -> Output {
        self.command(args).output().expect("the program starts")
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_haul"));
        command.args(args).current_dir(self.path()).env("HOME", self.path().join("home"));
        command.env("XDG_STATE_HOME", self.path().join("state"));
        command
    }

    #[track_caller]
    fn says(&self, args: &[&str]) -> String {
        let output = self.haul(args);
        assert!(output.status.success() && output.stderr.is_empty(), "{args:?}: {}", text(&output.stderr));
        text(&output.stdout)
    }

    fn kept(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("state/haul")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }

    #[track_caller]
    fn json(&self, nth: &str) -> serde_json::Value {
        serde_json::from_str(&self.says(&["why", nth, "--json"])).unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn with_nothing_kept_yet_it_says_what_keeps_one() {
    let scene = Scene::new();
    for args in [&["why"][..], &["why", "--list"], &["why", "--json"]] {
        let output = scene.haul(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        let said = text(&output.stderr);
        assert!(
            said.starts_with("error: no report is kept yet\n") && said.contains("each 'haul cp' keeps a report"),
            "{said}"
        );
        assert!(output.stdout.is_empty());
    }
    assert!(scene.kept().is_empty(), "looking keeps nothing");
}

#[test]
fn after_a_copy_it_shows_where_the_time_went() {
    let scene = Scene::new();
    let closing = scene.says(&["cp", "tree", "to"]);
    let why = scene.says(&["why"]);
    let mut lines = why.lines();
    assert!(lines.next().unwrap().starts_with("tree -> to, "), "{why}");
    let again = why.split("\n\n").next().unwrap().split_once('\n').unwrap().1.replace('\n', " ");
    assert_eq!(again, closing.trim_end().trim_end_matches(" (see 'haul why')"));
    for words in ["limited by ", "where the lanes' time went", "the job\n", "the hosts\n", "processors"] {
        assert!(why.contains(words), "{words}: {why}");
    }
    assert!(why.lines().all(|line| line.chars().count() <= 100), "{why}");

    let kept = scene.kept();
    assert_eq!(kept.len(), 1);
    assert_eq!(fs::metadata(&kept[0]).unwrap().permissions().mode() & 0o777, 0o600);
    let json = scene.json("1");
    assert_eq!((&json["schema"], &json["report"]["bytes_moved"]), (&2.into(), &(3 << 20).into()));
    let time = json["report"]["time"].as_object().unwrap();
    let sum: f64 = time.values().map(|share| share.as_f64().unwrap()).sum();
    assert!((sum - 1.0).abs() < 0.01, "{time:?}");
    assert_eq!(json["report"]["source"]["place"], "this machine");
}

#[test]
fn a_rate_that_was_asked_for_is_the_limit() {
    let scene = Scene::new();
    // 3 MiB at 6 MB/s take half a second, mostly waiting.
    let closing = scene.says(&["cp", "--no-flush", "--rate", "6MB", "tree", "to"]);
    assert!(closing.trim_end().ends_with(", limited by rate limit"), "{closing}");
    let why = scene.says(&["why"]);
    assert!(why.contains("Raise the rate limit of 48.0 Mbit/s, or leave it out."), "{why}");
    assert_eq!(scene.json("1")["report"]["limit"], "rate limit");
}

#[test]
fn after_a_copy_that_failed_it_shows_the_error() {
    let scene = Scene::new();
    let output = scene.haul(&["cp", "missing", "to"]);
    assert_eq!(output.status.code(), Some(23), "{}", text(&output.stderr));
    let why = scene.says(&["why"]);
    assert!(why.contains("missing -> to, ") && why.contains("\nerror: ") && why.contains("\nuntil then\n"), "{why}");
    let json = scene.json("1");
    assert_eq!((&json["error"]["exit_code"], &json["report"]), (&23.into(), &serde_json::Value::Null));
}

#[test]
fn the_list_counts_back_from_the_last() {
    let scene = Scene::new();
    scene.says(&["cp", "tree", "one"]);
    scene.says(&["cp", "tree", "two"]);
    scene.says(&["cp", "-n", "tree", "three"]);
    let list = scene.says(&["why", "--list"]);
    let first_lines = list.lines().filter(|line| !line.starts_with("    "));
    let routes: Vec<&str> = first_lines.filter_map(|line| line.split("  ").last()).collect();
    assert_eq!(routes, ["tree -> two", "tree -> one"], "a dry run is not kept: {list}");
    assert!(scene.says(&["why", "2"]).starts_with("tree -> one, "));
    assert_eq!(scene.says(&["why", "--list", "--json"]).lines().count(), 2);
    for nth in ["0", "3", "-1", "last"] {
        assert_eq!(scene.haul(&["why", nth]).status.code(), Some(1), "{nth}");
    }
}

#[test]
fn what_another_version_kept_hides_nothing_else() {
    let scene = Scene::new();
    scene.says(&["cp", "tree", "one"]);
    fs::write(scene.path().join("state/haul/report-999999999999999-1.json"), r#"{"schema":99}"#).unwrap();
    assert_eq!(scene.haul(&["why"]).status.code(), Some(11));
    let list = scene.says(&["why", "--list"]);
    assert!(list.starts_with(" 1  cannot read ") && list.contains("\n 2  "), "{list}");
    assert!(scene.says(&["why", "2"]).starts_with("tree -> one, "));
}

#[test]
fn a_report_that_cannot_be_kept_is_no_matter_of_the_copy() {
    let scene = Scene::new();
    fs::write(scene.path().join("state"), "not a directory").unwrap();
    scene.says(&["cp", "tree", "to"]);
    let nowhere = scene.command(&["cp", "tree", "again"]).env_remove("HOME").env("XDG_STATE_HOME", "relative").output();
    assert!(nowhere.unwrap().status.success());
    assert!(!scene.path().join("relative").exists(), "a relative path is ignored");
}

#[test]
fn a_service_whose_home_is_no_directory_copies_and_has_nothing_kept() {
    let scene = Scene::new();
    for (words, says) in [(&["cp", "-r", "tree", "copy"][..], "copied"), (&["why"], "haul cp")] {
        let run = scene.command(words).env("HOME", "/dev/null").env_remove("XDG_STATE_HOME").output().unwrap();
        let said = text(&run.stdout) + &text(&run.stderr);
        assert!(said.contains(says) && !said.contains("Not a directory"), "{words:?}: {said}");
    }
    assert_eq!(fs::read(scene.path().join("copy/tree/a")).unwrap().len(), 3 << 20);
}

#[test]
fn live_adds_a_line_a_second() {
    let scene = Scene::new();
    // 3 MiB at 1.5 MB/s: two seconds.
    let output = scene.haul(&["cp", "--live", "--no-flush", "--rate", "1500kB", "tree", "to"]);
    assert!(output.status.success());
    let said = text(&output.stderr);
    let line = said.lines().next().unwrap_or_else(|| panic!("no line"));
    assert!(line.starts_with("  0.0-1.") && line.contains(" s  ") && line.contains("/s ("), "{said}");
    for flag in ["--json", "-q"] {
        assert_eq!(scene.haul(&["cp", "--live", flag, "tree", "to"]).status.code(), Some(1), "{flag}");
    }
}

#[test]
fn names_in_json_drive_no_terminal_and_are_still_whole() {
    let scene = Scene::new();
    let name = "del\u{7f}csi\u{9b}2J\u{202e}gpj.exe";
    fs::write(scene.path().join("tree").join(name), "x").unwrap();
    scene.says(&["cp", "tree", name]);
    let missing = format!("tree/{name}/missing");
    for (args, code) in [
        (&["cp", "--json", "-v", "tree", "again"][..], 0),
        (&["cp", "--json", &missing, "to"], 23),
        (&["why", "3", "--json"], 0),
        (&["why", "--list", "--json"], 0),
    ] {
        let output = scene.haul(args);
        let said = text(&output.stdout);
        assert_eq!(output.status.code(), Some(code), "{said:?}");
        let driving = ['\u{7f}', '\u{9b}', '\u{202e}'];
        assert!(!said.contains(driving) && !text(&output.stderr).contains(driving), "{said:?}");
        let lines = said.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
        assert!(lines.into_iter().any(|line| holds(&line, name)), "{said:?}");
    }
}

fn holds(value: &serde_json::Value, words: &str) -> bool {
    match value {
        serde_json::Value::String(text) => text.contains(words),
        serde_json::Value::Array(values) => values.iter().any(|value| holds(value, words)),
        serde_json::Value::Object(fields) => fields.values().any(|value| holds(value, words)),
        _ => false,
    }
}
