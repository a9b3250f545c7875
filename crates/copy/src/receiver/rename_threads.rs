//! Threads beside the lanes give whole files their final names, many at a time.
//!
//! ```text
//!   a batch of what waits -> flushed, together or each by itself -> (read back) -> names -> outcomes
//! ```
//! A shared flush is one journal commit for the batch. Its error does not name a file, so each file is then flushed by itself:
//! each descriptor reports its own lost data.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use haul_engine::flush_choice::FlushWay;
use haul_engine::integrity::{Hash, Rereading};
use haul_store::{Draft, Part, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::{Notice, OutcomeKind};

use haul_kept::sync::lock;

use super::destination::parent;
use super::incoming::Incoming;
use super::rename_queue::{AwaitingName, RenameQueue};
use super::reread::{self, READ_BYTES};
use super::state::Shared;

/// A journal commits for several files at once, so each thread flushes so many, each by itself. At another end threads share
/// what waits instead.
const EACH_FILES: usize = 64;

pub(super) struct RenameThreads(Vec<JoinHandle<()>>);

impl RenameThreads {
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let count = if shared.to.makes_files() { shared.to.tree().names_at_once() } else { 0 };
        let start = |_| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new().name("name".into()).spawn(move || run(&shared))
        };
        let started: io::Result<Vec<_>> = (0..count).map(start).collect();
        started.inspect_err(|_| shared.rename_queue.finish()).map(Self)
    }

    /// Waits until all that arrived has its name, unless the disk is lost.
    pub(super) fn join(self, shared: &Shared, is_lost: bool) {
        shared.rename_queue.finish();
        for thread in self.0.into_iter().filter(|thread| !is_lost || thread.is_finished()) {
            let _ = thread.join();
        }
    }
}

/// A batch leaves the queue together, and its room with it.
struct Batch<'a> {
    awaiting_name: Vec<AwaitingName>,
    rename_queue: &'a RenameQueue,
    files: usize,
    bytes: u64,
}

impl<'a> Batch<'a> {
    fn of(awaiting_name: Vec<AwaitingName>, rename_queue: &'a RenameQueue) -> Self {
        let (files, bytes) =
            (awaiting_name.len(), awaiting_name.iter().map(|awaiting_name| awaiting_name.incoming.identity.size).sum());
        Self { awaiting_name, rename_queue, files, bytes }
    }

    /// The files that one flush of their file system covers; another mounted file system has few.
    fn sharing(&self) -> impl Iterator<Item = (&Arc<Draft>, &Part)> {
        let parts = self
            .awaiting_name
            .iter()
            .filter_map(|awaiting_name| Some((&awaiting_name.part, awaiting_name.part.local()?)));
        let mut parts = parts.filter(|(_, part)| part.can_share_flush());
        let first = parts.next();
        let device = first.map(|(_, part)| part.id().0);
        first.into_iter().chain(parts.filter(move |(_, part)| Some(part.id().0) == device))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.rename_queue.remove(self.files, self.bytes);
    }
}

fn run(shared: &Shared) {
    let mut buffer = None;
    while let Some(batch) = next_flushed(shared) {
        give_names(shared, batch, &mut buffer);
    }
}

#[cfg(feature = "testing")]
pub(super) fn name_all(shared: &Shared) {
    let mut batch = Batch::of(shared.rename_queue.take(), &shared.rename_queue);
    flush_each(shared, &mut batch, |_| false);
    give_names(shared, batch, &mut None);
}

/// Returns the next batch, flushed. A shared flush keeps other threads from the next batch. Single flushes do not: they share
/// commits of the journal.
fn next_flushed(shared: &Shared) -> Option<Batch<'_>> {
    let (rename_queue, flushing) = (&shared.rename_queue, &shared.disk.flushing);
    let turn = lock(&flushing.turn);
    let mut batch = Batch::of(rename_queue.next()?, rename_queue);
    let begun = Instant::now();
    if shared.job.selection.flush
        && flushing.choose(batch.sharing().count()) == FlushWay::Together
        && flush_together(shared, &mut batch)
    {
        tell(shared, flushing.took(FlushWay::Together, batch.files, begun.elapsed()));
        rename_queue.rest_after(begun.elapsed());
        return Some(batch);
    }
    let waiting = batch.awaiting_name.len();
    let each = match shared.to.tree().local() {
        Some(_) => EACH_FILES,
        None => waiting.div_ceil(shared.to.tree().names_at_once().max(1)).clamp(1, EACH_FILES),
    };
    let rest = batch.awaiting_name.split_off(waiting.min(each));
    batch.files -= rest.len();
    batch.bytes -= rest.iter().map(|awaiting_name| awaiting_name.incoming.identity.size).sum::<u64>();
    rename_queue.put_back(rest);
    drop(turn);
    let begun = Instant::now();
    flush_each(shared, &mut batch, |_| false);
    if shared.job.selection.flush {
        tell(shared, flushing.took(FlushWay::Each, batch.files, begun.elapsed()));
    }
    Some(batch)
}

fn tell(shared: &Shared, notice: Option<Notice>) {
    notice.into_iter().for_each(|notice| shared.notice(notice));
}

/// Makes one flush for all that can share it. Returns false if there is none.
fn flush_together(shared: &Shared, batch: &mut Batch<'_>) -> bool {
    // The first descriptor hears of all errors since it was opened; the others' data came later.
    let first = batch.sharing().min_by_key(|(_, part)| part.opened_number());
    let Some(first) = first.map(|(draft, _)| Arc::clone(draft)) else { return false };
    let Some(first) = first.local() else { return false };
    if !first.has_shared_flush() || shared.disk.storage.during(|| first.flush_file_system()).is_err() {
        return false;
    }
    let device = first.id().0;
    flush_each(shared, batch, |part| part.can_share_flush() && part.id().0 == device);
    true
}

/// Flushes the remaining files. A failed file leaves the batch.
fn flush_each(shared: &Shared, batch: &mut Batch<'_>, is_flushed: impl Fn(&Part) -> bool) {
    let flush = shared.job.selection.flush;
    for AwaitingName { incoming, part, .. } in batch.awaiting_name.iter().filter(|_| flush) {
        if !part.local().is_some_and(&is_flushed) {
            part.start_writeback(0, incoming.identity.size);
        }
    }
    let finish = |awaiting_name: &AwaitingName| -> Result<(), StoreError> {
        let AwaitingName { incoming, part, .. } = awaiting_name;
        if incoming.inplace {
            return part.prepare(&shared.metadata(&incoming.item), flush);
        }
        match part.local() {
            // File systems that have a shared flush keep no error for the close.
            Some(part) if is_flushed(part) => Ok(()),
            _ => part.finish_flush(flush),
        }
    };
    batch.awaiting_name.retain(|awaiting_name| {
        let finished = shared.disk.storage.during(|| finish(awaiting_name));
        finished.inspect_err(|error| shared.fail(&awaiting_name.incoming, error)).is_ok()
    });
}

fn give_names(shared: &Shared, mut batch: Batch<'_>, buffer: &mut Option<AlignedBuffer>) {
    if shared.verifies_disk() {
        read_back(shared, &mut batch, buffer.get_or_insert_with(|| AlignedBuffer::new(READ_BYTES)));
    }
    let mut named = Vec::with_capacity(batch.awaiting_name.len());
    for AwaitingName { incoming, part, blake3 } in batch.awaiting_name.drain(..) {
        match shared.disk.storage.during(|| part.give_name()) {
            Ok(()) => {
                shared.to.name_changed(&incoming.path);
                named.push((incoming, blake3));
            }
            Err(error) => shared.fail(&incoming, &error),
        }
    }
    let mut safe: Option<Vec<u8>> = None;
    let is_safe = |(incoming, _): &(Arc<Incoming>, Hash)| {
        // Files of one batch mostly stand in few directories.
        let directory = parent(&incoming.path);
        if safe.as_deref() == Some(directory) {
            return true;
        }
        let flushed = shared.flush_before_removal(&incoming.path).inspect_err(|error| shared.fail(incoming, error));
        safe = flushed.is_ok().then(|| directory.to_vec());
        safe.is_some()
    };
    named.retain(is_safe);
    let outcomes = named.into_iter().map(|(incoming, blake3)| (incoming.index, OutcomeKind::Copied { blake3 }));
    shared.settle_all(outcomes);
    // Closed files make room for others.
    drop(batch);
}

/// Reads flushed files back from the medium. Good ones stay; the others come again, or have failed.
fn read_back(shared: &Shared, batch: &mut Batch<'_>, buffer: &mut AlignedBuffer) {
    batch.awaiting_name.retain(|AwaitingName { incoming, part, blake3 }| {
        let found = shared.disk.storage.during(|| {
            let rereading = Rereading::new(&incoming.layout, 0, *blake3);
            reread::read_back(shared, part, &incoming.layout, rereading, buffer)
        });
        let is_there = found.is_ok_and(|found| found.is_ok());
        if !is_there {
            shared.lost(incoming, 0, incoming.lose_whole());
        }
        is_there
    });
}
