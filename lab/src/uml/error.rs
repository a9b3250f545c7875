//! Failures of a run in a kernel.

use std::time::Duration;

/// Why there is no result.
#[derive(Debug, thiserror::Error)]
pub enum UmlError {
    /// The host's file system refused.
    #[error("cannot {what}: {error}")]
    Io {
        /// The act and its object.
        what: String,
        /// The system's error.
        error: std::io::Error,
    },
    /// A value cannot be passed to a kernel.
    #[error("{what}: {why}")]
    Refused {
        /// The refused part.
        what: String,
        /// The advice.
        why: String,
    },
    /// The kernel ended without the guest's status.
    #[error("the kernel {kernel} ended before the command did ({how}); its last words:\n{console}\n  hint:  {hint}")]
    NoStatus {
        /// The kernel.
        kernel: String,
        /// The kernel's exit status.
        how: String,
        /// The console's end.
        console: String,
        /// The possible cause.
        hint: &'static str,
    },
    /// The guest could not make the lab.
    #[error("the guest gave up: {0}")]
    Guest(String),
    /// The guest's network failed.
    #[error(transparent)]
    Network(#[from] crate::netem::NetemError),
    /// The run took too long.
    #[error("stopped after {} s: the limit for one run", .0.as_secs())]
    TooLong(Duration),
    /// The user interrupted.
    #[error("interrupted")]
    Interrupted,
}

impl UmlError {
    pub(crate) fn io(what: impl Into<String>) -> impl FnOnce(std::io::Error) -> UmlError {
        let what = what.into();
        move |error| UmlError::Io { what, error }
    }
}
