//! The end of a job by an error.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// Ends the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// The kind.
    pub fault: AbortFault,
    /// The failed act and its object.
    pub what: String,
    /// The cause.
    pub cause: Option<String>,
    /// A hint.
    pub hint: Option<String>,
}

/// Kinds of errors, converted by hand to the front end's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum AbortFault {
    Usage,
    FileIo,
    Space,
    Protocol,
    Network,
    Authentication,
    Verification,
    Timeout,
    Interrupted,
    Busy,
    Storage,
    Allowance,
    Missing,
}
