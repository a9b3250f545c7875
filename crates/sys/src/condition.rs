//! What tests need of their host.

use std::fmt::Display;

/// Says why a test does not run here. Under CI it fails instead: a green run would promise what nobody looked at.
pub fn unmet(why: impl Display) {
    assert!(std::env::var_os("CI").is_none(), "it cannot run here: {why}");
    eprintln!("skipped: {why}");
}
