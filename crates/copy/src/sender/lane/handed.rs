//! A lane hands its units over to a receiver in the same process.
//!
//! Begin a unit -> read a block -> the receiver hashes and writes it out of this buffer -> the next block -> complete.

use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use haul_engine::schedule::Unit;
use haul_store::SourceFile;
use haul_wire::lane::UnitHeader;
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::stopwatch::Waiting;

use crate::hand_over::TakesUnits;
use crate::sender::source_item::SourceItem;
use crate::sender::stop::{Stop, cannot_read, changed};

use super::{CACHE_LINE_BYTES, Content, Lane, look};

impl Lane<'_> {
    /// Whether a unit is handed over. The connection takes chunks that stand in part at the target, compressed blocks, and a
    /// route through the kernel.
    pub(super) fn hands_over(&self, unit: Unit, file: &SourceItem) -> bool {
        let Some(hand_over) = &self.shared.job.hand_over else { return false };
        let stands = file.standing.get().is_some_and(|standing| standing.serves(unit.chunk));
        let is_data = self.pump.is_none() && self.compressor.is_none() && !stands;
        is_data && hand_over.is_open(self.number)
    }

    pub(super) fn hand_over(
        &mut self,
        header: UnitHeader,
        file: &Arc<SourceItem>,
        open: &Arc<SourceFile>,
        content: Content,
    ) -> io::Result<()> {
        self.send()?;
        self.give(|half| half.begin(header))??;
        self.watch.lap(Waiting::Network);
        let unit = Unit { index: header.index, chunk: header.chunk };
        self.ahead.carry(unit, file, open);
        match self.hand_blocks_over(unit, file, open, content == Content::Mixed) {
            Ok(()) => {
                self.shared.reading.enter_sum(file, open);
                self.give(|half| half.complete())??;
            }
            Err(Stop::Lane(error)) => return Err(error),
            Err(Stop::Source(why, kind)) => {
                self.withdraw(file, why, kind)?;
                self.give(|half| half.void())?;
            }
        }
        self.shared.count_move();
        self.watch.lap(Waiting::Network);
        Ok(())
    }

    pub(super) fn rest(&self) {
        if let Some(hand_over) = &self.shared.job.hand_over {
            // A receiver that has not begun, or has ended, needs no word.
            drop(hand_over.give(self.number, |half| half.rest()));
        }
    }

    fn hand_blocks_over(&mut self, unit: Unit, file: &SourceItem, open: &SourceFile, mixed: bool) -> Result<(), Stop> {
        let (mut offset, length) = file.layout.range(unit.chunk).expect("the scheduler keeps to the layout");
        let end = offset + length;
        let mut reads_on = None;
        while offset < end {
            let size = usize::try_from((end - offset).min(BLOCK_BYTES as u64)).expect("at most a block");
            let block = if mixed { look(open, offset, offset + size as u64)? } else { Content::Dense };
            if block == Content::Hole {
                self.ahead.skip(open, offset, size as u64);
                self.give(|half| half.hole(size))??;
            } else {
                self.keep_to_rates(size as u64)?;
                let is_last = file.layout.is_whole() && offset + size as u64 == end && open.local().is_some();
                reads_on = self.hand_block_over(unit, open, (offset, size), is_last, block == Content::Mixed)?;
            }
            self.shared.count_move();
            offset += size as u64;
            self.left_bytes.fetch_sub(size as u64, Ordering::Relaxed);
        }
        self.shared.reading.growing.check_read(file, open, reads_on)
    }

    /// Returns whether bytes follow a file's last block, if known.
    fn hand_block_over(
        &mut self,
        unit: Unit,
        open: &SourceFile,
        (offset, size): (u64, usize),
        is_last: bool,
        mixed: bool,
    ) -> Result<Option<bool>, Stop> {
        let at = self.buffer.as_ptr().align_offset(CACHE_LINE_BYTES).min(CACHE_LINE_BYTES);
        let shared = self.shared;
        // One more byte costs nothing in the same call.
        let room = &mut self.buffer[at..at + size + usize::from(is_last)];
        let read = match open.local() {
            Some(local) if is_last => shared.reading.storage.during(|| local.read_with_rest(room, size, offset)),
            Some(_) => shared.reading.storage.during(|| self.ahead.read(unit, open, room, offset)),
            None => self.ahead.read(unit, open, room, offset),
        };
        let read = read.map_err(|error| cannot_read(offset, &error))?;
        self.watch.lap(Waiting::Storage);
        if read < size {
            return Err(changed());
        }
        let data = &self.buffer[at..at + size];
        self.give(|half| half.data(data, mixed))??;
        self.watch.lap(Waiting::Network);
        Ok(is_last.then_some(read > size))
    }

    fn give<T>(&self, give: impl FnOnce(&mut dyn TakesUnits) -> T) -> io::Result<T> {
        if self.stream.is_shut_down() {
            return Err(io::Error::new(io::ErrorKind::ConnectionAborted, "the lane was cut"));
        }
        self.shared.job.hand_over.as_ref().expect("the unit is handed over").give(self.number, give)
    }
}
