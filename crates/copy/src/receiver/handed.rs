//! Takes units from a sender in the same process, out of the sender's own buffer.
//!
//! It runs on the thread of the sender's lane, while a block is hot in the processor's cache. A unit has one hash, made between
//! read and write.

use std::io;
use std::sync::Arc;

use haul_channel::stopwatch::{Stopwatch, Waiting};
use haul_wire::lane::{UnitHeader, UnitKind};

use crate::hand_over::TakesUnits;

use super::arrival::Arrival;
use super::state::Shared;

pub(super) struct HandedLane {
    number: u16,
    shared: Arc<Shared>,
    arrival: Option<Arrival>,
    watch: Stopwatch,
}

impl HandedLane {
    pub(super) fn new(number: u16, shared: &Arc<Shared>) -> Self {
        Self { number, shared: Arc::clone(shared), arrival: None, watch: Stopwatch::start() }
    }
}

impl TakesUnits for HandedLane {
    fn begin(&mut self, header: UnitHeader) -> io::Result<()> {
        self.watch.lap_next_unit(false);
        self.shared.await_room(&mut self.watch);
        if header.kind == UnitKind::Chunk {
            self.shared.rename_queue.hurry();
        }
        self.arrival = Arrival::of(header, self.number, &self.shared)?;
        Ok(())
    }

    fn data(&mut self, data: &[u8], mixed: bool) -> io::Result<()> {
        self.watch.lap(Waiting::Network);
        self.shared.tally.add_arrived(data.len() as u64);
        let Some(arrival) = &mut self.arrival else { return Ok(()) };
        arrival.take(data, mixed, &self.shared)?;
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

    fn hole(&mut self, bytes: usize) -> io::Result<()> {
        self.arrival.as_mut().map_or(Ok(()), |arrival| arrival.take_hole(bytes, &self.shared))
    }

    fn complete(&mut self) -> io::Result<()> {
        self.watch.lap(Waiting::Network);
        let completed = self.arrival.take().map_or(Ok(()), |arrival| arrival.complete_in_one_buffer(&self.shared));
        self.watch.lap(Waiting::Storage);
        self.shared.tally.add_time(&self.watch.take());
        completed
    }

    fn void(&mut self) {
        self.arrival = None;
    }

    fn rest(&mut self) {
        self.shared.rename_queue.hurry();
    }

    fn end(&mut self) {
        if let Some(arrival) = self.arrival.take() {
            arrival.tell_void(&self.shared);
        }
        self.shared.tally.add_time(&self.watch.end());
    }
}
