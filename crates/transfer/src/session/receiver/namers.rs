//! The threads that give whole files their final names, many at a time, beside the lanes.
//!
//! ```text
//!   a batch of what waits -> flushed, together or each by itself -> (read back) -> names -> outcomes
//! ```
//! A shared flush is one commit of the file system's journal for the whole batch. Its error does not name a file. So after an
//! error each file is flushed by itself: each descriptor reports its own lost data.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use haul_engine::flush_choice::FlushWay;
use haul_engine::integrity::{Hash, Rereading};
use haul_store::{Draft, Part, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::{Notice, OutcomeKind};

use crate::sync::lock;

use super::incoming::Incoming;
use super::naming::{Nameless, Naming};
use super::reread::{self, READ_BYTES};
use super::state::{Shared, parent};

/// They wait for the disk more than they work. Where each file is flushed by itself, so many flush at once: on a file server each flush is a
/// round trip.
const THREADS: usize = 16;

/// Where each file is flushed by itself: so many at once, by each of the threads. A journal commits for several at once.
const EACH_FILES: usize = 64;

pub(super) struct Namers(Vec<JoinHandle<()>>);

impl Namers {
    /// None of them where nothing is made.
    pub(super) fn start(shared: &Arc<Shared>) -> io::Result<Self> {
        let count = if shared.makes_files() { THREADS } else { 0 };
        let start = |_| {
            let shared = Arc::clone(shared);
            std::thread::Builder::new().name("name".into()).spawn(move || run(&shared))
        };
        let started: io::Result<Vec<_>> = (0..count).map(start).collect();
        // Those that were started end.
        started.inspect_err(|_| shared.naming.finish()).map(Self)
    }

    /// Waits until all that arrived has its name, where `is_lost` does not say that the disk does not answer.
    pub(super) fn join(self, shared: &Shared, is_lost: bool) {
        shared.naming.finish();
        for thread in self.0.into_iter().filter(|thread| !is_lost || thread.is_finished()) {
            // A panic was reported by the panic hook; the session ends by its timeout.
            let _ = thread.join();
        }
    }
}

/// What leaves the queue together. With it goes the room that it took there.
struct Batch<'a> {
    nameless: Vec<Nameless>,
    naming: &'a Naming,
    files: usize,
    bytes: u64,
}

impl<'a> Batch<'a> {
    fn of(nameless: Vec<Nameless>, naming: &'a Naming) -> Self {
        let (files, bytes) = (nameless.len(), nameless.iter().map(|nameless| nameless.incoming.identity.size).sum());
        Self { nameless, naming, files, bytes }
    }

    /// Those for which one flush of their file system is enough. Another file system that is mounted in the tree has few.
    fn sharing(&self) -> impl Iterator<Item = (&Arc<Draft>, &Part)> {
        let parts = self.nameless.iter().filter_map(|nameless| Some((&nameless.part, nameless.part.local()?)));
        let mut parts = parts.filter(|(_, part)| part.can_share_flush());
        let first = parts.next();
        let device = first.map(|(_, part)| part.id().0);
        first.into_iter().chain(parts.filter(move |(_, part)| Some(part.id().0) == device))
    }
}

impl Drop for Batch<'_> {
    fn drop(&mut self) {
        self.naming.remove(self.files, self.bytes);
    }
}

fn run(shared: &Shared) {
    let mut buffer = None;
    while let Some(batch) = next_flushed(shared) {
        give_names(shared, batch, &mut buffer);
    }
}

/// All that wait get their names now, from this thread.
#[cfg(feature = "fuzzing")]
pub(super) fn name_all(shared: &Shared) {
    let mut batch = Batch::of(shared.naming.take(), &shared.naming);
    flush_each(shared, &mut batch, |_| false);
    give_names(shared, batch, &mut None);
}

/// The next batch, flushed. During a shared flush no other thread takes the next batch. While each file is flushed by itself,
/// other threads take further batches: their flushes share the commits of the journal.
fn next_flushed(shared: &Shared) -> Option<Batch<'_>> {
    let (naming, flushing) = (&shared.naming, &shared.flushing);
    let turn = lock(&flushing.turn);
    let mut batch = Batch::of(naming.next()?, naming);
    let begun = Instant::now();
    if shared.job.selection.flush
        && flushing.choose(batch.sharing().count()) == FlushWay::Together
        && flush_together(shared, &mut batch)
    {
        tell(shared, flushing.took(FlushWay::Together, batch.files, begun.elapsed()));
        naming.rest_after(begun.elapsed());
        return Some(batch);
    }
    let rest = batch.nameless.split_off(batch.nameless.len().min(EACH_FILES));
    batch.files -= rest.len();
    batch.bytes -= rest.iter().map(|nameless| nameless.incoming.identity.size).sum::<u64>();
    naming.put_back(rest);
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

/// One flush for all that can share it. False where that is not possible, or has failed.
fn flush_together(shared: &Shared, batch: &mut Batch<'_>) -> bool {
    // Its descriptor hears of all errors since it was opened: what the others hold was written later.
    let first = batch.sharing().min_by_key(|(_, part)| part.opened_number());
    let Some(first) = first.map(|(draft, _)| Arc::clone(draft)) else { return false };
    let Some(first) = first.local() else { return false };
    if !first.has_shared_flush() || shared.storage.during(|| first.flush_file_system()).is_err() {
        return false;
    }
    let device = first.id().0;
    flush_each(shared, batch, |part| part.can_share_flush() && part.id().0 == device);
    true
}

/// Flushes those that are not flushed yet. What has failed leaves the batch.
fn flush_each(shared: &Shared, batch: &mut Batch<'_>, is_flushed: impl Fn(&Part) -> bool) {
    let flush = shared.job.selection.flush;
    for Nameless { incoming, part, .. } in batch.nameless.iter().filter(|_| flush) {
        if !part.local().is_some_and(&is_flushed) {
            part.start_writeback(0, incoming.identity.size);
        }
    }
    let finish = |nameless: &Nameless| -> Result<(), StoreError> {
        let Nameless { incoming, part, .. } = nameless;
        // Lanes leave the metadata of what is written in place: it comes after the data.
        if incoming.inplace {
            return part.prepare(&shared.metadata(&incoming.item), flush);
        }
        match part.local() {
            Some(part) if is_flushed(part) => part.check_close(),
            _ => part.finish_flush(flush),
        }
    };
    batch.nameless.retain(|nameless| {
        let finished = shared.storage.during(|| finish(nameless));
        finished.inspect_err(|error| shared.fail(&nameless.incoming, error)).is_ok()
    });
}

fn give_names(shared: &Shared, mut batch: Batch<'_>, buffer: &mut Option<AlignedBuffer>) {
    if shared.verifies_disk() {
        read_back(shared, &mut batch, buffer.get_or_insert_with(|| AlignedBuffer::new(READ_BYTES)));
    }
    let mut named = Vec::with_capacity(batch.nameless.len());
    for Nameless { incoming, part, blake3 } in batch.nameless.drain(..) {
        match shared.storage.during(|| part.give_name()) {
            Ok(()) => {
                shared.name_changed(&incoming.path);
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
    // Who has its outcome is closed: there is room for others.
    drop(batch);
}

/// Reads flushed files back from the medium. Those that are as they were sent stay; the others come again, or have failed.
fn read_back(shared: &Shared, batch: &mut Batch<'_>, buffer: &mut AlignedBuffer) {
    batch.nameless.retain(|Nameless { incoming, part, blake3 }| {
        let found = shared.storage.during(|| {
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
