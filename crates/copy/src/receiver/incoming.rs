//! A file is here while its data is on its way.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Instant;

pub(super) use haul_engine::arriving::Progressed;
use haul_engine::arriving::{Arriving, Loss, Resumed, Step, WasRead};
use haul_engine::integrity::{Hash, Verified};
use haul_engine::plan::ChunkLayout;
use haul_engine::schedule::{MAX_REPAIRS, MAX_TRIES};
use haul_store::{DIRECT_FROM_BYTES, Draft, Metadata, StoreError, TargetTree};
use haul_striping::proofs::Proofs;
use haul_wire::control::{Brought, ChunkRange, Cut, OpenDraft, OutcomeKind};
use haul_wire::manifest::{Attributes, Identity, Item, ItemKind, Time};
use haul_wire::{PathFault, RelPath};

use haul_kept::files::hash;

use super::claims::Claims;
use super::draft_plan;
use super::exposure::Exposure;
use super::missing_data;
use super::standing_file::StandingFile;
use haul_kept::sync::lock;

pub(super) struct Incoming {
    pub(super) index: u64,
    pub(super) item: Arc<Item>,
    pub(super) path: Vec<u8>,
    pub(super) identity: Identity,
    pub(super) layout: ChunkLayout,
    pub(super) inplace: bool,
    /// Only the source's hash is awaited.
    pub(super) kept: Option<KeptAs>,
    /// `None`: the file travels whole.
    large: Option<Mutex<Large>>,
    whole: Mutex<Whole>,
    spoilt: AtomicU32,
    opened: Instant,
    pub(super) claims: Claims,
    /// The file that stands until this one has its name.
    pub(super) standing: Option<StandingFile>,
    pub(super) proofs: Proofs,
}

/// A file that travels whole. When its lane dies, another may bring it before the first has ended: both write the same bytes to
/// the same part, and the first to verify counts.
#[derive(Default)]
struct Whole {
    part: Option<Arc<Draft>>,
    arrived: bool,
    stale: bool,
    /// Counts losses by the medium.
    lost: u8,
}

struct Large {
    part: Option<Arc<Draft>>,
    file: Arriving,
    /// The part held other data before: holes are punched.
    stale: bool,
    /// Losses by the medium for each chunk; at most [`MAX_REPAIRS`] in all.
    lost: BTreeMap<u32, u8>,
    /// The least data of each chunk; empty before the first is known.
    stored: Vec<u32>,
}

/// Says how a kept file counts once its hash is known.
#[derive(Clone, Copy, Debug)]
pub(super) enum KeptAs {
    Kept,
    Touched,
    /// A file of a reference tree.
    Brought(Brought),
}

impl KeptAs {
    pub(super) fn with_hash(self, hash: Hash) -> OutcomeKind {
        self.outcome(Some(hash))
    }

    pub(super) fn outcome(self, blake3: Option<Hash>) -> OutcomeKind {
        match self {
            KeptAs::Kept => OutcomeKind::Kept { blake3 },
            KeptAs::Touched => OutcomeKind::Touched { blake3 },
            KeptAs::Brought(how) => OutcomeKind::Brought { how, blake3 },
        }
    }
}

pub(super) enum Published {
    /// The file has its name, and this BLAKE3.
    Named(Hash),
    /// The file failed or lost a chunk since it became complete.
    NotNow,
    /// Some of it does not look as written, and is read first.
    Doubted(Flushed),
}

/// Chunks that were flushed, or are to be read, with the hashes they must have.
pub(super) struct Flushed {
    pub(super) part: Arc<Draft>,
    pub(super) chunks: Vec<(u32, Hash)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Lost {
    Again,
    TooOften,
    /// The chunk is awaited anyway, or of no use.
    Void,
}

impl Incoming {
    pub(super) fn new(index: u64, item: Arc<Item>, path: Vec<u8>, identity: Identity, inplace: bool) -> Self {
        Self::cut_by(Cut::USUAL, index, item, path, identity, inplace)
    }

    pub(super) fn cut_by(
        cut: Cut,
        index: u64,
        item: Arc<Item>,
        path: Vec<u8>,
        identity: Identity,
        inplace: bool,
    ) -> Self {
        let layout = ChunkLayout::by(cut, identity.size);
        let file = || Mutex::new(Large::new(Arriving::new(identity, layout, 0), None, inplace));
        let large = (!layout.is_whole()).then(file);
        Self {
            index,
            item,
            path,
            identity,
            layout,
            inplace,
            kept: None,
            large,
            whole: Mutex::default(),
            spoilt: AtomicU32::new(0),
            opened: Instant::now(),
            claims: Claims::default(),
            standing: None,
            proofs: Proofs::default(),
        }
    }

    pub(super) fn shared(draft: &OpenDraft, part: Draft) -> Result<Self, PathFault> {
        let identity =
            Identity { size: draft.size, mtime: Time::default(), ctime: Time::default(), inode: draft.inode };
        let kind = ItemKind::File { identity, hole_bytes: 1, blake3: None, further_names: 0 };
        let item = Item { path: RelPath::new(draft.path.clone())?, kind, attributes: Attributes::default() };
        let mut incoming = Self::new(draft.index, Arc::new(item), draft.path.clone(), identity, false);
        // Another lane may have written where a hole belongs.
        incoming.large =
            Some(Mutex::new(Large::new(Arriving::new(identity, incoming.layout, 0), Some(Arc::new(part)), true)));
        Ok(incoming)
    }

    pub(super) fn kept(index: u64, item: Arc<Item>, path: Vec<u8>, identity: Identity, kept: KeptAs) -> Self {
        let layout = ChunkLayout::of(identity.size);
        Self {
            index,
            item,
            path,
            identity,
            layout,
            inplace: false,
            kept: Some(kept),
            large: None,
            whole: Mutex::default(),
            spoilt: AtomicU32::new(0),
            opened: Instant::now(),
            claims: Claims::default(),
            standing: None,
            proofs: Proofs::default(),
        }
    }

    /// Goes on with an earlier run's part whose journal is about this file. Anybody may have written to it: under its final
    /// name each chunk is read at once; otherwise claimed chunks are read before they count, unless `trusted`.
    ///
    /// After the session's end nothing is read, and claims stay.
    pub(super) fn resume(&mut self, part: Draft, journal: &[u8], trusted: bool, is_over: &dyn Fn() -> bool) -> bool {
        // An end that cannot give back its draft proves it by its own sum.
        let is_proved = |chunk: u32| self.layout.range(chunk).and_then(|(start, length)| part.proves(start, length));
        let mut last_proved = None;
        let stands = |chunk: u32, hash: &Hash| match is_proved(chunk) {
            Some(stands) => {
                if stands {
                    last_proved = Some((chunk, *hash));
                }
                stands
            }
            None => {
                !self.inplace || (!is_over() && hash::chunk(&part, &self.layout, chunk, is_over).as_ref() == Some(hash))
            }
        };
        let Ok(bytes) = part.size() else { return false };
        let now_us = now_us(self.opened);
        let resumed = Arriving::resume(self.identity, self.layout, part.id(), bytes, journal, stands, now_us);
        let Some(Resumed { mut file, keep_bytes }) = resumed else { return false };
        // One chunk tells a draft of other data, for example of another host.
        if let Some((chunk, hash)) = last_proved
            && part.gives_back()
            && (is_over() || hash::chunk(&part, &self.layout, chunk, is_over) != Some(hash))
        {
            return false;
        }
        match part.proves(0, 0) {
            Some(_) => file.is_safe_at_once(),
            None if !self.inplace && !trusted => file.read_all_again(),
            None => {}
        }
        if is_over() || part.journal_keep(keep_bytes).is_err() {
            return false;
        }
        self.large = Some(Mutex::new(Large::new(file, Some(Arc::new(part)), true)));
        true
    }

    /// The list is empty if an earlier run verified all.
    pub(super) fn missing(&self) -> Vec<ChunkRange> {
        self.large().map_or_else(Vec::new, |large| lock(large).file.missing())
    }

    /// Makes the file when the first chunk arrives. Returns `None` once finished or given up: a new part would replace one kept
    /// for a later run.
    pub(super) fn part(&self, tree: &dyn TargetTree) -> Result<Option<Arc<Draft>>, StoreError> {
        let mut large = lock(self.large().expect("only large files come in chunks"));
        if large.file.is_dead() || large.part.is_some() {
            return Ok(large.part.clone());
        }
        let part = Arc::new(tree.new_draft_of(&self.path, &draft_plan::of(&self.item, &self.layout, self.inplace))?);
        if !self.sparse()
            && let Err(error) = part.reserve(self.identity.size)
        {
            // An empty part without journal would never be removed. Why it cannot be filled matters more than a failed removal.
            let _ = part.discard();
            return Err(error);
        }
        if part.proves(0, 0).is_some() {
            large.file.is_safe_at_once();
        }
        large.part = Some(Arc::clone(&part));
        Ok(Some(part))
    }

    /// Returns the part, which the first lane makes; `None` if given up.
    pub(super) fn whole_part(&self, tree: &dyn TargetTree) -> Result<Option<Arc<Draft>>, StoreError> {
        let mut whole = lock(&self.whole);
        if whole.arrived || whole.part.is_some() {
            return Ok(whole.part.clone());
        }
        let part = Arc::new(tree.new_draft_of(&self.path, &draft_plan::of(&self.item, &self.layout, self.inplace))?);
        whole.part = Some(Arc::clone(&part));
        Ok(Some(part))
    }

    pub(super) fn whole_part_made(&self) -> Option<Arc<Draft>> {
        lock(&self.whole).part.clone()
    }

    /// Notes that a whole file verified, with `receipt` before anybody learns of it. Returns false the second time.
    pub(super) fn claim_arrival(&self, receipt: impl FnOnce()) -> bool {
        let mut whole = lock(&self.whole);
        let first = !std::mem::replace(&mut whole.arrived, true);
        if first {
            receipt();
        }
        first
    }

    pub(super) fn wants(&self, chunk: u32) -> bool {
        match self.large() {
            Some(large) => lock(large).file.wants(chunk),
            None => !lock(&self.whole).arrived,
        }
    }

    /// A stale part needs holes made.
    pub(super) fn is_stale(&self) -> bool {
        match self.large() {
            Some(large) => lock(large).stale,
            None => lock(&self.whole).stale,
        }
    }

    /// Counts bad data. Returns false if it comes too often for an honest sender, which gives a chunk up before.
    pub(super) fn spoilt(&self) -> bool {
        match self.large() {
            Some(large) => lock(large).stale = true,
            None => lock(&self.whole).stale = true,
        }
        let most = self.layout.count().saturating_mul(u32::from(MAX_TRIES));
        self.spoilt.fetch_add(1, Ordering::Relaxed) < most
    }

    /// Enters a proof. If it counts, `receipt` comes before another lane can complete the file, and so before the outcome.
    pub(super) fn record(
        &self,
        verified: Verified,
        bytes: u64,
        exposure: &Exposure,
        receipt: impl FnOnce(),
    ) -> Progressed {
        let mut large = lock(self.large().expect("only large files come in chunks"));
        let chunk = verified.chunk();
        let progressed =
            exposure.change(|at_risk| large.file.record(verified, bytes, now_us(self.opened), Some(at_risk), receipt));
        if progressed != Progressed::Void {
            large.stores(&self.layout, chunk, bytes);
        }
        progressed
    }

    /// Enters a proof of discarded data, with its `receipt` if it counts. Returns the file's BLAKE3 after the last one.
    pub(super) fn discard(&self, verified: Verified, bytes: u64, receipt: impl FnOnce()) -> Option<Hash> {
        let Some(large) = self.large() else {
            return self.claim_arrival(receipt).then_some(verified.hash());
        };
        // Without a file a later run has nothing to go on with.
        let mut large = lock(large);
        match large.file.record(verified, bytes, 0, None, receipt) {
            Progressed::Complete => large.file.complete(),
            Progressed::Void | Progressed::Waiting | Progressed::Checkpoint => None,
        }
    }

    pub(super) fn fresh_bytes(&self) -> u64 {
        self.large().map_or(0, |large| lock(large).file.fresh_bytes())
    }

    /// Flushes verified data. Returns what was flushed.
    pub(super) fn checkpoint(&self, exposure: &Exposure) -> Result<Option<Flushed>, StoreError> {
        let Some(large) = self.large() else { return Ok(None) };
        let (part, mut checkpoint) = {
            let mut large = lock(large);
            let Some(part) = large.part.clone() else { return Ok(None) };
            let now_us = now_us(self.opened);
            let begun = exposure.change(|at_risk| large.file.begin_checkpoint(part.id(), now_us, at_risk));
            let Some(checkpoint) = begun else { return Ok(None) };
            (part, checkpoint)
        };
        let result = loop {
            let done = match checkpoint.next_step() {
                None => break Ok(()),
                Some(Step::Flush) => part.flush().map(|()| self.leave_cache(&part)),
                Some(Step::BeginJournal(header)) => {
                    part.journal_start(&header).map(|()| lock(large).file.journal_begun(&checkpoint))
                }
                Some(Step::Append(records)) => part.journal_append(&records),
            };
            if done.is_err() {
                break done;
            }
        };
        exposure.change(|at_risk| at_risk.end(checkpoint.bytes()));
        // The source changed: part and journal are gone, and the file has its outcome.
        if result.is_err() && lock(large).file.is_dead() {
            return Ok(None);
        }
        result.map(|()| Some(Flushed { part, chunks: checkpoint.chunks().to_vec() }))
    }

    /// [`Incoming::checkpoint`] for a file that is read back before its name. One that is complete before its first checkpoint
    /// gets a journal only if the session ends.
    ///
    /// Once flushed, a complete file holds nobody up: a lost chunk must find room when it comes again.
    pub(super) fn checkpoint_to_read_back(&self, exposure: &Exposure) -> Result<Option<Flushed>, StoreError> {
        let Some(large) = self.large() else { return Ok(None) };
        let short = {
            let large = lock(large);
            large.part.clone().filter(|_| large.file.is_short()).map(|part| (part, large.file.to_be_found()))
        };
        let flushed = match short {
            Some((part, chunks)) => {
                part.flush()?;
                (!chunks.is_empty()).then_some(Flushed { part, chunks })
            }
            None => self.checkpoint(exposure)?,
        };
        let mut large = lock(large);
        exposure.change(|at_risk| large.file.last_flushed(at_risk));
        Ok(flushed)
    }

    pub(super) fn resumed(&self, on_medium: bool) -> Option<Flushed> {
        let large = lock(self.large()?);
        let part = large.part.clone()?;
        let chunks = if on_medium { large.file.to_be_found() } else { large.file.to_be_read() };
        (!chunks.is_empty()).then_some(Flushed { part, chunks })
    }

    pub(super) fn resumed_bytes(&self) -> u64 {
        let Some(large) = self.large() else { return 0 };
        let missing: u64 = lock(large)
            .file
            .missing()
            .iter()
            .flat_map(|range| range.first..range.first + range.count)
            .filter_map(|chunk| self.layout.range(chunk))
            .map(|(_, length)| length)
            .sum();
        self.identity.size.saturating_sub(missing)
    }

    /// Enters that a chunk with so many bytes of data stands as verified.
    pub(super) fn was_read(
        &self,
        verified: Verified,
        data_bytes: u64,
        on_medium: bool,
        exposure: &Exposure,
    ) -> WasRead {
        let mut large = lock(self.large().expect("only large files come in chunks"));
        let chunk = verified.chunk();
        let was_read = match on_medium {
            true => large.file.found_on_medium(verified),
            false => exposure.change(|at_risk| large.file.was_read(verified, at_risk)),
        };
        if was_read.why.is_some() {
            large.stores(&self.layout, chunk, data_bytes);
        }
        was_read
    }

    /// Makes chunks missing again, also in the journal, that do not stand as verified. Only the thread of the checkpoints may
    /// call it.
    pub(super) fn lose(&self, chunks: &[u32]) -> Result<Vec<(u32, Lost)>, StoreError> {
        let large = self.large().expect("only large files come in chunks");
        let (part, journal, lost) = {
            let mut large = lock(large);
            let Some(part) = large.part.clone() else { return Ok(Vec::new()) };
            let lost: Vec<(u32, Lost)> =
                chunks.iter().filter_map(|chunk| Some((*chunk, large.lose(*chunk)?))).collect();
            (part, large.file.journal_anew(), lost)
        };
        if lost.is_empty() {
            return Ok(lost);
        }
        if let Some((header, records)) = journal {
            let written = part.journal_start(&header).and_then(|()| part.journal_append(&records));
            if written.is_err() && lock(large).file.is_dead() {
                return Ok(Vec::new());
            }
            written?;
        }
        Ok(lost)
    }

    pub(super) fn lose_whole(&self) -> Lost {
        let mut whole = lock(&self.whole);
        if !whole.arrived || whole.part.is_none() {
            return Lost::Void;
        }
        whole.lost = whole.lost.saturating_add(1);
        if whole.lost >= MAX_TRIES {
            return Lost::TooOften;
        }
        (whole.arrived, whole.stale) = (false, true);
        Lost::Again
    }

    pub(super) fn was_lost(&self, chunk: u32) -> bool {
        match self.large() {
            Some(large) => lock(large).lost.contains_key(&chunk),
            None => lock(&self.whole).lost > 0,
        }
    }

    pub(super) fn is_safe_at_once(&self) -> bool {
        let part = self.large().and_then(|large| lock(large).part.clone());
        part.is_some_and(|part| part.proves(0, 0).is_some())
    }

    /// Whether a large file is complete without a journal.
    pub(super) fn is_short(&self) -> bool {
        self.large().is_some_and(|large| lock(large).file.is_short())
    }

    pub(super) fn complete_draft(&self) -> Option<Arc<Draft>> {
        let large = lock(self.large()?);
        large.file.complete().and(large.part.clone())
    }

    /// Names the complete file, as long as it looks as written.
    pub(super) fn publish(
        &self,
        metadata: &Metadata,
        flush: bool,
        exposure: &Exposure,
    ) -> Result<Published, StoreError> {
        let (part, hash) = {
            let large = lock(self.large().expect("only large files come in chunks"));
            let (Some(part), Some(hash)) = (large.part.clone(), large.file.complete()) else {
                return Ok(Published::NotNow);
            };
            (part, hash)
        };
        // The look comes before what was cut off grows again, and before a file in place has the time of a finished one.
        if let Some(doubted) = self.doubted(&part, exposure)? {
            return Ok(doubted);
        }
        part.set_size(self.identity.size)?;
        part.prepare(metadata, flush)?;
        // The flush may have taken long.
        if !self.inplace
            && let Some(doubted) = self.doubted(&part, exposure)?
        {
            return Ok(doubted);
        }
        part.give_name()?;
        // A late checkpoint of a lane would begin a new journal.
        let mut large = lock(self.large().expect("only large files come in chunks"));
        large.part = None;
        exposure.change(|at_risk| large.file.end(at_risk));
        Ok(Published::Named(hash))
    }

    /// Chunks have to be read if somebody has cut the file, or made holes in it.
    fn doubted(&self, part: &Arc<Draft>, exposure: &Exposure) -> Result<Option<Published>, StoreError> {
        let stored = lock(self.large().expect("only large files come in chunks")).stored.clone();
        let missing = missing_data::chunks(part, &self.layout, &stored)?;
        if missing.is_empty() {
            return Ok(None);
        }
        // Nothing may be at risk while the rest is awaited: lanes need room.
        self.checkpoint(exposure)?;
        let mut large = lock(self.large().expect("only large files come in chunks"));
        exposure.change(|at_risk| large.file.last_flushed(at_risk));
        let chunks = large.file.doubt(&missing);
        Ok(Some(Published::Doubted(Flushed { part: Arc::clone(part), chunks })))
    }

    /// Ends the file. A part of no use to a later run goes.
    pub(super) fn abandon(&self, keep_part: bool, exposure: &Exposure) {
        let part = match self.large() {
            Some(large) => {
                let mut large = lock(large);
                exposure.change(|at_risk| large.file.end(at_risk));
                large.part.take()
            }
            None => {
                let mut whole = lock(&self.whole);
                whole.arrived = true;
                whole.part.take()
            }
        };
        if let Some(part) = part
            && !keep_part
            && !self.inplace
        {
            // The next run overwrites a part that cannot be removed.
            let _ = part.discard();
        }
    }

    /// The page cache belongs to others.
    fn leave_cache(&self, part: &Draft) {
        if self.identity.size >= DIRECT_FROM_BYTES {
            part.drop_cache(0, self.identity.size);
        }
    }

    /// The space of a file with holes is known only when it is there.
    pub(super) fn sparse(&self) -> bool {
        matches!(self.item.kind, ItemKind::File { hole_bytes: 1.., .. })
    }

    fn large(&self) -> Option<&Mutex<Large>> {
        self.large.as_ref()
    }
}

impl Large {
    fn new(file: Arriving, part: Option<Arc<Draft>>, stale: bool) -> Self {
        Self { part, file, stale, lost: BTreeMap::new(), stored: Vec::new() }
    }

    fn stores(&mut self, layout: &ChunkLayout, chunk: u32, data_bytes: u64) {
        if self.stored.is_empty() {
            self.stored = vec![0; layout.count() as usize];
        }
        self.stored[chunk as usize] = u32::try_from(data_bytes).unwrap_or(u32::MAX);
    }

    /// Returns `None` if the chunk is awaited anyway, or of no use.
    fn lose(&mut self, chunk: u32) -> Option<Lost> {
        let loss = self.file.lose(chunk)?;
        self.stale = true;
        if let Some(stored) = self.stored.get_mut(chunk as usize) {
            *stored = 0;
        }
        if loss == Loss::OfEarlierRun {
            return Some(Lost::Again);
        }
        let times = self.lost.entry(chunk).or_default();
        *times = times.saturating_add(1);
        let once_too_often = *times >= MAX_TRIES;
        let all: u32 = self.lost.values().map(|times| u32::from(*times)).sum();
        Some(if !once_too_often && all <= MAX_REPAIRS { Lost::Again } else { Lost::TooOften })
    }
}

fn now_us(start: Instant) -> u64 {
    u64::try_from(start.elapsed().as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
