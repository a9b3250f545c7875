//! An error as JSON.

use haul_job::Error;
use serde::{Deserialize, Serialize};

use crate::json::line::to_line;
use crate::text::failure;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub struct ErrorLine {
    pub fault: String,
    pub what: String,
    pub cause: Option<String>,
    pub hint: Option<String>,
    pub exit_code: u8,
}

pub fn of_error(error: &Error) -> ErrorLine {
    let exit = failure::of_fault(error.fault);
    ErrorLine {
        fault: exit.name.to_owned(),
        what: error.what.clone(),
        cause: error.cause.clone(),
        hint: failure::hint(error).map(str::to_owned),
        exit_code: exit.code,
    }
}

/// The only line of a command that failed before it began.
pub fn only_line(error: &Error) -> String {
    #[derive(Serialize)]
    struct OnlyLine {
        event: &'static str,
        #[serde(flatten)]
        error: ErrorLine,
        at_s: f64,
    }
    to_line(&OnlyLine { event: "error", error: of_error(error), at_s: 0.0 })
}
