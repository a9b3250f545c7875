//! The bar of a dozen kinds of real copies on a terminal, compared with what came.
//!
//! a copy in a terminal -> each new text of the bar, with its time -> percent and time left -> compared with the whole

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::LazyLock;
use std::time::{Duration, Instant};

use haul_e2e::{Lab, Run, at, code, needs, plant, scratch};
use regex::Regex;

#[derive(Clone, Copy, Debug)]
struct Shown {
    at_s: f64,
    percent: f64,
    left_s: Option<f64>,
}

/// A wrong bar runs back by no more points; figures without a fraction add one.
const RUNS_BACK: f64 = 5.0 + 1.0;

/// Copies of a few seconds verify chunks of up to 4 MiB: the bar may be wrong by these points.
const WITHIN: f64 = 20.0;

/// The time left has whole seconds, and a short copy ends with a flush.
const LEFT_WITHIN_S: f64 = 2.0;
/// At a turn to small files, the first and slowest teach their cost. In shares of the whole time; up to 0.46 was measured,
/// for a second.
const LEFT_WITHIN: f64 = 0.5;

/// The time left may be wrong in the first part of a copy.
const JUDGED_FROM: f64 = 0.35;

const LOOK_EVERY: Duration = Duration::from_millis(20);

static PERCENT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(\d+) %").expect("a constant"));
static LEFT: LazyLock<Regex> = LazyLock::new(|| Regex::new(r"(?:(\d+):)?(\d+):(\d\d) left").expect("a constant"));

impl Shown {
    fn of(text: &str, at_s: f64) -> Option<Self> {
        let percent = PERCENT.captures(text)?[1].parse().ok()?;
        let left_s = LEFT.captures(text).map(|found| {
            let number = |n: usize| found.get(n).map_or(0.0, |part| part.as_str().parse().expect("digits"));
            number(1) * 3600.0 + number(2) * 60.0 + number(3)
        });
        Some(Self { at_s, percent, left_s })
    }
}

/// Returns the bars, and the time of the whole.
#[track_caller]
fn watched(run: Run) -> (Vec<Shown>, f64) {
    let start = Instant::now();
    let mut running = run.start();
    let (mut shown, mut seen, mut ended) = (Vec::new(), 0, false);
    while !ended {
        ended = running.has_ended();
        let text = running.stdout_so_far();
        let new = String::from_utf8_lossy(&text[seen..]).into_owned();
        if let Some(last) = new.rfind('\r') {
            let at_s = start.elapsed().as_secs_f64();
            shown.extend(new[..last].split('\r').filter_map(|bar| Shown::of(bar, at_s)));
            seen += last;
        }
        std::thread::sleep(LOOK_EVERY);
    }
    let whole_s = start.elapsed().as_secs_f64();
    running.wait().expect(code::OK);
    (shown, whole_s)
}

fn on_a_terminal(dir: &Path, words: &str) -> Run {
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let line = format!("stty cols 200; '{}' cp {words}", program.display());
    Run::new("script").args(["-qec", &line, "/dev/null"]).env("HOME", dir).env("TERM", "xterm").current_dir(dir)
}

#[track_caller]
fn runs_hardly_back(kind: &str, shown: &[Shown]) {
    let mut peak = 0.0_f64;
    for bar in shown {
        assert!(bar.percent >= peak - RUNS_BACK, "{kind}: back from {peak}: {bar:?}");
        peak = peak.max(bar.percent);
    }
}

#[track_caller]
fn is_true(kind: &str, shown: &[Shown], whole_s: f64) {
    runs_hardly_back(kind, shown);
    let judged: Vec<_> = shown.iter().filter(|bar| bar.at_s > JUDGED_FROM * whole_s).collect();
    assert!(judged.len() > 3, "{kind}: {whole_s} s, {shown:?}");
    for bar in judged {
        let truth = bar.at_s / whole_s * 100.0;
        assert!((bar.percent - truth).abs() < WITHIN, "{kind}: {truth:.0} of {whole_s:.1} s: {bar:?}");
        if let Some(left_s) = bar.left_s {
            let true_s = whole_s - bar.at_s;
            assert!(
                (left_s - true_s).abs() < LEFT_WITHIN_S.max(LEFT_WITHIN * whole_s),
                "{kind}: {true_s:.1} are left: {bar:?}"
            );
        }
    }
}

#[track_caller]
fn check(kind: &str, words: &str, prepare: impl FnOnce(&Path)) {
    let dir = scratch();
    prepare(dir.path());
    let (shown, whole_s) = watched(on_a_terminal(dir.path(), words));
    is_true(kind, &shown, whole_s);
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn the_bar_is_true_of_one_file_and_of_many() {
    needs!(Haul);
    check("one large file", "--rate 5MB source target", |dir| plant::file(&dir.join("source"), 24 << 20, 1));
    check("many small files", "-r --rate 3MB source target", |dir| plant::many(&dir.join("source"), 4_000, 4_000, 1));
    check("a few of some size", "-r --rate 5MB source target", |dir| plant::many(&dir.join("source"), 40, 600_000, 1));
}

fn small_and_large(dir: &Path, large: &str) {
    plant::many(&dir.join("source"), 5_000, 1_000, 1);
    plant::file(&dir.join("source").join(large), 32 << 20, 2);
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn the_bar_is_true_of_small_files_and_a_large_one_whichever_comes_first() {
    needs!(Haul);
    check("small then large", "-r --rate 5MB source target", |dir| small_and_large(dir, "zz"));
    check("large then small", "-r --rate 5MB source target", |dir| small_and_large(dir, "0"));
    // An unlimited copy's lesson must not make it worse.
    let dir = scratch();
    plant::file(&dir.path().join("large"), 400 << 20, 1);
    small_and_large(dir.path(), "zz");
    for words in ["large taught", "-r source taught-too"] {
        on_a_terminal(dir.path(), words).run().expect(code::OK);
    }
    let (shown, whole_s) = watched(on_a_terminal(dir.path(), "-r --rate 5MB source target"));
    is_true("small then large, taught", &shown, whole_s);
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn the_bar_is_true_of_what_stands_there_in_part() {
    needs!(Haul);
    let half = |dir: &Path| {
        plant::file(&dir.join("source"), 40 << 20, 1);
        let program = haul_e2e::binary::find().expect("asked for with needs!");
        let first = Run::new(program).args(["cp", "--json", "--rate", "12MB", "source", "target"]);
        let mut running = first.env("HOME", dir).current_dir(dir).start();
        running.when_moved(16 << 20);
        drop(running.kill());
    };
    check("resumed", "--rate 5MB source target", half);
    check("files that stand there", "-r --rate 5MB source/ target", |dir| {
        plant::many(&dir.join("source"), 3_000, 1_000, 1);
        on_a_terminal(dir, "-r source/ target").run().expect(code::OK);
        plant::file(&dir.join("source/new"), 24 << 20, 2);
    });
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn the_bar_is_true_of_holes_and_of_what_a_rule_leaves_out() {
    needs!(Haul);
    check("mostly holes", "--rate 5MB source target", |dir| {
        let file = fs::File::create(dir.join("source")).expect("own directory");
        for part in 0..6 {
            file.write_all_at(&vec![1 + part; 4 << 20], u64::from(part) << 28).expect("space");
        }
        file.set_len(2 << 30).expect("own file");
    });
    check("large ones are left out", "-r --rate 5MB --max-size 10M source target", |dir| {
        plant::many(&dir.join("source"), 40, 600_000, 1);
        plant::file(&dir.join("source/a large one"), 100 << 20, 2);
        plant::file(&dir.join("source/z large one"), 100 << 20, 3);
    });
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn the_bar_is_true_of_a_pull_over_ssh() {
    needs!(Haul, Namespaces);
    let lab = Lab::pair();
    let source = lab.data("alpha").join("source");
    plant::many(&source, 40, 600_000, 1);
    // The first login brings the program.
    lab.cp().arg(at("alpha", &source)).arg(lab.data("home").join("first")).run().expect(code::OK);
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let words = format!(
        "stty cols 200; '{}' cp -r --rate 3MB -F '{}' '{}' '{}'",
        program.display(),
        lab.ssh_config().display(),
        at("alpha", &source).display(),
        lab.data("home").join("second").display()
    );
    let (shown, whole_s) = watched(lab.home().run("script").env("TERM", "xterm").args(["-qec", &words, "/dev/null"]));
    is_true("pull over ssh", &shown, whole_s);
}

#[test]
#[ignore = "the clock of a busy machine judges no bar: run it alone with --ignored bars::"]
fn two_jobs_of_one_session_have_a_true_bar_each() {
    needs!(Haul);
    let dir = scratch();
    plant::file(&dir.path().join("source"), 20 << 20, 1);
    plant::text(&dir.path().join("list"), "source one\nsource two\n");
    let (shown, whole_s) = watched(on_a_terminal(dir.path(), "--rate 5MB --batch list"));
    let (first, second): (Vec<Shown>, Vec<Shown>) = shown.iter().partition(|bar| bar.at_s < whole_s / 2.0);
    for (kind, bars, from_s) in [("first of two", first, 0.0), ("second of two", second, whole_s / 2.0)] {
        let bars: Vec<Shown> = bars.into_iter().map(|bar| Shown { at_s: bar.at_s - from_s, ..bar }).collect();
        is_true(kind, &bars, whole_s / 2.0);
    }
}

#[test]
fn a_stream_whose_end_nobody_knows_promises_no_time() {
    needs!(Haul, Namespaces);
    let lab = Lab::pair();
    let there = at("alpha", lab.data("alpha").join("stream"));
    let program = haul_e2e::binary::find().expect("asked for with needs!");
    let words = format!(
        "stty cols 200; (for n in 1 2 3; do head -c 3000000 /dev/zero; sleep 1; done) | '{}' cp -F '{}' - '{}'",
        program.display(),
        lab.ssh_config().display(),
        there.display()
    );
    let (shown, whole_s) = watched(lab.home().run("script").env("TERM", "xterm").args(["-qec", &words, "/dev/null"]));
    let before_the_end: Vec<_> = shown.iter().filter(|bar| bar.at_s < whole_s - 1.0).collect();
    assert!(before_the_end.is_empty(), "{before_the_end:?}");
}
