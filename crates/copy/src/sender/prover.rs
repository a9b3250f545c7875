//! A thread reads and hashes what the movers of this end send, for the receiver, which believes only the leader.
//!
//! A chunk is hashed as soon as a mover was given it, so the proof is mostly there before the data.

use std::io;
use std::sync::Arc;

use haul_engine::integrity::{Hash, UnitHasher};
use haul_striping::lending::ToProve;
use haul_wire::limits::BLOCK_BYTES;

use super::source_item::SourceItem;
use super::state::Shared;
use super::stop::{Stop, cannot_read, changed, source_failure};

pub(super) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let shared = Arc::clone(shared);
    std::thread::Builder::new().name("prove".into()).spawn(move || prove_all(&shared)).map(drop)
}

fn prove_all(shared: &Shared) {
    let mut buffer = vec![0; BLOCK_BYTES];
    while let Some(ToProve { file, unit }) = shared.next_to_prove() {
        match hash(shared, &file, unit.chunk, &mut buffer) {
            Ok(hash) => shared.proved(unit, hash),
            Err(Stop::Lane(_)) => return,
            Err(Stop::Source(why, kind)) => {
                if let Err(error) = shared.withdraw(&file, why, kind) {
                    shared.failure.set(error);
                }
            }
        }
    }
}

fn hash(shared: &Shared, file: &SourceItem, chunk: u32, buffer: &mut [u8]) -> Result<Hash, Stop> {
    let open = shared.reading.storage.during(|| file.open(&*shared.reading.sources, shared.direct_from_bytes()));
    let open = open.map_err(|error| Stop::Source(error.to_string(), source_failure(&error)))?;
    let (mut offset, length) = file.layout.range(chunk).expect("it was lent by the layout");
    let end = offset + length;
    let mut hasher = UnitHasher::new(&file.layout, chunk);
    while offset < end {
        if shared.is_over() {
            return Err(Stop::Lane(io::Error::other("the session is over")));
        }
        let most = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
        let read = shared
            .reading
            .storage
            .during(|| open.read_at(&mut buffer[..most], offset))
            .map_err(|error| cannot_read(offset, &error))?;
        if read == 0 {
            return Err(changed());
        }
        hasher.update(&buffer[..read]);
        offset += read as u64;
    }
    shared.reading.growing.check(file, &open)?;
    Ok(hasher.finish())
}
