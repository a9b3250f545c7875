//! Reads again what stands at the target, before it counts: what an earlier run left, because anybody may have written to it since; what
//! does not look as it was written; and what this run wrote, where that was asked for (`--verify disk`).
//!
//! ```text
//!   resumed:    journal -> chunks ----------> read, hash -> right: entered; after the last one the final name is queued
//!   checkpoint: flush -> chunks (medium) --->             -> wrong: it is missing again, and the sender sends it again
//! ```
//! Threads of their own do it, while lanes bring what follows. Where the medium is not asked for they give way to all others, so that the
//! copy goes on at once and waits only at its end, for a disk that is slower than the network. Whole files are read back by the lane that
//! brought them, between their flush and their name.

use std::collections::VecDeque;
use std::io;
use std::num::NonZero;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;

use haul_engine::integrity::{Hash, Mismatch, Rereading, Verified};
use haul_engine::ledger::Unread;
use haul_engine::plan::ChunkLayout;
use haul_store::{DIRECT_FROM_BYTES, Part};
use haul_sys::direct::AlignedBuffer;
use haul_sys::medium::{Medium, Way};
use haul_wire::control::Notice;

use crate::error::{Error, Fault};
use crate::files::zeros::ZEROS;

use super::incoming::{Flushed, Incoming};
use super::state::{Shared, Task};
use crate::sync::lock;

/// While one hashes, another reads. With a buffer of [`READ_BYTES`] each.
const MIN_THREADS: usize = 2;

/// More threads would hash faster than a disk is read.
const MAX_THREADS: usize = 4;

/// What is read at once. A file system may keep writers of the file out during a direct read, so it must not be long.
pub(super) const READ_BYTES: usize = 512 << 10;

/// What an earlier run left is read when nobody else wants the processor. setpriority(2).
const LEAST_URGENT: i32 = 19;

/// A chunk to be read, with the hash that it has to have.
struct Reread {
    incoming: Arc<Incoming>,
    part: Arc<Part>,
    chunk: u32,
    hash: Hash,
}

/// What is to be read, who reads it, and what came of it.
#[derive(Default)]
pub(super) struct Rereads {
    state: Mutex<State>,
    work: Condvar,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Read in any way so far.
    read_bytes: AtomicU64,
    /// From the medium.
    medium_bytes: AtomicU64,
    /// Of earlier runs, and right.
    again_bytes: AtomicU64,
    /// Of earlier runs, and not to be read.
    trusted_bytes: AtomicU64,
    repaired_chunks: AtomicU64,
    /// What was said of how the medium is read.
    said: Said,
}

#[derive(Default)]
struct State {
    /// Bounded like the ledgers of the files that are open: hardly ever has a chunk two places in it.
    queue: VecDeque<Reread>,
    started: bool,
    /// Threads that give way to nobody were started, too.
    hurries: bool,
    ended: bool,
}

/// What is said once for a job.
#[derive(Default)]
struct Said {
    way: AtomicBool,
    cached: AtomicBool,
}

impl Rereads {
    /// Has these chunks read.
    pub(super) fn queue(&self, shared: &Arc<Shared>, incoming: &Arc<Incoming>, flushed: Flushed) {
        let Flushed { part, chunks } = flushed;
        if let Err(error) = self.start(shared) {
            shared.failure.set(Error::new(Fault::FileIo, "cannot start a thread").because(error));
        }
        let reread = |(chunk, hash)| Reread { incoming: Arc::clone(incoming), part: Arc::clone(&part), chunk, hash };
        lock(&self.state).queue.extend(chunks.into_iter().map(reread));
        self.work.notify_all();
    }

    /// So many bytes of an earlier run count as its journal says.
    pub(super) fn trust(&self, bytes: u64) {
        self.trusted_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// A chunk was asked for again.
    pub(super) fn count_repaired(&self) {
        self.repaired_chunks.fetch_add(1, Ordering::Relaxed);
    }

    /// Bytes that were read in any way.
    pub(super) fn read_bytes(&self) -> u64 {
        self.read_bytes.load(Ordering::Relaxed)
    }

    /// Bytes that were read from the medium, and chunks that were asked for again.
    pub(super) fn repairs(&self) -> (u64, u64) {
        (self.medium_bytes.load(Ordering::Relaxed), self.repaired_chunks.load(Ordering::Relaxed))
    }

    /// Bytes of earlier runs that were read and found right, and bytes that were not to be read.
    pub(super) fn of_earlier_runs(&self) -> (u64, u64) {
        (self.again_bytes.load(Ordering::Relaxed), self.trusted_bytes.load(Ordering::Relaxed))
    }

    /// Nothing is read any more.
    pub(super) fn end(&self) {
        lock(&self.state).ended = true;
        self.work.notify_all();
    }

    /// Waits for the end of the threads, where `is_lost` does not say that they wait for a disk that does not answer.
    pub(super) fn join(&self, is_lost: bool) {
        self.end();
        for thread in lock(&self.threads).drain(..) {
            if !is_lost || thread.is_finished() {
                // A panic was reported by the panic hook; the session ends by its timeout.
                let _ = thread.join();
            }
        }
    }

    /// The threads, when there is something to read: most jobs have nothing.
    fn start(&self, shared: &Arc<Shared>) -> io::Result<()> {
        if std::mem::replace(&mut lock(&self.state).started, true) {
            return Ok(());
        }
        let processors = std::thread::available_parallelism().map_or(1, NonZero::get);
        for number in 0..processors.clamp(MIN_THREADS, MAX_THREADS) {
            match self.start_thread(shared, !shared.verifies_disk()) {
                Ok(()) => {}
                // One is enough.
                Err(_) if number > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Nothing arrives, so that there is nobody of ours to give way to: on a host with other work the job would wait for threads that hardly
    /// ever get a processor. Who gave way once may not take it back, so others come.
    pub(super) fn hurry(&self, shared: &Arc<Shared>) {
        let mut state = lock(&self.state);
        if state.queue.is_empty() || shared.verifies_disk() || std::mem::replace(&mut state.hurries, true) {
            return;
        }
        drop(state);
        // Without them it takes longer.
        (0..MIN_THREADS).for_each(|_| drop(self.start_thread(shared, false)));
    }

    fn start_thread(&self, shared: &Arc<Shared>, gives_way: bool) -> io::Result<()> {
        let shared = Arc::clone(shared);
        let run = move || shared.rereads.run(&shared, gives_way);
        lock(&self.threads).push(std::thread::Builder::new().name("reread".into()).spawn(run)?);
        Ok(())
    }

    fn run(&self, shared: &Shared, gives_way: bool) {
        if gives_way {
            // Refused, it would still do its work.
            let _ = haul_sys::affinity::set_niceness(LEAST_URGENT);
        }
        let mut buffer = AlignedBuffer::new(READ_BYTES);
        while let Some(reread) = self.next() {
            let read = shared.storage.during(|| reread.read(shared, &mut buffer));
            let Reread { incoming, chunk, .. } = reread;
            match read {
                Ok(Some((Ok(verified), data_bytes))) => self.right(shared, incoming, verified, data_bytes),
                // What cannot be read is as good as lost: a disk may find another place for what is written once more.
                Ok(Some((Err(Mismatch), _))) | Err(_) => shared.queue(Task::Lost(incoming, chunk)),
                Ok(None) => {}
            }
        }
    }

    fn right(&self, shared: &Shared, incoming: Arc<Incoming>, verified: Verified, data_bytes: u64) {
        let bytes = incoming.layout.range(verified.chunk()).map_or(0, |(_, length)| length);
        let was_read = incoming.was_read(verified, data_bytes, shared.verifies_disk(), &shared.exposure);
        if was_read.why == Some(Unread::Earlier) {
            self.again_bytes.fetch_add(bytes, Ordering::Relaxed);
        }
        if was_read.completes {
            shared.queue(Task::Publish(incoming));
        }
    }

    /// The next chunk; `None` when the session is over.
    fn next(&self) -> Option<Reread> {
        let state = lock(&self.state);
        let idle = |state: &mut State| state.queue.is_empty() && !state.ended;
        let mut state = self.work.wait_while(state, idle).unwrap_or_else(PoisonError::into_inner);
        if state.ended { None } else { state.queue.pop_front() }
    }

    fn add_read(&self, bytes: u64) {
        self.read_bytes.fetch_add(bytes, Ordering::Relaxed);
    }

    /// Bytes were read back from the medium. The first time it is said how, and once what could not be read from a medium.
    fn add_medium(&self, shared: &Shared, way: Way, bytes: u64, cached_bytes: u64) {
        self.add_read(bytes);
        self.medium_bytes.fetch_add(bytes, Ordering::Relaxed);
        if !self.said.way.swap(true, Ordering::Relaxed) {
            let (choice, reason) = match way {
                Way::Direct => ("direct reads", "past the page cache"),
                Way::Dropped => ("reads after the page cache was emptied", "the file system has no direct reads"),
                Way::Memory => ("reads from memory", "the target has no medium"),
            };
            let (what, choice, reason) = ("verification".to_owned(), choice.to_owned(), reason.to_owned());
            shared.notice(Notice::Chose { what, choice, reason });
            if way == Way::Memory {
                let text =
                    "--verify disk: the target lies in memory (tmpfs), where there is no medium to read back from";
                shared.notice(Notice::Warning { text: text.to_owned() });
            }
        }
        if cached_bytes > 0 && !self.said.cached.swap(true, Ordering::Relaxed) {
            let text = "--verify disk: the file system of the target has no direct reads and keeps what was written in its cache: \
                        some of it was compared there, and not on the medium";
            shared.notice(Notice::Warning { text: text.to_owned() });
        }
    }
}

impl Reread {
    /// What stands there, compared with what has to, and how many bytes of it are data. `None`: the session is over.
    fn read(
        &self,
        shared: &Shared,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<Option<(Result<Verified, Mismatch>, u64)>> {
        let Self { incoming, part, chunk, hash } = self;
        let layout = &incoming.layout;
        let (start, length) = layout.range(*chunk).ok_or(io::ErrorKind::InvalidInput)?;
        // Before it is read: what is made a hole meanwhile is seen by one of the two.
        let data_bytes = part.data_bytes(start, start + length).map_err(io::Error::other)?;
        let rereading = Rereading::new(layout, *chunk, *hash);
        if rereading.expects_hole() && data_bytes == 0 {
            return Ok(Some((rereading.finish(), 0)));
        }
        if shared.verifies_disk() {
            let mut medium = part.medium().map_err(io::Error::other)?;
            return read_back(shared, &mut medium, layout, rereading, buffer).map(|found| Some((found, data_bytes)));
        }
        let found = self.read_anywhere(shared, rereading, buffer)?;
        Ok(found.map(|found| (found, data_bytes)))
    }

    /// From the page cache, or from the medium by way of it.
    fn read_anywhere(
        &self,
        shared: &Shared,
        mut rereading: Rereading,
        buffer: &mut AlignedBuffer,
    ) -> io::Result<Option<Result<Verified, Mismatch>>> {
        let Self { incoming, part, chunk, .. } = self;
        let (start, length) = incoming.layout.range(*chunk).ok_or(io::ErrorKind::InvalidInput)?;
        part.will_need(start, length);
        let mut done = 0;
        while done < length {
            if shared.is_over() {
                return Ok(None);
            }
            let wanted = usize::try_from(length - done).unwrap_or(usize::MAX).min(buffer.len());
            let got = part.read_at(&mut buffer[..wanted], start + done).map_err(io::Error::other)?;
            rereading.update(&buffer[..got]);
            shared.rereads.add_read(got as u64);
            done += got as u64;
            if got < wanted {
                break;
            }
        }
        // It belongs to others.
        if incoming.identity.size >= DIRECT_FROM_BYTES {
            part.drop_cache(start, length);
        }
        end_in_hole(&mut rereading, length - done);
        Ok(Some(rereading.finish()))
    }
}

/// Compares a chunk as the medium holds it.
pub(super) fn read_back(
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
        shared.rereads.add_medium(shared, medium.way(), bytes, got.cached_bytes as u64);
        done += bytes;
        if got.bytes < wanted {
            break;
        }
    }
    end_in_hole(&mut rereading, length - done);
    Ok(rereading.finish())
}

/// What lies beyond the end of the file is a hole that the file will end in.
fn end_in_hole(rereading: &mut Rereading, mut bytes: u64) {
    while bytes > 0 {
        let zeros = bytes.min(ZEROS.len() as u64);
        rereading.update(&ZEROS[..zeros as usize]);
        bytes -= zeros;
    }
}
