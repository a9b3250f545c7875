//! A file that arrives in chunks: what of it is verified, made safe, complete, or given up.
//!
//! ```text
//!   proofs -> ledger -> checkpoint: flush, begin the journal, append to it -> ... -> complete: its final name
//! ```
//! A [`Checkpoint`] says step by step what is to be done at the disk: the order is decided only here.

use alloc::vec::Vec;

use haul_wire::control::ChunkRange;
use haul_wire::manifest::Identity;

use crate::at_risk::AtRisk;
use crate::integrity::{Hash, Verified};
use crate::journal::{self, HEADER_BYTES, Header, RECORD_BYTES};
use crate::ledger::{Ledger, Recorded, Unread};
use crate::plan::ChunkLayout;

/// Microseconds between checkpoints on a slow path. Quicker files may have no journal.
const CHECKPOINT_EVERY_US: u64 = 1_000_000;

/// One such file. Time is in microseconds since any start.
#[derive(Debug)]
pub struct Arriving {
    identity: Identity,
    ledger: Ledger,
    journal: Option<Header>,
    fresh_bytes: u64,
    last_bytes: u64,
    checkpoint_at_us: u64,
    checkpoint_every_us: u64,
    checkpoint_queued: bool,
    /// Given up or finished: arriving data is void.
    dead: bool,
}

/// The consequence of a verified chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Progressed {
    /// The file needs further chunks.
    Waiting,
    /// A checkpoint of this file is due.
    Checkpoint,
    /// The file is complete.
    Complete,
    /// The chunk was there, or its file given up.
    Void,
}

/// The run that brought a lost chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loss {
    /// An earlier run, whose chunk is lost only once.
    OfEarlierRun,
    /// The chunk came in this run.
    OfThisRun,
}

/// The consequence of a proof that a chunk stands there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WasRead {
    /// Why it had to be read; `None`: it had not, or nobody asks.
    pub why: Option<Unread>,
    /// The file is complete by that.
    pub completes: bool,
}

/// A part and its journal from an earlier run.
#[derive(Debug)]
pub struct Resumed {
    /// The file, with what its journal vouches for.
    pub file: Arriving,
    /// The journal's good part. The caller cuts off the rest before it writes to the part: a torn record would hide later ones.
    /// Only the header is good if the journal claims more than the part holds, which a grown part would hide; the next checkpoint
    /// appends what holds.
    pub keep_bytes: u64,
}

impl Arriving {
    /// Begins a file of which nothing is there.
    pub fn new(identity: Identity, layout: ChunkLayout, now_us: u64) -> Self {
        Self::with(identity, Ledger::new(layout), None, now_us)
    }

    fn with(identity: Identity, ledger: Ledger, journal: Option<Header>, now_us: u64) -> Self {
        Self {
            identity,
            ledger,
            journal,
            fresh_bytes: 0,
            last_bytes: 0,
            checkpoint_at_us: now_us,
            checkpoint_every_us: CHECKPOINT_EVERY_US,
            checkpoint_queued: false,
            dead: false,
        }
    }

    /// Goes on with an earlier run's part (device and inode, and size in bytes), if its journal is about this very file. `stands`
    /// says whether a claimed chunk can be believed.
    pub fn resume(
        identity: Identity,
        layout: ChunkLayout,
        part: (u64, u64),
        part_bytes: u64,
        journal: &[u8],
        mut stands: impl FnMut(u32, &Hash) -> bool,
        now_us: u64,
    ) -> Option<Resumed> {
        let (header, records) = journal::decode(journal)?;
        if header.identity != identity || header.chunk_bytes != layout.chunk_bytes() || header.part != part {
            return None;
        }
        // Disks that lie about a flush hold less after a power cut.
        let claimed = records.len();
        let within = |chunk: u32| layout.range(chunk).is_some_and(|(start, length)| start + length <= part_bytes);
        let holds = |(chunk, hash): &(u32, Hash)| within(*chunk) && stands(*chunk, hash);
        let records: Vec<(u32, Hash)> = records.into_iter().filter(holds).collect();
        let intact = records.len() == claimed;
        let keep_bytes = HEADER_BYTES + if intact { records.len() * RECORD_BYTES } else { 0 };
        let ledger = Ledger::resume(layout, records, intact);
        let file = Self::with(identity, ledger, Some(header), now_us);
        Some(Resumed { file, keep_bytes: keep_bytes as u64 })
    }

    /// Makes each chunk a checkpoint, for ends where writes are safe at once.
    pub fn is_safe_at_once(&mut self) {
        self.checkpoint_every_us = 0;
    }

    /// The chunks that the source has to send.
    pub fn missing(&self) -> Vec<ChunkRange> {
        self.ledger.missing_ranges()
    }

    /// Whether data for this chunk is of use.
    pub fn wants(&self, chunk: u32) -> bool {
        !self.dead && self.ledger.is_missing(chunk)
    }

    /// Whether it was given up, or finished.
    pub fn is_dead(&self) -> bool {
        self.dead
    }

    /// Data bytes that no checkpoint has taken.
    pub fn fresh_bytes(&self) -> u64 {
        self.fresh_bytes
    }

    /// Enters a proof for so many bytes of data. `receipt` is told before another lane can complete the file: its outcome follows
    /// all receipts.
    pub fn record(
        &mut self,
        verified: Verified,
        bytes: u64,
        now_us: u64,
        at_risk: Option<&mut AtRisk>,
        receipt: impl FnOnce(),
    ) -> Progressed {
        if self.dead {
            return Progressed::Void;
        }
        let recorded = self.ledger.record(verified);
        if recorded == Recorded::Duplicate {
            return Progressed::Void;
        }
        receipt();
        let complete = recorded == Recorded::Complete;
        let Some(at_risk) = at_risk else {
            return if complete { Progressed::Complete } else { Progressed::Waiting };
        };
        at_risk.enter(bytes);
        self.fresh_bytes += bytes;
        if complete {
            self.begin_last_flush(at_risk);
            return Progressed::Complete;
        }
        // Reading earlier data may take long; what arrived is safe first.
        let arrived = recorded == Recorded::Arrived;
        let due = arrived || now_us.saturating_sub(self.checkpoint_at_us) >= self.checkpoint_every_us;
        if due && !core::mem::replace(&mut self.checkpoint_queued, true) {
            return Progressed::Checkpoint;
        }
        Progressed::Waiting
    }

    fn begin_last_flush(&mut self, at_risk: &mut AtRisk) {
        let fresh_bytes = core::mem::take(&mut self.fresh_bytes);
        self.last_bytes += fresh_bytes;
        at_risk.begin(fresh_bytes);
    }

    /// Earlier runs' chunks count only once read: anybody may have changed them.
    pub fn read_all_again(&mut self) {
        self.ledger.read_all_again();
    }

    /// Marks suspect chunks: they count only once read. Returns those that are there, with their hashes.
    pub fn doubt(&mut self, chunks: &[u32]) -> Vec<(u32, Hash)> {
        if self.dead { Vec::new() } else { self.ledger.doubt(chunks) }
    }

    /// Chunks to read, with the hashes they must have.
    pub fn to_be_read(&self) -> Vec<(u32, Hash)> {
        self.ledger.to_be_read()
    }

    /// Enters the proof that a chunk stands there.
    pub fn was_read(&mut self, verified: Verified, at_risk: &mut AtRisk) -> WasRead {
        let why = if self.dead { None } else { self.ledger.was_read(verified) };
        let completes = why.is_some() && self.ledger.is_complete();
        if completes {
            self.begin_last_flush(at_risk);
        }
        WasRead { why, completes }
    }

    /// Takes what was verified before a checkpoint's flush begins; `None`: nothing. `part` is the part's device and inode.
    pub fn begin_checkpoint(&mut self, part: (u64, u64), now_us: u64, at_risk: &mut AtRisk) -> Option<Checkpoint> {
        self.checkpoint_queued = false;
        self.checkpoint_at_us = now_us;
        if self.dead || !self.ledger.has_unjournaled() {
            return None;
        }
        let bytes = core::mem::take(&mut self.fresh_bytes);
        at_risk.begin(bytes);
        let chunk_bytes = self.ledger.layout().chunk_bytes();
        let header = self.journal.unwrap_or(Header { identity: self.identity, chunk_bytes, part });
        let begins = self.journal.is_none();
        Some(Checkpoint { header, begins, chunks: self.ledger.take_unjournaled(), bytes, turn: 0 })
    }

    /// Enters that the journal has begun.
    pub fn journal_begun(&mut self, checkpoint: &Checkpoint) {
        self.journal = Some(checkpoint.header);
    }

    /// Whether it is complete without a journal.
    pub fn is_short(&self) -> bool {
        !self.dead && self.journal.is_none() && self.ledger.missing() == 0
    }

    /// Enters the last flush: only the name is at risk.
    pub fn last_flushed(&mut self, at_risk: &mut AtRisk) {
        at_risk.end(core::mem::take(&mut self.last_bytes));
    }

    /// Verified chunks not yet read back.
    pub fn to_be_found(&self) -> Vec<(u32, Hash)> {
        self.ledger.to_be_found()
    }

    /// Enters that the medium gives a chunk back. The last one completes the file.
    pub fn found_on_medium(&mut self, verified: Verified) -> WasRead {
        let why = self.ledger.unread(verified.chunk());
        if self.dead || !self.ledger.found_on_medium(verified) {
            return WasRead { why: None, completes: false };
        }
        WasRead { why, completes: self.ledger.is_on_medium() }
    }

    /// Marks a chunk as missing. `None`: unawaited, or missing before.
    pub fn lose(&mut self, chunk: u32) -> Option<Loss> {
        let unread = self.ledger.unread(chunk);
        let is_lost = !self.dead && self.ledger.lose(chunk);
        is_lost.then_some(if unread == Some(Unread::Earlier) { Loss::OfEarlierRun } else { Loss::OfThisRun })
    }

    /// Header and records without lost chunks; `None`: no journal.
    pub fn journal_anew(&self) -> Option<(Vec<u8>, Vec<u8>)> {
        let header = self.journal?;
        Some((header.encode(), journal::encode_records(&header, &self.ledger.journaled())))
    }

    /// The BLAKE3, if complete and not given up.
    pub fn complete(&self) -> Option<Hash> {
        if self.dead { None } else { self.ledger.file_hash() }
    }

    /// Ends the work on a file.
    pub fn end(&mut self, at_risk: &mut AtRisk) {
        self.dead = true;
        let fresh_bytes = core::mem::take(&mut self.fresh_bytes);
        at_risk.begin(fresh_bytes);
        at_risk.end(fresh_bytes + core::mem::take(&mut self.last_bytes));
    }
}

/// Steps in this order: the journal never claims more than the disk holds.
#[derive(Debug)]
pub struct Checkpoint {
    header: Header,
    begins: bool,
    chunks: Vec<(u32, Hash)>,
    bytes: u64,
    turn: u8,
}

/// One step. If it fails, the file fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// Flush the data of the part.
    Flush,
    /// Begin a journal with this header, flush it and its directory, tell [`Arriving::journal_begun`].
    BeginJournal(Vec<u8>),
    /// Append these records, and flush them.
    Append(Vec<u8>),
}

impl Checkpoint {
    /// The next step; `None` when all are done.
    pub fn next_step(&mut self) -> Option<Step> {
        loop {
            self.turn += 1;
            match self.turn {
                1 => return Some(Step::Flush),
                2 if self.begins => return Some(Step::BeginJournal(self.header.encode())),
                2 => {}
                3 => return Some(Step::Append(journal::encode_records(&self.header, &self.chunks))),
                _ => return None,
            }
        }
    }

    /// The chunks that it takes, with hashes.
    pub fn chunks(&self) -> &[(u32, Hash)] {
        &self.chunks
    }

    /// Data bytes at risk until [`AtRisk::end`] is told.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use haul_wire::limits::MIN_CHUNK_BYTES;
    use haul_wire::manifest::Time;

    use super::*;
    use crate::integrity;

    fn file(chunks: u64) -> Arriving {
        let time = Default::default();
        let size = chunks * MIN_CHUNK_BYTES;
        Arriving::new(Identity { size, mtime: time, ctime: time, inode: 1 }, ChunkLayout::of(size), 0)
    }

    fn proof(chunk: u32) -> Verified {
        integrity::verify(chunk, [chunk as u8; 32], [chunk as u8; 32]).unwrap()
    }

    #[test]
    fn a_checkpoint_flushes_before_its_journal_claims_anything() {
        let (mut file, mut at_risk) = (file(3), AtRisk::new(100));
        file.record(proof(1), 10, 0, Some(&mut at_risk), || ());
        let mut first = file.begin_checkpoint((7, 8), 0, &mut at_risk).unwrap();
        let steps: Vec<Step> = core::iter::from_fn(|| first.next_step()).collect();
        let [Step::Flush, Step::BeginJournal(header), Step::Append(records)] = &steps[..] else { panic!("{steps:?}") };
        let (_, claimed) = journal::decode(&[header.clone(), records.clone()].concat()).unwrap();
        assert_eq!(claimed, [(1, [1; 32])]);
        file.journal_begun(&first);
        file.record(proof(0), 10, 0, Some(&mut at_risk), || ());
        let mut second = file.begin_checkpoint((7, 8), 0, &mut at_risk).unwrap();
        let steps: Vec<Step> = core::iter::from_fn(|| second.next_step()).collect();
        assert!(matches!(&steps[..], [Step::Flush, Step::Append(_)]), "{steps:?}");
        assert!(file.begin_checkpoint((7, 8), 0, &mut at_risk).is_none(), "nothing new");
    }

    #[test]
    fn of_a_journal_that_claims_more_than_is_there_only_the_header_is_kept() {
        let identity = file(3).identity;
        let header = Header { identity, chunk_bytes: MIN_CHUNK_BYTES, part: (7, 8) };
        let journal = [header.encode(), journal::encode_records(&header, &[(0, [1; 32]), (2, [2; 32])])].concat();
        let resume = |part, bytes| {
            Arriving::resume(identity, ChunkLayout::of(identity.size), part, bytes, &journal, |_, _| true, 0)
        };
        assert_eq!(resume((7, 8), 3 * MIN_CHUNK_BYTES).unwrap().keep_bytes, journal.len() as u64);
        assert!(resume((7, 9), 3 * MIN_CHUNK_BYTES).is_none(), "another part");
        let mut short = resume((7, 8), MIN_CHUNK_BYTES).unwrap();
        assert_eq!((short.keep_bytes, short.file.wants(0), short.file.wants(2)), (HEADER_BYTES as u64, false, true));
        let mut at_risk = AtRisk::new(100);
        let mut checkpoint = short.file.begin_checkpoint((7, 8), 0, &mut at_risk).unwrap();
        let steps: Vec<Step> = core::iter::from_fn(|| checkpoint.next_step()).collect();
        let [Step::Flush, Step::Append(records)] = &steps[..] else { panic!("{steps:?}") };
        assert_eq!(*records, journal::encode_records(&header, &[(0, [1; 32])]));
        let doubted = |chunk, hash: &Hash| chunk == 2 && *hash == [2; 32];
        let doubted = Arriving::resume(
            identity,
            ChunkLayout::of(identity.size),
            (7, 8),
            3 * MIN_CHUNK_BYTES,
            &journal,
            doubted,
            0,
        )
        .unwrap();
        assert_eq!(
            (doubted.keep_bytes, doubted.file.wants(0), doubted.file.wants(2)),
            (HEADER_BYTES as u64, true, false)
        );
    }

    #[test]
    fn a_sound_journal_of_another_source_layout_or_part_is_not_gone_on_with() {
        let identity = Identity { inode: 5, ..file(3).identity };
        let right = Header { identity, chunk_bytes: MIN_CHUNK_BYTES, part: (7, 8) };
        let resumes = |header: Header| {
            let journal = [header.encode(), journal::encode_records(&header, &[(0, [1; 32])])].concat();
            assert_eq!(journal::decode(&journal), Some((header, vec![(0, [1; 32])])), "it is sound");
            Arriving::resume(
                identity,
                ChunkLayout::of(identity.size),
                right.part,
                identity.size,
                &journal,
                |_, _| true,
                0,
            )
            .is_some()
        };
        assert!(resumes(right));
        let (second, nanosecond) = (Time { s: 1, ns: 0 }, Time { s: 0, ns: 1 });
        for other in [
            Identity { size: identity.size - 1, ..identity },
            Identity { mtime: second, ..identity },
            Identity { mtime: nanosecond, ..identity },
            Identity { ctime: second, ..identity },
            Identity { ctime: nanosecond, ..identity },
            Identity { inode: 6, ..identity },
        ] {
            assert!(!resumes(Header { identity: other, ..right }), "{other:?}");
        }
        assert!(!resumes(Header { chunk_bytes: 2 * MIN_CHUNK_BYTES, ..right }));
        for part in [(6, 8), (7, 7), journal::NOTHING] {
            assert!(!resumes(Header { part, ..right }), "{part:?}");
        }
    }

    #[test]
    fn what_arrived_is_safe_before_what_an_earlier_run_left_was_read() {
        let header = Header { identity: file(3).identity, chunk_bytes: MIN_CHUNK_BYTES, part: (7, 8) };
        let hash = |chunk: u32| proof(chunk).hash();
        let journal = [header.encode(), journal::encode_records(&header, &[(0, hash(0)), (1, hash(1))])].concat();
        let resumed = Arriving::resume(
            header.identity,
            ChunkLayout::of(header.identity.size),
            (7, 8),
            3 * MIN_CHUNK_BYTES,
            &journal,
            |_, _| true,
            0,
        );
        let mut file = resumed.unwrap().file;
        file.read_all_again();
        let mut at_risk = AtRisk::new(100);
        assert_eq!(file.record(proof(2), 10, 1, Some(&mut at_risk), || ()), Progressed::Checkpoint);
        let checkpoint = file.begin_checkpoint((7, 8), 2, &mut at_risk).unwrap();
        at_risk.end(checkpoint.bytes());
        assert_eq!((file.complete(), at_risk.bytes()), (None, 0));
        let earlier = |completes| WasRead { why: Some(Unread::Earlier), completes };
        assert_eq!(file.was_read(proof(0), &mut at_risk), earlier(false));
        assert_eq!(file.lose(1), Some(Loss::OfEarlierRun));
        assert_eq!(file.record(proof(1), 10, 3, Some(&mut at_risk), || ()), Progressed::Complete);
        assert_eq!(file.doubt(&[1]).len(), 1);
        assert_eq!((file.complete(), file.lose(1)), (None, Some(Loss::OfThisRun)));
        file.end(&mut at_risk);
        assert_eq!(at_risk, AtRisk::new(100));
    }

    #[test]
    fn time_brings_one_checkpoint_at_a_time() {
        let (mut file, mut at_risk) = (file(5), AtRisk::new(u64::MAX));
        let record = |file: &mut Arriving, chunk, now_us, at_risk: &mut AtRisk| {
            file.record(proof(chunk), 1, now_us, Some(at_risk), || ())
        };
        assert_eq!(record(&mut file, 0, CHECKPOINT_EVERY_US - 1, &mut at_risk), Progressed::Waiting);
        assert_eq!(record(&mut file, 1, CHECKPOINT_EVERY_US, &mut at_risk), Progressed::Checkpoint);
        assert_eq!(record(&mut file, 2, CHECKPOINT_EVERY_US, &mut at_risk), Progressed::Waiting, "one is queued");
        assert!(file.begin_checkpoint((7, 8), CHECKPOINT_EVERY_US, &mut at_risk).is_some());
        assert_eq!(record(&mut file, 3, CHECKPOINT_EVERY_US + 1, &mut at_risk), Progressed::Waiting);
        assert_eq!(record(&mut file, 3, 9 * CHECKPOINT_EVERY_US, &mut at_risk), Progressed::Void, "it is there");
    }

    #[test]
    fn what_ends_is_no_longer_at_risk() {
        let (mut file, mut at_risk) = (file(2), AtRisk::new(100));
        file.record(proof(0), 10, 0, Some(&mut at_risk), || ());
        let checkpoint = file.begin_checkpoint((7, 8), 0, &mut at_risk).unwrap();
        assert_eq!(file.record(proof(1), 20, 0, Some(&mut at_risk), || ()), Progressed::Complete);
        assert_eq!(at_risk.bytes(), 30);
        file.end(&mut at_risk);
        at_risk.end(checkpoint.bytes());
        assert_eq!(at_risk, AtRisk::new(100));
        assert_eq!(file.record(proof(0), 10, 0, Some(&mut at_risk), || ()), Progressed::Void);
    }
}
