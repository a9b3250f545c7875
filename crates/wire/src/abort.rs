//! The end of the job by an error, as one side tells it to the other.

use alloc::string::String;

use serde::{Deserialize, Serialize};

/// Ends the job by an error.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Abort {
    /// The kind of error.
    pub fault: AbortFault,
    /// The failed act and its object.
    pub what: String,
    /// The cause.
    pub cause: Option<String>,
    /// A hint what to try.
    pub hint: Option<String>,
}

/// Kinds of errors that end a job; converted by hand from and to those of the front end.
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
