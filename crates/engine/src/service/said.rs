//! What a policy has changed, and why.

use super::ServiceClass;
use super::aware::Change;

/// A change by a policy, and its reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The operator's time of a day is over.
    TimeIsOver {
        /// The allowed time.
        us: u64,
    },
    /// Others take the path away, or have gone.
    Changed(Change),
    /// Packets with this class's mark do not arrive.
    Dropped(ServiceClass),
    /// Only a part of the marked packets arrives.
    Policed(Policing),
    /// The operator's program is to be asked.
    Hook(Asks),
}

/// A policer that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policing {
    /// The path's rate with it, in bytes per second.
    pub bytes_per_s: u64,
    /// Without the mark more gets through.
    pub harms: bool,
}

/// A question to the operator's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// The network shall grant priority.
    ToRaise,
    /// The network may take it back.
    ToRelease,
}
