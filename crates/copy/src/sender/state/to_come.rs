//! What is still to be sent, as the tuning of the lanes sees it.

use haul_wire::limits::MIN_CHUNK_BYTES;

use super::Shared;
use super::UNITS_AT_ONCE;
use haul_govern::tuning::{Ending, Left, Work};

/// Further units mean a long job: of 1 MiB each these last 9 s at 1 Gbit/s.
const UNITS_COUNTED: usize = 1024;

impl Shared {
    pub(in crate::sender) fn found_bytes(&self) -> u64 {
        self.lock().found.bytes()
    }
}

impl Work for Shared {
    fn waiting_bytes(&self) -> u64 {
        let items = &self.lock().items;
        if items.is_drained() {
            return 0;
        }
        // A unit to repeat may have gone from the window, and waits all the same.
        items.last_units(UNITS_COUNTED).map_or(u64::MAX, |units| units.iter().sum::<u64>().max(1))
    }

    fn unit_bytes(&self) -> u64 {
        let units = self.lock().items.last_units(UNITS_COUNTED).unwrap_or_default();
        let largest = units.iter().copied().max().unwrap_or(0);
        // A chunk goes alone, small files go together.
        if largest >= MIN_CHUNK_BYTES { largest } else { units.iter().take(UNITS_AT_ONCE).sum() }
    }

    fn left(&self) -> Left {
        let state = self.lock();
        let foreseen = self.job.early.as_ref().map_or(0, |early| early.foreseen().bytes());
        let foreseen = foreseen.max(state.counted.whole(state.counted.data_bytes));
        let (bytes, files) = state.found.left(foreseen, state.items.confirmed_open_bytes());
        Left { bytes, files, done_files: state.found.settled_files() }
    }

    fn ending(&self, lanes: &[u16], carrying: usize) -> Option<Ending> {
        let items = &self.lock().items;
        let waiting_bytes = items.last_units(carrying)?;
        let again_bytes = lanes.iter().map(|lane| items.bytes_carried_by(*lane)).collect();
        Some(Ending { left_bytes: self.loads.left_bytes(lanes), again_bytes, waiting_bytes })
    }
}
