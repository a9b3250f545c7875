//! Whole runs over loopback.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use super::*;
use crate::topology::Topology;
use crate::units::Size;

const SPEC: &str = r#"
    name = "shell"
    title = "Copies by shell"
    paper = "After nobody."
    repeat = 2
    warm_up = 1
    timeout = "1s"
    topology = "hosts = { client = {}, server = {} }\nlinks = [{ ends = ['client', 'server'], rate = '{rate}' }]"
    sweep = { rate = ["1Gbit", "2Gbit"] }
    data = { files = 3, size = "10kB" }
    tools = [
        { rival = "good" },
        { rival = "wrong" },
        { rival = "hangs" },
        { rival = "fails", label = "fails loudly" },
        { rival = "absent" },
    ]
    plots = [{ kind = "line", x = "rate", y = "seconds", title = "Seconds" }]
    figures = [{ tool = "good", at = { rate = "1Gbit" }, rate = "3Mbit" }, { tool = "better", rate = "4Mbit" }]
"#;

fn shell_rivals(dir: &Path, tools: &[(&str, &str)]) -> Rivals {
    for (name, script) in tools {
        let text = format!("name = '{name}'\nabout = 'Test.'\ncommand = ['sh', '-c', '''{script}''']\n");
        std::fs::write(dir.join(format!("{name}.toml")), text).unwrap();
    }
    let text = "name = 'absent'\nabout = 'Test.'\nneeds = [{ program = 'no-such-program', package = 'no-such-package' }]\ncommand = ['x']";
    std::fs::write(dir.join("absent.toml"), text).unwrap();
    let mut rivals = Rivals::built_in().unwrap();
    rivals.add_dir(dir).unwrap();
    rivals
}

fn options(dir: &Path) -> RunOptions {
    let cancelled = Arc::new(AtomicBool::new(false));
    RunOptions { results: dir.join("results"), resume: None, work: dir.join("work"), cancelled }
}

fn here(_: &Topology) -> Result<Box<dyn Testbed>, TestbedError> {
    Ok(Box::new(Here))
}

fn without_clock(samples: &[Sample]) -> Vec<Sample> {
    samples
        .iter()
        .cloned()
        .map(|mut sample| {
            sample.seconds = sample.seconds.map(|_| 0.5);
            sample.rate_mbit_per_s = sample.rate_mbit_per_s.map(|_| 0.48);
            sample.cpu_client_s = sample.cpu_client_s.map(|_| 0.01);
            sample.unix_s = 1_795_219_200;
            sample
        })
        .collect()
}

#[test]
fn good_wrong_and_hanging_tools_become_samples_a_table_and_a_plot() {
    let dir = tempfile::tempdir().unwrap();
    let rivals = shell_rivals(
        dir.path(),
        &[
            ("good", "cp -r {data} {target}"),
            ("wrong", "cp -r {data}/. {target}; printf x >>{target}/f00001.bin"),
            ("hangs", "sleep 1000 & wait"),
            ("fails", "echo no route to host >&2; exit 7"),
        ],
    );
    let spec = ExperimentSpec::parse(SPEC).unwrap();
    let mut finished = 0;
    let mut count = |event: &RunEvent<'_>| finished += usize::from(matches!(event, RunEvent::Finished(_)));
    let outcome = run(&spec, &rivals, &options(dir.path()), &mut here, &mut count).unwrap();
    assert_eq!((finished, outcome.samples.len(), outcome.cancelled), (24, 24, false));
    assert_eq!(read_samples(&outcome.dir).unwrap(), outcome.samples);
    assert!(outcome.missing[0].why.contains("no-such-program (in no-such-package)"));

    let of = |tool: &str| outcome.samples.iter().find(|sample| sample.tool == tool).unwrap();
    assert_eq!((of("good").valid, of("good").verified, of("good").exit), (true, Some(true), Some(0)));
    let wrong = of("wrong");
    assert_eq!((wrong.valid, wrong.verified), (false, Some(false)));
    assert_eq!(wrong.why.as_deref(), Some("f00001.bin differs from the source at byte 10000"));
    assert_eq!(of("hangs").why.as_deref(), Some("still running after 1 s, killed"));
    let fails = of("fails loudly");
    assert_eq!((fails.why.as_deref(), fails.output.as_deref()), (Some("exit status 7"), Some("no route to host")));

    let samples = without_clock(&outcome.samples);
    let report = report(&spec, &samples, &outcome.missing, &outcome.dir).unwrap();
    insta::assert_snapshot!(report.markdown, @r"
    # Copies by shell

    After nobody.

    Experiment `shell`, engine loopback, 3 files of 10 kB. Median (min..max) of n samples.

    | rate  | tool         |   n |           seconds |            Mbit/s | cpu-s/GB |   elsewhere |
    |-------|--------------|----:|------------------:|------------------:|---------:|------------:|
    | 1Gbit | good         |   2 | 0.50 (0.50..0.50) | 0.48 (0.48..0.48) |      333 | 3.00 Mbit/s |
    | 1Gbit | wrong        |   0 |                 - |                 - |        - |             |
    | 1Gbit | hangs        |   0 |                 - |                 - |        - |             |
    | 1Gbit | fails loudly |   0 |                 - |                 - |        - |             |
    | 2Gbit | good         |   2 | 0.50 (0.50..0.50) | 0.48 (0.48..0.48) |      333 |             |
    | 2Gbit | wrong        |   0 |                 - |                 - |        - |             |
    | 2Gbit | hangs        |   0 |                 - |                 - |        - |             |
    | 2Gbit | fails loudly |   0 |                 - |                 - |        - |             |

    Measured elsewhere, and not here:

    - better: 4 Mbit/s

    Missing:

    - absent: not installed: no-such-program (in no-such-package)

    Samples that do not count:

    - wrong at rate 1Gbit: 2 (f00001.bin differs from the source at byte 10000)
    - hangs at rate 1Gbit: 2 (still running after 1 s, killed)
    - fails loudly at rate 1Gbit: 2 (exit status 7)
    - wrong at rate 2Gbit: 2 (f00001.bin differs from the source at byte 10000)
    - hangs at rate 2Gbit: 2 (still running after 1 s, killed)
    - fails loudly at rate 2Gbit: 2 (exit status 7)
    ");
    assert_eq!(report.plots.len(), 2);
    assert!(outcome.dir.join("summary.json").exists());
    assert!(!dir.path().join("work").join(format!("run-{}", std::process::id())).exists());
}

#[test]
fn an_experiment_that_asks_for_it_is_watched_while_it_copies() {
    let dir = tempfile::tempdir().unwrap();
    // Slow enough for a dozen intervals of 20 ms.
    let rivals = shell_rivals(dir.path(), &[("good", "sleep 0.25; cp -r {data} {target}")]);
    let plot = "plots = [{ kind = 'time', y = 'rate', title = 'Course', at = { rate = '1Gbit' } }, ";
    let text = SPEC.replacen("title = ", "intervals = '20ms'\ntitle = ", 1).replacen("plots = [", plot, 1);
    let mut spec = ExperimentSpec::parse(&text).unwrap();
    spec.keep_tools(&["good".into()]).unwrap();
    let outcome = run(&spec, &rivals, &options(dir.path()), &mut here, &mut |_| {}).unwrap();
    for sample in &outcome.samples {
        let last = sample.intervals.last().unwrap();
        assert!(sample.intervals.len() >= 5 && (last.to_s - sample.seconds.unwrap()).abs() < 0.2, "{sample:?}");
    }
    let report = report(&spec, &outcome.samples, &[], &outcome.dir).unwrap();
    assert!(report.markdown.contains(" ramp s |"), "{}", report.markdown);
    let lines = std::fs::read_to_string(outcome.dir.join("intervals.tsv")).unwrap();
    let all: usize = outcome.samples.iter().map(|sample| sample.intervals.len()).sum();
    assert_eq!(lines.lines().count(), all + 1);
    assert!(lines.contains("good rate 2Gbit #1\t0.000\t"), "{lines}");
}

#[test]
fn an_interrupted_run_goes_on_without_measuring_anything_twice() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("log");
    let script = format!("echo x >>{}; cp -r {{data}} {{target}}", log.display());
    let rivals = shell_rivals(dir.path(), &[("good", &script)]);
    let mut spec = ExperimentSpec::parse(SPEC).unwrap();
    spec.keep_tools(&["good".into()]).unwrap();
    let mut options = options(dir.path());
    let runs = || std::fs::read_to_string(&log).unwrap_or_default().lines().count();

    let cancel = options.cancelled.clone();
    let seen = Cell::new(0);
    let mut stop_after_two = |event: &RunEvent<'_>| {
        if matches!(event, RunEvent::Finished(_)) {
            seen.set(seen.get() + 1);
            cancel.store(seen.get() == 2, Ordering::Relaxed);
        }
    };
    let first = run(&spec, &rivals, &options, &mut here, &mut stop_after_two).unwrap();
    assert!(first.cancelled);
    assert_eq!((first.samples.len(), runs()), (2, 2));

    // A crash mid-line costs only that sample.
    let path = first.dir.join("samples.jsonl");
    let whole = std::fs::read_to_string(&path).unwrap();
    std::fs::write(&path, format!("{whole}{{\"point\":{{")).unwrap();
    options.cancelled.store(false, Ordering::Relaxed);
    options.resume = Some(first.dir.clone());
    let second = run(&spec, &rivals, &options, &mut here, &mut |_| {}).unwrap();
    assert_eq!((second.samples.len(), runs(), second.cancelled), (6, 6, false));
    assert_eq!(second.samples[..2], first.samples[..]);

    let mut no_lab = |_: &Topology| -> Result<Box<dyn Testbed>, TestbedError> { Err("no lab is needed".into()) };
    let third = run(&spec, &rivals, &options, &mut no_lab, &mut |_| {}).unwrap();
    assert_eq!((third.samples.len(), runs()), (6, 6));

    spec.set_data(DataSpec { files: 1, size: Size { bytes: 5 } }).unwrap();
    let error = run(&spec, &rivals, &options, &mut here, &mut |_| {}).unwrap_err().to_string();
    assert!(error.contains("another version of shell"), "{error}");
}

struct Told {
    fault: Option<&'static str>,
    /// A megabit of others between two calls.
    bytes_of_others: Option<Cell<u64>>,
}

impl Testbed for Told {
    fn spawn(&self, host: &str, command: std::process::Command) -> std::io::Result<std::process::Child> {
        Here.spawn(host, command)
    }

    fn address(&self, host: &str) -> Option<std::net::Ipv4Addr> {
        Here.address(host)
    }

    fn fault(&self) -> Option<String> {
        self.fault.map(str::to_owned)
    }

    fn bytes_of_others(&self) -> Option<u64> {
        self.bytes_of_others.as_ref().map(|bytes| bytes.replace(bytes.get() + 125_000))
    }

    fn counters(&self, host: &str) -> Option<ByteCounters> {
        Here.counters(host)
    }

    fn engine(&self) -> &str {
        "emulated"
    }
}

#[test]
fn a_sample_of_a_network_at_fault_does_not_count() {
    let dir = tempfile::tempdir().unwrap();
    let rivals = shell_rivals(dir.path(), &[("good", "cp -r {data} {target}")]);
    let mut spec = ExperimentSpec::parse(SPEC).unwrap();
    spec.keep_tools(&["good".into()]).unwrap();
    let mut faulty = |_: &Topology| -> Result<Box<dyn Testbed>, TestbedError> {
        Ok(Box::new(Told { fault: Some("the emulator was 12 ms late"), bytes_of_others: None }))
    };
    let outcome = run(&spec, &rivals, &options(dir.path()), &mut faulty, &mut |_| {}).unwrap();
    let summary = Summary::of(&spec, &outcome.samples, &[]);
    assert_eq!((summary.rows[0].seconds, summary.rows[0].invalid), (None, 2));
    assert_eq!(summary.rows[0].reasons, ["the emulator was 12 ms late"]);
}

#[test]
fn where_something_happens_to_the_network_each_tool_has_one_of_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let rivals = shell_rivals(dir.path(), &[("good", "cp -r {data} {target}"), ("fails", "exit 7")]);
    let events = "events = [{ at = '1s', link = 'client-server', down = true }]";
    for (more, labs) in [("", 2), (events, 12)] {
        let text = SPEC.replace("'{rate}' }]\"", &format!("'{{rate}}' }}]\\n{more}\""));
        let mut spec = ExperimentSpec::parse(&text).unwrap();
        spec.keep_tools(&["good".into(), "fails".into()]).unwrap();
        let made = Cell::new(0);
        let mut count = |_: &Topology| -> Result<Box<dyn Testbed>, TestbedError> {
            made.set(made.get() + 1);
            Ok(Box::new(Told { fault: None, bytes_of_others: Some(Cell::new(0)) }))
        };
        let outcome = run(&spec, &rivals, &options(dir.path()), &mut count, &mut |_| {}).unwrap();
        assert_eq!((made.get(), outcome.samples.len()), (labs, 12), "{more}");
        let summary = Summary::of(&spec, &outcome.samples, &[]);
        let others = summary.rows[0].others_mbit_per_s.unwrap();
        assert!(others.median > 0.0 && summary.markdown(&spec).contains("others Mbit/s"), "{others:?}");
    }
}

#[test]
fn a_lab_that_does_not_start_says_for_which_point() {
    let dir = tempfile::tempdir().unwrap();
    let rivals = shell_rivals(dir.path(), &[("good", "true")]);
    let spec = ExperimentSpec::parse(SPEC).unwrap();
    let mut broken = |_: &Topology| -> Result<Box<dyn Testbed>, TestbedError> { Err("no TUN devices here".into()) };
    let error = run(&spec, &rivals, &options(dir.path()), &mut broken, &mut |_| {}).unwrap_err().to_string();
    assert_eq!(error, "the lab for rate 1Gbit did not start: no TUN devices here");
}

/// `HAUL_LAB_RIVALS=scp,curl` tries only some.
#[test]
fn installed_rivals_copy_what_they_are_given() {
    let dir = tempfile::Builder::new().prefix("haul-lab-rivals-").tempdir().unwrap();
    // Servers that give up root must reach the files.
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let mut rivals = Rivals::built_in().unwrap();
    if let Some(haul) = std::env::var_os("HAUL_BIN") {
        rivals.set_program("haul", haul.into());
    }
    let only = std::env::var("HAUL_LAB_RIVALS").unwrap_or_default();
    let mut failures = BTreeMap::new();
    for rival in rivals.iter().filter(|rival| only.is_empty() || only.split(',').any(|name| name == rival.name)) {
        let missing = rivals.missing_of(&rival.name);
        if !missing.is_empty() {
            let programs: Vec<&str> = missing.iter().map(|need| need.program.as_str()).collect();
            eprintln!("skipped: {} (not installed: {})", rival.name, programs.join(", "));
            continue;
        }
        for files in [1, 3] {
            let vars = if rival.name == "iperf3" { "vars = { duration = 1 }" } else { "" };
            let mut spec = ExperimentSpec::parse(&format!(
                "name = 'try'\ntitle = 'Try'\nrepeat = 1\ntimeout = '20s'\ndata = {{ size = '3MB', files = {files} }}\n\
                 topology = 'hosts = {{ client = {{}}, server = {{}} }}'\n[[tools]]\nrival = '{}'\n{vars}",
                rival.name
            ))
            .unwrap();
            spec.set_repeat(1).unwrap();
            if rivals.of_tool(&spec.tools[0], files).is_err() {
                continue;
            }
            let outcome = run(&spec, &rivals, &options(dir.path()), &mut here, &mut |_| {}).unwrap();
            let sample = &outcome.samples[0];
            eprintln!(
                "{} x{files}: valid {} {:?} s, {:?} Mbit/s, cpu {:?} + {:?}",
                rival.name,
                sample.valid,
                sample.seconds,
                sample.rate_mbit_per_s,
                sample.cpu_client_s,
                sample.cpu_server_s
            );
            if !sample.valid {
                failures.insert(format!("{} x{files}", rival.name), format!("{:?}\n{:?}", sample.why, sample.output));
            }
        }
    }
    let failures: Vec<String> = failures.iter().map(|(name, why)| format!("{name}: {why}")).collect();
    assert!(failures.is_empty(), "{}", failures.join("\n").replace("\\n", "\n"));
}

#[test]
fn tools_of_the_experiments_understand_their_arguments() {
    let dir = tempfile::Builder::new().prefix("haul-lab-tools-").tempdir().unwrap();
    std::fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let rivals = Rivals::built_in().unwrap();
    let mut failures = Vec::new();
    for (name, text) in EXPERIMENTS {
        let mut spec = ExperimentSpec::parse(text).unwrap();
        for values in spec.sweep.values_mut() {
            values.truncate(1);
        }
        spec.set_repeat(1).unwrap();
        spec.set_data(DataSpec { files: spec.data.files.min(3), size: Size { bytes: 100_000 } }).unwrap();
        spec.setup.clear();
        for tool in spec.tools.iter_mut().filter(|tool| tool.rival == "iperf3") {
            tool.vars.insert("duration".into(), Scalar("1".into()));
        }
        let outcome = match run(&spec, &rivals, &options(dir.path()), &mut here, &mut |_| {}) {
            Ok(outcome) => outcome,
            Err(ExperimentError::NoTools { missing, .. }) => {
                eprintln!("skipped: {name}\n{missing}");
                continue;
            }
            Err(error) => panic!("{name}: {error}"),
        };
        for missing in &outcome.missing {
            eprintln!("skipped: {name}: {}: {}", missing.label, missing.why);
        }
        for sample in outcome.samples.iter().filter(|sample| !sample.valid) {
            failures.push(format!("{name}: {}: {:?}\n{:?}", sample.tool, sample.why, sample.output));
        }
        let report = report(&spec, &outcome.samples, &outcome.missing, &outcome.dir).unwrap();
        if let Some(keep) = std::env::var_os("HAUL_LAB_KEEP_PLOTS") {
            std::fs::write(Path::new(&keep).join(format!("{name}.md")), &report.markdown).unwrap();
            for (number, path) in report.plots.iter().enumerate() {
                let extension = path.extension().unwrap().to_string_lossy();
                std::fs::copy(path, Path::new(&keep).join(format!("{name}-{number}.{extension}"))).unwrap();
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n").replace("\\n", "\n"));
}
