//! What movers of a target say that they wrote. Their leader enters it, so the sender checks it first.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use haul_engine::integrity::Hash;
use haul_engine::schedule::Unit;
use haul_engine::sending::{Offered, Sending};
use haul_wire::control::MovedChunk;

/// A sender's knowledge of writing movers.
#[derive(Default)]
pub struct Written {
    /// The hashes of unconfirmed chunks.
    sent: BTreeMap<Unit, Hash>,
    /// The moment when each mover last had nothing to write, or confirmed something.
    confirmed: BTreeMap<u16, Instant>,
}

impl Written {
    /// Notes a sent unit's hash.
    pub fn sent(&mut self, unit: Unit, hash: Hash) {
        self.sent.insert(unit, hash);
    }

    /// Forgets an item.
    pub fn forget(&mut self, index: u64) {
        if !self.sent.is_empty() {
            self.sent.retain(|unit, _| unit.index != index);
        }
    }

    /// Checks a mover's word. Returns the units that count, and the first untrue one, after which nothing counts. `has`:
    /// whether a lane is the mover's own. A unit that went to another lane meanwhile is that lane's.
    pub fn confirms<F: Offered + Clone>(
        &mut self,
        items: &Sending<F>,
        path: u16,
        mut chunks: Vec<MovedChunk>,
        has: impl Fn(u16) -> bool,
    ) -> (Vec<MovedChunk>, Option<&'static str>) {
        self.confirmed.insert(path, Instant::now());
        let mut lie = None;
        chunks.retain(|moved| {
            let unit = Unit { index: moved.index, chunk: moved.chunk };
            let is_its = lie.is_none() && items.lane_of(unit).is_some_and(&has);
            if is_its {
                lie = self.lie_in(items, moved);
            }
            is_its && lie.is_none()
        });
        (chunks, lie)
    }

    fn lie_in<F: Offered + Clone>(&mut self, items: &Sending<F>, moved: &MovedChunk) -> Option<&'static str> {
        let file = items.open_file(moved.index).ok().flatten()?;
        let bytes = file.layout().range(moved.chunk).map_or(0, |(_, bytes)| bytes);
        if moved.data_bytes > bytes || moved.written_bytes > bytes {
            return Some("it says that it wrote more than it was sent");
        }
        (self.sent.remove(&Unit { index: moved.index, chunk: moved.chunk }) != Some(moved.hash))
            .then_some("it says that it wrote other data than it was sent")
    }

    /// How long a mover has confirmed nothing.
    pub fn silent_for(&mut self, path: u16, carries: bool) -> Duration {
        let confirmed = self.confirmed.entry(path).or_insert_with(Instant::now);
        if !carries {
            *confirmed = Instant::now();
        }
        confirmed.elapsed()
    }
}
