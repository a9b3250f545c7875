//! Conditions of the host that tests need.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Says why a test does not run here. Under CI it fails instead: a green run must mean that every test ran.
pub fn unmet(why: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "it cannot run here: {why}");
    eprintln!("skipped: {why}");
}

const TRIES: u32 = 5;

/// Runs a scenario about the page cache, and repeats it if it fails: other programs may write pages back (`sync`), and
/// a host may reclaim cold pages.
pub fn despite_others(scenario: impl Fn()) {
    for _ in 1..TRIES {
        if catch_unwind(AssertUnwindSafe(&scenario)).is_ok() {
            return;
        }
    }
    scenario();
}
