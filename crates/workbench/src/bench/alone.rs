//! Measures the disk without a network, and memory without a kernel.

use std::path::Path;
use std::time::{Duration, Instant};

use haul_job::Error;
use haul_store::DiskRate;

/// The disk's rates.
pub type Disk = DiskRate;

/// Writes and reads past the page cache, several blocks at once: at most `bytes` and `time` each way, and a quarter of the free
/// room.
pub fn disk(directory: &Path, bytes: u64, time: Duration) -> Result<Disk, Error> {
    haul_store::disk_rate_within(directory, bytes, time).map_err(|error| Error::of_disk("measure", directory, &error))
}

/// Copies more memory than any cache holds. Returns bytes a second of all threads.
pub fn memory(threads: u16, time: Duration) -> u64 {
    let threads = threads.max(1);
    let bytes = MEMORY_BYTES / usize::from(threads);
    let rates = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads).map(|_| scope.spawn(move || copies(bytes, time))).collect();
        let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.sum::<f64>()
    });
    rates as u64
}

fn copies(bytes: usize, time: Duration) -> f64 {
    // The first touch of a page is slow.
    let from = vec![0xa5u8; bytes];
    let mut to = vec![0x5au8; bytes];
    let start = Instant::now();
    let mut copied = 0u64;
    while start.elapsed() < time {
        for (from, to) in from.chunks(BLOCK_BYTES).zip(to.chunks_mut(BLOCK_BYTES)) {
            to.copy_from_slice(from);
            std::hint::black_box(&to);
        }
        copied += bytes as u64;
    }
    copied as f64 / start.elapsed().as_secs_f64().max(1e-6)
}

/// All threads' memory, each way: above large servers' last-level caches (some hundred MiB).
const MEMORY_BYTES: usize = 512 << 20;

/// A lane's block.
const BLOCK_BYTES: usize = 256 << 10;
