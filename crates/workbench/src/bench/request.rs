//! The question of a bench, and its limits.

use std::path::PathBuf;
use std::time::Duration;

use haul_job::Cipher;
use haul_pump::{ReceiveRoute, SendRoute};

/// The bytes' origin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A hole of a file in memory: zeros in the same few pages.
    Zero,
    /// A file in memory with noise.
    Memory,
    /// A file.
    File(PathBuf),
}

/// The bytes' target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere.
    Discard,
    /// A file in memory, all pages touched.
    Memory,
    /// A nameless file below this directory.
    Directory(PathBuf),
}

/// The place of the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// The same, in the processor's caches.
    Fixed,
    /// Behind the last one, in a circle.
    Moving,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Time.
    Time(Duration),
    /// Bytes: each lane ends with a whole chunk, of 4 MiB at most.
    Bytes(u64),
}

/// The question of a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The bytes' origin.
    pub source: Source,
    /// The bytes' target.
    pub sink: Sink,
    /// The way to send, if forced.
    pub send_route: Option<SendRoute>,
    /// The way to receive, if forced.
    pub receive_route: Option<ReceiveRoute>,
    /// Bytes of a call, if the route allows: 4 KiB to 64 MiB.
    pub block_bytes: usize,
    /// The place of the next block.
    pub offset: Offset,
    /// Connections, 1 to 256.
    pub lanes: u16,
    /// `None`: clear.
    pub cipher: Option<Cipher>,
    /// Both ends hash every chunk (BLAKE3).
    pub verify: bool,
    /// The end of the run.
    pub amount: Amount,
    /// Time between readings: 0.1 s to a minute.
    pub interval: Duration,
    /// The accepting end sends.
    pub reverse: bool,
    /// Congestion control; `None`: as for a copy inside this host.
    pub congestion_control: Option<String>,
    /// Processors for sending and receiving threads.
    pub processors: Option<(usize, usize)>,
    /// Size of a source or sink in memory, or of a timed run's file: at least 64 KiB a lane.
    pub size_bytes: u64,
    /// Reads the source from the disk, not the page cache.
    pub cold: bool,
}

impl Request {
    /// Zeros to nowhere for ten seconds.
    pub fn new() -> Request {
        Request {
            source: Source::Zero,
            sink: Sink::Discard,
            send_route: None,
            receive_route: None,
            block_bytes: 256 << 10,
            offset: Offset::Moving,
            lanes: 1,
            cipher: None,
            verify: false,
            amount: Amount::Time(Duration::from_secs(10)),
            interval: Duration::from_secs(1),
            reverse: false,
            congestion_control: None,
            processors: None,
            size_bytes: 1 << 30,
            cold: false,
        }
    }
}

impl Default for Request {
    fn default() -> Self {
        Self::new()
    }
}

/// The smallest block.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

/// No route gains from more than a few MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// As for a copy.
pub const LANES_MAX: u16 = 256;

pub(super) const LANE_BYTES_MIN: u64 = 64 << 10;
