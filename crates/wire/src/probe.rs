//! Both ends' observations of a probe.

use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::bounded;
use crate::limits::MAX_PATHS;
use crate::summary::{LaneTime, SenderSummary};

/// The sending side's view.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeSent {
    /// The lanes and the path.
    pub sender: SenderSummary,
    /// Mean deviation of the round trip under load.
    pub jitter_us: u32,
    /// The kernel's largest packet; 0: unknown.
    pub mtu_bytes: u32,
    /// TCP's largest segment; 0: unknown.
    pub segment_bytes: u32,
    /// Each path's bytes in the second half.
    #[serde(deserialize_with = "bounded::at_most::<_, _, { MAX_PATHS as usize }>")]
    pub steady_bytes: Vec<u64>,
}

/// The receiving side's view.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbeArrived {
    /// Lane time by cause.
    pub time: LaneTime,
    /// Payload bytes.
    pub arrived_bytes: u64,
    /// First to last byte.
    pub elapsed_us: u64,
    /// The second half, without the ramp.
    pub steady_bytes_per_s: u64,
    /// A bit for each mark; 0: none.
    pub marks_seen: u64,
}
