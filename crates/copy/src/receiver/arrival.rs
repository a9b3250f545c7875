//! One unit on its way, and the place where its data goes.
//!
//! ```text
//! header -> the file that it belongs to, the right to write -> data: write -> trailer: compare -> receipt
//! ```
//! The lane brings data over a connection ([`super::lane`]) or in a buffer of this process ([`super::handed`]).

use std::io;
use std::sync::Arc;

use haul_engine::integrity::{self, Hash, Mismatch, UnitHasher, Verified};
use haul_store::{Draft, StoreError};
use haul_wire::control::{Control, OutcomeKind, Receipt, Void};
use haul_wire::lane::{Trailer, UnitHeader, UnitKind};

use haul_kept::files::zeros::{self, ZEROS};

use super::claim::Claimed;
use super::incoming::Incoming;
use super::rename_queue::AwaitingName;
use super::state::Shared;
use super::{direct_write_queue, writers};

enum Sink {
    Chunk(Arc<Draft>),
    /// A chunk that others write, past the page cache.
    Direct(Arc<direct_write_queue::Chunk>),
    /// A whole file; made at the first data, or in place at the first hole.
    Whole(Option<Arc<Draft>>),
    /// Data is verified and discarded.
    Null,
    Nowhere,
}

pub(super) struct Arrival {
    pub(super) incoming: Arc<Incoming>,
    pub(super) header: UnitHeader,
    lane: u16,
    pub(super) hasher: UnitHasher,
    sink: Sink,
    pub(super) offset: u64,
    pub(super) end: u64,
    data_bytes: u64,
    pub(super) matched_bytes: u64,
    /// A block did not match its tag: the rest is not written, and the chunk has to come again.
    pub(super) forged: bool,
    /// The hash by the leader of the sending end, for a mover's chunk.
    proof: Option<Hash>,
    /// Other data may stand where a hole belongs.
    punch: bool,
    /// Holes that were kept do not count.
    written_bytes: u64,
    claim: Arc<Claimed>,
    /// The target's first error; the rest of the unit is drained.
    pub(super) failed: Option<StoreError>,
}

impl Arrival {
    /// Finds the unit's file. A peer whose unit does not fit the manifest is refused.
    pub(super) fn of(header: UnitHeader, lane: u16, shared: &Arc<Shared>) -> io::Result<Option<Self>> {
        let Some(incoming) = shared.incoming(header.index) else { return Ok(None) };
        if incoming.kept.is_some() {
            return Err(broken("data of a file that is kept"));
        }
        let layout = incoming.layout;
        let (offset, length) = layout.range(header.chunk).ok_or_else(|| broken("no such chunk"))?;
        if layout.is_whole() != (header.kind == UnitKind::Whole) {
            return Err(broken("wrong kind of unit"));
        }
        let proof = match shared.is_by_mover(lane) && incoming.wants(header.chunk) {
            true => Some(shared.await_proof(&incoming, header.chunk, lane)?),
            false => None,
        };
        let mut failed = None;
        // The claim comes first: it ends what the lane before did.
        let claim = Arc::new(shared.disk.storage.during(|| Claimed::take(&incoming, header.chunk, lane)));
        let sink = if !incoming.wants(header.chunk) {
            Sink::Nowhere
        } else if shared.to.discards() {
            Sink::Null
        } else if layout.is_whole() {
            Sink::Whole(incoming.whole_part_made())
        } else {
            match incoming.part(shared.to.tree()) {
                Ok(None) => Sink::Nowhere,
                Ok(Some(part)) => match shared.goes_past_cache(&incoming, &part) {
                    Ok(true) => {
                        Sink::Direct(direct_write_queue::Chunk::new(Arc::clone(&incoming), part, Arc::clone(&claim)))
                    }
                    Ok(false) => Sink::Chunk(part),
                    Err(error) => {
                        failed = Some(error);
                        Sink::Nowhere
                    }
                },
                Err(error) => {
                    failed = Some(error);
                    Sink::Nowhere
                }
            }
        };
        let mut punch = incoming.inplace || incoming.is_stale();
        punch |= match &sink {
            Sink::Chunk(part) => part.is_allocated(),
            Sink::Direct(chunk) => chunk.part.is_allocated(),
            Sink::Whole(_) | Sink::Null | Sink::Nowhere => false,
        };
        Ok(Some(Arrival {
            hasher: UnitHasher::new(&layout, header.chunk),
            end: offset + length,
            incoming,
            header,
            lane,
            sink,
            offset,
            data_bytes: 0,
            matched_bytes: 0,
            written_bytes: 0,
            forged: false,
            proof,
            punch,
            claim,
            failed,
        }))
    }

    pub(super) fn finish(self, trailer: Trailer, shared: &Arc<Shared>) -> io::Result<()> {
        // The control channel tells the file's end.
        let Trailer::Complete(claimed) = trailer else { return Ok(()) };
        if let Some(error) = &self.failed {
            shared.fail(&self.incoming, error);
            return Ok(());
        }
        if self.offset != self.end && !self.forged {
            return Err(broken("a unit is shorter than its chunk"));
        }
        let chunk = self.header.chunk;
        let verified = match self.forged {
            true => Err(Mismatch),
            false => integrity::verify(chunk, self.hasher.finish(), claimed),
        };
        if let Some(proof) = self.proof {
            if verified.map(|verified| verified.hash()) != Ok(proof) {
                return Err(shared.accuse(self.lane, "it sends other data than the leading host has read"));
            }
            Shared::was_confirmed(&self.incoming, chunk);
        }
        match verified {
            Ok(verified) => self.deliver(verified, shared),
            Err(_) if self.incoming.spoilt() => {
                shared.outbox.send(Control::Again { index: self.header.index, chunk });
            }
            Err(_) => shared.unverified(&self.incoming),
        }
        Ok(())
    }

    pub(super) fn complete_in_one_buffer(self, shared: &Arc<Shared>) -> io::Result<()> {
        if let Some(error) = &self.failed {
            shared.fail(&self.incoming, error);
            return Ok(());
        }
        if self.offset != self.end {
            return Err(broken("a unit is shorter than its chunk"));
        }
        let verified = integrity::in_one_buffer(self.header.chunk, &self.hasher);
        self.deliver(verified, shared);
        Ok(())
    }

    pub(super) fn deliver(self, verified: Verified, shared: &Arc<Shared>) {
        let chunk = verified.chunk();
        // Bytes that the medium had lost were counted when they came first.
        let (data_bytes, matched_bytes) = match self.incoming.was_lost(chunk) {
            true => (0, 0),
            false => (self.data_bytes, self.matched_bytes),
        };
        if let Some(standing) = &self.incoming.standing {
            standing.enter(self.data_bytes, self.matched_bytes);
        }
        let receipt = Receipt { index: self.header.index, chunk, data_bytes, matched_bytes };
        match self.sink {
            Sink::Nowhere => {}
            Sink::Null => {
                let incoming = self.incoming;
                let tell = || shared.receipt(receipt);
                let discard = || incoming.discard(verified, self.data_bytes, tell);
                if let Some(blake3) = self.claim.while_held(discard).flatten() {
                    shared.settle(incoming.index, OutcomeKind::Copied { blake3 });
                }
            }
            Sink::Chunk(part) => {
                let incoming = self.incoming;
                // Without a write the call still costs: ext4 begins a transaction while anything of the file is dirty.
                if let Some((start, length)) = incoming.layout.range(chunk).filter(|_| self.written_bytes > 0) {
                    part.start_writeback(start, length);
                }
                let written_bytes = self.written_bytes;
                shared.deliver_chunk(&incoming, &self.claim, verified, receipt, written_bytes);
            }
            Sink::Direct(chunk) => {
                writers::deliver(shared, &chunk, chunk.verified(verified, receipt, self.written_bytes));
            }
            Sink::Whole(part) => {
                let incoming = self.incoming;
                let part = match part {
                    Some(part) => Ok(Some(part)),
                    None => incoming.whole_part(shared.to.tree()),
                };
                let sized = part.and_then(|part| {
                    let Some(part) = part else { return Ok(None) };
                    // The last write did not reach the end when the file ends in a hole, or was longer before.
                    let rewritten = incoming.inplace || incoming.is_stale();
                    if self.written_bytes < incoming.identity.size || rewritten {
                        part.set_size(incoming.identity.size)?;
                    }
                    // In place, metadata comes after a flush of the data.
                    if !incoming.inplace {
                        part.set_metadata(&shared.metadata(&incoming.item), false)?;
                    }
                    Ok(Some(part))
                });
                match sized {
                    // The unit was given up, or came a second time.
                    Ok(None) => {}
                    Ok(Some(part)) => {
                        let arrived = || incoming.claim_arrival(|| shared.receipt(receipt));
                        if self.claim.while_held(arrived) == Some(true) {
                            let awaiting_name = AwaitingName { incoming, part, blake3: verified.hash() };
                            shared.rename_queue.add(awaiting_name, shared.job.selection.flush);
                        }
                    }
                    Err(error) => shared.fail(&incoming, &error),
                }
            }
        }
    }

    /// Tells that the lane ended within the unit: earlier data of its chunk does not count either, unless another lane brings
    /// it.
    pub(super) fn tell_void(&self, shared: &Shared) {
        let UnitHeader { index, chunk, .. } = self.header;
        for lane in self.claim.voids() {
            shared.tell_sender_on(lane, Control::Void(Void { index, chunk, lane }));
        }
    }

    pub(super) fn take(&mut self, data: &[u8], mixed: bool, shared: &Arc<Shared>) -> io::Result<()> {
        self.room_for(data.len())?;
        self.hasher.update(data);
        self.put(data, mixed, shared);
        Ok(())
    }

    /// Writes hashed data. `mixed`: some may be a hole.
    pub(super) fn put(&mut self, data: &[u8], mixed: bool, shared: &Arc<Shared>) {
        match mixed {
            true => self.write_with_holes(data, shared),
            false => self.write(data, shared),
        }
        self.offset += data.len() as u64;
        self.data_bytes += data.len() as u64;
    }

    pub(super) fn take_hole(&mut self, length: usize, shared: &Arc<Shared>) -> io::Result<()> {
        self.room_for(length)?;
        self.hasher.update(&ZEROS[..length]);
        self.make_hole(length as u64, shared);
        self.offset += length as u64;
        Ok(())
    }

    pub(super) fn room_for(&self, length: usize) -> io::Result<()> {
        if length as u64 > self.end - self.offset {
            return Err(broken("a unit is longer than its chunk"));
        }
        Ok(())
    }

    /// Writes at most a block of zeros where holes are not wanted.
    pub(super) fn make_hole(&mut self, length: u64, shared: &Arc<Shared>) {
        if !shared.job.selection.sparse {
            return self.write(&ZEROS[..usize::try_from(length).expect("at most a block")], shared);
        }
        if self.punch {
            self.punch_hole(length, shared);
        }
        self.extend();
    }

    /// Sets the file's size before a hole is left out: a chunk may be read again before the file is complete. And XFS fills the
    /// holes of a file that grows from write to write.
    fn extend(&mut self) {
        let part = match &self.sink {
            Sink::Chunk(part) | Sink::Whole(Some(part)) => part,
            Sink::Direct(chunk) => &chunk.part,
            Sink::Whole(None) | Sink::Null | Sink::Nowhere => return,
        };
        if self.failed.is_none() {
            self.failed = part.extend(self.incoming.identity.size).err();
        }
    }

    pub(super) fn write_with_holes(&mut self, data: &[u8], shared: &Arc<Shared>) {
        let begun = self.offset;
        let grain = match &self.sink {
            _ if self.failed.is_some() => return,
            _ if !shared.job.selection.sparse => return self.write(data, shared),
            Sink::Null | Sink::Nowhere => return,
            Sink::Chunk(part) | Sink::Whole(Some(part)) => part.hole_bytes(),
            // Past the page cache each write begins at a block of any disk.
            Sink::Direct(_) => PAST_CACHE_GRAIN_BYTES,
            Sink::Whole(None) => {
                let (sink, incoming) = (&mut self.sink, &self.incoming);
                match self.claim.while_held(|| whole_part(sink, incoming, shared)) {
                    Some(Ok(Some(part))) => part.hole_bytes(),
                    Some(Err(error)) => return self.failed = Some(error),
                    Some(Ok(None)) | None => return,
                }
            }
        };
        self.extend();
        for (is_hole, run) in zeros::runs(data, grain) {
            match is_hole {
                true => self.make_hole(run.len() as u64, shared),
                false => self.write(run, shared),
            }
            self.offset += run.len() as u64;
        }
        self.offset = begun;
    }

    pub(super) fn write(&mut self, data: &[u8], shared: &Arc<Shared>) {
        if self.failed.is_some() {
            return;
        }
        self.written_bytes += data.len() as u64;
        if let Sink::Direct(chunk) = &self.sink {
            if !writers::write(shared, chunk, data, self.offset) {
                self.sink = Sink::Nowhere;
            }
            return;
        }
        let (sink, incoming, offset) = (&mut self.sink, &self.incoming, self.offset);
        let result = self.claim.while_held(|| match sink {
            Sink::Null | Sink::Nowhere | Sink::Direct(_) => Ok(()),
            Sink::Chunk(part) | Sink::Whole(Some(part)) => shared.disk.storage.during(|| part.write_at(data, offset)),
            Sink::Whole(None) => match whole_part(sink, incoming, shared)? {
                Some(part) => shared.disk.storage.during(|| part.write_at(data, offset)),
                None => Ok(()),
            },
        });
        self.failed = result.and_then(Result::err);
    }

    fn punch_hole(&mut self, length: u64, shared: &Shared) {
        if self.failed.is_some() {
            return;
        }
        let (sink, incoming, offset) = (&mut self.sink, &self.incoming, self.offset);
        let result = self.claim.while_held(|| match sink {
            Sink::Chunk(part) | Sink::Whole(Some(part)) => part.punch(offset, length),
            Sink::Direct(chunk) => chunk.part.punch(offset, length),
            // In place the hole may come first, where old data stands.
            Sink::Whole(None) if incoming.inplace => match whole_part(sink, incoming, shared)? {
                Some(part) => part.punch(offset, length),
                None => Ok(()),
            },
            Sink::Whole(None) | Sink::Null | Sink::Nowhere => Ok(()),
        });
        self.failed = result.and_then(Result::err);
    }
}

/// Makes the part of a whole file the sink; `None` if nobody wants it.
fn whole_part(sink: &mut Sink, incoming: &Incoming, shared: &Shared) -> Result<Option<Arc<Draft>>, StoreError> {
    let part = incoming.whole_part(shared.to.tree())?;
    *sink = part.clone().map_or(Sink::Nowhere, |part| Sink::Whole(Some(part)));
    Ok(part)
}

/// A page: the memory of a direct write begins at one.
const PAST_CACHE_GRAIN_BYTES: usize = 4096;

pub(super) fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
