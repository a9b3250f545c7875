//! The question of a bench: from where to where bytes go, how, and for how long; and its limits.

use std::path::PathBuf;
use std::time::Duration;

use haul_job::Cipher;
use haul_pump::{ReceiveRoute, SendRoute};

/// The bytes that are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// A hole of a file in memory: nothing but zeros, in the same few pages.
    Zero,
    /// A file in memory that holds noise.
    Memory,
    /// A file.
    File(PathBuf),
}

/// The target of the bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sink {
    /// Nowhere.
    Discard,
    /// A file in memory, all of its pages touched before.
    Memory,
    /// A file without a name below this directory, gone at the end.
    Directory(PathBuf),
}

/// The place of the next block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offset {
    /// Always the same, so that it stays in the processor's caches.
    Fixed,
    /// Behind the last one, and at the front again after the end.
    Moving,
}

/// The end of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Amount {
    /// Ends after this time.
    Time(Duration),
    /// Ends after this many bytes, or a little more: each lane ends with a whole chunk, of 4 MiB at most.
    Bytes(u64),
}

/// The question of a bench.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The bytes that are read.
    pub source: Source,
    /// The target of the bytes.
    pub sink: Sink,
    /// A way to send; `None` leaves it to what this host can do.
    pub send_route: Option<SendRoute>,
    /// A way to receive; `None` leaves it to what this host can do.
    pub receive_route: Option<ReceiveRoute>,
    /// Bytes moved by one call, as far as the route allows: 4 KiB to 64 MiB.
    pub block_bytes: usize,
    /// The place of the next block.
    pub offset: Offset,
    /// Connections, each with a thread at either end: 1 to 256.
    pub lanes: u16,
    /// `None`: clear.
    pub cipher: Option<Cipher>,
    /// Both ends hash every chunk (BLAKE3), and the receiver compares.
    pub verify: bool,
    /// The end of the run.
    pub amount: Amount,
    /// Between two readings: 0.1 s to a minute.
    pub interval: Duration,
    /// The end that accepted the connection sends, instead of the end that made it.
    pub reverse: bool,
    /// Congestion control; `None`: as for a copy inside this host.
    pub congestion_control: Option<String>,
    /// Processors that all sending and all receiving threads are bound to.
    pub processors: Option<(usize, usize)>,
    /// The size of a source or sink in memory, and of the file that a timed run goes round in: at least 64 KiB for each
    /// lane.
    pub size_bytes: u64,
    /// The source file's pages are dropped from the cache first, so that it comes from the disk.
    pub cold: bool,
}

impl Request {
    /// Zeros to nowhere for ten seconds by the best routes here.
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

/// Smallest block.
pub const BLOCK_BYTES_MIN: usize = 4 << 10;

/// Largest block: no route gains from more than a few MiB.
pub const BLOCK_BYTES_MAX: usize = 64 << 20;

/// Most lanes, as for a copy.
pub const LANES_MAX: u16 = 256;

/// The least part of a source or sink for each lane.
pub(super) const LANE_BYTES_MIN: u64 = 64 << 10;
