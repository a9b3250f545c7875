//! The person at the terminal of a command that asks a far side.

use std::io::{self, Write as _};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::{Event, Observer};

use crate::text::printable::printable;

/// Ignores a closed standard error.
pub fn say(line: &str) {
    let _ = writeln!(io::stderr(), "{line}");
}

pub struct Person {
    pub interrupted: Arc<AtomicBool>,
}

impl Observer for Person {
    fn on_event(&self, event: &Event) {
        if let Event::Warning { text } = event {
            say(&format!("warning: {}", printable(text)));
        }
    }

    fn interrupted(&self) -> bool {
        self.interrupted.load(Ordering::Relaxed)
    }
}
