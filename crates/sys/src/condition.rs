//! Conditions of the host that tests need.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Says why a test does not run. Under CI it fails.
pub fn unmet(why: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "it cannot run here: {why}");
    eprintln!("skipped: {why}");
}

const TRIES: u32 = 5;

/// Repeats a failed scenario about the page cache: others may write pages back (`sync`), or reclaim cold ones.
pub fn despite_others(scenario: impl Fn()) {
    for _ in 1..TRIES {
        if catch_unwind(AssertUnwindSafe(&scenario)).is_ok() {
            return;
        }
    }
    scenario();
}
