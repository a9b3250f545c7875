//! Takes units off one connection: header -> blocks -> trailer. What becomes of a unit: [`super::arrival`].
//!
//! Whole files get their final names from others ([`super::rename_threads`]), many at a time; the lane tells them when it is
//! idle.

mod standing_run;

use std::io;
use std::sync::Arc;

use haul_engine::integrity::{self, LaneTags, Tag};
use haul_net::Stream;
use haul_wire::control::Receipt;
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Encoding, RUN_OFFSET_BYTES, TAG_BYTES, TRAILER_BYTES, Trailer, UNIT_HEADER_BYTES,
    UnitHeader, UnitKind,
};
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::stopwatch::{Stopwatch, Waiting};
use haul_kept::files::zeros::ZEROS;

use haul_channel::channel::LaneBack;

use super::arrival::{Arrival, broken};
use super::handed::HandedLane;
use super::input::Input;
use super::state::Shared;

pub(super) struct Arriving {
    pub(super) stream: Stream,
    /// Tags of a clear lane count on from job to job.
    pub(super) tags: Option<LaneTags>,
    pub(super) job: Option<u64>,
}

impl Arriving {
    pub(super) fn new(stream: Stream) -> Self {
        Self { tags: stream.tag_keys().map(|keys| LaneTags::new(keys.receive)), stream, job: None }
    }
}

/// Takes units until the sender ends the lane or its job (`Ok`), or the connection fails. Returns a lane for another job.
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
    let handed = shared.job.hand_over.as_ref();
    let opened = handed.and_then(|handed| handed.open(number, Box::new(HandedLane::new(number, shared))));
    let result = lane.run(job).map_err(|error| match error.kind() {
        io::ErrorKind::InvalidData if shared.is_by_mover(number) => shared.accuse(number, &error.to_string()),
        _ => error,
    });
    drop(opened);
    // What arrived verified is kept, whatever became of the connection.
    shared.rename_queue.hurry();
    shared.tally.add_time(&lane.watch.end());
    if !result? {
        return Ok(None);
    }
    let Lane { input, tags, .. } = lane;
    let stream = input.into_stream().ok_or_else(|| broken("data behind the end of a job"))?;
    Ok(Some(LaneBack { lane: number, stream, tags }))
}

struct Lane<'a> {
    number: u16,
    input: Input,
    tags: Option<LaneTags>,
    shared: &'a Arc<Shared>,
    decompressor: Option<(zstd::bulk::Decompressor<'static>, Vec<u8>)>,
    standing: Option<Box<[u8]>>,
    watch: Stopwatch,
}

impl Lane<'_> {
    /// Returns true if only its job ended.
    fn run(&mut self, job: Option<u64>) -> io::Result<bool> {
        loop {
            if !self.input.has_input() {
                self.shared.rename_queue.hurry();
            }
            self.shared.await_room(&mut self.watch);
            let header = self.header()?;
            self.watch.lap_next_unit(matches!(header.kind, UnitKind::End | UnitKind::JobEnd));
            // A disk that hangs with a chunk must not keep small files from their names.
            if matches!(header.kind, UnitKind::Chunk | UnitKind::Hole) {
                self.shared.rename_queue.hurry();
            }
            match header.kind {
                UnitKind::End => return Ok(false),
                UnitKind::JobEnd if job == Some(header.index) => return Ok(true),
                // The sender had the lane in an earlier job, at whose end it was unknown here.
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

    fn unit(&mut self, header: UnitHeader) -> io::Result<()> {
        let Some(mut arrival) = Arrival::of(header, self.number, self.shared)? else { return self.drain() };
        let trailer = match self.until_trailer(&mut arrival) {
            Ok(trailer) => trailer,
            Err(error) => {
                arrival.tell_void(self.shared);
                return Err(error);
            }
        };
        self.watch.lap(Waiting::Network);
        let finished = arrival.finish(trailer, self.shared);
        // Starting the write-back waits while a slow disk's queue is full.
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

    /// Takes a chunk that is a hole, whose hash nobody computes.
    fn hole_unit(&mut self, header: UnitHeader) -> io::Result<()> {
        let Some(mut arrival) = Arrival::of(header, self.number, self.shared)? else { return self.drain() };
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
            // Unwanted holes are written a block at a time.
            let most = if self.shared.job.selection.sparse { u64::MAX } else { ZEROS.len() as u64 };
            let length = most.min(arrival.end - arrival.offset);
            arrival.make_hole(length, self.shared);
            arrival.offset += length;
        }
        match &arrival.failed {
            Some(error) => self.shared.fail(&arrival.incoming, error),
            None => arrival.deliver(hole, self.shared),
        }
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

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

    fn block(&mut self, block: BlockHeader, arrival: &mut Arrival) -> io::Result<()> {
        if arrival.forged {
            return self.skip(block);
        }
        let wire_bytes = block.bytes as usize;
        match block.encoding {
            Encoding::Zeros => return arrival.take_hole(wire_bytes, self.shared),
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
        // Without tags the lane itself proves its data.
        let is_proved =
            |tag_of: &dyn Fn(&LaneTags) -> Tag| self.tags.as_ref().is_none_or(|tags| tag_of(tags).is_in(tag));
        // An unproved peer must not reach the decompressor.
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
        let mixed = matches!(block.encoding, Encoding::PlainWithHoles | Encoding::ZstdWithHoles);
        arrival.put(data, mixed, self.shared);
        self.shared.tally.add_arrived(data.len() as u64);
        self.watch.lap(Waiting::Storage);
        Ok(())
    }

    fn drain(&mut self) -> io::Result<()> {
        loop {
            let block = self.block_header()?;
            if block == BlockHeader::LAST {
                return self.trailer().map(drop);
            }
            self.skip(block)?;
        }
    }

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

    /// The bytes of the proof behind each header, block and trailer.
    fn tag_bytes(&self) -> usize {
        if self.tags.is_some() { TAG_BYTES } else { 0 }
    }

    fn words<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.input.fill(N + self.tag_bytes())?;
        self.input.array()
    }

    /// A clear lane is believed only with its tag: nothing is written before.
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

fn prove(expected: Tag, input: &mut Input) -> io::Result<()> {
    let tag: [u8; TAG_BYTES] = input.array()?;
    if expected.is(tag) { Ok(()) } else { Err(broken("it was changed on its way")) }
}

/// A block's size bounds the result, whatever the compressed bytes claim.
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
