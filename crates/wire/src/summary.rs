//! Findings of each end about its host and the path: for choices while it runs, and for the report.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::bounded;
use crate::limits::{
    MAX_CONGESTION_CONTROL_BYTES, MAX_CONGESTION_CONTROLS, MAX_LANES, MAX_PATHS, MAX_SUBFLOWS, MAX_TEXT_BYTES,
};
pub use crate::service::{Arrival, MarkEffect, PathService};

/// A connection's limits at a host (tcp(7), socket(7)). 0 and empty: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostLimits {
    /// `net.core.rmem_max`
    pub rmem_max_bytes: u64,
    /// `net.core.wmem_max`
    pub wmem_max_bytes: u64,
    /// Third value of `net.ipv4.tcp_rmem`
    pub tcp_rmem_max_bytes: u64,
    /// Third value of `net.ipv4.tcp_wmem`
    pub tcp_wmem_max_bytes: u64,
    /// `net.ipv4.tcp_congestion_control`
    pub congestion_control: String,
    /// `net.ipv4.tcp_allowed_congestion_control`
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CONGESTION_CONTROLS>")]
    pub allowed_congestion_controls: Vec<String>,
}

impl HostLimits {
    /// Whether a host may say so.
    pub fn is_within_limits(&self) -> bool {
        self.congestion_control.len() <= MAX_TEXT_BYTES
            && self.allowed_congestion_controls.iter().all(|name| name.len() <= MAX_TEXT_BYTES)
    }
}

/// An earlier job's findings about a path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPath {
    /// Smallest round-trip time.
    pub rtt_min_us: u32,
    /// The path's rate.
    pub capacity_bytes_per_s: u64,
    /// Useful lanes.
    pub lanes: u16,
    /// Repeated without a queue, of a million bytes.
    pub random_loss_ppm: u32,
    /// Suitable congestion control.
    pub congestion_control: String,
}

impl KnownPath {
    /// Whether a peer may say so.
    pub fn is_within_limits(&self) -> bool {
        is_congestion_control(&self.congestion_control) && self.lanes <= MAX_LANES
    }
}

/// Whether this may name a congestion control: files keep names in lines, so they hold no separator.
pub fn is_congestion_control(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    (1..=MAX_CONGESTION_CONTROL_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// The path, as its sender saw it. Rates are of all lanes; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSummary {
    /// Smallest round-trip time.
    pub rtt_min_us: u32,
    /// Median of the smoothed round-trip time less the smallest.
    pub queueing_us: u32,
    /// Repeated, of a million bytes.
    pub resent_ppm: u32,
    /// The rate, as far as seen.
    pub capacity_bytes_per_s: u64,
    /// Most under way on a lane: the smaller of send buffer and receive window.
    pub window_bytes: u64,
    /// Carrying lanes at the end.
    pub lanes: u16,
    /// Their congestion control.
    pub congestion_control: String,
    /// Standard deviation of the rate over whole seconds after the ramp, in parts per thousand of the mean; 0: fewer than three.
    pub rate_variation_permille: u32,
    /// Waiting time by cause.
    pub time: PathTime,
    /// When nothing came through.
    pub outages: Outages,
    /// Findings for the next job, unless a guess.
    pub known: Option<KnownPath>,
    /// The lanes' request to the network.
    pub service: PathService,
}

/// A session's path, as its sender saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnePath {
    /// Number.
    pub number: u16,
    /// The sender's address.
    pub local: Option<Address>,
    /// The receiver's, as seen here.
    pub remote: Option<Address>,
    /// The sender's interface; empty: unknown.
    pub device: String,
    /// The state at the end.
    pub state: PathState,
    /// Bytes delivered.
    pub delivered_bytes: u64,
    /// The summary.
    pub summary: PathSummary,
    /// Bytes between addresses over MPTCP.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SUBFLOWS>")]
    pub subflows: Vec<Subflow>,
}

/// A path's bytes between two addresses over MPTCP.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// The sender's address.
    pub local: Address,
    /// The receiver's address.
    pub remote: Address,
    /// The last second's rate; in a summary, of all the time.
    pub rate_bytes_per_s: u64,
    /// Bytes acknowledged.
    pub delivered_bytes: u64,
    /// The slowest, smoothed.
    pub rtt_us: u32,
    /// Repeated, of a million bytes.
    pub resent_ppm: u32,
}

/// The last state of a path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathState {
    /// Carried data.
    #[default]
    Carries,
    /// Unused: it adds nothing.
    Rests,
    /// The path let nothing through any more.
    Lost,
}

/// A path's last second, for observers, all lanes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathNow {
    /// Number.
    pub path: u16,
    /// Acknowledged bytes.
    pub rate_bytes_per_s: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// The smallest so far.
    pub rtt_min_us: u32,
    /// Repeated, of a million bytes.
    pub resent_ppm: u32,
    /// Carrying lanes.
    pub lanes: u16,
    /// Our own bound against a queue.
    pub pacing_bytes_per_s: Option<u64>,
    /// The cause that holds the lanes.
    pub held_by: HeldBy,
    /// Most lanes' mark (RFC 2474).
    pub mark: u8,
    /// Lanes with another mark.
    pub marked_lanes: u16,
    /// See [`OnePath`].
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SUBFLOWS>")]
    pub subflows: Vec<Subflow>,
}

/// The cause that holds a sender's lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[allow(missing_docs)]
pub enum HeldBy {
    #[default]
    Unknown,
    Ramp,
    Capacity,
    Contention,
    ReceiveWindow,
    SendBuffer,
    Loss,
    Jitter,
    /// No data.
    Source,
    /// The asked rate limit.
    RateLimit,
}

/// Times in which the network passed nothing, although there was something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages {
    /// How many.
    pub count: u32,
    /// Their time together.
    pub us: u64,
}

/// Lane time spent waiting for the network, by cause, in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTime {
    /// Growing.
    pub ramp_us: u64,
    /// Our data filled the link.
    pub capacity_us: u64,
    /// Others' data filled it, too.
    pub contention_us: u64,
    /// A receive window smaller than the path.
    pub receive_window_us: u64,
    /// A send buffer smaller than the path.
    pub send_buffer_us: u64,
    /// Losses without a queue.
    pub loss_us: u64,
    /// Packets overtaken, as if lost.
    pub jitter_us: u64,
    /// The network passed nothing.
    pub outage_us: u64,
    /// Data under way could not have gone faster.
    pub latency_us: u64,
}

/// A later lane began this lane's chunk and died: its data does not count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Void {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The lane.
    pub lane: u16,
}

/// Lane time by cause, in microseconds over all lanes of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTime {
    /// Storage.
    pub storage_us: u64,
    /// Hashing, compressing, encrypting or decrypting.
    pub cpu_us: u64,
    /// The network.
    pub network_us: u64,
    /// Work.
    pub idle_us: u64,
    /// The rate limit.
    pub rate_us: u64,
}

/// The receiver's last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverSummary {
    /// Lane time by cause.
    pub time: LaneTime,
    /// Payload, verified or not.
    pub arrived_bytes: u64,
    /// Read back from the medium, perhaps again.
    pub reread_bytes: u64,
    /// Chunks that stood wrong, asked for again.
    pub repaired_chunks: u64,
    /// Earlier runs' bytes, found right.
    pub read_again_bytes: u64,
    /// Earlier runs' bytes, by journal.
    pub trusted_bytes: u64,
    /// A bit for each mark; 0: none.
    pub marks_seen: u64,
}

/// The sender's last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderSummary {
    /// Lane time by cause.
    pub time: LaneTime,
    /// All paths together.
    pub path: PathSummary,
    /// One by one; none without TCP.
    #[serde(deserialize_with = "bounded::at_most::<_, _, { MAX_PATHS as usize }>")]
    pub paths: Vec<OnePath>,
    /// Removed source files and links.
    pub removed: u64,
}

impl SenderSummary {
    /// Whether a sender may say so.
    pub fn is_within_limits(&self) -> bool {
        self.path.is_within_limits() && self.paths.iter().all(OnePath::is_within_limits)
    }
}

impl OnePath {
    fn is_within_limits(&self) -> bool {
        self.number < MAX_PATHS && self.device.len() <= MAX_TEXT_BYTES && self.summary.is_within_limits()
    }
}

impl PathSummary {
    /// Whether a sender may say so.
    pub fn is_within_limits(&self) -> bool {
        self.congestion_control.len() <= MAX_TEXT_BYTES
            && self.known.as_ref().is_none_or(KnownPath::is_within_limits)
            && self.service.is_within_limits()
    }
}

impl PathTime {
    /// The sum of both.
    pub fn plus(&self, other: &Self) -> Self {
        let sum = |of: fn(&Self) -> u64| of(self).saturating_add(of(other));
        Self {
            ramp_us: sum(|time| time.ramp_us),
            capacity_us: sum(|time| time.capacity_us),
            contention_us: sum(|time| time.contention_us),
            receive_window_us: sum(|time| time.receive_window_us),
            send_buffer_us: sum(|time| time.send_buffer_us),
            loss_us: sum(|time| time.loss_us),
            jitter_us: sum(|time| time.jitter_us),
            outage_us: sum(|time| time.outage_us),
            latency_us: sum(|time| time.latency_us),
        }
    }

    /// The sum of all causes.
    pub fn total_us(&self) -> u64 {
        let PathTime { ramp_us, capacity_us, contention_us, receive_window_us, send_buffer_us, .. } = self;
        let PathTime { loss_us, jitter_us, outage_us, latency_us, .. } = self;
        let of_windows = [ramp_us, capacity_us, contention_us, receive_window_us, send_buffer_us];
        of_windows
            .into_iter()
            .chain([loss_us, jitter_us, outage_us, latency_us])
            .fold(0, |total, us| total.saturating_add(*us))
    }
}
