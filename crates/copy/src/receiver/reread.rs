//! Reads chunks at the target again before they count:
//! - chunks that an earlier run left, because anybody may have written to them since;
//! - chunks with less data than was written;
//! - with `--verify disk`, chunks that this run wrote.
//!
//! ```text
//!   resumed:    journal -> chunks ----------> read, hash -> right: entered; after the last one the final name is queued
//!   checkpoint: flush -> chunks (medium) --->             -> wrong: it is missing again, and the sender sends it again
//! ```
//! Without `--verify disk` these threads have the lowest priority: the copy goes on, and waits only at its end, if the disk is
//! slower than the network. Whole files are read back between flush and name (`rename_threads.rs`).

use std::io;
use std::num::NonZero;
use std::sync::Arc;

use haul_engine::integrity::{Mismatch, Rereading, Verified};
use haul_engine::ledger::Unread;
use haul_engine::plan::ChunkLayout;
use haul_job::{Error, Fault};
use haul_store::{DIRECT_FROM_BYTES, Draft};
use haul_sys::direct::AlignedBuffer;
use haul_sys::medium::Medium;

use haul_kept::files::zeros::ZEROS;

use super::incoming::{Flushed, Incoming};
use super::rereads::Reread;
use super::state::Shared;
use super::tasks::Task;

/// One hashes while another reads, with a buffer of [`READ_BYTES`] each.
const MIN_THREADS: usize = 2;

/// More threads would hash faster than a disk is read.
const MAX_THREADS: usize = 4;

/// Reads are short, since a file system may keep writers out during one.
pub(super) const READ_BYTES: usize = 512 << 10;

/// An earlier run's chunks are read on processors that nobody else wants: setpriority(2).
const LEAST_URGENT: i32 = 19;

pub(super) fn queue(shared: &Arc<Shared>, incoming: &Arc<Incoming>, flushed: Flushed) {
    let Flushed { part, chunks } = flushed;
    if shared.rereads.starts()
        && let Err(error) = start(shared)
    {
        shared.failure.set(Error::new(Fault::FileIo, "cannot start a thread").because(error));
    }
    let reread = |(chunk, hash)| Reread { incoming: Arc::clone(incoming), part: Arc::clone(&part), chunk, hash };
    shared.rereads.push(chunks.into_iter().map(reread));
}

/// Most jobs have nothing to read.
fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
    for number in 0..processors.clamp(MIN_THREADS, MAX_THREADS) {
        match start_thread(shared, !shared.verifies_disk()) {
            Ok(()) => {}
            Err(_) if number > 0 => break,
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// While nothing arrives there is nobody of ours to give way to, and on a busy host such threads hardly ever run. A thread that
/// gave way cannot take that back, so others come.
pub(super) fn hurry(shared: &Arc<Shared>) {
    if !shared.verifies_disk() && shared.rereads.starts_to_hurry() {
        (0..MIN_THREADS).for_each(|_| drop(start_thread(shared, false)));
    }
}

fn start_thread(shared: &Arc<Shared>, gives_way: bool) -> io::Result<()> {
    let for_thread = Arc::clone(shared);
    let run = move || run(&for_thread, gives_way);
    shared.rereads.started(std::thread::Builder::new().name("reread".into()).spawn(run)?);
    Ok(())
}

fn run(shared: &Shared, gives_way: bool) {
    if gives_way {
        let _ = haul_sys::affinity::set_niceness(LEAST_URGENT);
    }
    let mut buffer = AlignedBuffer::new(READ_BYTES);
    while let Some(reread) = shared.rereads.next() {
        let read = shared.disk.storage.during(|| reread.read(shared, &mut buffer));
        let Reread { incoming, chunk, .. } = reread;
        match read {
            Ok(Some((Ok(verified), data_bytes))) => right(shared, incoming, verified, data_bytes),
            // The unreadable is lost: a disk may find another place for a second write.
            Ok(Some((Err(Mismatch), _))) | Err(_) => shared.tasks.push(Task::Lost(incoming, chunk)),
            Ok(None) => {}
        }
    }
}

fn right(shared: &Shared, incoming: Arc<Incoming>, verified: Verified, data_bytes: u64) {
    let bytes = incoming.layout.range(verified.chunk()).map_or(0, |(_, length)| length);
    let was_read = incoming.was_read(verified, data_bytes, shared.verifies_disk(), &shared.disk.exposure);
    if was_read.why == Some(Unread::Earlier) {
        shared.rereads.add_again(bytes);
    }
    if was_read.completes {
        shared.tasks.push(Task::Publish(incoming));
    }
}

impl Reread {
    fn read(
        &self,
        shared: &Shared,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<Option<(Result<Verified, Mismatch>, u64)>> {
        let Self { incoming, part, chunk, hash } = self;
        let layout = &incoming.layout;
        let (start, length) = layout.range(*chunk).ok_or(io::ErrorKind::InvalidInput)?;
        // The look comes before the read: one of them sees a hole that is made meanwhile.
        let data_bytes = part.data_bytes(start, start + length).map_err(io::Error::other)?;
        let rereading = Rereading::new(layout, *chunk, *hash);
        if rereading.expects_hole() && data_bytes == 0 {
            return Ok(Some((rereading.finish(), 0)));
        }
        if shared.verifies_disk() {
            return read_back(shared, part, layout, rereading, buffer).map(|found| Some((found, data_bytes)));
        }
        let found = self.read_anywhere(shared, rereading, buffer)?;
        Ok(found.map(|found| (found, data_bytes)))
    }

    fn read_anywhere(
        &self,
        shared: &Shared,
        rereading: Rereading,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<Option<Result<Verified, Mismatch>>> {
        let Self { incoming, part, chunk, .. } = self;
        let (start, length) = incoming.layout.range(*chunk).ok_or(io::ErrorKind::InvalidInput)?;
        part.will_need(start, length);
        let found = read_plainly(shared, part, &incoming.layout, rereading, buffer, || shared.is_over())?;
        if found.is_some() && incoming.identity.size >= DIRECT_FROM_BYTES {
            part.drop_cache(start, length);
        }
        Ok(found)
    }
}

fn read_plainly(
    shared: &Shared,
    draft: &Draft,
    layout: &ChunkLayout,
    mut rereading: Rereading,
    buffer: &mut AlignedBuffer,
    is_over: impl Fn() -> bool,
) -> io::Result<Option<Result<Verified, Mismatch>>> {
    let (start, length) = layout.range(rereading.chunk()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut done = 0;
    while done < length {
        if is_over() {
            return Ok(None);
        }
        let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(buffer.len());
        let got = draft.read_at(&mut buffer[..wanted], start + done).map_err(io::Error::other)?;
        rereading.update(&buffer[..got]);
        shared.rereads.add_read(got as u64);
        done += got as u64;
        if got < wanted {
            break;
        }
    }
    end_in_hole(&mut rereading, length - done);
    Ok(Some(rereading.finish()))
}

/// Compares a chunk as the medium holds it; at another end, as that end gives it back.
pub(super) fn read_back(
    shared: &Shared,
    draft: &Draft,
    layout: &ChunkLayout,
    rereading: Rereading,
    buffer: &mut AlignedBuffer,
) -> io::Result<Result<Verified, Mismatch>> {
    match draft.local() {
        Some(part) => {
            let mut medium = part.medium().map_err(io::Error::other)?;
            from_medium(shared, &mut medium, layout, rereading, buffer)
        }
        None => {
            let bytes = layout.range(rereading.chunk()).map_or(0, |(_, length)| length);
            let found = read_plainly(shared, draft, layout, rereading, buffer, || false)?;
            shared.rereads.add_from_other_end(bytes);
            found.ok_or_else(|| io::ErrorKind::Interrupted.into())
        }
    }
}

fn from_medium(
    shared: &Shared,
    medium: &mut Medium,
    layout: &ChunkLayout,
    mut rereading: Rereading,
    buffer: &mut AlignedBuffer,
) -> io::Result<Result<Verified, Mismatch>> {
    let (start, length) = layout.range(rereading.chunk()).ok_or(io::ErrorKind::InvalidInput)?;
    let mut done = 0;
    while done < length {
        let left = length - done;
        let aligned = left.next_multiple_of(medium.alignment_bytes());
        let wanted = usize::try_from(aligned).unwrap_or(usize::MAX).min(buffer.len());
        let got = medium.read_at(&mut buffer[..wanted], start + done)?;
        let bytes = left.min(got.bytes as u64);
        rereading.update(&buffer[..bytes as usize]);
        let told = shared.rereads.add_medium(medium.way(), bytes, got.cached_bytes as u64);
        told.into_iter().for_each(|notice| shared.notice(notice));
        done += bytes;
        if got.bytes < wanted {
            break;
        }
    }
    end_in_hole(&mut rereading, length - done);
    Ok(rereading.finish())
}

/// Reads the final hole beyond the file's present end.
fn end_in_hole(rereading: &mut Rereading, mut bytes: u64) {
    while bytes > 0 {
        let zeros = bytes.min(ZEROS.len() as u64);
        rereading.update(&ZEROS[..zeros as usize]);
        bytes -= zeros;
    }
}
