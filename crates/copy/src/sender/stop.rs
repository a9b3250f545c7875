//! Says why a unit was not sent to its end.

use std::io;

use haul_store::{StoreError, SumDiffers};
use haul_wire::control::FailureKind;

pub(super) enum Stop {
    /// The source failed: the unit is withdrawn, and the lane goes on.
    Source(String, FailureKind),
    Lane(io::Error),
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Stop::Lane(error)
    }
}

pub(super) fn cannot_read(offset: u64, error: &io::Error) -> Stop {
    // The end itself saw another version than the one that it began with.
    if error.kind() == io::ErrorKind::StaleNetworkFileHandle {
        return changed();
    }
    if let Some(differs) = error.get_ref().and_then(|inner| inner.downcast_ref::<SumDiffers>()) {
        return Stop::Source(differs.to_string(), FailureKind::Unverified);
    }
    Stop::Source(format!("cannot read at byte {offset}: {error}"), FailureKind::Io)
}

pub(super) fn changed() -> Stop {
    Stop::Source("it changed while it was read".into(), FailureKind::Changed)
}

pub(super) fn source_failure(error: &StoreError) -> FailureKind {
    if error.is_vanished() { FailureKind::Vanished } else { FailureKind::Io }
}
