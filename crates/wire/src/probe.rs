//! The observations of both ends of a probe.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::MAX_PATHS;
use crate::summary::{LaneTime, SenderSummary};

/// The sending side's view of a probe.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSent {
    /// The lanes and the path.
    pub sender: SenderSummary,
    /// Mean deviation of the round-trip time under load.
    pub jitter_us: u32,
    /// Largest packet that the kernel sends on this path; 0: unknown.
    pub mtu_bytes: u32,
    /// Largest segment of TCP, without headers; 0: unknown.
    pub segment_bytes: u32,
    /// The bytes that each path of `sender` delivered in the second half of the time, in the same order.
    #[serde(deserialize_with = "bounded::at_most::<_, _, { MAX_PATHS as usize }>")]
    pub steady_bytes: Vec<u64>,
}

/// The receiving side's view of a probe.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeArrived {
    /// The time of its lanes, by cause.
    pub time: LaneTime,
    /// Payload bytes.
    pub arrived_bytes: u64,
    /// Time from the first of them to the last.
    pub elapsed_us: u64,
    /// The rate in the second half of the time: without the ramp.
    pub steady_bytes_per_s: u64,
    /// A bit for each mark that arrived; 0: none was seen.
    pub marks_seen: u64,
}
