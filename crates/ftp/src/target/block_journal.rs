//! The journal of an upload in blocks or ranges, in the state directory of this host: the sums of what was sent, beside the receiver's own
//! bytes.
//!
//! ```text
//!   haul-grid-upload 1 | number of the draft (16) | size (8) | bytes of a chunk (8) | bytes of the place (4) | place
//!   S | length (4) | chunk (4), Adler-32 (4), ...       in front of what claims these chunks
//!   B | length (4) | begin of a range (8), ...          in front of what claims its chunks
//!   R | length (4) | bytes of the receiver's journal
//! ```
//! The receiver's bytes have check sums of their own. A sum that the disk garbled proves nothing: the server has another one.
//! A process that lives holds the journal: a second copy from this host to the same file fails.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_foreign::Adler32Parts;
use haul_store::{Journal, JournalFile};

/// The draft that a journal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct About {
    /// The place with its server.
    pub(super) place: Vec<u8>,
    pub(super) number: (u64, u64),
    pub(super) size: u64,
    pub(super) chunk_bytes: u64,
}

impl About {
    pub(super) fn range(&self, chunk: u32) -> Option<(u64, u64)> {
        let start = u64::from(chunk).checked_mul(self.chunk_bytes).filter(|start| *start < self.size)?;
        Some((start, self.chunk_bytes.min(self.size - start)))
    }
}

/// The Adler-32 of chunks.
pub(super) type Sums = BTreeMap<u32, u32>;

/// Where ranges begin, each of which one connection writes from front to back.
pub(super) type Begins = BTreeSet<u64>;

#[derive(Debug)]
pub(super) struct BlockJournal {
    /// `None`: a later run begins anew.
    kept: Option<(JournalFile, About)>,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    sums: Sums,
    begins: Begins,
    /// Chunks whose sums the file lacks.
    fresh: Vec<u32>,
    /// Ranges that the file lacks.
    fresh_begins: Begins,
    /// Chunks of which some pieces were sent.
    filling: BTreeMap<u32, Adler32Parts>,
    /// The receiver's bytes of an earlier run, until it says how many it keeps.
    receiver: Vec<u8>,
    /// The file says something of the upload.
    is_begun: bool,
}

/// What an earlier run left of an upload.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Left {
    pub(super) about: About,
    pub(super) sums: Sums,
    pub(super) begins: Begins,
    /// The receiver's journal.
    pub(super) receiver: Vec<u8>,
}

impl BlockJournal {
    /// No later run goes on.
    pub(super) fn none() -> BlockJournal {
        BlockJournal { kept: None, state: Mutex::default() }
    }

    /// Removes what an earlier run may have left. A journal that another process holds is an error.
    pub(super) fn new(directory: &Path, about: About) -> io::Result<BlockJournal> {
        let file = JournalFile::in_directory(directory, &about.place)?;
        if file.resume()?.is_some() {
            file.remove()?;
        }
        Ok(BlockJournal { kept: Some((file, about)), state: Mutex::default() })
    }

    /// Reads and holds what an earlier run left for this place. A journal that another process holds is an error.
    pub(super) fn left(directory: &Path, place: &[u8]) -> io::Result<Option<(BlockJournal, Left)>> {
        let file = JournalFile::in_directory(directory, place)?;
        let left = file.resume()?.and_then(|bytes| decode(&bytes)).filter(|left| left.about.place == place);
        let Some(left) = left else { return Ok(None) };
        let (sums, begins, receiver) = (left.sums.clone(), left.begins.clone(), left.receiver.clone());
        let state = State { sums, begins, receiver, is_begun: true, ..State::default() };
        Ok(Some((BlockJournal { kept: Some((file, left.about.clone())), state: Mutex::new(state) }, left)))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A later run may go on.
    pub(super) fn is_kept(&self) -> bool {
        self.kept.is_some()
    }

    /// A later run goes on with what the server has.
    pub(super) fn is_begun(&self) -> bool {
        self.lock().is_begun
    }

    /// Enters that a connection begins to write here.
    pub(super) fn begin_range(&self, offset: u64) {
        let mut state = self.lock();
        if self.kept.is_some() && state.begins.insert(offset) {
            state.fresh_begins.insert(offset);
        }
    }

    /// What is known of the chunks that were sent.
    pub(super) fn proofs(&self) -> Option<(About, Sums)> {
        let (_, about) = self.kept.as_ref()?;
        Some((about.clone(), self.lock().sums.clone()))
    }

    /// Enters data that is about to be sent, with its sum.
    pub(super) fn enter(&self, data: &[u8], offset: u64, sum: u32) {
        let Some((_, about)) = &self.kept else { return };
        let mut state = self.lock();
        let (mut at, mut rest) = (offset, data);
        while !rest.is_empty() {
            let Ok(chunk) = u32::try_from(at / about.chunk_bytes) else { return };
            let Some((start, length)) = about.range(chunk) else { return };
            let most = usize::try_from(start + length - at).unwrap_or(usize::MAX).min(rest.len());
            let (piece, behind) = rest.split_at(most);
            let sum = if piece.len() == data.len() { sum } else { Adler32Parts::sum_of(piece) };
            state.enter(chunk, length, (at - start, piece.len() as u64, sum));
            (at, rest) = (at + most as u64, behind);
        }
    }
}

impl State {
    fn enter(&mut self, chunk: u32, length: u64, (at, bytes, sum): (u64, u64, u32)) {
        self.sums.remove(&chunk);
        let parts = self.filling.entry(chunk).or_default();
        if !parts.add(at, bytes, sum) {
            // A chunk that comes again begins anew.
            *parts = Adler32Parts::default();
            parts.add(at, bytes, sum);
        }
        if let Some(sum) = parts.of_first(length) {
            self.filling.remove(&chunk);
            self.sums.insert(chunk, sum);
            self.fresh.push(chunk);
        }
    }

    fn take_fresh(&mut self) -> (Begins, Sums) {
        let fresh = std::mem::take(&mut self.fresh);
        let sums = fresh.into_iter().filter_map(|chunk| Some((chunk, *self.sums.get(&chunk)?))).collect();
        (std::mem::take(&mut self.fresh_begins), sums)
    }
}

impl Journal for BlockJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let Some((file, about)) = &self.kept else {
            begun();
            return Ok(());
        };
        let mut state = self.lock();
        (state.fresh, state.fresh_begins) = (Vec::new(), Begins::new());
        let mut bytes = first(about);
        frame_begins(&mut bytes, &state.begins);
        frame_sums(&mut bytes, &state.sums);
        frame(&mut bytes, RECEIVER, header);
        file.begin(&bytes, begun)?;
        state.is_begun = true;
        Ok(())
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        let Some((file, _)) = &self.kept else { return Ok(()) };
        let mut bytes = Vec::new();
        let (begins, sums) = self.lock().take_fresh();
        frame_begins(&mut bytes, &begins);
        frame_sums(&mut bytes, &sums);
        frame(&mut bytes, RECEIVER, record);
        file.append(&bytes)
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        let receiver = std::mem::take(&mut self.lock().receiver);
        let kept = usize::try_from(len).unwrap_or(usize::MAX).min(receiver.len());
        // A torn frame would hide what comes behind it.
        self.begin(&receiver[..kept], &mut || ())
    }

    fn remove(&self) -> io::Result<()> {
        self.lock().is_begun = false;
        self.kept.as_ref().map_or(Ok(()), |(file, _)| file.remove())
    }
}

const MAGIC: &[u8] = b"haul-grid-upload 1\n";
const SUMS: u8 = b'S';
const BEGINS: u8 = b'B';
const RECEIVER: u8 = b'R';

/// The bytes of a chunk's number and sum.
const SUM_BYTES: usize = 8;

fn first(about: &About) -> Vec<u8> {
    let About { place, number, size, chunk_bytes } = about;
    let length = u32::try_from(place.len()).expect("a place is shorter than a command");
    let numbers = [number.0, number.1, *size, *chunk_bytes].map(u64::to_le_bytes).concat();
    [MAGIC, &numbers, &length.to_le_bytes(), place].concat()
}

fn frame(out: &mut Vec<u8>, kind: u8, bytes: &[u8]) {
    out.push(kind);
    out.extend(u32::try_from(bytes.len()).expect("a journal is shorter").to_le_bytes());
    out.extend_from_slice(bytes);
}

fn frame_sums(out: &mut Vec<u8>, sums: &Sums) {
    let pairs: Vec<u8> =
        sums.iter().flat_map(|(chunk, sum)| [chunk.to_le_bytes(), sum.to_le_bytes()].concat()).collect();
    if !pairs.is_empty() {
        frame(out, SUMS, &pairs);
    }
}

fn frame_begins(out: &mut Vec<u8>, begins: &Begins) {
    let bytes: Vec<u8> = begins.iter().flat_map(|begin| begin.to_le_bytes()).collect();
    if !bytes.is_empty() {
        frame(out, BEGINS, &bytes);
    }
}

/// `None`: it is no such journal, or a torn one. A torn last frame is left out.
fn decode(bytes: &[u8]) -> Option<Left> {
    let rest = bytes.strip_prefix(MAGIC)?;
    let (numbers, rest) = rest.split_first_chunk::<32>()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (place, mut rest) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    let number = |at: usize| u64::from_le_bytes(*numbers[at * 8..].first_chunk().expect("there are four"));
    let about =
        About { place: place.to_vec(), number: (number(0), number(1)), size: number(2), chunk_bytes: number(3) };
    if about.chunk_bytes == 0 {
        return None;
    }
    let (mut sums, mut begins, mut receiver) = (Sums::new(), Begins::new(), Vec::new());
    while let Some((kind, frame, behind)) = split_frame(rest) {
        match kind {
            SUMS => {
                for pair in frame.chunks_exact(SUM_BYTES) {
                    let half = |at: usize| u32::from_le_bytes(*pair[at..].first_chunk().expect("it has eight bytes"));
                    sums.insert(half(0), half(4));
                }
            }
            BEGINS => {
                let each = frame.chunks_exact(size_of::<u64>());
                begins.extend(each.map(|begin| u64::from_le_bytes(*begin.first_chunk().expect("it has eight bytes"))));
            }
            RECEIVER => receiver.extend_from_slice(frame),
            _ => break,
        }
        rest = behind;
    }
    Some(Left { about, sums, begins, receiver })
}

fn split_frame(bytes: &[u8]) -> Option<(u8, &[u8], &[u8])> {
    let (kind, rest) = bytes.split_first()?;
    let (length, rest) = rest.split_first_chunk::<4>()?;
    let (frame, behind) = rest.split_at_checked(u32::from_le_bytes(*length) as usize)?;
    Some((*kind, frame, behind))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn about(place: &[u8]) -> About {
        About { place: place.to_vec(), number: (1, 2), size: 25, chunk_bytes: 10 }
    }

    const DATA: &[u8; 25] = b"0123456789abcdefghijklmno";

    fn sum(start: usize, end: usize) -> u32 {
        Adler32Parts::sum_of(&DATA[start..end])
    }

    fn enter(journal: &BlockJournal, start: usize, end: usize) {
        journal.enter(&DATA[start..end], start as u64, sum(start, end));
    }

    #[test]
    fn sums_stand_in_front_of_what_claims_their_chunks() {
        let dir = tempfile::tempdir().unwrap();
        let journal = BlockJournal::new(dir.path(), about(b"host/f")).unwrap();
        enter(&journal, 0, 7);
        journal.begin_range(1);
        journal.begin(b"header", &mut || ()).unwrap();
        enter(&journal, 7, 23);
        journal.begin_range(10);
        journal.append(b" one").unwrap();
        drop(journal);
        assert!(BlockJournal::left(dir.path(), b"host/g").unwrap().is_none());
        let (journal, left) = BlockJournal::left(dir.path(), b"host/f").unwrap().unwrap();
        assert_eq!((&left.about, &left.receiver[..]), (&about(b"host/f"), &b"header one"[..]));
        assert_eq!(left.sums, Sums::from([(0, sum(0, 10)), (1, sum(10, 20))]));
        assert_eq!(left.begins, Begins::from([1, 10]));
        journal.keep(6).unwrap();
        enter(&journal, 20, 25);
        journal.append(b" two").unwrap();
        drop(journal);
        let (_, left) = BlockJournal::left(dir.path(), b"host/f").unwrap().unwrap();
        assert_eq!((&left.receiver[..], left.begins), (&b"header two"[..], Begins::from([1, 10])));
        assert_eq!(left.sums.last_key_value(), Some((&2, &sum(20, 25))));
    }

    #[test]
    fn a_chunk_that_comes_again_has_the_sum_of_its_last_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let journal = BlockJournal::new(dir.path(), about(b"host/f")).unwrap();
        journal.enter(b"wrong", 0, Adler32Parts::sum_of(b"wrong"));
        enter(&journal, 0, 10);
        journal.enter(b"wrong", 10, Adler32Parts::sum_of(b"wrong"));
        journal.enter(b"wrong", 15, Adler32Parts::sum_of(b"wrong"));
        enter(&journal, 10, 15);
        journal.begin(b"", &mut || ()).unwrap();
        drop(journal);
        let (_, left) = BlockJournal::left(dir.path(), b"host/f").unwrap().unwrap();
        assert_eq!(left.sums, Sums::from([(0, sum(0, 10))]), "the second chunk is not complete");
    }

    #[test]
    fn a_torn_journal_ends_in_front_of_the_tear() {
        let mut whole = first(&about(b"host/f"));
        let head = whole.len();
        frame_sums(&mut whole, &Sums::from([(0, 7)]));
        frame(&mut whole, RECEIVER, b"claims");
        for end in 0..head {
            assert!(decode(&whole[..end]).is_none(), "{end}");
        }
        for end in head..whole.len() {
            assert!(decode(&whole[..end]).unwrap().receiver.is_empty(), "{end}");
        }
        let zeros = decode(&[&whole[..], &[0; 100]].concat()).unwrap();
        assert_eq!((&zeros.receiver[..], zeros.sums), (&b"claims"[..], Sums::from([(0, 7)])));
        let unbounded = About { chunk_bytes: 0, ..about(b"host/f") };
        assert!(decode(&first(&unbounded)).is_none());
    }
}
