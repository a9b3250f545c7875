//! Experiments as users run them: side by side, interrupted, killed, too large.
//!
//! Tools are lines of shell. A missing need of a lab fails under `CI`.

use std::io::{BufRead, BufReader};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

/// A hang fails only its test.
const LIMIT_S: &str = "60";

fn possible() -> bool {
    let doctor = Command::new(env!("CARGO_BIN_EXE_haul-lab")).arg("doctor").output().unwrap();
    if doctor.status.success() {
        return true;
    }
    let words = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert!(std::env::var("CI").is_err(), "no lab is possible here:\n{words}");
    eprintln!("skipped: no lab is possible here:\n{words}");
    false
}

struct Experiment {
    directory: PathBuf,
    work: PathBuf,
}

impl Experiment {
    fn new(parent: &Path, name: &str, script: &str) -> Experiment {
        let directory = parent.join(name);
        std::fs::create_dir_all(directory.join("rivals")).unwrap();
        let adapter = format!("name = 'shell'\nabout = 'A line.'\ncommand = ['sh', '-c', '''{script}''']\n");
        std::fs::write(directory.join("rivals/shell.toml"), adapter).unwrap();
        let text = "name = 'one'\ntitle = 'One'\nengine = 'loopback'\nrepeat = 1\ntimeout = '30s'\n\
            topology = \"hosts = { client = {}, server = {} }\\nlinks = [{ ends = ['client', 'server'] }]\"\n\
            data = { size = '20kB' }\ntools = [{ rival = 'shell' }]\n";
        std::fs::write(directory.join("one.toml"), text).unwrap();
        Experiment { directory, work: parent.join("work") }
    }

    fn command(&self, more: &[&str]) -> Command {
        let mut lab = Command::new("timeout");
        lab.args(["--kill-after=5", LIMIT_S, env!("CARGO_BIN_EXE_haul-lab"), "experiment"]);
        lab.arg(self.directory.join("one.toml")).arg("--rivals").arg(self.directory.join("rivals"));
        lab.arg("--results").arg(self.directory.join("results")).arg("--work").arg(&self.work).args(more);
        lab.stdin(Stdio::null());
        lab
    }

    fn run(&self, more: &[&str]) -> Output {
        self.command(more).output().unwrap()
    }

    /// Starts it, and returns when its tool writes to `started`.
    fn start(&self) -> Child {
        let child = self.command(&[]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        eventually("the tool starts", || self.directory.join("started").exists());
        child
    }

    fn samples(&self) -> Vec<serde_json::Value> {
        let runs = std::fs::read_dir(self.directory.join("results/one")).into_iter().flatten().flatten();
        let text: String =
            runs.filter_map(|run| std::fs::read_to_string(run.path().join("samples.jsonl")).ok()).collect();
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    fn left(&self) -> Vec<PathBuf> {
        std::fs::read_dir(&self.work).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    }
}

fn eventually(what: &str, mut holds: impl FnMut() -> bool) {
    let start = Instant::now();
    while !holds() {
        assert!(start.elapsed() < Duration::from_secs(30), "{what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn two_experiments_at_once_do_not_touch_each_others_files() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let waits = directory.path().join("first");
    // The first still runs when the second begins and ends.
    let script =
        format!("cp {{data}} {{target}}; : >{0}/started; until [ -e {0}/go-on ]; do sleep 0.05; done", waits.display());
    let first = Experiment::new(directory.path(), "first", &script);
    let second = Experiment::new(directory.path(), "second", "cp {data} {target}");
    let mut running = first.start();
    let output = second.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    std::fs::write(waits.join("go-on"), "").unwrap();
    assert!(running.wait().unwrap().success());
    for experiment in [&first, &second] {
        let samples = experiment.samples();
        assert_eq!((samples.len(), &samples[0]["verified"]), (1, &true.into()), "{samples:?}");
    }
    assert_eq!(first.left(), Vec::<PathBuf>::new(), "data and copies are gone");
}

#[test]
fn what_a_killed_experiment_leaves_is_removed_by_the_next() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let killed = directory.path().join("killed");
    let script = format!("cp {{data}} {{target}}; : >{}/started; sleep 100", killed.display());
    let killed = Experiment::new(directory.path(), "killed", &script);
    let next = Experiment::new(directory.path(), "next", "cp {data} {target}");
    // `timeout` would be killed alone.
    let mut lab = killed.command(&[]);
    let words: Vec<_> = lab.get_args().skip(2).map(std::ffi::OsStr::to_owned).collect();
    lab = Command::new(&words[0]);
    let mut lab = lab.args(&words[1..]).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    eventually("the tool starts", || killed.directory.join("started").exists());
    assert_eq!(killed.left().len(), 1);
    lab.kill().unwrap();
    lab.wait().unwrap();
    let output = next.run(&[]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(killed.left(), Vec::<PathBuf>::new(), "{}", text(&output));
}

#[test]
fn an_interrupted_experiment_leaves_no_data_and_goes_on() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let script = format!(
        "cp {{data}} {{target}}; [ -e {0}/started ] || {{ : >{0}/started; sleep 100; }}",
        directory.path().join("stopped").display()
    );
    let stopped = Experiment::new(directory.path(), "stopped", &script);
    let mut lab = stopped.command(&[]).stdout(Stdio::piped()).process_group(0).spawn().unwrap();
    eventually("the tool starts", || stopped.directory.join("started").exists());
    // A terminal sends Ctrl-C to all processes.
    Command::new("kill").args(["-INT", "--", &format!("-{}", lab.id())]).status().unwrap();
    let said: Vec<String> = BufReader::new(lab.stdout.take().unwrap()).lines().map_while(Result::ok).collect();
    assert_eq!(lab.wait().unwrap().code(), Some(130), "{said:?}");
    assert_eq!(stopped.left(), Vec::<PathBuf>::new());
    let hint = said.iter().find_map(|line| line.strip_prefix("interrupted; go on with --continue "));
    let output = stopped.run(&["--continue", hint.unwrap_or_else(|| panic!("{said:?}"))]);
    assert!(output.status.success(), "{}", text(&output));
    assert_eq!(stopped.samples().len(), 1);
}

#[test]
fn data_that_finds_no_room_is_refused_before_any_is_made() {
    if !possible() {
        return;
    }
    let directory = tempfile::tempdir().unwrap();
    let experiment = Experiment::new(directory.path(), "large", "cp {data} {target}");
    let cases = [
        ("0", "data: the bytes of all files must be 1 to 1099511627776, not 0"),
        ("5TB", "data: the bytes of all files must be 1 to 1099511627776, not 5000000000000"),
        ("1TB", "data and copy take 2000 GB there, and "),
    ];
    for (size, words) in cases {
        let output = experiment.run(&["--size", size]);
        assert_eq!(output.status.code(), Some(125), "{}", text(&output));
        assert!(text(&output).contains(words), "{}", text(&output));
        assert_eq!(experiment.left(), Vec::<PathBuf>::new());
        assert!(!experiment.directory.join("results").exists(), "no results of nothing");
    }
}
