//! Finds chunks of a part that somebody cut, or made holes in.
//!
//! It asks only for the size and the data ranges: some system calls for a file without holes. A chunk with less data than was
//! written is then read. A file system that turns zeros into holes costs a little time only.

use haul_engine::plan::ChunkLayout;
use haul_store::{Draft, StoreError};

/// More pieces of data are not looked at. Each takes about a microsecond.
const MAX_PIECES: u32 = 64 << 10;

pub(super) fn chunks(part: &Draft, layout: &ChunkLayout, stored: &[u32]) -> Result<Vec<u32>, StoreError> {
    if stored.iter().all(|bytes| *bytes == 0) {
        return Ok(Vec::new());
    }
    if part.local().is_some_and(|part| part.is_surely_full(layout.size())) {
        return Ok(Vec::new());
    }
    let size = part.size()?.min(layout.size());
    let mut found = vec![0u64; stored.len()];
    let (mut at, mut pieces) = (0, 0);
    while let Some((start, end)) = part.next_data(at, size)? {
        enter(&mut found, layout, start, end);
        at = end;
        pieces += 1;
        if pieces == MAX_PIECES {
            enter(&mut found, layout, at, layout.size());
            break;
        }
    }
    let lacks = |(chunk, bytes): &(u32, &u32)| found[*chunk as usize] < u64::from(**bytes);
    Ok((0u32..).zip(stored).filter(lacks).map(|(chunk, _)| chunk).collect())
}

fn enter(found: &mut [u64], layout: &ChunkLayout, mut start: u64, end: u64) {
    while start < end {
        let chunk = start / layout.chunk_bytes();
        let until = end.min((chunk + 1) * layout.chunk_bytes());
        if let Some(bytes) = usize::try_from(chunk).ok().and_then(|chunk| found.get_mut(chunk)) {
            *bytes += until - start;
        }
        start = until;
    }
}
