//! A file whose data is on its way.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_engine::integrity::{Hash, Verified};
use haul_engine::journal::{self, HEADER_BYTES, Header, RECORD_BYTES};
use haul_engine::ledger::{Ledger, Recorded};
use haul_engine::plan::ChunkLayout;
use haul_engine::schedule::MAX_TRIES;
use haul_store::{Metadata, Part, StoreError, TargetTree};
use haul_wire::control::{ChunkRange, OutcomeKind};
use haul_wire::manifest::{Identity, Item, ItemKind};

use crate::session;

use super::claim::Claims;

/// Data written since the last checkpoint that starts the next one: what a power cut costs of one file at most.
const CHECKPOINT_BYTES: u64 = 256 << 20;

/// And time: on a slow path a checkpoint comes sooner. Files that take less never have a journal.
const CHECKPOINT_EVERY: Duration = Duration::from_secs(1);

pub(super) struct Incoming {
    pub(super) index: u64,
    pub(super) item: Arc<Item>,
    /// Where it goes, relative to the target tree.
    pub(super) path: Vec<u8>,
    pub(super) identity: Identity,
    pub(super) layout: ChunkLayout,
    pub(super) inplace: bool,
    /// It took the place of one that changed: its directory may be settled already.
    pub(super) is_retry: bool,
    /// It is there already; only its hash at the source is awaited.
    pub(super) kept: Option<KeptAs>,
    /// `None` for a file that travels whole.
    large: Option<Mutex<Large>>,
    whole: Mutex<Whole>,
    /// How often data of it did not verify.
    spoilt: AtomicU32,
    /// Which lane writes which chunk.
    pub(super) claims: Claims,
}

/// A file that travels whole. When its lane dies it comes once more over another, maybe before the end of the first was
/// noticed: both then write the same bytes to the same part, and the first that verifies counts.
#[derive(Default)]
struct Whole {
    part: Option<Arc<Part>>,
    arrived: bool,
    stale: bool,
}

struct Large {
    part: Option<Arc<Part>>,
    ledger: Ledger,
    /// The journal on disk has this header.
    journal: Option<Header>,
    unjournaled_bytes: u64,
    checkpoint_at: Instant,
    checkpoint_queued: bool,
    /// Holes have to be punched: the part held other data before.
    stale: bool,
    /// Given up: whatever still arrives is void.
    dead: bool,
}

/// How a file that is kept counts once its hash is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeptAs {
    /// Unchanged.
    Kept,
    /// Its metadata was brought up to date.
    Touched,
}

impl KeptAs {
    pub(super) fn with_hash(self, hash: Hash) -> OutcomeKind {
        self.outcome(Some(hash))
    }

    pub(super) fn outcome(self, blake3: Option<Hash>) -> OutcomeKind {
        match self {
            KeptAs::Kept => OutcomeKind::Kept { blake3 },
            KeptAs::Touched => OutcomeKind::Touched { blake3 },
        }
    }
}

/// What a verified chunk leads to.
pub(super) enum Progressed {
    /// Nothing yet.
    Waiting,
    /// A checkpoint is due.
    Checkpoint,
    /// The file is complete.
    Complete,
    /// The chunk was there, or the file was given up.
    Void,
}

impl Incoming {
    pub(super) fn new(
        index: u64,
        item: Arc<Item>,
        path: Vec<u8>,
        identity: Identity,
        inplace: bool,
        is_retry: bool,
    ) -> Self {
        let layout = ChunkLayout::of(identity.size);
        let large = (!layout.is_whole()).then(|| Mutex::new(Large::new(Ledger::new(layout), None, inplace)));
        Self {
            index,
            item,
            path,
            identity,
            layout,
            inplace,
            is_retry,
            kept: None,
            large,
            whole: Mutex::default(),
            spoilt: AtomicU32::new(0),
            claims: Claims::default(),
        }
    }

    /// A file that is there already.
    pub(super) fn kept(index: u64, item: Arc<Item>, path: Vec<u8>, identity: Identity, kept: KeptAs) -> Self {
        let layout = ChunkLayout::of(identity.size);
        Self {
            index,
            item,
            path,
            identity,
            layout,
            inplace: false,
            is_retry: false,
            kept: Some(kept),
            large: None,
            whole: Mutex::default(),
            spoilt: AtomicU32::new(0),
            claims: Claims::default(),
        }
    }

    /// Goes on with the part of an earlier run, when its journal is about this very file.
    pub(super) fn resume(&mut self, part: Part, journal: &[u8]) -> bool {
        let Some((header, records)) = journal::decode(journal) else { return false };
        let belongs = header.identity == self.identity
            && header.chunk_bytes == self.layout.chunk_bytes()
            && header.part == part.id();
        if !belongs {
            return false;
        }
        // A disk that lied about a flush before a power cut leaves less than the journal says.
        let there = part.opened_stat().size;
        let claimed = records.len();
        let within = |chunk: u32| self.layout.range(chunk).is_some_and(|(start, length)| start + length <= there);
        let records: Vec<(u32, Hash)> = records.into_iter().filter(|(chunk, _)| within(*chunk)).collect();
        let intact = records.len() == claimed;
        // A torn record at the end would hide those that are appended behind it.
        let valid_bytes = (HEADER_BYTES + records.len() * RECORD_BYTES) as u64;
        if intact && part.journal_keep(valid_bytes).is_err() {
            return false;
        }
        let ledger = Ledger::resume(self.layout, records, intact);
        let mut large = Large::new(ledger, Some(Arc::new(part)), true);
        // A journal that claimed too much is written anew by the next checkpoint.
        large.journal = intact.then_some(header);
        self.large = Some(Mutex::new(large));
        true
    }

    /// What has to be sent; empty when an earlier run had verified all of it.
    pub(super) fn missing(&self) -> Vec<ChunkRange> {
        self.large().map_or_else(Vec::new, |large| session::lock(large).ledger.missing_ranges())
    }

    /// The file that chunks are written to, made when the first arrives.
    pub(super) fn part(&self, tree: &TargetTree) -> Result<Arc<Part>, StoreError> {
        let mut large = session::lock(self.large().expect("only large files come in chunks"));
        if let Some(part) = &large.part {
            return Ok(Arc::clone(part));
        }
        let part = Arc::new(tree.new_part(&self.path, self.inplace)?);
        if !self.sparse()
            && let Err(error) = part.reserve(self.identity.size)
        {
            // It is empty and has no journal: nothing would ever use or remove it. Why it cannot be filled matters more than
            // why it cannot be removed.
            let _ = part.discard();
            return Err(error);
        }
        large.part = Some(Arc::clone(&part));
        Ok(part)
    }

    /// The file that a whole file is written to, made by the first lane that needs it.
    pub(super) fn whole_part(&self, tree: &TargetTree) -> Result<Arc<Part>, StoreError> {
        let mut whole = session::lock(&self.whole);
        if let Some(part) = &whole.part {
            return Ok(Arc::clone(part));
        }
        let part = Arc::new(tree.new_part(&self.path, self.inplace)?);
        whole.part = Some(Arc::clone(&part));
        Ok(part)
    }

    /// The file that a whole file is written to, where a lane has made it.
    pub(super) fn whole_part_made(&self) -> Option<Arc<Part>> {
        session::lock(&self.whole).part.clone()
    }

    /// A whole file verified. False when it had done so before.
    pub(super) fn claim_arrival(&self) -> bool {
        !std::mem::replace(&mut session::lock(&self.whole).arrived, true)
    }

    /// Whether data for this chunk is still of use.
    pub(super) fn wants(&self, chunk: u32) -> bool {
        match self.large() {
            Some(large) => {
                let large = session::lock(large);
                !large.dead && large.ledger.is_missing(chunk)
            }
            None => !session::lock(&self.whole).arrived,
        }
    }

    /// Whether a hole has to be made where one is received.
    pub(super) fn is_stale(&self) -> bool {
        match self.large() {
            Some(large) => session::lock(large).stale,
            None => session::lock(&self.whole).stale,
        }
    }

    /// Data that did not verify was written. False when that happened so often that only a sender without end would go on: an
    /// honest one gives a chunk up before.
    pub(super) fn spoilt(&self) -> bool {
        match self.large() {
            Some(large) => session::lock(large).stale = true,
            None => session::lock(&self.whole).stale = true,
        }
        let most = self.layout.count().saturating_mul(u32::from(MAX_TRIES));
        self.spoilt.fetch_add(1, Ordering::Relaxed) < most
    }

    /// Enters a proof.
    pub(super) fn record(&self, verified: Verified, bytes: u64) -> Progressed {
        let mut large = session::lock(self.large().expect("only large files come in chunks"));
        if large.dead {
            return Progressed::Void;
        }
        large.unjournaled_bytes += bytes;
        match large.ledger.record(verified) {
            Recorded::Duplicate => Progressed::Void,
            Recorded::Complete => Progressed::Complete,
            Recorded::Partial => {
                let due =
                    large.unjournaled_bytes >= CHECKPOINT_BYTES || large.checkpoint_at.elapsed() >= CHECKPOINT_EVERY;
                if due && !large.checkpoint_queued {
                    large.checkpoint_queued = true;
                    Progressed::Checkpoint
                } else {
                    Progressed::Waiting
                }
            }
        }
    }

    /// Enters a proof of data that is let go. Returns whether it counts, and the file's BLAKE3 when it was the last one missing.
    pub(super) fn let_go(&self, verified: Verified, bytes: u64) -> (bool, Option<Hash>) {
        if self.large().is_none() {
            let first = self.claim_arrival();
            return (first, first.then_some(verified.hash()));
        }
        match self.record(verified, bytes) {
            Progressed::Void => (false, None),
            Progressed::Waiting | Progressed::Checkpoint => (true, None),
            Progressed::Complete => (true, Some(self.file_hash())),
        }
    }

    /// The BLAKE3 of a large file that is complete.
    fn file_hash(&self) -> Hash {
        let large = session::lock(self.large().expect("only large files come in chunks"));
        large.ledger.file_hash().expect("asked for only when complete")
    }

    /// Flushes the data, then enters into the journal what was verified before the flush began: the journal never claims
    /// more than the disk holds.
    pub(super) fn checkpoint(&self) -> Result<(), StoreError> {
        let Some(large) = self.large() else { return Ok(()) };
        let (part, chunks, journal) = {
            let mut large = session::lock(large);
            large.checkpoint_queued = false;
            large.unjournaled_bytes = 0;
            large.checkpoint_at = Instant::now();
            let Some(part) = large.part.clone().filter(|_| !large.dead) else { return Ok(()) };
            (part, large.ledger.take_unjournaled(), large.journal)
        };
        if chunks.is_empty() {
            return Ok(());
        }
        part.flush()?;
        let header = match journal {
            Some(header) => header,
            None => {
                let header =
                    Header { identity: self.identity, chunk_bytes: self.layout.chunk_bytes(), part: part.id() };
                part.journal_start(&header.encode())?;
                session::lock(large).journal = Some(header);
                header
            }
        };
        part.journal_append(&journal::encode_records(&header, &chunks))
    }

    /// Gives the complete file its final name. Returns its BLAKE3.
    pub(super) fn publish(&self, tree: &TargetTree, metadata: &Metadata, flush: bool) -> Result<Hash, StoreError> {
        let part = self.part(tree)?;
        let hash = self.file_hash();
        part.set_size(self.identity.size)?;
        part.commit(metadata, flush)?;
        Ok(hash)
    }

    /// Nothing more of this file; its part is thrown away when it is of no use to a later run.
    pub(super) fn abandon(&self, keep_part: bool) {
        let part = match self.large() {
            Some(large) => {
                let mut large = session::lock(large);
                large.dead = true;
                large.part.take()
            }
            None => {
                let mut whole = session::lock(&self.whole);
                whole.arrived = true;
                whole.part.take()
            }
        };
        if let Some(part) = part
            && !keep_part
            && !self.inplace
        {
            // A part that cannot be removed is overwritten by the next run.
            let _ = part.discard();
        }
    }

    /// How much space a file with holes takes is known only when it is there.
    fn sparse(&self) -> bool {
        matches!(self.item.kind, ItemKind::File { sparse: true, .. })
    }

    fn large(&self) -> Option<&Mutex<Large>> {
        self.large.as_ref()
    }
}

impl Large {
    fn new(ledger: Ledger, part: Option<Arc<Part>>, stale: bool) -> Self {
        Self {
            part,
            ledger,
            journal: None,
            unjournaled_bytes: 0,
            checkpoint_at: Instant::now(),
            checkpoint_queued: false,
            stale,
            dead: false,
        }
    }
}
