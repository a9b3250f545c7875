//! Our emulator beside netem: the same links, measured with the same probes, one after the other.
//!
//! netem runs in the packaged kernel in real time (`--engine uml`), at rates that it keeps up with. Alone in its file, so that no other
//! test takes the processor from it. What is missing is said, and fails where `CI` is set.

use std::process::{Command, Stdio};

use haul_lab::uml::kernel;

/// Two rates, a loss that 2000 packets show. Some 20 seconds with each engine; what a busy machine spoils is measured again.
const LINKS: [&str; 6] = ["--rate", "10Mbit,20Mbit", "--rtt", "30ms", "--loss", "5e-2"];

/// A deadline: what hangs fails its test, not the whole run.
const LIMIT_S: &str = "500";

/// What the emulator says of itself.
const BUSY: &str = "the emulator was short of processor time";

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
    lab.args(["--kill-after=5", LIMIT_S, env!("CARGO_BIN_EXE_haul-lab"), "calibrate"]).args(LINKS);
    lab.args(["--engine", "emulated,uml", "--tries", "10", "--kernel"]).arg(packaged);
    let output = lab.stdin(Stdio::null()).output().unwrap();
    let (table, news) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    if !output.status.success() && std::env::var("CI").is_err() && table.contains(BUSY) {
        eprintln!("skipped: this machine is too busy to say\n{table}");
        return;
    }
    assert!(output.status.success(), "{table}\n{news}");
    let last = table.lines().last().unwrap_or_default();
    assert_eq!(last, "emulated and uml agree: 2 of 2 labs are alike", "{table}\n{news}");
    // All five figures were seen with both, of both links.
    let compared =
        table.lines().skip_while(|line| !line.starts_with("Engines ")).filter(|line| line.contains("Mbit/s x"));
    let cells: Vec<usize> = compared.map(|line| line.split(" | ").filter(|cell| *cell != "-").count()).collect();
    assert_eq!(cells, [7, 7], "{table}");
}
