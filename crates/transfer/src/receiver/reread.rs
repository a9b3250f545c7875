//! Reads back from the medium what was written (`--verify disk`).
//!
//! ```text
//!   checkpoint: flush -> chunks -> read past the page cache, hash -> right: entered; after the last one the final name is queued
//!                                                                 -> wrong: it is missing again, and the sender sends it again
//! ```
//! Large files are read back by threads of their own, while lanes bring what follows; whole files by the lane that brought them, between
//! their flush and their name.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use haul_engine::integrity::{self, Hash, UnitHasher};
use haul_engine::plan::ChunkLayout;
use haul_store::StoreError;
use haul_sys::direct::AlignedBuffer;
use haul_sys::medium::Medium;

use crate::zeros::ZEROS;

use super::state::{Reread, Shared, Task};

/// Two: while one hashes, the other reads. With a buffer of [`READ_BYTES`] each.
const THREADS: usize = 2;

/// What is read at once. A file system may keep writers of the file out during a direct read, so it must not be long.
pub(super) const READ_BYTES: usize = 512 << 10;

pub(super) struct Rereaders(Vec<JoinHandle<()>>);

impl Rereaders {
    /// None of them, unless it was asked for.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let count = if shared.verifies_disk() { THREADS } else { 0 };
        let start = |_| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new().name("reread".into()).spawn(move || run(&shared))
        };
        (0..count).map(start).collect::<io::Result<_>>().map(Self)
    }

    /// Waits for their end, where `is_lost` does not say that they wait for a disk that does not answer.
    pub(super) fn join(self, is_lost: bool) {
        for thread in self.0.into_iter().filter(|thread| !is_lost || thread.is_finished()) {
            // A panic was reported by the panic hook; the session ends by its timeout.
            let _ = thread.join();
        }
    }
}

fn run(shared: &Shared) {
    let mut buffer = AlignedBuffer::new(READ_BYTES);
    while let Some(Reread { incoming, part, chunk, hash }) = shared.next_reread() {
        let found = shared.storage.during(|| {
            let mut medium = part.medium()?;
            read_back(shared, &mut medium, &incoming.layout, chunk, &mut buffer)
                .map_err(|error| StoreError::new("read back", &incoming.path, error))
        });
        // What cannot be read is as good as lost: a disk may find another place for what is written once more.
        let verified = found.ok().and_then(|found| integrity::verify(chunk, found, hash).ok());
        match verified {
            Some(verified) if incoming.found_on_medium(verified) => shared.queue(Task::Publish(incoming)),
            Some(_) => {}
            None => shared.queue(Task::Lost(incoming, chunk)),
        }
    }
}

/// The hash of a chunk as the medium holds it. What lies beyond the end of the file is a hole that the file will end in.
pub(super) fn read_back(
    shared: &Shared,
    medium: &mut Medium,
    layout: &ChunkLayout,
    chunk: u32,
    buffer: &mut AlignedBuffer,
) -> io::Result<Hash> {
    let (start, length) = layout.range(chunk).ok_or(io::ErrorKind::InvalidInput)?;
    let mut hasher = UnitHasher::new(layout, chunk);
    let mut done = 0;
    while done < length {
        let left = length - done;
        let aligned = left.next_multiple_of(medium.alignment_bytes());
        let wanted = usize::try_from(aligned).unwrap_or(usize::MAX).min(buffer.len());
        let got = medium.read_at(&mut buffer[..wanted], start + done)?;
        let bytes = left.min(got.bytes as u64);
        hasher.update(&buffer[..bytes as usize]);
        shared.add_reread(medium.way(), bytes, got.cached_bytes as u64);
        done += bytes;
        if got.bytes < wanted {
            break;
        }
    }
    while done < length {
        let zeros = (length - done).min(ZEROS.len() as u64);
        hasher.update(&ZEROS[..zeros as usize]);
        done += zeros;
    }
    Ok(hasher.finish())
}
