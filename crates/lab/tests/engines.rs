//! Our emulator beside netem: the same links, measured with the same probes, one after the other.
//!
//! netem runs in the packaged kernel in real time (`--engine uml`), at rates that it keeps up with. Alone in its file, so that no other
//! test takes the processor from it. What is missing is said, and fails where `CI` is set.

use std::process::{Command, Stdio};

use haul_lab::uml::kernel;
use serde_json::Value;

/// Two rates, a loss that 2000 packets show. Some 20 seconds with each engine.
const LINKS: [&str; 6] = ["--rate", "10Mbit,20Mbit", "--rtt", "30ms", "--loss", "5e-2"];

/// What a busy machine disturbed is measured again; a quiet one needs one try, of ten seconds.
const TRIES: &str = "4";

/// A deadline: what hangs fails its test, not the whole run.
const LIMIT_S: &str = "300";

/// A busy machine delays packets of both; how exact an engine is by itself `haul-lab calibrate` judges, on a quiet one. What the engines make
/// of a link differs by far more when one of them is wrong: a queue or a rate by a factor, a delay by half of 30 ms.
const DELAY_ALLOWED_S: f64 = 2e-3;

/// The other figures may differ by so many times what a quiet machine is allowed.
const BUSY: f64 = 2.0;

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
    let mut lab = Command::new("timeout");
    lab.args(["--kill-after=5", LIMIT_S, env!("CARGO_BIN_EXE_haul-lab"), "calibrate", "--json"]).args(LINKS);
    lab.args(["--engine", "emulated,uml", "--tries", TRIES, "--kernel"]).arg(packaged);
    let output = lab.stdin(Stdio::null()).output().unwrap();
    let (lines, news) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    let lines = lines.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let compared: Vec<Value> = lines.filter(|line| line["compared"].is_array()).collect();
    assert_eq!(compared.len(), 2, "both links, with both engines\n{news}");
    for lab in &compared {
        let rows = lab["rows"].as_array().unwrap();
        for figure in ["delay", "rate", "loss", "queue", "fairness"] {
            let mut of_figure = rows.iter().filter(|row| row["figure"] == figure).peekable();
            assert!(of_figure.peek().is_some(), "no {figure} was seen with both: {lab}\n{news}");
            for row in of_figure {
                let number = |name: &str| row[name].as_f64().unwrap();
                let allowed = if figure == "delay" { DELAY_ALLOWED_S } else { BUSY * number("allowed") };
                assert!((number("one") - number("other")).abs() <= allowed, "{row}\n{lab}\n{news}");
            }
        }
    }
}
