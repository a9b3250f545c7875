//! Measures how fast the disk below a directory writes and reads.
//!
//! Make a file without a name -> write blocks from several threads, flush -> read them back -> let go. The kernel frees
//! the file at the last close, also after kill -9.

use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haul_sys::file;

use crate::limits::{DISK_RATE_BLOCK_BYTES, DISK_RATE_BLOCKS_IN_FLIGHT, DISK_RATE_BYTES, DISK_RATE_TIME};
use crate::scratch;

/// The measured rates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DiskRate {
    /// The rate to the medium, final flush included.
    pub write_bytes_per_s: u64,
    /// The rate from the medium.
    pub read_bytes_per_s: u64,
    /// Whether the page cache was bypassed, if the file system can.
    pub direct: bool,
}

/// Measures each direction for at most 3 s and the flush, with at most 1 GiB and a quarter of the free room.
pub fn disk_rate(directory: &Path) -> io::Result<DiskRate> {
    disk_rate_within(directory, DISK_RATE_BYTES, DISK_RATE_TIME)
}

/// [`disk_rate`] with other bounds.
pub fn disk_rate_within(directory: &Path, bytes: u64, time: Duration) -> io::Result<DiskRate> {
    let (file, direct) = nameless(directory)?;
    let stat = rustix::fs::fstatvfs(&file)?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    // Others write there, too.
    let bytes = bytes.min(free / 4) / DISK_RATE_BLOCK_BYTES * DISK_RATE_BLOCK_BYTES;
    if bytes == 0 {
        return Err(io::ErrorKind::StorageFull.into());
    }
    let file = file.as_fd();
    let to_medium = Writing {
        write: |block: &[u8], offset| file::write_all_at(file, block, offset),
        // Past the page cache there is nothing to write back.
        write_back: |offset, len| if direct { Ok(()) } else { file::wait_writeback(file, offset, len) },
        flush: || file::flush_data(file),
    };
    let (written, write_bytes_per_s) = to_medium.pass(bytes, time)?;
    file::drop_cache(file, 0, written);
    let read = |block: &mut [u8], offset| file::read_full_at(file, block, offset);
    let (_, read_bytes_per_s) = pass(written, time, read, || Ok(()))?;
    Ok(DiskRate { write_bytes_per_s, read_bytes_per_s, direct })
}

fn nameless(directory: &Path) -> io::Result<(File, bool)> {
    match scratch::direct_in_directory(directory) {
        Ok(file) => Ok((file, true)),
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => Ok((scratch::in_directory(directory)?, false)),
        Err(error) => Err(error),
    }
}

struct Writing<Write, WriteBack, Flush> {
    write: Write,
    write_back: WriteBack,
    flush: Flush,
}

impl<Write, WriteBack, Flush> Writing<Write, WriteBack, Flush>
where
    Write: Fn(&[u8], u64) -> io::Result<()> + Sync,
    WriteBack: Fn(u64, u64) -> io::Result<()> + Sync,
    Flush: FnOnce() -> io::Result<()>,
{
    /// Awaits each block's write-back: memory accepts faster than the disk writes.
    fn pass(self, bytes: u64, time: Duration) -> io::Result<(u64, u64)> {
        let Self { write, write_back, flush } = self;
        let to_medium = |block: &mut [u8], offset| {
            write(block, offset)?;
            write_back(offset, block.len() as u64)?;
            Ok(block.len())
        };
        pass(bytes, time, to_medium, flush)
    }
}

/// Moves blocks from several threads until `bytes` or the time is used up. Returns the bytes, without gaps, and the rate.
fn pass(
    bytes: u64,
    time: Duration,
    move_block: impl Fn(&mut [u8], u64) -> io::Result<usize> + Sync,
    end: impl FnOnce() -> io::Result<()>,
) -> io::Result<(u64, u64)> {
    let start = Instant::now();
    let next = AtomicU64::new(0);
    let worker = || -> io::Result<u64> {
        let mut memory = vec![FILLING; DISK_RATE_BLOCK_BYTES as usize + ALIGNMENT];
        let aligned = memory.as_ptr().align_offset(ALIGNMENT);
        let block = &mut memory[aligned..aligned + DISK_RATE_BLOCK_BYTES as usize];
        let mut moved = 0;
        while start.elapsed() < time {
            let offset = next.fetch_add(DISK_RATE_BLOCK_BYTES, Ordering::Relaxed);
            if offset >= bytes {
                break;
            }
            moved += move_block(block, offset)? as u64;
        }
        Ok(moved)
    };
    let moved = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..DISK_RATE_BLOCKS_IN_FLIGHT).map(|_| scope.spawn(worker)).collect();
        let ended = workers.into_iter().map(|w| w.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic)));
        ended.sum::<io::Result<u64>>()
    })?;
    end()?;
    let rate = moved as f64 / start.elapsed().as_secs_f64().max(1e-6);
    Ok((moved, rate as u64))
}

/// Direct I/O wants whole blocks, at most a page.
const ALIGNMENT: usize = 4096;

/// Some disks and file systems store zeros at no cost.
const FILLING: u8 = 0xa5;

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;
    use haul_sys::condition::unmet;

    #[test]
    fn a_cache_never_holds_more_than_the_blocks_in_flight() {
        let cache = Mutex::new((0, 0));
        let writing = Writing {
            write: |block: &[u8], _| {
                let mut cache = cache.lock().unwrap();
                cache.0 += block.len() as u64;
                cache.1 = cache.1.max(cache.0);
                Ok(())
            },
            write_back: |_, len| {
                cache.lock().unwrap().0 -= len;
                Ok(())
            },
            flush: || {
                assert_eq!(cache.lock().unwrap().0, 0, "nothing is left for a flush after the time");
                Ok(())
            },
        };
        let bytes = 64 * DISK_RATE_BLOCK_BYTES;
        assert_eq!(writing.pass(bytes, DISK_RATE_TIME).unwrap().0, bytes);
        let most = cache.lock().unwrap().1;
        assert!(most <= DISK_RATE_BLOCKS_IN_FLIGHT as u64 * DISK_RATE_BLOCK_BYTES, "{most}");
    }

    #[test]
    fn a_directory_is_measured_and_left_empty() {
        let dir = tempfile::tempdir().unwrap();
        let rate = match disk_rate(dir.path()) {
            Err(error) if error.kind() == io::ErrorKind::Unsupported => {
                unmet("the file system of the temporary directory has no files without a name");
                return;
            }
            rate => rate.unwrap(),
        };
        assert!(rate.write_bytes_per_s > 0 && rate.read_bytes_per_s > 0, "{rate:?}");
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
        assert!(disk_rate(Path::new("/nonexistent")).is_err());
    }
}
