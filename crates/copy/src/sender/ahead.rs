//! The next blocks of a lane are read past the page cache, while the lane sends the blocks before them.
//!
//! ```text
//! chunk taken -> its cold blocks are begun as buffers come free, then those of chunks taken ahead -> the lane asks for each in turn
//! ```
//! This is for large files that the page cache lacks (`store::ColdMap`). Other data is read into the lane's own buffer; cold
//! data among it is then dropped from the page cache.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use haul_engine::schedule::Unit;
use haul_store::{ColdMap, SourceFile};
use haul_sys::direct::DirectSource;
use haul_sys::uring::ReadRing;
use haul_wire::limits::BLOCK_BYTES;

use super::limits::UNITS_AHEAD;
use super::source_item::SourceItem;
use super::state::Shared;

/// 256 KiB x 8 = 2 MiB for one lane. With two lanes a disk has up to 16 requests, and reads as fast as with more.
const BLOCKS_AHEAD: usize = 8;

pub(super) struct ReadAhead<'a> {
    shared: &'a Shared,
    lane: u16,
    ring: Ring,
    /// Chunks stand in the order in which they will be carried.
    plans: VecDeque<Plan>,
    /// The ring reads them in this order.
    pieces: VecDeque<Piece>,
}

enum Ring {
    Unmade,
    Made(Box<ReadRing>, usize),
    /// The kernel or the operator allows none, or it failed.
    None,
}

struct Plan {
    unit: Unit,
    item: Arc<SourceItem>,
    /// `None`: nothing to read ahead.
    open: Option<Arc<SourceFile>>,
    begun: u64,
    end: u64,
}

#[derive(PartialEq, Eq)]
struct Piece {
    unit: Unit,
    offset: u64,
}

impl<'a> ReadAhead<'a> {
    pub(super) fn new(shared: &'a Shared, lane: u16) -> Self {
        ReadAhead { shared, lane, ring: Ring::Unmade, plans: VecDeque::new(), pieces: VecDeque::new() }
    }

    pub(super) fn next_unit(&self) -> Option<(Unit, Arc<SourceItem>)> {
        self.plans.front().map(|plan| (plan.unit, Arc::clone(&plan.item)))
    }

    pub(super) fn carry(&mut self, unit: Unit, item: &Arc<SourceItem>, open: &Arc<SourceFile>) {
        if self.plans.front().is_none_or(|plan| plan.unit != unit) && open.cold().is_some() {
            self.plans.push_front(Plan::new(unit, item, Some(Arc::clone(open))));
        }
    }

    pub(super) fn leave(&mut self, unit: Unit) {
        if self.plans.front().is_some_and(|plan| plan.unit == unit) {
            self.plans.pop_front();
        }
        while self.pieces.front().is_some_and(|piece| piece.unit == unit) {
            self.release_oldest();
        }
    }

    /// Fills `data` with the carried unit's block at `offset`; fewer bytes mean the end of the file.
    pub(super) fn read(&mut self, unit: Unit, open: &SourceFile, data: &mut [u8], offset: u64) -> io::Result<usize> {
        let Some(cold) = open.cold().filter(|cold| cold.is_cold(offset)) else { return open.read_at(data, offset) };
        self.fill_ring();
        while self.pieces.front().is_some_and(|piece| piece.unit == unit && piece.offset < offset) {
            self.release_oldest();
        }
        if self.pieces.front() == Some(&Piece { unit, offset })
            && let Some(read) = self.take_oldest(data)
        {
            return Ok(read);
        }
        let read = open.read_at(data, offset)?;
        self.passed(cold, offset, read as u64);
        Ok(read)
    }

    pub(super) fn skip(&self, open: &SourceFile, offset: u64, len: u64) {
        if let Some(cold) = open.cold() {
            self.passed(cold, offset, len);
        }
    }

    /// Notes bytes that went through the page cache because they could not go past it.
    fn passed(&self, cold: &ColdMap, offset: u64, len: u64) {
        if matches!(self.ring, Ring::None) || cold.direct().is_err() {
            cold.passed(offset, len);
        }
    }

    /// Copies the oldest piece out of its buffer. `None`: a plain read then says why it failed.
    fn take_oldest(&mut self, data: &mut [u8]) -> Option<usize> {
        let Ring::Made(ring, _) = &mut self.ring else { return None };
        let read = match ring.oldest() {
            Ok(Some(bytes)) => {
                let len = bytes.len().min(data.len());
                data[..len].copy_from_slice(&bytes[..len]);
                Some(len)
            }
            Ok(None) | Err(_) => None,
        };
        self.release_oldest();
        read
    }

    fn release_oldest(&mut self) {
        self.pieces.pop_front();
        if let Ring::Made(ring, _) = &mut self.ring
            && let Err(error) = ring.release_oldest()
        {
            self.give_up(&error);
        }
    }

    fn fill_ring(&mut self) {
        while !matches!(&self.ring, Ring::None) && !matches!(&self.ring, Ring::Made(ring, _) if !ring.has_room()) {
            let Some((piece, len, direct)) = self.next_piece() else { return };
            if let Ring::Unmade = self.ring {
                self.make_ring();
            }
            let Ring::Made(ring, _) = &mut self.ring else { return };
            if let Err(error) = ring.begin(&direct, piece.offset, len) {
                return self.give_up(&error);
            }
            self.pieces.push_back(piece);
        }
    }

    /// Finds the next block to read past the page cache, in taken chunks or one more.
    fn next_piece(&mut self) -> Option<(Piece, usize, Arc<DirectSource>)> {
        loop {
            if let Some(found) = self.plans.iter_mut().find_map(|plan| plan.next_piece(self.shared)) {
                return Some(found);
            }
            if self.plans.len() >= UNITS_AHEAD {
                return None;
            }
            let last = self.plans.back()?;
            // Chunks are taken ahead only for the disk's sake.
            last.open.as_ref()?.cold()?.direct().ok()?;
            let index = last.unit.index;
            let (unit, item) = self.shared.take_ahead(self.lane, index)?;
            // A failure to open is told in its turn.
            let open = item.open(&*self.shared.reading.sources, self.shared.direct_from_bytes()).ok();
            self.plans.push_back(Plan::new(unit, &item, open.filter(|open| open.cold().is_some())));
        }
    }

    fn make_ring(&mut self) {
        let buffers = self.shared.reading.read_ahead.lease(BLOCKS_AHEAD);
        match ReadRing::new(buffers.max(1), BLOCK_BYTES) {
            Ok(ring) => {
                self.shared.reading.read_ahead.tell("past the page cache", "large files that are not in it");
                self.ring = Ring::Made(Box::new(ring), buffers);
            }
            Err(error) => {
                self.shared.reading.read_ahead.give_back(buffers);
                self.give_up(&error);
            }
        }
    }

    /// Gives the ring up. What it had begun is read plainly.
    fn give_up(&mut self, why: &io::Error) {
        self.shared.reading.read_ahead.tell(THROUGH, &format!("no io_uring to read ahead with: {why}"));
        self.pieces.clear();
        self.drop_ring();
        self.ring = Ring::None;
    }

    fn drop_ring(&mut self) {
        if let Ring::Made(ring, buffers) = std::mem::replace(&mut self.ring, Ring::Unmade) {
            // The memory goes before the leave to have it.
            drop(ring);
            self.shared.reading.read_ahead.give_back(buffers);
        }
    }
}

impl Drop for ReadAhead<'_> {
    fn drop(&mut self) {
        self.drop_ring();
    }
}

impl Plan {
    fn new(unit: Unit, item: &Arc<SourceItem>, open: Option<Arc<SourceFile>>) -> Plan {
        let (start, len) = item.layout.range(unit.chunk).expect("the scheduler keeps to the layout");
        Plan { unit, item: Arc::clone(item), open, begun: start, end: start + len }
    }

    fn next_piece(&mut self, shared: &Shared) -> Option<(Piece, usize, Arc<DirectSource>)> {
        let cold = self.open.as_deref()?.cold()?;
        while self.begun < self.end {
            let offset = self.begun;
            let len = (self.end - offset).min(BLOCK_BYTES as u64);
            self.begun += len;
            if !cold.is_cold(offset) || (self.item.may_have_holes() && self.is_hole(offset, offset + len)) {
                continue;
            }
            match cold.direct() {
                Ok(direct) => {
                    let len = usize::try_from(len).expect("at most a block");
                    return Some((Piece { unit: self.unit, offset }, len, Arc::clone(direct)));
                }
                Err(why) => {
                    shared.reading.read_ahead.tell(THROUGH, &why);
                    self.begun = self.end;
                }
            }
        }
        None
    }

    /// An error shows at the block's turn.
    fn is_hole(&self, start: u64, end: u64) -> bool {
        !self.open.as_ref().is_some_and(|open| matches!(open.next_data(start, end), Ok(Some(_))))
    }
}

const THROUGH: &str = "through the page cache, and dropped from it";
