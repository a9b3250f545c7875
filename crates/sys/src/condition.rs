//! What tests need of their host.

use std::fmt::Display;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Says why a test does not run here. Under CI it fails instead: a green run would promise what nobody looked at.
pub fn unmet(why: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "it cannot run here: {why}");
    eprintln!("skipped: {why}");
}

/// A scenario is tried so often at most.
const TRIES: u32 = 5;

/// Runs a scenario about what the page cache holds, and again where it fails: others may have written back (`sync`) or taken (a host that wants
/// cold pages back) what it counts on. What is wrong is wrong each time.
pub fn despite_others(scenario: impl Fn()) {
    for _ in 1..TRIES {
        if catch_unwind(AssertUnwindSafe(&scenario)).is_ok() {
            return;
        }
    }
    scenario();
}
