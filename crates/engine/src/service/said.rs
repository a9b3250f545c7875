//! What a policy has changed, and why.

use super::ServiceClass;
use super::aware::Change;

/// What a policy has changed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    /// The time that the operator allows in a day is over.
    TimeIsOver {
        /// That time.
        us: u64,
    },
    /// Others take the path away, or have gone.
    Changed(Change),
    /// Packets with the mark of this class do not arrive.
    Dropped(ServiceClass),
    /// Of the packets with the mark only a part arrives.
    Policed(Policing),
    /// The operator's program is to be asked.
    Hook(Asks),
}

/// A policer that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policing {
    /// The rate that the path lets through, in bytes per second.
    pub bytes_per_s: u64,
    /// Without the mark more gets through.
    pub harms: bool,
}

/// What is asked of the operator's program.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asks {
    /// The network shall grant priority.
    ToRaise,
    /// The network may take it back.
    ToRelease,
}
