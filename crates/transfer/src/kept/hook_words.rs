//! What a session, the keeper of its hooks, and the hooks say to each other: JSON, one object a line.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::class_policy::HookCommands;

/// From a session to the keeper of its hooks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The path, which the answer names.
    pub(crate) path: u16,
    pub(crate) commands: Commands,
    pub(crate) request: Request,
}

/// [`HookCommands`], as they travel and are kept.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Commands {
    pub(crate) on_raise: Vec<String>,
    pub(crate) on_release: Vec<String>,
    pub(crate) time_limit_ms: u64,
}

impl From<&HookCommands> for Commands {
    fn from(commands: &HookCommands) -> Self {
        let HookCommands { on_raise, on_release, time_limit } = commands.clone();
        Self { on_raise, on_release, time_limit_ms: u64::try_from(time_limit.as_millis()).unwrap_or(u64::MAX) }
    }
}

impl Commands {
    pub(crate) fn time_limit(&self) -> Duration {
        Duration::from_millis(self.time_limit_ms)
    }
}

/// What a hook reads from its standard input.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Request {
    pub(crate) event: Event,
    /// The class that is asked for, or given back.
    pub(crate) class: String,
    /// Number of the path in its session.
    pub(crate) path: u16,
    /// Addresses of the ends, the sender's first; empty: unknown.
    pub(crate) local: String,
    pub(crate) remote: String,
    /// Null: as much as there is.
    pub(crate) rate_bytes_per_s: Option<u64>,
    /// Until so many seconds after the epoch; null: until it is released.
    pub(crate) until_unix_s: Option<u64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Event {
    Raise,
    Release,
}

/// What a hook writes to its standard output. Nothing, and exit status 0, means: granted as asked.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct Answer {
    pub(crate) granted: bool,
    /// Another rate than was asked for.
    pub(crate) rate_bytes_per_s: Option<u64>,
    /// The address of this host to send from.
    pub(crate) local: Option<String>,
    /// Ports to send from, first and last.
    pub(crate) ports: Option<(u16, u16)>,
    /// For people.
    pub(crate) reason: Option<String>,
}

/// From the keeper to the session.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Answered {
    pub(crate) path: u16,
    pub(crate) event: Event,
    pub(crate) answer: Answer,
}
