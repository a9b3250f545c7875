//! The server's sum of one file, and what was read of it so far.
//!
//! ```text
//! block, at any place -> Adler-32 of it -> joined with its neighbours         all read, and the server gives an Adler-32: compared
//! block, in order     -> SHA-256 or MD5 goes on, where a file has one reader  all read: compared
//! otherwise                                                                   the receiver reads the finished draft once more
//! ```
//! A missing sum is asked for once all is there, but not after some files without one.

use std::fmt;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use haul_store::{Result as StoreResult, ServerSum, SumCounter, SumDiffers, SumKind};

use crate::digest::Digest;
use crate::digest::adler32_parts::Adler32Parts;
use crate::digest::hasher::Hasher;

/// Sums of all files of a source.
#[derive(Debug, Default)]
pub struct Sums {
    /// The files that were compared.
    pub counter: SumCounter,
    fruitless: AtomicU32,
}

/// Files without a sum, before asking ends: it costs a round trip each.
const FRUITLESS: u32 = 3;

impl Sums {
    /// Whether asking for a file's sum is worth it.
    pub fn are_asked_for(&self) -> bool {
        self.fruitless.load(Ordering::Relaxed) < FRUITLESS
    }

    fn asked(&self, found: bool) {
        match found {
            true => self.fruitless.store(0, Ordering::Relaxed),
            false => drop(self.fruitless.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

type Ask = dyn Fn() -> io::Result<Vec<Digest>> + Send + Sync;

/// The sum of one open file.
pub struct FileSum {
    sums: Arc<Sums>,
    ask: Box<Ask>,
    state: Mutex<State>,
    /// Whoever asks holds it, without the state.
    asking: Mutex<()>,
    /// The file was compared, or never will be.
    is_closed: AtomicBool,
}

#[derive(Default)]
struct State {
    digests: Vec<Digest>,
    /// The kind that the server is going to tell.
    foreseen: Option<SumKind>,
    is_asked: bool,
    parts: Adler32Parts,
    /// The sum of the bytes read in order, and their number.
    in_order: Option<(SumKind, Hasher, u64)>,
    /// After a repeated read the parts do not tell which reading was copied.
    is_repeated: bool,
    is_compared: bool,
}

impl fmt::Debug for FileSum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("FileSum")
    }
}

impl FileSum {
    /// Computes sums of this kind before the server tells its own.
    #[must_use]
    pub fn of_kind(self, kind: SumKind) -> FileSum {
        self.lock().foreseen = Some(kind);
        self
    }

    /// A file with these known digests.
    pub fn new(
        sums: Arc<Sums>,
        digests: Vec<Digest>,
        ask: impl Fn() -> io::Result<Vec<Digest>> + Send + Sync + 'static,
    ) -> FileSum {
        let state = State { digests, ..State::default() };
        FileSum {
            sums,
            ask: Box::new(ask),
            state: Mutex::new(state),
            asking: Mutex::default(),
            is_closed: AtomicBool::new(false),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn is_unknown(&self) -> bool {
        self.lock().digests.is_empty()
    }

    /// Takes an answer's digests. Earlier ones stay.
    pub(crate) fn learn(&self, digests: Vec<Digest>) {
        let mut state = self.lock();
        if state.digests.is_empty() {
            state.digests = digests;
        }
    }

    /// Takes a block that was read. `has_one_reader`: blocks come in order.
    ///
    /// # Errors
    /// The now complete file has another sum than the server says: the block may not count.
    pub fn took(&self, data: &[u8], offset: u64, size: u64, has_one_reader: bool) -> io::Result<()> {
        if data.is_empty() || self.is_closed.load(Ordering::Relaxed) {
            return Ok(());
        }
        // Without the lock, as lanes compute at the same time.
        let sum = Adler32Parts::sum_of(data);
        let mut state = self.lock();
        if has_one_reader {
            state.goes_on(data, offset);
        }
        if !state.add(offset, data.len() as u64, sum) || !state.is_whole(size) {
            return Ok(());
        }
        drop(state);
        self.ask_once(false);
        let mut state = self.lock();
        let kind = match state.sum_at_hand(size) {
            // The computed sums are of other kinds.
            None if !state.digests.is_empty() => return Ok(()),
            None => None,
            Some((kind, sum)) => match state.has(kind, &sum) {
                true => Some(kind),
                false => return Err(io::Error::new(io::ErrorKind::InvalidData, SumDiffers(kind))),
            },
        };
        self.close(&mut state, kind);
        Ok(())
    }

    /// Asks for the sum while data still comes: the server reads all of the file for it.
    pub fn ask_ahead(&self) {
        self.ask_once(true);
    }

    /// Half of the file is here, and nobody has asked yet.
    pub fn is_due(&self, size: u64) -> bool {
        if self.is_closed.load(Ordering::Relaxed) {
            return false;
        }
        let state = self.lock();
        !state.is_asked && state.digests.is_empty() && state.parts.bytes() >= size / 2
    }

    /// An early question that fails is asked again at the end.
    fn ask_once(&self, is_early: bool) {
        let _asking = self.asking.lock().unwrap_or_else(PoisonError::into_inner);
        {
            let mut state = self.lock();
            if !state.digests.is_empty() || state.is_asked || !self.sums.are_asked_for() {
                return;
            }
            state.is_asked = true;
        }
        let told = (self.ask)();
        if is_early && told.is_err() {
            self.lock().is_asked = false;
            return;
        }
        // A failed answer counts as no sum.
        let told = told.unwrap_or_default();
        self.sums.asked(!told.is_empty());
        self.learn(told);
    }

    fn close(&self, state: &mut State, compared: Option<SumKind>) {
        self.is_closed.store(true, Ordering::Relaxed);
        if let Some(kind) = compared
            && !std::mem::replace(&mut state.is_compared, true)
        {
            self.sums.counter.compared(kind);
        }
    }
}

impl State {
    /// Adds blocks in order from the first byte to the server's sum.
    fn goes_on(&mut self, data: &[u8], offset: u64) {
        if offset == 0 {
            let kind = best(&self.digests).or(self.foreseen).filter(|kind| *kind != SumKind::Adler32);
            self.in_order = kind.map(|kind| (kind, Hasher::new(kind), 0));
        }
        if let Some((_, hasher, at)) = &mut self.in_order
            && *at == offset
        {
            hasher.update(data);
            *at += data.len() as u64;
        }
    }

    /// False: it was read before.
    fn add(&mut self, start: u64, bytes: u64, sum: u32) -> bool {
        let is_new = !self.is_repeated && self.parts.add(start, bytes, sum);
        if !is_new {
            self.is_repeated = true;
            self.parts = Adler32Parts::default();
            self.in_order = None;
        }
        is_new
    }

    fn is_whole(&self, size: u64) -> bool {
        self.parts.of_first(size).is_some()
    }

    /// The server's sum, if computed over the whole file.
    fn sum_at_hand(&mut self, size: u64) -> Option<(SumKind, Vec<u8>)> {
        if let Some((kind, hasher, _)) = self.in_order.take_if(|(_, _, at)| *at == size) {
            return Some((kind, hasher.finish()));
        }
        let gives_adler32 = self.digests.iter().any(|digest| digest.kind == SumKind::Adler32);
        let sum = self.parts.of_first(size).filter(|_| gives_adler32)?;
        Some((SumKind::Adler32, sum.to_be_bytes().to_vec()))
    }

    fn has(&self, kind: SumKind, sum: &[u8]) -> bool {
        self.digests.iter().filter(|digest| digest.kind == kind).all(|digest| digest.value == sum)
    }
}

/// The strongest sum.
fn best(digests: &[Digest]) -> Option<SumKind> {
    let rank = |kind: &SumKind| match kind {
        SumKind::Adler32 => 0,
        SumKind::Md5 => 1,
        SumKind::Sha1 => 2,
        SumKind::Sha512 => 3,
        SumKind::Sha256 => 4,
    };
    digests.iter().map(|digest| digest.kind).max_by_key(rank)
}

impl ServerSum for FileSum {
    fn is_open(&self) -> bool {
        !self.is_closed.load(Ordering::Relaxed)
    }

    fn compare(
        &self,
        read: &mut dyn FnMut(&mut [u8], u64) -> StoreResult<usize>,
    ) -> StoreResult<Result<(), SumDiffers>> {
        let kind = {
            self.ask_once(false);
            best(&self.lock().digests)
        };
        let Some(kind) = kind else {
            self.close(&mut self.lock(), None);
            return Ok(Ok(()));
        };
        let (mut hasher, mut block, mut offset) = (Hasher::new(kind), vec![0; BLOCK_BYTES], 0);
        loop {
            match read(&mut block, offset)? {
                0 => break,
                count => {
                    hasher.update(&block[..count]);
                    offset += count as u64;
                }
            }
        }
        let sum = hasher.finish();
        let mut state = self.lock();
        if !state.has(kind, &sum) {
            return Ok(Err(SumDiffers(kind)));
        }
        self.close(&mut state, Some(kind));
        Ok(Ok(()))
    }
}

/// A block comes from the page cache in 100 us, and stays in the processor's cache while it is hashed.
const BLOCK_BYTES: usize = 256 << 10;

impl Drop for FileSum {
    fn drop(&mut self) {
        let state = self.lock();
        let was_read = !state.parts.is_empty() || state.is_repeated;
        if was_read && !state.is_compared {
            self.sums.counter.without();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::digest::fields::of_hex;

    fn data() -> Vec<u8> {
        (0..100_000_u32).map(|at| (at * 7 % 251) as u8).collect()
    }

    fn sum_of(kind: SumKind, data: &[u8]) -> Digest {
        let mut hasher = Hasher::new(kind);
        hasher.update(data);
        Digest::new(kind, hasher.finish()).unwrap()
    }

    fn file(sums: &Arc<Sums>, known: Vec<Digest>, told: Vec<Digest>) -> FileSum {
        FileSum::new(Arc::clone(sums), known, move || Ok(told.clone()))
    }

    fn take(file: &FileSum, data: &[u8], order: &[usize], one_reader: bool) -> io::Result<()> {
        let step = data.len() / order.len();
        order.iter().try_for_each(|at| {
            let start = at * step;
            file.took(&data[start..start + step], start as u64, data.len() as u64, one_reader)
        })
    }

    #[test]
    fn from_the_middle_of_a_file_its_sum_is_asked_for_once() {
        let (sums, data, asked) = (Arc::new(Sums::default()), data(), Arc::new(AtomicU32::new(0)));
        let (told, count) = (sum_of(SumKind::Adler32, &data), Arc::clone(&asked));
        let sum = FileSum::new(Arc::clone(&sums), Vec::new(), move || {
            count.fetch_add(1, Ordering::Relaxed);
            Ok(vec![told.clone()])
        });
        let size = data.len();
        let take = |start: usize, end: usize| sum.took(&data[start..end], start as u64, size as u64, false).unwrap();
        take(size / 2, size - 1);
        assert!(!sum.is_due(size as u64));
        take(0, 10);
        assert!(sum.is_due(size as u64));
        sum.ask_ahead();
        assert!(!sum.is_due(size as u64));
        take(10, size / 2);
        take(size - 1, size);
        assert_eq!((asked.load(Ordering::Relaxed), sums.counter.counts().files()), (1, 1));
    }

    #[test]
    fn parts_in_any_order_are_compared_with_an_adler32() {
        let (sums, data) = (Arc::new(Sums::default()), data());
        for order in [[0, 1, 2, 3, 4], [4, 3, 2, 1, 0], [2, 0, 4, 1, 3]] {
            let sum = file(&sums, vec![sum_of(SumKind::Adler32, &data)], Vec::new());
            take(&sum, &data, &order, false).unwrap();
            assert!(!sum.is_open());
            let other = file(&sums, vec![of_hex(SumKind::Adler32, "1").unwrap()], Vec::new());
            let error = take(&other, &data, &order, false).unwrap_err();
            assert!(error.to_string().contains("adler32"), "{error}");
        }
        assert_eq!((sums.counter.counts().files(), sums.counter.counts().without), (3, 3));
    }

    #[test]
    fn a_sum_of_all_bytes_in_order_is_computed_by_one_reader_and_read_again_after_several() {
        let (sums, data) = (Arc::new(Sums::default()), data());
        for kind in [SumKind::Md5, SumKind::Sha1, SumKind::Sha256, SumKind::Sha512] {
            let known = || vec![sum_of(kind, &data)];
            let one = file(&sums, known(), Vec::new());
            take(&one, &data, &[0, 1, 2, 3, 4], true).unwrap();
            assert!(!one.is_open());
            let several = file(&sums, known(), Vec::new());
            take(&several, &data, &[1, 0, 2, 3, 4], false).unwrap();
            assert!(several.is_open());
            let read = |content: Vec<u8>| {
                several.compare(&mut |buffer, offset| {
                    let rest = &content[offset as usize..];
                    let count = rest.len().min(buffer.len());
                    buffer[..count].copy_from_slice(&rest[..count]);
                    Ok(count)
                })
            };
            assert_eq!(read(data[1..].to_vec()).unwrap(), Err(SumDiffers(kind)));
            assert_eq!(read(data.clone()).unwrap(), Ok(()));
            assert!(!several.is_open());
        }
        assert_eq!(sums.counter.counts().files(), 8);
    }

    #[test]
    fn a_server_is_asked_when_all_is_there_and_no_more_after_three_files_without_a_sum() {
        let (sums, data) = (Arc::new(Sums::default()), data());
        let asked = Arc::new(AtomicU32::new(0));
        for _ in 0..5 {
            let count = Arc::clone(&asked);
            let sum = FileSum::new(Arc::clone(&sums), Vec::new(), move || {
                count.fetch_add(1, Ordering::Relaxed);
                Ok(Vec::new())
            });
            take(&sum, &data, &[1, 0], false).unwrap();
            assert!(!sum.is_open(), "there is nothing to compare with");
        }
        assert_eq!((asked.load(Ordering::Relaxed), sums.counter.counts().without), (3, 5));
        let sums = Arc::new(Sums::default());
        let told = file(&sums, Vec::new(), vec![of_hex(SumKind::Adler32, "1").unwrap()]);
        assert!(take(&told, &data, &[1, 0], false).is_err());
    }

    #[test]
    fn what_was_read_twice_is_compared_by_the_receiver() {
        let (sums, data) = (Arc::new(Sums::default()), data());
        let sum = file(&sums, vec![of_hex(SumKind::Adler32, "1").unwrap()], Vec::new());
        take(&sum, &data, &[0, 0, 1], false).unwrap();
        assert!(sum.is_open());
        drop(sum);
        assert_eq!(sums.counter.counts().without, 1);
    }
}
