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
    /// Writes chunks into files that another host of the same end has opened beneath this target.
    Mover {
        /// Path as typed.
        target: Vec<u8>,
    },
    /// Sends chunks of files that another host of the same end has found beneath these sources.
    SourceMover {
        /// Paths as typed.
        #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SPEC_ITEMS>")]
        sources: Vec<Vec<u8>>,
    },
    /// Measures the path: receives from the initiator, then sends to it. The data is thrown away.
    Probe {
        /// The time each way, in milliseconds; 1 to [`MAX_PROBE_MS`].
        time_ms: u32,
    },
    /// Answers a question about its trees. It has no lanes.
    Place {
        /// The question to answer.
        question: Question,
    },
}

impl Role {
    /// The number of paths in the role, if all else is within its limits.
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
