//! Takes units off one connection.
//!
//! Header -> blocks: hash, write -> trailer: compare -> receipt. Whole files then get their final names, many at a time:
//! before the lane would wait for the network, so that the flushes of neighbours share one journal commit of the file
//! system, and nothing waits for a timer.

use std::io;
use std::sync::Arc;

use haul_engine::integrity::{self, Hash, LaneTags, Tag, UnitHasher, Verified};
use haul_net::Stream;
use haul_store::{Part, StoreError};
use haul_sys::direct::AlignedBuffer;
use haul_wire::control::{Control, OutcomeKind, Receipt};
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Encoding, TAG_BYTES, TRAILER_BYTES, Trailer, UNIT_HEADER_BYTES, UnitHeader,
    UnitKind,
};
use haul_wire::limits::BLOCK_BYTES;

use crate::stopwatch::{Stopwatch, Waiting};
use crate::zeros::ZEROS;

use super::behind;
use super::claim::Claimed;
use super::incoming::Incoming;
use super::input::Input;
use super::reread::{self, READ_BYTES};
use super::state::Shared;

/// Takes units until the sender ends the lane (`Ok`), or the connection fails.
pub(super) fn carry(stream: Stream, shared: &Arc<Shared>) -> io::Result<()> {
    let mut lane = Lane {
        tags: stream.tag_keys().map(|keys| LaneTags::new(keys.receive)),
        input: Input::new(stream),
        shared,
        pending: Vec::new(),
        decompressor: None,
        reread_buffer: None,
        watch: Stopwatch::start(),
    };
    let result = lane.run();
    // What arrived whole and verified is kept, whatever became of the connection.
    lane.publish_pending();
    shared.add_time(&lane.watch.take());
    result
}

struct Lane<'a> {
    input: Input,
    /// On a clear lane.
    tags: Option<LaneTags>,
    shared: &'a Arc<Shared>,
    /// Whole files that wait for their final name.
    pending: Vec<(Arc<Incoming>, Arc<Part>, Hash)>,
    decompressor: Option<(zstd::bulk::Decompressor<'static>, Vec<u8>)>,
    /// Made when something is read back for the first time.
    reread_buffer: Option<AlignedBuffer>,
    watch: Stopwatch,
}

/// Where the data of a unit goes.
enum Sink {
    /// A chunk of a large file.
    Chunk(Arc<Part>),
    /// A chunk that others write, past the page cache.
    Behind(Arc<behind::Chunk>),
    /// A whole file; made at the first data, in place at the first hole, too.
    Whole(Option<Arc<Part>>),
    /// Verified and let go.
    Null,
    /// Nobody wants it (any more).
    Nowhere,
}

/// One unit on its way.
struct Arrival {
    incoming: Arc<Incoming>,
    header: UnitHeader,
    hasher: UnitHasher,
    sink: Sink,
    offset: u64,
    end: u64,
    data_bytes: u64,
    punch: bool,
    /// The right to write the chunk.
    claim: Arc<Claimed>,
    /// The first error of the target; the rest of the unit is drained.
    failed: Option<StoreError>,
}

impl Lane<'_> {
    fn run(&mut self) -> io::Result<()> {
        loop {
            let in_lane = self.pending.len();
            if in_lane > 0 && (self.shared.unnamed.are_too_many(in_lane) || !self.input.has_input()) {
                self.publish_pending();
            }
            self.await_room();
            let header = self.header()?;
            self.watch.lap_next_unit(header.kind == UnitKind::End);
            // A disk that hangs with a chunk must not keep small files from their names.
            if matches!(header.kind, UnitKind::Chunk | UnitKind::Hole) && !self.pending.is_empty() {
                self.publish_pending();
            }
            match header.kind {
                UnitKind::End => return Ok(()),
                UnitKind::Whole | UnitKind::Chunk => self.unit(header)?,
                UnitKind::Hole => self.hole_unit(header)?,
                UnitKind::Hash => self.hash_only(header)?,
            }
            self.shared.add_time(&self.watch.take());
        }
    }

    /// Waits while so much has arrived that is not safe that a death would cost more than an interval.
    fn await_room(&mut self) {
        if self.shared.exposure.is_full() {
            self.publish_pending();
            self.shared.exposure.await_room();
            self.watch.lap(Waiting::Storage);
        }
    }

    fn unit(&mut self, header: UnitHeader) -> io::Result<()> {
        let Some(mut arrival) = self.arrival(header)? else { return self.drain() };
        let trailer = match self.until_trailer(&mut arrival) {
            Ok(trailer) => trailer,
            Err(error) => {
                if arrival.claim.alone_can_bring_it() {
                    let UnitHeader { index, chunk, .. } = header;
                    self.shared.outbox.send(Control::Again { index, chunk });
                }
                return Err(error);
            }
        };
        self.watch.lap(Waiting::Network);
        let finished = self.finish(arrival, trailer);
        // Starting the write-back waits while the queue of a slow disk is full.
        self.watch.lap(Waiting::Storage);
        finished
    }

    fn until_trailer(&mut self, arrival: &mut Arrival) -> io::Result<Trailer> {
        loop {
            let block = self.block_header()?;
            if block == BlockHeader::LAST {
                return self.trailer();
            }
            self.block(block, arrival)?;
        }
    }

    /// A chunk that is a hole, and whose hash nobody computes.
    fn hole_unit(&mut self, header: UnitHeader) -> io::Result<()> {
        let Some(mut arrival) = self.arrival(header)? else { return self.drain() };
        let layout = arrival.incoming.layout;
        let hole =
            integrity::hole(&layout, header.chunk).ok_or_else(|| broken("a hole where its hash is not known"))?;
        if self.block_header()? != BlockHeader::LAST {
            return Err(broken("a hole with data"));
        }
        let trailer = self.trailer()?;
        self.watch.lap(Waiting::Network);
        if trailer == Trailer::Void {
            return Ok(());
        }
        while arrival.offset < arrival.end {
            // Where holes are not wanted they are written, a block at a time; else one call makes all of it.
            let most = if self.shared.job.selection.sparse { u64::MAX } else { ZEROS.len() as u64 };
            let length = most.min(arrival.end - arrival.offset);
            self.make_hole(length, &mut arrival);
        }
        match &arrival.failed {
            Some(error) => self.shared.fail(&arrival.incoming, error),
            None => self.deliver(arrival, hole),
        }
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

    /// The source's hash of a file that is kept.
    fn hash_only(&mut self, header: UnitHeader) -> io::Result<()> {
        let wanted = self.shared.incoming(header.index).and_then(|incoming| incoming.kept);
        if self.block_header()? != BlockHeader::LAST {
            return Err(broken("a hash with data"));
        }
        let trailer = self.trailer()?;
        if let (Some(result), Trailer::Complete(hash)) = (wanted, trailer) {
            self.shared.receipt(Receipt { index: header.index, chunk: header.chunk, data_bytes: 0 });
            self.shared.settle(header.index, result.with_hash(hash));
        }
        Ok(())
    }

    /// Finds the file that a unit belongs to. A peer that sends what does not fit the manifest is refused.
    fn arrival(&mut self, header: UnitHeader) -> io::Result<Option<Arrival>> {
        let Some(incoming) = self.shared.incoming(header.index) else { return Ok(None) };
        if incoming.kept.is_some() {
            return Err(broken("data of a file that is kept"));
        }
        let layout = incoming.layout;
        let (offset, length) = layout.range(header.chunk).ok_or_else(|| broken("no such chunk"))?;
        if layout.is_whole() != (header.kind == UnitKind::Whole) {
            return Err(broken("wrong kind of unit"));
        }
        let mut failed = None;
        // First: what the lane before did with the chunk is over then.
        let claim = Arc::new(self.shared.storage.during(|| Claimed::take(&incoming, header.chunk)));
        let sink = if !incoming.wants(header.chunk) {
            Sink::Nowhere
        } else if self.shared.lets_go() {
            Sink::Null
        } else if layout.is_whole() {
            Sink::Whole(incoming.whole_part_made())
        } else {
            match incoming.part(self.shared.tree()) {
                Ok(None) => Sink::Nowhere,
                Ok(Some(part)) => match self.shared.goes_past_cache(&incoming, &part) {
                    Ok(true) => Sink::Behind(behind::Chunk::new(Arc::clone(&incoming), part, Arc::clone(&claim))),
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
        // On a clear lane anything may have been written before it was found to be wrong, also where a hole belongs.
        let punch = incoming.inplace || incoming.is_stale() || self.tags.is_some();
        let hasher = UnitHasher::new(&layout, header.chunk);
        let end = offset + length;
        Ok(Some(Arrival { incoming, header, hasher, sink, offset, end, data_bytes: 0, punch, claim, failed }))
    }

    fn block(&mut self, block: BlockHeader, arrival: &mut Arrival) -> io::Result<()> {
        let wire_bytes = block.bytes as usize;
        if block.encoding == Encoding::Zeros {
            return self.hole(wire_bytes, arrival);
        }
        self.input.fill(wire_bytes)?;
        self.watch.lap(Waiting::Network);
        let taken = self.input.take(wire_bytes);
        let data = match block.encoding {
            Encoding::Zstd => decompress(&mut self.decompressor, taken)?,
            Encoding::Plain | Encoding::Zeros => taken,
        };
        if data.is_empty() {
            return Err(broken("a block of nothing"));
        }
        arrival.room_for(data.len())?;
        arrival.hasher.update(data);
        arrival.write(data, self.shared);
        arrival.offset += data.len() as u64;
        arrival.data_bytes += data.len() as u64;
        self.shared.add_arrived(data.len() as u64);
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

    fn hole(&mut self, length: usize, arrival: &mut Arrival) -> io::Result<()> {
        arrival.room_for(length)?;
        arrival.hasher.update(&ZEROS[..length]);
        self.make_hole(length as u64, arrival);
        Ok(())
    }

    /// Zeros of at most a block where holes are not wanted.
    fn make_hole(&self, length: u64, arrival: &mut Arrival) {
        if !self.shared.job.selection.sparse {
            arrival.write(&ZEROS[..usize::try_from(length).expect("at most a block")], self.shared);
        } else if arrival.punch {
            arrival.punch_hole(length, self.shared);
        }
        arrival.offset += length;
    }

    fn finish(&mut self, arrival: Arrival, trailer: Trailer) -> io::Result<()> {
        // The control channel says what became of the file, and what to do with what arrived.
        let Trailer::Complete(claimed) = trailer else { return Ok(()) };
        if let Some(error) = &arrival.failed {
            self.shared.fail(&arrival.incoming, error);
            return Ok(());
        }
        if arrival.offset != arrival.end {
            return Err(broken("a unit is shorter than its chunk"));
        }
        let chunk = arrival.header.chunk;
        match integrity::verify(chunk, arrival.hasher.finish(), claimed) {
            Ok(verified) => self.deliver(arrival, verified),
            Err(_) if arrival.incoming.spoilt() => {
                self.shared.outbox.send(Control::Again { index: arrival.header.index, chunk });
            }
            Err(_) => self.shared.unverified(&arrival.incoming),
        }
        Ok(())
    }

    /// Enters what was written and is verified, and tells of it.
    fn deliver(&mut self, arrival: Arrival, verified: Verified) {
        let chunk = verified.chunk();
        // Bytes that the medium had lost were counted when they came first.
        let data_bytes = if arrival.incoming.was_lost(chunk) { 0 } else { arrival.data_bytes };
        let receipt = Receipt { index: arrival.header.index, chunk, data_bytes };
        match arrival.sink {
            Sink::Nowhere => {}
            Sink::Null => {
                let incoming = arrival.incoming;
                let tell = || self.shared.receipt(receipt);
                let let_go = || incoming.let_go(verified, arrival.data_bytes, tell);
                if let Some(blake3) = arrival.claim.while_held(let_go).flatten() {
                    self.shared.settle(incoming.index, OutcomeKind::Copied { blake3 });
                }
            }
            Sink::Chunk(part) => {
                let incoming = arrival.incoming;
                // Where nothing was written the call still costs: ext4 begins a transaction while anything of the file is dirty.
                if let Some((start, length)) = incoming.layout.range(chunk).filter(|_| arrival.data_bytes > 0) {
                    part.start_writeback(start, length);
                }
                self.shared.deliver_chunk(&incoming, &arrival.claim, verified, receipt, arrival.data_bytes);
            }
            Sink::Behind(chunk) => chunk.verified(verified, receipt, arrival.data_bytes, self.shared),
            Sink::Whole(part) => {
                let incoming = arrival.incoming;
                let part = match part {
                    Some(part) => Ok(Some(part)),
                    // Empty, or one hole in a new file.
                    None => incoming.whole_part(self.shared.tree()),
                };
                let sized = part.and_then(|part| {
                    let Some(part) = part else { return Ok(None) };
                    // The last write did not reach the end when the file ends in a hole, or was longer before.
                    let rewritten = incoming.inplace || incoming.is_stale();
                    if arrival.data_bytes < incoming.identity.size || rewritten {
                        part.set_size(incoming.identity.size)?;
                    }
                    Ok(Some(part))
                });
                match sized {
                    // It was given up, or came a second time, after the end of its first lane: the other is in time.
                    Ok(None) => {}
                    Ok(Some(part)) => {
                        let arrived = || incoming.claim_arrival(|| self.shared.receipt(receipt));
                        if arrival.claim.while_held(arrived) == Some(true) {
                            self.pending.push((incoming, part, verified.hash()));
                            self.shared.unnamed.add();
                        }
                    }
                    Err(error) => self.shared.fail(&incoming, &error),
                }
            }
        }
    }

    /// Gives whole files their final names. The write-back of all is started before the first is waited for.
    fn publish_pending(&mut self) {
        let (flush, in_lane) = (self.shared.job.selection.flush, self.pending.len());
        if flush && in_lane > 1 {
            for (incoming, part, _) in &self.pending {
                part.start_writeback(0, incoming.identity.size);
            }
        }
        let shared = self.shared;
        if shared.verifies_disk() {
            self.read_back_pending();
        }
        let mut outcomes = Vec::with_capacity(self.pending.len());
        for (incoming, part, blake3) in self.pending.drain(..) {
            let metadata = shared.metadata(&incoming.item);
            let commit = || match shared.verifies_disk() {
                true => part.give_name(),
                false => part.commit(&metadata, flush),
            };
            match shared.storage.during(commit) {
                Ok(()) => {
                    shared.name_changed(&incoming.path);
                    outcomes.push((incoming.index, OutcomeKind::Copied { blake3 }));
                }
                Err(error) => shared.fail(&incoming, &error),
            }
        }
        shared.unnamed.remove(in_lane);
        shared.settle_all(outcomes.into_iter());
        self.watch.lap(Waiting::Storage);
    }

    /// Flushes whole files and reads them back from the medium. Those that are as they were sent stay; the others come again, or have failed.
    fn read_back_pending(&mut self) {
        let shared = self.shared;
        let buffer = self.reread_buffer.get_or_insert_with(|| AlignedBuffer::new(READ_BYTES));
        // All are flushed before the first is read: their flushes share the journal commits of the file system.
        let prepared = |(incoming, part, _): &(Arc<Incoming>, Arc<Part>, Hash)| {
            part.prepare(&shared.metadata(&incoming.item), true)
                .inspect_err(|error| shared.fail(incoming, error))
                .is_ok()
        };
        self.pending.retain(prepared);
        self.pending.retain(|(incoming, part, blake3)| {
            let found = part.medium().map_err(io::Error::other);
            let found =
                found.and_then(|mut medium| reread::read_back(shared, &mut medium, &incoming.layout, 0, buffer));
            let is_there = found.is_ok_and(|found| found == *blake3);
            if !is_there {
                shared.lost(incoming, 0, incoming.lose_whole());
            }
            is_there
        });
    }

    /// Reads past a unit that is not awaited any more.
    fn drain(&mut self) -> io::Result<()> {
        loop {
            let block = self.block_header()?;
            if block == BlockHeader::LAST {
                return self.trailer().map(drop);
            }
            if block.encoding != Encoding::Zeros {
                self.input.fill(block.bytes as usize)?;
                self.input.take(block.bytes as usize);
                self.shared.add_arrived(u64::from(block.bytes));
            }
        }
    }

    /// A header or a trailer, read together with its tag.
    fn words<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        let tag_bytes = if self.tags.is_some() { TAG_BYTES } else { 0 };
        self.input.fill(N + tag_bytes)?;
        self.input.array()
    }

    /// What a clear lane says is believed only with its tag: nothing is written before.
    fn header(&mut self) -> io::Result<UnitHeader> {
        let header: [u8; UNIT_HEADER_BYTES] = self.words()?;
        if let Some(tags) = &mut self.tags {
            let tag = tags.header(&header);
            prove(tag, &mut self.input)?;
        }
        UnitHeader::decode(&header).ok_or_else(|| broken("unknown unit"))
    }

    fn trailer(&mut self) -> io::Result<Trailer> {
        let trailer: [u8; TRAILER_BYTES] = self.words()?;
        if let Some(tags) = &self.tags {
            prove(tags.trailer(&trailer), &mut self.input)?;
        }
        Trailer::decode(&trailer).ok_or_else(|| broken("unknown trailer"))
    }

    fn block_header(&mut self) -> io::Result<BlockHeader> {
        let header: [u8; BLOCK_HEADER_BYTES] = self.words()?;
        if let Some(tags) = &mut self.tags {
            let tag = tags.block(&header);
            prove(tag, &mut self.input)?;
        }
        BlockHeader::decode(header).ok_or_else(|| broken("a block is too long, or none"))
    }
}

impl Arrival {
    fn room_for(&self, length: usize) -> io::Result<()> {
        if length as u64 > self.end - self.offset {
            return Err(broken("a unit is longer than its chunk"));
        }
        Ok(())
    }

    fn write(&mut self, data: &[u8], shared: &Arc<Shared>) {
        if self.failed.is_some() {
            return;
        }
        if let Sink::Behind(chunk) = &self.sink {
            match shared.behind.write(chunk, data, self.offset, shared) {
                Ok(true) => {}
                // The session is over.
                Ok(false) => self.sink = Sink::Nowhere,
                Err(error) => self.failed = Some(StoreError::new("write", &self.incoming.path, error)),
            }
            return;
        }
        let (sink, incoming, offset) = (&mut self.sink, &self.incoming, self.offset);
        let result = self.claim.while_held(|| match sink {
            Sink::Null | Sink::Nowhere | Sink::Behind(_) => Ok(()),
            Sink::Chunk(part) | Sink::Whole(Some(part)) => shared.storage.during(|| part.write_at(data, offset)),
            Sink::Whole(None) => match whole_part(sink, incoming, shared)? {
                Some(part) => shared.storage.during(|| part.write_at(data, offset)),
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
            Sink::Behind(chunk) => chunk.part.punch(offset, length),
            // In place the hole may come first, and where it belongs stands what was there before.
            Sink::Whole(None) if incoming.inplace => match whole_part(sink, incoming, shared)? {
                Some(part) => part.punch(offset, length),
                None => Ok(()),
            },
            Sink::Whole(None) | Sink::Null | Sink::Nowhere => Ok(()),
        });
        self.failed = result.and_then(Result::err);
    }
}

/// The part of a whole file, from now on where its data goes; `None` when nobody wants it any more.
fn whole_part(sink: &mut Sink, incoming: &Incoming, shared: &Shared) -> Result<Option<Arc<Part>>, StoreError> {
    let part = incoming.whole_part(shared.tree())?;
    *sink = part.clone().map_or(Sink::Nowhere, |part| Sink::Whole(Some(part)));
    Ok(part)
}

fn prove(expected: Tag, input: &mut Input) -> io::Result<()> {
    let tag: [u8; TAG_BYTES] = input.array()?;
    if expected.is(tag) { Ok(()) } else { Err(broken("it was changed on its way")) }
}

/// Bounded by the size of a block, whatever the compressed bytes claim.
pub(super) fn decompress<'a>(
    state: &'a mut Option<(zstd::bulk::Decompressor<'static>, Vec<u8>)>,
    packed: &[u8],
) -> io::Result<&'a [u8]> {
    let (decompressor, block) = match state {
        Some(state) => state,
        None => state.insert((zstd::bulk::Decompressor::new()?, vec![0; BLOCK_BYTES])),
    };
    let length = decompressor.decompress_to_buffer(packed, block.as_mut_slice())?;
    Ok(&block[..length])
}

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
