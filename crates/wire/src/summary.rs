//! Findings of each end of a session about its host and the path: for choices while it runs, and for the report.

use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

use crate::address::Address;
use crate::bounded;
use crate::limits::{
    MAX_CONGESTION_CONTROL_BYTES, MAX_CONGESTION_CONTROLS, MAX_LANES, MAX_PATHS, MAX_SUBFLOWS, MAX_TEXT_BYTES,
};
pub use crate::service::{Arrival, MarkEffect, PathService};

/// The limits of one connection at a host (tcp(7), socket(7)). 0 and empty: unknown.
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
    /// Whether an honest host could have sent it.
    pub fn is_within_limits(&self) -> bool {
        self.congestion_control.len() <= MAX_TEXT_BYTES
            && self.allowed_congestion_controls.iter().all(|name| name.len() <= MAX_TEXT_BYTES)
    }
}

/// The findings of an earlier job about a path, for the start of the next one.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct KnownPath {
    /// Smallest round-trip time.
    pub rtt_min_us: u32,
    /// The rate that the path could carry.
    pub capacity_bytes_per_s: u64,
    /// Lanes that were of use.
    pub lanes: u16,
    /// Bytes sent again of a million, though no queue stood.
    pub random_loss_ppm: u32,
    /// Congestion control that suited it.
    pub congestion_control: String,
}

impl KnownPath {
    /// Whether an honest peer could have sent it.
    pub fn is_within_limits(&self) -> bool {
        is_congestion_control(&self.congestion_control) && self.lanes <= MAX_LANES
    }
}

/// Whether this may be the name of a congestion control. Names are kept in files of one line for each entry, so they
/// must hold no separator.
pub fn is_congestion_control(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'_' || byte == b'-';
    (1..=MAX_CONGESTION_CONTROL_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// The path as its sender saw it. Rates are of all lanes together; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathSummary {
    /// Smallest round-trip time.
    pub rtt_min_us: u32,
    /// Median over the samples of the time that packets stood in queues: smoothed round-trip time less the smallest.
    pub queueing_us: u32,
    /// Bytes sent again of a million bytes sent.
    pub resent_ppm: u32,
    /// The rate that the path can carry, as far as seen.
    pub capacity_bytes_per_s: u64,
    /// The most bytes that one lane may have under way: send buffer or receive window, whichever is less.
    pub window_bytes: u64,
    /// Lanes that carried data at the end.
    pub lanes: u16,
    /// Congestion control of the lanes at the end.
    pub congestion_control: String,
    /// Standard deviation of the rate over whole seconds after the ramp, in parts per thousand of the mean; 0 if there
    /// were fewer than three.
    pub rate_variation_permille: u32,
    /// The causes that held the lanes while they waited for the network.
    pub time: PathTime,
    /// The times in which nothing came through.
    pub outages: Outages,
    /// The findings for the next job on this path, unless they would be a guess.
    pub known: Option<KnownPath>,
    /// The request of its lanes to the network.
    pub service: PathService,
}

/// One of the paths of a session, as its sender saw it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OnePath {
    /// The path's number in the session.
    pub number: u16,
    /// The address at the sender.
    pub local: Option<Address>,
    /// The address at the receiver, as the sender sees it.
    pub remote: Option<Address>,
    /// The interface of the sender; empty: unknown.
    pub device: String,
    /// The state at the end.
    pub state: PathState,
    /// Bytes that its lanes delivered.
    pub delivered_bytes: u64,
    /// The summary of the path.
    pub summary: PathSummary,
    /// Over MPTCP, what its lanes carried between each pair of addresses.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SUBFLOWS>")]
    pub subflows: Vec<Subflow>,
}

/// The bytes that the lanes of a path carry between two addresses over MPTCP: the subflows of all its lanes together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subflow {
    /// The address at the sender.
    pub local: Address,
    /// The address at the receiver.
    pub remote: Address,
    /// The rate of acknowledged bytes within the last second or so; in a summary, over all the time.
    pub rate_bytes_per_s: u64,
    /// Bytes acknowledged so far.
    pub delivered_bytes: u64,
    /// Smoothed round-trip time of the slowest.
    pub rtt_us: u32,
    /// Bytes sent again of a million bytes sent.
    pub resent_ppm: u32,
}

/// The state of a path at the end of its session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum PathState {
    /// The path carried data.
    #[default]
    Carries,
    /// The path stood and was not used: it adds nothing to the others.
    Rests,
    /// The path let nothing through any more.
    Lost,
}

/// The path within the last second or so, for observers. Rates are of all lanes together.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathNow {
    /// The path's number in the session.
    pub path: u16,
    /// The rate of acknowledged bytes.
    pub rate_bytes_per_s: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// The smallest so far.
    pub rtt_min_us: u32,
    /// Bytes sent again of a million bytes sent.
    pub resent_ppm: u32,
    /// Lanes that carry data.
    pub lanes: u16,
    /// A bound that we set ourselves, so that no queue grows.
    pub pacing_bytes_per_s: Option<u64>,
    /// The cause that holds the lanes.
    pub held_by: HeldBy,
    /// The mark of most lanes (RFC 2474).
    pub mark: u8,
    /// The number of lanes that have a mark other than 0.
    pub marked_lanes: u16,
    /// See [`OnePath`].
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_SUBFLOWS>")]
    pub subflows: Vec<Subflow>,
}

/// The cause that holds the lanes of a sender.
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
    /// The lanes get no more data.
    Source,
    /// The requested rate limit.
    RateLimit,
}

/// Times in which the network passed nothing, although there was something to send.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Outages {
    /// How many there were.
    pub count: u32,
    /// How long they took together.
    pub us: u64,
}

/// Lane time spent waiting for the network, by cause, in microseconds over all lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PathTime {
    /// Growing to the speed of the path.
    pub ramp_us: u64,
    /// The link was full of our data.
    pub capacity_us: u64,
    /// The link was full, and others used a part of it.
    pub contention_us: u64,
    /// The receive window was smaller than the path.
    pub receive_window_us: u64,
    /// The send buffer was smaller than the path.
    pub send_buffer_us: u64,
    /// Packets were lost though no queue stood.
    pub loss_us: u64,
    /// Packets overtook each other, and counted as lost.
    pub jitter_us: u64,
    /// Nothing came through at all.
    pub outage_us: u64,
    /// None of these: nothing under way could have gone faster.
    pub latency_us: u64,
}

/// The end of a lane's claim: its data of a chunk does not count, because another lane began the chunk after it and
/// died.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Void {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// The lane whose data does not count.
    pub lane: u16,
}

/// Lane time by cause, in microseconds over all lanes of one side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneTime {
    /// Waiting for storage.
    pub storage_us: u64,
    /// Hashing, compressing, encrypting or decrypting.
    pub cpu_us: u64,
    /// Waiting for the network.
    pub network_us: u64,
    /// Waiting for work.
    pub idle_us: u64,
    /// Waiting for the rate limit.
    pub rate_us: u64,
}

/// The receiver's last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ReceiverSummary {
    /// The time of its lanes, by cause.
    pub time: LaneTime,
    /// Payload bytes that arrived, also those that did not verify.
    pub arrived_bytes: u64,
    /// Bytes read back from the medium, with repetitions.
    pub reread_bytes: u64,
    /// Chunks that did not stand at the target as verified, and were asked for again.
    pub repaired_chunks: u64,
    /// Bytes that earlier runs left, and that were read and found right.
    pub read_again_bytes: u64,
    /// Bytes that earlier runs left, and that count by their journals.
    pub trusted_bytes: u64,
    /// A bit for each mark that arrived; 0: none was seen.
    pub marks_seen: u64,
}

/// The sender's last word.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SenderSummary {
    /// The time of its lanes, by cause.
    pub time: LaneTime,
    /// The path of the sender; of several paths, all together.
    pub path: PathSummary,
    /// The paths, one by one; none if no lane ran over TCP.
    #[serde(deserialize_with = "bounded::at_most::<_, _, { MAX_PATHS as usize }>")]
    pub paths: Vec<OnePath>,
    /// Source files and links that it removed, if asked for.
    pub removed: u64,
}

impl SenderSummary {
    /// Whether an honest sender could have sent it.
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
    /// Whether an honest sender could have sent it.
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
