//! Compares our emulator with netem on equal links.
//!
//! netem runs in the packaged kernel in real time (`--engine uml`). The test is alone in its file, so no other takes
//! processor time. A missing need fails under `CI`.

use std::collections::BTreeMap;
use std::ffi::OsStr;
use std::process::{Command, Stdio};

use haul_lab::uml::kernel;
use serde_json::Value;

/// Few packets a second, and a loss that 2000 show: some 20 seconds each.
const LINKS: [&str; 6] = ["--rate", "5Mbit,10Mbit", "--rtt", "60ms", "--loss", "5e-2"];

/// A busy machine spoils another figure each time, a wrong engine always the same: each figure must agree once.
const MOST_ROUNDS: usize = 6;

/// One round's limit: a hang fails only its test.
const LIMIT_S: &str = "200";

/// A busy machine delays packets; a wrong engine by far more, such as half of 60 ms.
const DELAY_ALLOWED_S: f64 = 2e-3;

/// A wrong queue or rate differs by a factor; a guest short of processor time carries less.
const RATE_AND_QUEUE_ALLOWED: f64 = 0.25;

/// A quiet machine's allowance, times this.
const BUSY: f64 = 2.0;

const FIGURES: [&str; 5] = ["delay", "rate", "loss", "queue", "fairness"];

#[test]
fn our_emulator_and_netem_do_the_same_to_packets() {
    let packaged = match kernel::find(&kernel::Places::of_user(None), false) {
        Ok(packaged) => packaged.path,
        Err(error) => {
            assert!(std::env::var("CI").is_err(), "CI must have the package user-mode-linux: {error}");
            eprintln!("skipped: the package user-mode-linux is missing: {error}");
            return;
        }
    };
    let mut told = String::new();
    let mut agreed: BTreeMap<String, bool> = BTreeMap::new();
    for round in 1..=MOST_ROUNDS {
        let (labs, news) = measure(packaged.as_os_str());
        assert_eq!(labs.len(), 2, "both links, with both engines\n{news}");
        for lab in &labs {
            let rows = lab["rows"].as_array().unwrap();
            for figure in FIGURES {
                assert!(
                    rows.iter().any(|row| row["figure"] == figure),
                    "no {figure} was seen with both: {lab}\n{news}"
                );
            }
            for row in rows {
                let of = format!("{} {} {}", lab["asked"], row["link"], row["figure"]);
                *agreed.entry(of).or_default() |= agrees(row);
            }
        }
        told += &format!("round {round}: {labs:?}\n{news}");
        if agreed.values().all(|agreed| *agreed) {
            return;
        }
    }
    agreed.retain(|_, agreed| !*agreed);
    panic!("in no round did these agree: {:?}\n{told}", agreed.keys());
}

fn measure(packaged: &OsStr) -> (Vec<Value>, String) {
    let mut lab = Command::new("timeout");
    lab.args(["--kill-after=5", LIMIT_S, env!("CARGO_BIN_EXE_haul-lab"), "calibrate", "--json"]).args(LINKS);
    lab.args(["--engine", "emulated,uml", "--tries", "1", "--kernel"]).arg(packaged);
    let output = lab.stdin(Stdio::null()).output().unwrap();
    let lines = String::from_utf8_lossy(&output.stdout);
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let compared = lines.filter(|line| line["compared"].is_array()).collect();
    (compared, String::from_utf8_lossy(&output.stderr).into_owned())
}

fn agrees(row: &Value) -> bool {
    let number = |name: &str| row[name].as_f64().unwrap();
    let (one, other, allowed) = (number("one"), number("other"), number("allowed"));
    let allowed = match row["figure"].as_str().unwrap() {
        "delay" => DELAY_ALLOWED_S,
        "rate" | "queue" => RATE_AND_QUEUE_ALLOWED * one + allowed,
        _ => BUSY * allowed,
    };
    (one - other).abs() <= allowed
}
