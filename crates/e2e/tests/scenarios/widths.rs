//! The bar on narrow terminals and in the background, and reports' width.

use std::path::Path;
use std::sync::LazyLock;

use haul_e2e::{Lab, Run, code, needs, plant, scratch};
use regex::Regex;

static FIELD: LazyLock<Regex> = LazyLock::new(|| {
    let fields = [
        r"~?\d+ %",
        r"~?\d+(:\d\d)+ left",
        r"flushing [\d,]+ files?(, [\d.]+ [KMG]?i?B)?",
        r"no data for \d+ s",
        r"[\d.]+ [KMG]?i?B/s \([\d.]+ [kMG]bit/s\)",
        r"[\d.]+ [KMG]?i?B of [\d.]+ [KMG]?i?B\+?",
        r"[\d,]+ of [\d,]+\+? files",
        r"\d+ lanes?",
    ];
    Regex::new(&format!("^(?:{})$", fields.join("|"))).expect("a constant")
});

static CONTROL: LazyLock<Regex> = LazyLock::new(|| Regex::new("\x1b\\[[0-9;?]*[A-Za-z]").expect("a constant"));

fn on_a_terminal(dir: &Path, shell: &str) -> Run {
    let run = Run::new("script").args(["-qec", shell, "/dev/null"]);
    run.env("HOME", dir).env("TERM", "xterm").env("SHELL", "/bin/bash").current_dir(dir)
}

fn haul() -> String {
    format!("'{}'", haul_e2e::binary::find().expect("asked for with needs!").display())
}

#[test]
fn the_bar_fits_on_terminals_of_any_width_and_drops_whole_fields() {
    needs!(Haul);
    let mut most_before = 0;
    for columns in [20, 40, 60, 80, 120] {
        let dir = scratch();
        plant::file(&dir.path().join("source"), 12 << 20, 1);
        let line = format!("stty cols {columns} rows 24; {} cp --rate 6MB source target", haul());
        let text = on_a_terminal(dir.path(), &line).run().expect(code::OK).stdout_text();
        let plain = CONTROL.replace_all(&text, "");
        let mut most = 0;
        for bar in plain.split(['\r', '\n']).map(str::trim_end).filter(|bar| bar.contains(" %")) {
            if bar.starts_with("copied") {
                continue;
            }
            assert!(bar.chars().count() <= columns, "{columns}: {bar:?}");
            // The bar itself stands before a single space.
            let words = if bar.starts_with(['=', '>', ' ']) { bar.get(17..).unwrap_or_default() } else { bar };
            let fields: Vec<&str> = words.split("  ").filter(|field| !field.is_empty()).collect();
            assert!(fields.iter().all(|field| FIELD.is_match(field)), "{columns}: {bar:?}");
            most = most.max(fields.len());
        }
        assert!(most >= 2 && most >= most_before, "{columns}: {most} fields\n{plain}");
        most_before = most;
    }
    assert!(most_before >= 5, "{most_before}");
}

#[test]
fn a_job_in_the_background_draws_no_bar_until_it_comes_back() {
    needs!(Haul);
    let dir = scratch();
    plant::file(&dir.path().join("source"), 24 << 20, 1);
    let gate = "until [ -e gate ]; do sleep 0.05; done; echo IN-FRONT; fg";
    let shell = format!("stty cols 80 rows 24; set -m; {} cp --rate 6MB source target & {gate}", haul());
    let mut running = on_a_terminal(dir.path(), &format!("bash -c \"{shell}\"")).start();
    // Half has come: a bar would have been drawn.
    let drafts = || std::fs::read_dir(dir.path()).into_iter().flatten().flatten();
    running.when("half of it is there", |_| {
        use std::os::unix::fs::MetadataExt as _;
        let there = drafts().filter(|entry| entry.file_name() != "source").filter_map(|entry| entry.metadata().ok());
        there.map(|data| data.blocks() * 512).max().is_some_and(|bytes| bytes >= 12 << 20)
    });
    let before = String::from_utf8_lossy(&running.stdout_so_far()).into_owned();
    assert!(!before.contains(" %"), "{before:?}");
    std::fs::write(dir.path().join("gate"), "").expect("own directory");
    let text = running.wait().expect(code::OK).stdout_text();
    let (behind, in_front) = text.split_once("IN-FRONT").expect("the shell says so");
    assert!(!behind.contains(" %"), "{behind:?}");
    assert!(in_front.contains(" %") && in_front.contains(" left"), "{in_front:?}");
}

#[test]
fn why_probe_and_tune_fit_eighty_columns() {
    needs!(Namespaces, Haul);
    let lab = Lab::pair();
    let file = lab.data("home").join("file");
    plant::file(&file, 8 << 20, 1);
    lab.cp().arg(&file).arg(haul_e2e::at("alpha", lab.data("alpha").join("copy"))).run().expect(code::OK);
    let config = lab.ssh_config();
    let config = config.to_str().expect("it is text");
    let commands: [&[&str]; 5] = [
        &["why"],
        &["why", "--list"],
        &["probe", "-F", config, "--time", "1", "alpha"],
        &["tune", "--rate", "10Gbit", "--rtt", "100ms"],
        &["tune", "--rate", "10Gbit", "--rtt", "100ms", "--format", "sysctl"],
    ];
    for words in commands {
        let text = lab.haul().args(words).run().expect(code::OK).stdout_text();
        for line in text.lines() {
            // A path is not broken.
            let is_a_word = line.trim().split(' ').any(|word| word.len() > 40);
            assert!(line.chars().count() <= 80 || is_a_word, "{words:?}: {line}\n{text}");
        }
    }
}
