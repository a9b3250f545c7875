//! Takes units off one connection.
//!
//! Header -> blocks: hash, write -> trailer: compare -> receipt. Whole files get their final names from others ([`super::rename_threads`]), many at a
//! time; the lane tells them when it has nothing else to do.

mod standing_run;

use std::io;
use std::sync::Arc;

use haul_engine::integrity::{self, Hash, LaneTags, Mismatch, Tag, UnitHasher, Verified};
use haul_net::Stream;
use haul_store::{Draft, StoreError};
use haul_wire::control::{Control, OutcomeKind, Receipt, Void};
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Encoding, RUN_OFFSET_BYTES, TAG_BYTES, TRAILER_BYTES, Trailer, UNIT_HEADER_BYTES,
    UnitHeader, UnitKind,
};
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::stopwatch::{Stopwatch, Waiting};
use haul_kept::files::zeros::{self, ZEROS};

use haul_channel::channel::LaneBack;

use super::claim::Claimed;
use super::incoming::Incoming;
use super::input::Input;
use super::rename_queue::AwaitingName;
use super::state::Shared;
use super::{direct_write_queue, writers};

/// A lane that units will come on.
pub(super) struct Arriving {
    pub(super) stream: Stream,
    /// On a clear lane. One that has carried a job before counts on.
    pub(super) tags: Option<LaneTags>,
    /// The number of this job, if the lane may carry another one after it.
    pub(super) job: Option<u64>,
}

impl Arriving {
    /// A new lane, for one job.
    pub(super) fn new(stream: Stream) -> Self {
        Self { tags: stream.tag_keys().map(|keys| LaneTags::new(keys.receive)), stream, job: None }
    }
}

/// Takes units until the sender ends the lane or its job (`Ok`), or the connection fails. Returns a lane that can carry another job.
pub(super) fn carry(arriving: Arriving, number: u16, shared: &Arc<Shared>) -> io::Result<Option<LaneBack>> {
    let Arriving { stream, tags, job } = arriving;
    let mut lane = Lane {
        input: Input::new(stream, if tags.is_some() { TAG_BYTES } else { 0 }),
        number,
        tags,
        shared,
        decompressor: None,
        standing: None,
        watch: Stopwatch::start(),
    };
    let result = lane.run(job).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData if shared.is_by_mover(number) => shared.accuse(number, &error.to_string()),
        _ => error,
    });
    // What arrived whole and verified is kept, whatever became of the connection.
    shared.rename_queue.hurry();
    shared.tally.add_time(&lane.watch.take());
    if !result? {
        return Ok(None);
    }
    let Lane { input, tags, .. } = lane;
    // Data of the next job comes once it was asked for.
    let stream = input.into_stream().ok_or_else(|| broken("data behind the end of a job"))?;
    Ok(Some(LaneBack { lane: number, stream, tags }))
}

struct Lane<'a> {
    number: u16,
    input: Input,
    /// On a clear lane.
    tags: Option<LaneTags>,
    shared: &'a Arc<Shared>,
    decompressor: Option<(zstd::bulk::Decompressor<'static>, Vec<u8>)>,
    /// Holds what is read of a standing file; made when a first run comes.
    standing: Option<Box<[u8]>>,
    watch: Stopwatch,
}

/// Where the data of a unit goes.
enum Sink {
    /// A chunk of a large file.
    Chunk(Arc<Draft>),
    /// A chunk that others write, past the page cache.
    Direct(Arc<direct_write_queue::Chunk>),
    /// A whole file; made at the first data, in place at the first hole, too.
    Whole(Option<Arc<Draft>>),
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
    /// What was read of the standing file.
    matched_bytes: u64,
    /// A block did not match its tag: no more data of this unit is written, and its chunk has to come again.
    forged: bool,
    /// What the leader of the sending end has read of the chunk, where another host brings it.
    proof: Option<Hash>,
    /// Where a hole belongs may stand something else.
    punch: bool,
    /// What was really written of it: where a hole is kept nothing is.
    written_bytes: u64,
    /// The right to write the chunk.
    claim: Arc<Claimed>,
    /// The first error of the target; the rest of the unit is drained.
    failed: Option<StoreError>,
}

impl Lane<'_> {
    /// True: it ended with its job, and not for good.
    fn run(&mut self, job: Option<u64>) -> io::Result<bool> {
        loop {
            if !self.input.has_input() {
                self.shared.rename_queue.hurry();
            }
            self.await_room();
            let header = self.header()?;
            self.watch.lap_next_unit(matches!(header.kind, UnitKind::End | UnitKind::JobEnd));
            // A disk that hangs with a chunk must not keep small files from their names.
            if matches!(header.kind, UnitKind::Chunk | UnitKind::Hole) {
                self.shared.rename_queue.hurry();
            }
            match header.kind {
                UnitKind::End => return Ok(false),
                UnitKind::JobEnd if job == Some(header.index) => return Ok(true),
                // The sender had the lane in an earlier job, at whose end it was not known here yet.
                UnitKind::JobEnd if job > Some(header.index) => {}
                UnitKind::JobEnd => return Err(broken("a lane that waits for another job")),
                UnitKind::Whole | UnitKind::Hole | UnitKind::Hash if self.shared.is_by_mover(self.number) => {
                    return Err(self.shared.accuse(self.number, "it sends what is for the leading host to send"));
                }
                UnitKind::Whole | UnitKind::Chunk => self.unit(header)?,
                UnitKind::Hole => self.hole_unit(header)?,
                UnitKind::Hash => self.hash_only(header)?,
            }
            self.shared.tally.add_time(&self.watch.take());
        }
    }

    /// Waits while so much has arrived that is not safe that a death would cost more than an interval.
    fn await_room(&mut self) {
        if self.shared.disk.exposure.is_full() || self.shared.rename_queue.is_full() {
            self.shared.rename_queue.hurry();
            self.shared.disk.exposure.await_room();
            self.shared.rename_queue.await_room();
            self.watch.lap(Waiting::Storage);
        }
    }

    fn unit(&mut self, header: UnitHeader) -> io::Result<()> {
        let Some(mut arrival) = self.arrival(header)? else { return self.drain() };
        let trailer = match self.until_trailer(&mut arrival) {
            Ok(trailer) => trailer,
            Err(error) => {
                let UnitHeader { index, chunk, .. } = header;
                for lane in arrival.claim.voids() {
                    self.shared.tell_sender_on(lane, Control::Void(Void { index, chunk, lane }));
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
            arrival.make_hole(length, self.shared);
            arrival.offset += length;
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
            self.shared.receipt(Receipt { index: header.index, chunk: header.chunk, data_bytes: 0, matched_bytes: 0 });
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
        let proof = match self.shared.is_by_mover(self.number) && incoming.wants(header.chunk) {
            true => Some(self.shared.await_proof(&incoming, header.chunk, self.number)?),
            false => None,
        };
        let mut failed = None;
        // First: what the lane before did with the chunk is over then.
        let claim = Arc::new(self.shared.disk.storage.during(|| Claimed::take(&incoming, header.chunk, self.number)));
        let sink = if !incoming.wants(header.chunk) {
            Sink::Nowhere
        } else if self.shared.to.discards() {
            Sink::Null
        } else if layout.is_whole() {
            Sink::Whole(incoming.whole_part_made())
        } else {
            match incoming.part(self.shared.to.tree()) {
                Ok(None) => Sink::Nowhere,
                Ok(Some(part)) => match self.shared.goes_past_cache(&incoming, &part) {
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

    fn block(&mut self, block: BlockHeader, arrival: &mut Arrival) -> io::Result<()> {
        if arrival.forged {
            return self.skip(block);
        }
        let wire_bytes = block.bytes as usize;
        match block.encoding {
            Encoding::Zeros => return self.hole(wire_bytes, arrival),
            Encoding::Standing => return self.standing_run(wire_bytes, arrival),
            Encoding::Plain | Encoding::Zstd | Encoding::PlainWithHoles | Encoding::ZstdWithHoles => {}
        }
        let with_tag = wire_bytes + self.tag_bytes();
        self.input.fill(with_tag)?;
        self.watch.lap(Waiting::Network);
        let waited = self.shared.watch.spend(wire_bytes as u64).map_err(|error| {
            let lane_error = io::Error::other(error.what.clone());
            self.shared.failure.set(error);
            lane_error
        })?;
        if self.input.stream().keep_to_rate(wire_bytes as u64) | waited {
            self.watch.lap(Waiting::Rate);
        }
        let (wire, tag) = self.input.take(with_tag).split_at(wire_bytes);
        // Without tags the lane itself proves what it brings.
        let is_proved =
            |tag_of: &dyn Fn(&LaneTags) -> Tag| self.tags.as_ref().is_none_or(|tags| tag_of(tags).is_in(tag));
        // A decompressor is code that nobody should be able to feed who has not proved a key.
        if block.encoding.is_packed() && !is_proved(&|tags| tags.packed(wire)) {
            arrival.forged = true;
            self.shared.tally.add_arrived(u64::from(block.bytes));
            return Ok(());
        }
        let data = match block.encoding {
            Encoding::Zstd | Encoding::ZstdWithHoles => decompress(&mut self.decompressor, wire)?,
            Encoding::Plain | Encoding::PlainWithHoles | Encoding::Zeros | Encoding::Standing => wire,
        };
        if data.is_empty() {
            return Err(broken("a block of nothing"));
        }
        arrival.room_for(data.len())?;
        arrival.hasher.update(data);
        if !block.encoding.is_packed() && !is_proved(&|tags| tags.data(&arrival.hasher.finish())) {
            arrival.forged = true;
            self.shared.tally.add_arrived(u64::from(block.bytes));
            return Ok(());
        }
        match block.encoding {
            Encoding::PlainWithHoles | Encoding::ZstdWithHoles => arrival.write_with_holes(data, self.shared),
            Encoding::Plain | Encoding::Zstd | Encoding::Zeros | Encoding::Standing => arrival.write(data, self.shared),
        }
        arrival.offset += data.len() as u64;
        arrival.data_bytes += data.len() as u64;
        self.shared.tally.add_arrived(data.len() as u64);
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

    fn hole(&mut self, length: usize, arrival: &mut Arrival) -> io::Result<()> {
        arrival.room_for(length)?;
        arrival.hasher.update(&ZEROS[..length]);
        arrival.make_hole(length as u64, self.shared);
        arrival.offset += length as u64;
        Ok(())
    }

    fn finish(&mut self, arrival: Arrival, trailer: Trailer) -> io::Result<()> {
        // The control channel says what became of the file, and what to do with what arrived.
        let Trailer::Complete(claimed) = trailer else { return Ok(()) };
        if let Some(error) = &arrival.failed {
            self.shared.fail(&arrival.incoming, error);
            return Ok(());
        }
        if arrival.offset != arrival.end && !arrival.forged {
            return Err(broken("a unit is shorter than its chunk"));
        }
        let chunk = arrival.header.chunk;
        let verified = match arrival.forged {
            true => Err(Mismatch),
            false => integrity::verify(chunk, arrival.hasher.finish(), claimed),
        };
        if let Some(proof) = arrival.proof {
            if verified.map(|verified| verified.hash()) != Ok(proof) {
                return Err(self.shared.accuse(self.number, "it sends other data than the leading host has read"));
            }
            Shared::was_confirmed(&arrival.incoming, chunk);
        }
        match verified {
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
        let (data_bytes, matched_bytes) = match arrival.incoming.was_lost(chunk) {
            true => (0, 0),
            false => (arrival.data_bytes, arrival.matched_bytes),
        };
        if let Some(standing) = &arrival.incoming.standing {
            standing.enter(arrival.data_bytes, arrival.matched_bytes);
        }
        let receipt = Receipt { index: arrival.header.index, chunk, data_bytes, matched_bytes };
        match arrival.sink {
            Sink::Nowhere => {}
            Sink::Null => {
                let incoming = arrival.incoming;
                let tell = || self.shared.receipt(receipt);
                let discard = || incoming.discard(verified, arrival.data_bytes, tell);
                if let Some(blake3) = arrival.claim.while_held(discard).flatten() {
                    self.shared.settle(incoming.index, OutcomeKind::Copied { blake3 });
                }
            }
            Sink::Chunk(part) => {
                let incoming = arrival.incoming;
                // Where nothing was written the call still costs: ext4 begins a transaction while anything of the file is dirty.
                if let Some((start, length)) = incoming.layout.range(chunk).filter(|_| arrival.written_bytes > 0) {
                    part.start_writeback(start, length);
                }
                let written_bytes = arrival.written_bytes;
                self.shared.deliver_chunk(&incoming, &arrival.claim, verified, receipt, written_bytes);
            }
            Sink::Direct(chunk) => {
                writers::deliver(self.shared, &chunk, chunk.verified(verified, receipt, arrival.written_bytes))
            }
            Sink::Whole(part) => {
                let incoming = arrival.incoming;
                let part = match part {
                    Some(part) => Ok(Some(part)),
                    // Empty, or one hole in a new file.
                    None => incoming.whole_part(self.shared.to.tree()),
                };
                let sized = part.and_then(|part| {
                    let Some(part) = part else { return Ok(None) };
                    // The last write did not reach the end when the file ends in a hole, or was longer before.
                    let rewritten = incoming.inplace || incoming.is_stale();
                    if arrival.written_bytes < incoming.identity.size || rewritten {
                        part.set_size(incoming.identity.size)?;
                    }
                    // In place the metadata comes after a flush of the data.
                    if !incoming.inplace {
                        part.set_metadata(&self.shared.metadata(&incoming.item), false)?;
                    }
                    Ok(Some(part))
                });
                match sized {
                    // It was given up, or came a second time, after the end of its first lane: the other is in time.
                    Ok(None) => {}
                    Ok(Some(part)) => {
                        let arrived = || incoming.claim_arrival(|| self.shared.receipt(receipt));
                        if arrival.claim.while_held(arrived) == Some(true) {
                            let awaiting_name = AwaitingName { incoming, part, blake3: verified.hash() };
                            self.shared.rename_queue.add(awaiting_name, self.shared.job.selection.flush);
                        }
                    }
                    Err(error) => self.shared.fail(&incoming, &error),
                }
            }
        }
    }

    /// Reads past a unit that is not awaited any more.
    fn drain(&mut self) -> io::Result<()> {
        loop {
            let block = self.block_header()?;
            if block == BlockHeader::LAST {
                return self.trailer().map(drop);
            }
            self.skip(block)?;
        }
    }

    /// Reads past a block.
    fn skip(&mut self, block: BlockHeader) -> io::Result<()> {
        let bytes = match block.encoding {
            Encoding::Zeros => return Ok(()),
            Encoding::Standing => RUN_OFFSET_BYTES,
            Encoding::Plain | Encoding::Zstd | Encoding::PlainWithHoles | Encoding::ZstdWithHoles => {
                block.bytes as usize
            }
        };
        let with_tag = bytes + self.tag_bytes();
        self.input.fill(with_tag)?;
        self.input.take(with_tag);
        self.shared.tally.add_arrived(bytes as u64);
        Ok(())
    }

    /// Of the proof that follows each header, block and trailer.
    fn tag_bytes(&self) -> usize {
        if self.tags.is_some() { TAG_BYTES } else { 0 }
    }

    /// A header or a trailer, read together with its tag.
    fn words<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.input.fill(N + self.tag_bytes())?;
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

    /// Zeros of at most a block where holes are not wanted.
    fn make_hole(&mut self, length: u64, shared: &Arc<Shared>) {
        if !shared.job.selection.sparse {
            return self.write(&ZEROS[..usize::try_from(length).expect("at most a block")], shared);
        }
        if self.punch {
            self.punch_hole(length, shared);
        }
        self.extend();
    }

    /// Sets the size of the file before a hole is left out. A chunk may be read again by its range before the file is complete. And
    /// XFS fills the holes of a file that grows from write to write.
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

    /// Writes what is not zeros, and leaves holes of the rest.
    fn write_with_holes(&mut self, data: &[u8], shared: &Arc<Shared>) {
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

    fn write(&mut self, data: &[u8], shared: &Arc<Shared>) {
        if self.failed.is_some() {
            return;
        }
        self.written_bytes += data.len() as u64;
        if let Sink::Direct(chunk) = &self.sink {
            match writers::write(shared, chunk, data, self.offset) {
                Ok(true) => {}
                // The session is over.
                Ok(false) => self.sink = Sink::Nowhere,
                Err(error) => self.failed = Some(StoreError::new("write", &self.incoming.path, error)),
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
fn whole_part(sink: &mut Sink, incoming: &Incoming, shared: &Shared) -> Result<Option<Arc<Draft>>, StoreError> {
    let part = incoming.whole_part(shared.to.tree())?;
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

/// A page: the memory of a direct write begins at one.
const PAST_CACHE_GRAIN_BYTES: usize = 4096;

fn broken(why: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}
