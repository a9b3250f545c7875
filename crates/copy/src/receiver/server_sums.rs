//! Compares a complete draft with the sum that the source's server gave, where the source could not while it read.

use std::io;

use haul_store::{StoreError, SumDiffers};

use super::incoming::Incoming;
use super::state::Shared;

/// Reads the draft once more, mostly from the page cache, if its sum is open.
pub(super) fn compare(shared: &Shared, incoming: &Incoming) -> Result<Result<(), SumDiffers>, StoreError> {
    let sum = shared.job.sums.as_ref().and_then(|sums| sums.open_sum(incoming.index));
    let draft = sum.as_ref().and_then(|_| incoming.complete_draft());
    let (Some(sum), Some(draft)) = (sum, draft.filter(|draft| draft.local().is_some())) else { return Ok(Ok(())) };
    sum.compare(&mut |buffer, offset| {
        if shared.is_over() {
            return Err(StoreError::new("compare", &incoming.path, io::ErrorKind::Interrupted));
        }
        // A large file takes longer than a session waits for a sign of life.
        shared.tally.count_done();
        shared.disk.storage.during(|| draft.read_at(buffer, offset))
    })
}
