//! The roles of an agent.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::fault::CodecFault;
use crate::limits::{MAX_PROBE_MS, MAX_SPEC_ITEMS};
use crate::place::Question;

/// One end of a session.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Role {
    /// Reads these sources.
    Sender {
        /// Paths as typed.
        #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
        sources: Vec<Vec<u8>>,
    },
    /// Writes to this target.
    Receiver {
        /// Path as typed.
        target: Vec<u8>,
    },
    /// Writes chunks into another host's open files beneath this target.
    Mover {
        /// Path as typed.
        target: Vec<u8>,
    },
    /// Sends chunks of another host's files beneath these sources.
    SourceMover {
        /// Paths as typed.
        #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
        sources: Vec<Vec<u8>>,
    },
    /// Measures the path: receives, then sends, throwing data away.
    Probe {
        /// Milliseconds each way; 1 to [`MAX_PROBE_MS`].
        time_ms: u32,
    },
    /// Answers a question, without lanes.
    Place {
        /// The question.
        question: Question,
    },
}

impl Role {
    /// The number of paths, within limits.
    pub(crate) fn paths(&self) -> Result<usize, CodecFault> {
        Ok(match self {
            Role::Sender { sources } | Role::SourceMover { sources } => sources.len(),
            Role::Receiver { .. } | Role::Mover { .. } => 1,
            Role::Probe { time_ms } if (1..=MAX_PROBE_MS).contains(time_ms) => 0,
            Role::Probe { .. } => return Err(CodecFault::Limit("time of a probe")),
            Role::Place { question } => {
                question.check_limits()?;
                question.paths.len()
            }
        })
    }
}
