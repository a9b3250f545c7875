//! The question of a recording, and its limits.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use haul_job::{Error, Fault};
use haul_store::recording::{self, STRIPES_MAX};

/// The question of a recording.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// The origin of the stream.
    pub input: Input,
    /// The file, which must not exist.
    pub path: PathBuf,
    /// The stripes' directories; `path` then only names the index. Empty: one file.
    pub stripe_directories: Vec<PathBuf>,
    /// Room to reserve; 0: none.
    pub reserve_bytes: u64,
    /// Bytes after which it ends.
    pub bytes: Option<u64>,
    /// Buffers, 2 to 1024.
    pub buffers: usize,
    /// Bytes of a buffer: multiples of 64 KiB up to 64 MiB.
    pub buffer_bytes: usize,
    /// Time between two readings.
    pub interval: Duration,
    /// Time between flushes of stripes: a power cut costs as much, and the time of a flush.
    pub flush_every: Duration,
}

/// The usual [`Request::flush_every`].
pub const FLUSH_EVERY: Duration = Duration::from_secs(2);

/// The origin of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// Standard input.
    Stdin,
    /// The first connection to this address, unencrypted and unauthenticated: for networks of instruments.
    Listen(SocketAddr),
}

pub(super) fn check(request: &Request) -> Result<(), Error> {
    let refused = |what: String, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if !(BUFFERS_MIN..=BUFFERS_MAX).contains(&request.buffers) {
        return refused(format!("a ring of {} buffers", request.buffers), "2 to 1024");
    }
    let bytes = request.buffer_bytes;
    if bytes == 0 || bytes > BUFFER_BYTES_MAX || !bytes.is_multiple_of(BUFFER_BYTES_UNIT) {
        return refused(format!("buffers of {bytes} bytes"), "a multiple of 64 KiB up to 64 MiB");
    }
    if request.buffers * bytes > RING_BYTES_MAX {
        return refused(format!("a ring of {} buffers of {bytes} bytes", request.buffers), "8 GiB in all at most");
    }
    if request.stripe_directories.len() > STRIPES_MAX {
        return refused(format!("{} directories", request.stripe_directories.len()), "64 at most");
    }
    // Each disk needs a buffer that is filled and one that is written, or they would wait for each other.
    if request.buffers < 2 * request.stripe_directories.len() {
        let what =
            format!("a ring of {} buffers for {} directories", request.buffers, request.stripe_directories.len());
        return refused(what, "two for each directory at least: --buffers");
    }
    if request.interval.is_zero() {
        return refused("no time between two readings".into(), "0.1 to 60 s");
    }
    Ok(())
}

/// One buffer fills while another is written.
pub const BUFFERS_MIN: usize = 2;

/// 4 GiB with buffers of 4 MiB.
pub const BUFFERS_MAX: usize = 1024;

/// A multiple of every alignment that was seen.
pub const BUFFER_BYTES_UNIT: usize = 64 << 10;

/// No disk gains from more than a few MiB.
pub const BUFFER_BYTES_MAX: usize = recording::BLOCK_BYTES_MAX as usize;

/// 27 s of 300 MB/s.
pub const RING_BYTES_MAX: usize = 8 << 30;
