//! Reads a run of a chunk that stands at the target.

use std::io;
use std::sync::Arc;

use haul_channel::stopwatch::Waiting;
use haul_wire::lane::RUN_OFFSET_BYTES;
use haul_wire::limits::BLOCK_BYTES;

use super::Lane;
use crate::receiver::arrival::{Arrival, broken};

impl Lane<'_> {
    /// Reads the run where the sender knows it to stand; it then counts as arrived.
    pub(super) fn standing_run(&mut self, length: usize, arrival: &mut Arrival) -> io::Result<()> {
        let with_tag = RUN_OFFSET_BYTES + self.tag_bytes();
        self.input.fill(with_tag)?;
        let (at, tag) = self.input.take(with_tag).split_at(RUN_OFFSET_BYTES);
        let at = u64::from_le_bytes(at.try_into().expect("eight bytes"));
        arrival.room_for(length)?;
        let incoming = Arc::clone(&arrival.incoming);
        let standing = incoming.standing.as_ref().filter(|standing| standing.reaches(at.saturating_add(length as u64)));
        let standing = standing.ok_or_else(|| broken("a run of a file that does not stand here"))?;
        if incoming.inplace && at != arrival.offset {
            return Err(broken("a run from elsewhere of a file that is written in place"));
        }
        let data = &mut self.standing.get_or_insert_with(|| vec![0; BLOCK_BYTES].into_boxed_slice())[..length];
        self.watch.lap(Waiting::Network);
        if self.shared.disk.storage.during(|| standing.read(data, at)).is_err() {
            // The chunk then fails to verify, and comes again as data.
            data.fill(0);
        }
        arrival.hasher.update(data);
        if self.tags.as_ref().is_some_and(|tags| !tags.data(&arrival.hasher.finish()).is_in(tag)) {
            arrival.forged = true;
            return Ok(());
        }
        match incoming.inplace {
            true => {}
            false if incoming.sparse() => arrival.write_with_holes(data, self.shared),
            false => arrival.write(data, self.shared),
        }
        arrival.offset += length as u64;
        arrival.matched_bytes += length as u64;
        self.watch.lap(Waiting::Storage);
        Ok(())
    }
}
