//! Finds the runs of a chunk that stand already in a differing file of the target, by the target's cuts.
//!
//! ```text
//! pieces arrive -> table                                       (control channel)
//! a lane takes a chunk -> does the piece stand where its neighbour says? -> else cut here, and look it up -> runs
//! ```
//! A lane waits until the table reaches as far as its chunk. Where nothing is found, it waits until the table reaches
//! [`AHEAD_BYTES`] further, or on a path known to be slow for the rest of it, but for all chunks together no longer than
//! [`PATIENCE`].

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_engine::sending::Broken;
use haul_store::SourceFile;
use haul_wire::control::{Piece, Standing};
use haul_wire::summary::KnownPath;

use haul_kept::sync::lock;

use crate::pieces::{self, Cutter, MOST_PIECES};

/// The one wait of a file for a slow target, in which a disk reads 100 MB and more.
const PATIENCE: Duration = Duration::from_secs(1);

/// Data moved towards a file's beginning by no more is found at once. A disk reads so much in half a second.
const AHEAD_BYTES: u64 = 64 << 20;

/// On a slower path a second of looking costs less than the data it may save.
const SLOW_PATH_BYTES_PER_S: u64 = 125_000_000;

/// A waiting lane looks this often whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// Data past the page cache is written in whole blocks of a disk, so runs begin and end at multiples.
const GRAIN_BYTES: u64 = 4096;

/// After so many chunks of a file that did not verify, the target is not believed any more.
const MAX_DISTRUSTED: usize = 64;

/// Twice what an honest target cuts on average.
pub(super) const PIECES_MAX: usize = 2 * MOST_PIECES as usize;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Run {
    /// New bytes.
    Data { bytes: u64 },
    /// Bytes at the target from this offset on.
    Standing { bytes: u64, at: u64 },
}

pub(super) struct StandingFile {
    cutter: Cutter,
    in_place: bool,
    /// How much further than its chunk a lane waits for the table.
    ahead_bytes: u64,
    /// The bytes without a match after which the rest is sent: looking takes a processor here, too.
    barren_bytes: u64,
    table: Mutex<Table>,
    grown: Condvar,
}

#[derive(Default)]
struct Table {
    starts: Vec<u64>,
    pieces: Vec<Piece>,
    /// The place of each digest.
    places: HashMap<[u8; 8], u64>,
    covered_bytes: u64,
    is_complete: bool,
    is_released: bool,
    /// Chunks that did not verify with what stands there.
    distrusted: BTreeSet<u32>,
    /// The last shift: neighbours likely have it, too.
    shift: i64,
    patience_ends: Option<Instant>,
    has_found: bool,
    /// The bytes of chunks looked for.
    sought_bytes: u64,
}

impl StandingFile {
    /// Takes a source of `size` bytes. `known`: earlier findings on the path.
    pub(super) fn new(first: &Standing, size: u64, known: Option<&KnownPath>) -> Self {
        let is_slow = known.is_some_and(|path| path.capacity_bytes_per_s < SLOW_PATH_BYTES_PER_S);
        Self {
            cutter: Cutter::with_mean(first.mean_bytes),
            in_place: first.in_place,
            ahead_bytes: if is_slow { u64::MAX } else { AHEAD_BYTES },
            barren_bytes: if is_slow { u64::MAX } else { pieces::barren_bytes(size) },
            table: Mutex::default(),
            grown: Condvar::new(),
        }
    }

    /// Enters pieces. Returns the table's growth.
    pub(super) fn add(&self, standing: &Standing) -> Result<usize, Broken> {
        let mut table = lock(&self.table);
        if table.is_released {
            return Ok(0);
        }
        if table.is_complete || standing.mean_bytes != self.cutter.mean_bytes() || standing.in_place != self.in_place {
            return Err(Broken("it cuts what stands there in two ways"));
        }
        if table.pieces.len() + standing.pieces.len() > PIECES_MAX {
            return Err(Broken("it cuts a file without end"));
        }
        for piece in &standing.pieces {
            let start = table.covered_bytes;
            table.places.entry(piece.digest).or_insert(start);
            table.starts.push(start);
            table.pieces.push(*piece);
            table.covered_bytes += u64::from(piece.bytes);
        }
        table.is_complete = standing.is_last;
        drop(table);
        self.grown.notify_all();
        Ok(standing.pieces.len())
    }

    pub(super) fn take_pieces(&self) -> usize {
        let released = Table { is_complete: true, is_released: true, ..Table::default() };
        let before = std::mem::replace(&mut *lock(&self.table), released);
        self.grown.notify_all();
        before.pieces.len()
    }

    /// Notes that the chunk did not verify, and is sent as data from now on.
    pub(super) fn distrust(&self, chunk: u32) {
        lock(&self.table).distrusted.insert(chunk);
    }

    pub(super) fn serves(&self, chunk: u32) -> bool {
        let table = lock(&self.table);
        let is_of_use = table.has_found || table.sought_bytes < self.barren_bytes;
        is_of_use && table.distrusted.len() < MAX_DISTRUSTED && !table.distrusted.contains(&chunk)
    }

    /// Finds the runs of the chunk from `start` to `end`. Reads the source through `window`, in which the chunk then stands.
    /// Returns `None` when the session is over.
    pub(super) fn runs(
        &self,
        window: &mut Window,
        open: &SourceFile,
        (start, end): (u64, u64),
        is_over: &dyn Fn() -> bool,
    ) -> io::Result<Option<Vec<Run>>> {
        let longest = self.cutter.longest_bytes() as u64;
        let mut found = Found { runs: Vec::new(), at: start, end };
        let mut shift = if self.in_place { 0 } else { lock(&self.table).shift };
        // Cuts from here on are the target's in the same data.
        let mut cut: Option<u64> = None;
        while found.at < end {
            if is_over() {
                return Ok(None);
            }
            if let Some((begins, piece)) = self.piece_at(found.at, shift, is_over)
                && window.stands(open, begins, piece)?
            {
                let ends = begins + u64::from(piece.bytes);
                found.standing(ends, shift);
                cut = Some(ends);
                continue;
            }
            let mut from = match cut {
                Some(cut) => cut,
                // Two files are cut alike after a piece or two of equal data.
                None => start.saturating_sub(longest),
            };
            // One piece that reaches into the chunk, and those before it.
            loop {
                let data = window.read(open, from, from + longest)?;
                if data.is_empty() {
                    // A shorter file shows at the chunk's end.
                    found.data(end);
                    break;
                }
                let bytes = self.cutter.first(data);
                let (data, ends) = (&data[..bytes], from + bytes as u64);
                if ends > found.at {
                    let piece = pieces::piece(data);
                    match self.place_of(piece, from, is_over) {
                        Some(place) => {
                            shift = shift_of(from, place);
                            found.standing(ends, shift);
                        }
                        None => found.data(ends),
                    }
                    cut = Some(ends);
                    break;
                }
                from = ends;
            }
        }
        let runs = found.finish(start);
        let mut table = lock(&self.table);
        table.has_found |= runs.iter().any(|run| matches!(run, Run::Standing { .. }));
        table.sought_bytes += end - start;
        if shift != 0 {
            table.shift = shift;
        }
        Ok(Some(runs))
    }

    /// The piece that covers `at` of the source if shifted so, and where it begins in the source. Waits for the table.
    fn piece_at(&self, at: u64, shift: i64, is_over: &dyn Fn() -> bool) -> Option<(u64, Piece)> {
        let there = at.checked_add_signed(-shift)?;
        let table = self.wait(is_over, |table| table.covered_bytes > there);
        if there >= table.covered_bytes {
            return None;
        }
        let index = table.starts.partition_point(|start| *start <= there).checked_sub(1)?;
        let begins = table.starts[index].checked_add_signed(shift)?;
        Some((begins, table.pieces[index]))
    }

    /// Where a piece that begins here in the source stands at the target. One that is not there yet may come.
    fn place_of(&self, piece: Piece, begins: u64, is_over: &dyn Fn() -> bool) -> Option<u64> {
        // In place, other offsets may be overwritten already.
        if self.in_place {
            return None;
        }
        let find = |table: &Table| table.places.get(&piece.digest).copied();
        let enough_bytes = begins.saturating_add(self.ahead_bytes);
        {
            let mut table = lock(&self.table);
            if let found @ Some(_) = find(&table) {
                return found;
            }
            if !table.is_complete && table.covered_bytes < enough_bytes {
                table.patience_ends.get_or_insert_with(|| Instant::now() + PATIENCE);
            }
        }
        let impatient = |table: &Table| table.patience_ends.is_some_and(|end| Instant::now() >= end);
        let is_enough = |table: &Table| impatient(table) || table.covered_bytes >= enough_bytes;
        let table = self.wait(is_over, |table| is_enough(table) || find(table).is_some());
        find(&table)
    }

    fn wait(&self, is_over: &dyn Fn() -> bool, enough: impl Fn(&Table) -> bool) -> MutexGuard<'_, Table> {
        let waits = |table: &mut Table| !table.is_complete && !enough(table);
        loop {
            let table = lock(&self.table);
            let (table, waited) =
                self.grown.wait_timeout_while(table, LOOK_EVERY, waits).unwrap_or_else(PoisonError::into_inner);
            if !waited.timed_out() {
                return table;
            }
            // No other lock is taken under this one.
            drop(table);
            if is_over() {
                return lock(&self.table);
            }
        }
    }
}

fn shift_of(here: u64, there: u64) -> i64 {
    i64::try_from(i128::from(here) - i128::from(there)).unwrap_or(0)
}

struct Found {
    runs: Vec<(u64, Option<i64>)>,
    at: u64,
    end: u64,
}

impl Found {
    /// Adds a run that stands at the target up to here, shifted so.
    fn standing(&mut self, ends: u64, shift: i64) {
        self.push(ends, Some(shift));
    }

    fn data(&mut self, ends: u64) {
        self.push(ends, None);
    }

    fn push(&mut self, ends: u64, shift: Option<i64>) {
        let ends = ends.min(self.end);
        match self.runs.last_mut().filter(|(_, last)| *last == shift) {
            Some((last, _)) => *last = ends,
            None => self.runs.push((ends, shift)),
        }
        self.at = ends;
    }

    /// A run gives what lies outside of whole blocks to its neighbours.
    fn finish(self, start: u64) -> Vec<Run> {
        let mut whole = Vec::new();
        let data = |whole: &mut Vec<Run>, bytes: u64| match whole.last_mut() {
            _ if bytes == 0 => {}
            Some(Run::Data { bytes: before }) => *before += bytes,
            _ => whole.push(Run::Data { bytes }),
        };
        let mut at = start;
        for (ends, shift) in self.runs {
            let Some(shift) = shift else {
                data(&mut whole, ends - at);
                at = ends;
                continue;
            };
            let begins = if at == start { at } else { at.next_multiple_of(GRAIN_BYTES) };
            let last = if ends == self.end { ends } else { ends - ends % GRAIN_BYTES };
            match begins.checked_add_signed(-shift) {
                Some(there) if begins < last => {
                    data(&mut whole, begins - at);
                    whole.push(Run::Standing { bytes: last - begins, at: there });
                    data(&mut whole, ends - last);
                }
                _ => data(&mut whole, ends - at),
            }
            at = ends;
        }
        whole
    }
}

#[derive(Default)]
pub(super) struct Window {
    offset: u64,
    bytes: Vec<u8>,
}

const READ_BYTES: u64 = 256 << 10;

impl Window {
    pub(super) fn clear(&mut self) {
        self.bytes.clear();
    }

    pub(super) fn read(&mut self, open: &SourceFile, start: u64, end: u64) -> io::Result<&[u8]> {
        let there = self.offset + self.bytes.len() as u64;
        if self.bytes.is_empty() || start < self.offset || start > there {
            self.bytes.clear();
            self.offset = start;
        }
        let mut filled = self.bytes.len();
        let wanted = to_usize(end - self.offset);
        if filled < wanted {
            self.bytes.resize(to_usize((end - self.offset).next_multiple_of(READ_BYTES)), 0);
            while filled < wanted {
                let read = open.read_at(&mut self.bytes[filled..], self.offset + filled as u64)?;
                if read == 0 {
                    break;
                }
                filled += read;
            }
            self.bytes.truncate(filled);
        }
        let from = to_usize(start - self.offset).min(self.bytes.len());
        Ok(&self.bytes[from..wanted.min(self.bytes.len()).max(from)])
    }

    fn stands(&mut self, open: &SourceFile, begins: u64, piece: Piece) -> io::Result<bool> {
        let data = self.read(open, begins, begins + u64::from(piece.bytes))?;
        Ok(data.len() == piece.bytes as usize && pieces::piece(data) == piece)
    }
}

fn to_usize(bytes: u64) -> usize {
    usize::try_from(bytes).expect("a chunk and two pieces")
}
