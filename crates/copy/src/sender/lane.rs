//! A lane carries units over one connection.
//!
//! Take a unit -> read its blocks -> hash them -> send them -> send the hash -> take the next.
//! Small files go back to back in the buffer, which is sent when full, or when nothing more is to put in. A lane of a far path
//! that waits for the target's answer sends padding once. A lane that fails ends; the scheduler gives its units without receipt
//! to the others.

mod handed;

use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use haul_engine::integrity::LaneTags;
use haul_engine::schedule::Unit;
use haul_engine::zeros;
use haul_net::Stream;
use haul_pump::{SendError, SendFailed, SendPump};
use haul_store::SourceFile;
use haul_wire::control::FailureKind;
use haul_wire::lane::{
    BLOCK_HEADER_BYTES, BlockHeader, Encoding, RUN_OFFSET_BYTES, TAG_BYTES, Trailer, UnitHeader, UnitKind,
};
use haul_wire::limits::BLOCK_BYTES;

use haul_channel::channel::LaneBack;
use haul_channel::stopwatch::{Stopwatch, Waiting};
use haul_kept::faults;
use haul_kept::files::zeros::ZEROS;

use super::ahead::ReadAhead;
use super::early_look::ChunkHasher;
use super::source_item::SourceItem;
use super::standing::{Run, Window};
use super::state::{self, Shared, Units};
use super::stop::{Stop, cannot_read, changed, source_failure};

pub(super) struct Leaving {
    pub(super) stream: Stream,
    pub(super) tags: Option<LaneTags>,
    pub(super) job: Option<u64>,
}

impl Leaving {
    pub(super) fn new(stream: Stream, job: Option<u64>) -> Self {
        Self { tags: stream.tag_keys().map(|keys| LaneTags::new(keys.send)), stream, job }
    }
}

/// Carries units until the job is finished (`Ok`) or the connection fails. Returns a lane for another job.
pub(super) fn carry(leaving: Leaving, number: u16, shared: &Arc<Shared>) -> io::Result<Option<LaneBack>> {
    let Leaving { stream, tags, job } = leaving;
    let mut lane = Lane {
        number,
        tags,
        stream,
        shared,
        buffer: vec![0; BUFFER_BYTES].into_boxed_slice(),
        start: 0,
        filled: 0,
        left: Instant::now(),
        compressor: compressor(shared.job.carriage.compress)?,
        pump: shared.reading.route.pump(),
        ahead: ReadAhead::new(shared, number),
        window: Window::default(),
        watch: Stopwatch::start(),
        left_bytes: shared.lane_begins(number),
    };
    let result = lane.run(number, job);
    shared.loads.end(number, &lane.watch.time());
    result?;
    let Lane { stream, tags, .. } = lane;
    Ok(job.map(|_| LaneBack { lane: number, stream, tags }))
}

/// Room for one block being filled, one block not yet sent, and headers and trailers of small files.
///
/// Blocks are read, not mapped: 2 GB in memory took 0.80 s on one core, from a mapping 0.84 s, and a mapping has to survive a
/// file that is cut meanwhile.
const BUFFER_BYTES: usize = 2 * BLOCK_BYTES + 4096;

/// The kernel copies pages fastest to a cache line's beginning: 24 bytes off, reading from memory took more than half of a
/// sender's processor time.
const CACHE_LINE_BYTES: usize = 64;

/// Above this (small files before it) the move costs more.
const MOVED_AT_MOST_BYTES: usize = 256;

/// With 256 KiB a write, the system call costs little beside the data.
const SEND_BYTES: usize = BLOCK_BYTES;

/// The buffer leaves at the latest after this. Thousands of small files, or of hashes, fit into it: from a slow disk they come
/// so slowly that the far side would give us up.
const LEAVES_EVERY: Duration = Duration::from_millis(100);

/// Level 1 compresses about 500 MB/s a core, and gains most of what higher levels gain on scientific data.
const ZSTD_LEVEL: i32 = 1;

/// Below this, padding would be a large part: 64 windows of ten segments are 0.9 MB.
const WORTH_PADDING_BYTES: u64 = 4 << 20;

/// On a shorter path padding gains less than it costs: eight windows take 46 ms of 20 Mbit/s. 20 MB over 20 Mbit/s x 20 ms took
/// 8.76 s with it, 8.68 s without.
const WORTH_PADDING_US: u32 = 40_000;

/// A waiting lane looks this often whether the far side is there.
const LOOK_EVERY: Duration = Duration::from_secs(1);

const NO_HASH: [u8; 32] = [0; 32];

/// Blocks that shrink by less than a sixteenth travel as they are.
const WORTH_COMPRESSING: usize = 16;

struct Lane<'a> {
    number: u16,
    stream: Stream,
    /// The tags of a clear lane go on from job to job.
    tags: Option<LaneTags>,
    shared: &'a Arc<Shared>,
    buffer: Box<[u8]>,
    /// Unsent data stands in `buffer[start..filled]`.
    start: usize,
    filled: usize,
    left: Instant,
    compressor: Option<(zstd::bulk::Compressor<'static>, Vec<u8>)>,
    /// Moves blocks past the buffer, by a requested route.
    pump: Option<SendPump>,
    /// Brings blocks of large files that the page cache lacks.
    ahead: ReadAhead<'a>,
    window: Window,
    watch: Stopwatch,
    left_bytes: Arc<AtomicU64>,
}

impl Lane<'_> {
    fn run(&mut self, number: u16, job: Option<u64>) -> io::Result<()> {
        let mut is_new = true;
        loop {
            if let Some((unit, file)) = self.ahead.next_unit() {
                self.unit(unit, &file)?;
                continue;
            }
            let units = match self.shared.take(number, Duration::ZERO) {
                Some(units) => units,
                None => {
                    self.send()?;
                    self.rest();
                    if std::mem::take(&mut is_new) {
                        self.warm_up(number)?;
                    }
                    let rests = self.shared.rests(number);
                    self.shared.loads.pauses(number, self.watch.time());
                    let Some(units) = self.await_units(number)? else {
                        self.wound_up(number);
                        break;
                    };
                    match rests {
                        true => self.watch.lap(Waiting::Leave),
                        false => self.watch.lap_for_units(self.shared.all_taken(), self.shared.last_receipt(number)),
                    }
                    units
                }
            };
            is_new = false;
            for (unit, file) in units {
                self.unit(unit, &file)?;
            }
        }
        let (kind, index) = job.map_or((UnitKind::End, 0), |job| (UnitKind::JobEnd, job));
        self.append_header(UnitHeader { kind, index, chunk: 0 });
        self.send()?;
        if job.is_some() { Ok(()) } else { self.stream.finish_write() }
    }

    /// Waits for units; `None` at the session's end.
    ///
    /// A far side that refused the lane before it knew its number cannot report that, and buffers take the data. So a waiting
    /// lane looks whether the far side is there: nothing else ever arrives on a sender's lane.
    fn await_units(&mut self, number: u16) -> io::Result<Option<Units>> {
        let mut has_waited = false;
        loop {
            let units = match has_waited {
                false => self.shared.take(number, LOOK_EVERY),
                true => self.shared.take_after_all(number, LOOK_EVERY),
            };
            if let Some(units) = units {
                return Ok(Some(units));
            }
            has_waited = true;
            if self.shared.is_over() {
                return Ok(None);
            }
            if self.stream.has_input() {
                return Err(io::Error::new(io::ErrorKind::ConnectionReset, "the far side has left the lane"));
            }
        }
    }

    /// Sends one window of padding where much data will follow: a congestion window doubles with each round trip in which it
    /// was used, and stays while the lane waits.
    fn warm_up(&mut self, number: u16) -> io::Result<()> {
        if self.shared.rests(number) || !self.shared.awaits_answers(WORTH_PADDING_BYTES) {
            return Ok(());
        }
        let Some(info) = self.stream.tcp_info().filter(|info| info.rtt_us >= WORTH_PADDING_US) else { return Ok(()) };
        let window_bytes = u64::from(info.snd_cwnd) * u64::from(info.snd_mss_bytes);
        self.stream.pad(usize::try_from(window_bytes).unwrap_or(usize::MAX))?;
        self.watch.lap(Waiting::Network);
        Ok(())
    }

    /// Counts a lane's last wait: for its data until the last receipt, then for nothing.
    fn wound_up(&mut self, number: u16) {
        if let Some(at) = self.shared.last_receipt(number) {
            self.watch.lap_until(Waiting::Network, at);
        }
        self.watch.lap(Waiting::Leave);
    }

    fn unit(&mut self, unit: Unit, file: &Arc<SourceItem>) -> io::Result<()> {
        let bytes = file.layout.range(unit.chunk).map_or(0, |(_, bytes)| bytes);
        self.left_bytes.store(bytes, Ordering::Relaxed);
        let carried = self.carry_unit(unit, file, bytes);
        self.left_bytes.store(0, Ordering::Relaxed);
        self.ahead.leave(unit);
        carried
    }

    fn carry_unit(&mut self, unit: Unit, file: &Arc<SourceItem>, bytes: u64) -> io::Result<()> {
        let shared = self.shared;
        let open =
            match shared.reading.storage.during(|| file.open(&*shared.reading.sources, shared.direct_from_bytes())) {
                Ok(open) => open,
                Err(error) => {
                    if error.is_lost() {
                        shared.failure.set(faults::store_error(&error));
                    }
                    return self.withdraw(file, error.to_string(), source_failure(&error));
                }
            };
        self.watch.lap(Waiting::Storage);
        self.say_run(unit, file, &open);
        if file.hash_only.load(Ordering::Relaxed) {
            return self.hash_only(unit, file, &open);
        }
        // The leader hashes all that a mover sends, so the receiver expects a hash.
        let content = match content(unit, file, &open) {
            Ok(Content::Hole) if shared.job.is_mover => Ok(Content::Mixed),
            content => content,
        };
        let kind = match content {
            Ok(Content::Hole) => UnitKind::Hole,
            _ if file.layout.is_whole() => UnitKind::Whole,
            _ => UnitKind::Chunk,
        };
        let header = UnitHeader { kind, index: file.index, chunk: unit.chunk };
        if let Ok(content @ (Content::Dense | Content::Mixed)) = content
            && self.hands_over(unit, file)
        {
            return self.hand_over(header, file, &open, content);
        }
        self.append_header(header);
        let sent = content.and_then(|content| match content {
            Content::Hole => shared.reading.growing.check(file, &open).map(|()| NO_HASH),
            Content::Dense | Content::Mixed => {
                let runs = match self.runs(unit, file, &open)? {
                    Some(runs) => runs,
                    None => {
                        self.ahead.carry(unit, file, &open);
                        vec![Run::Data { bytes }]
                    }
                };
                self.blocks(unit, file, &open, content == Content::Mixed, &runs)
            }
        });
        let trailer = match sent {
            Ok(hash) => {
                shared.reading.enter_sum(file, &open);
                shared.sent(unit, hash);
                Trailer::Complete(hash)
            }
            Err(Stop::Lane(error)) => return Err(error),
            Err(Stop::Source(why, kind)) => {
                self.withdraw(file, why, kind)?;
                Trailer::Void
            }
        };
        self.append_block_header(BlockHeader::LAST.encode());
        self.append_trailer(trailer);
        self.leave()
    }

    /// Tells an end whose readers go on how far this one will.
    fn say_run(&self, unit: Unit, file: &SourceItem, open: &SourceFile) {
        if open.local().is_some() || file.layout.is_whole() {
            return;
        }
        let behind = self.shared.run_of(self.number).filter(|(index, _)| *index == file.index);
        let last = behind.map_or(unit.chunk, |(_, behind)| behind.saturating_sub(1).max(unit.chunk));
        if let (Some((start, _)), Some((from, bytes))) = (file.layout.range(unit.chunk), file.layout.range(last)) {
            open.reads_on(start, from + bytes);
        }
    }

    fn hash_only(&mut self, unit: Unit, file: &SourceItem, open: &SourceFile) -> io::Result<()> {
        // Nothing goes to the far side meanwhile, but each read block is progress.
        let is_over = || {
            self.shared.count_move();
            self.shared.is_over()
        };
        let hash = haul_kept::files::hash::whole_file(open, file.identity.size, &is_over);
        // The target has what was listed: a changed file's hash would be another's.
        let hash = match (self.shared.reading.growing.check(file, open), hash) {
            (Ok(()), Ok(hash)) => hash,
            (Ok(()), Err(error)) if self.shared.reading.growing.is_taken() => {
                return self.withdraw(file, error.to_string(), FailureKind::Changed);
            }
            (Ok(()), Err(error)) => return self.withdraw(file, error.to_string(), FailureKind::Io),
            (Err(Stop::Source(why, kind)), _) => return self.withdraw(file, why, kind),
            (Err(Stop::Lane(error)), _) => return Err(error),
        };
        self.watch.lap(Waiting::Storage);
        self.append_header(UnitHeader { kind: UnitKind::Hash, index: file.index, chunk: unit.chunk });
        self.append_block_header(BlockHeader::LAST.encode());
        self.append_trailer(Trailer::Complete(hash));
        self.leave()
    }

    /// The file must be the same after the last byte as when it was listed.
    fn blocks(
        &mut self,
        unit: Unit,
        file: &SourceItem,
        open: &SourceFile,
        mixed: bool,
        runs: &[Run],
    ) -> Result<[u8; 32], Stop> {
        let (mut offset, _) = file.layout.range(unit.chunk).expect("the scheduler keeps to the layout");
        let mut hasher = file.hasher(unit.chunk);
        for run in runs {
            match *run {
                Run::Data { bytes } => {
                    self.data_run(unit, open, (offset, offset + bytes), mixed, &mut hasher)?;
                    offset += bytes;
                }
                Run::Standing { bytes, at } => {
                    self.standing_run(open, (offset, offset + bytes), at, &mut hasher)?;
                    offset += bytes;
                }
            }
        }
        self.shared.reading.growing.check(file, open)?;
        Ok(hasher.finish())
    }

    fn runs(&mut self, unit: Unit, file: &SourceItem, open: &SourceFile) -> Result<Option<Vec<Run>>, Stop> {
        let standing = file.standing.get().filter(|standing| standing.serves(unit.chunk));
        let Some(standing) = standing.filter(|_| !self.shared.is_to_mover(self.number)) else { return Ok(None) };
        let (start, length) = file.layout.range(unit.chunk).expect("the scheduler keeps to the layout");
        // Unsent data must not wait for the target's reading.
        self.send()?;
        self.window.clear();
        let runs = standing
            .runs(&mut self.window, open, (start, start + length), &|| self.shared.is_over())
            .map_err(|error| cannot_read(start, &error))?;
        self.watch.lap(Waiting::Storage);
        runs.map_or(Err(Stop::Lane(io::Error::other("the session is over"))), |runs| Ok(Some(runs)))
    }

    fn standing_run(
        &mut self,
        open: &SourceFile,
        (mut offset, end): (u64, u64),
        mut at: u64,
        hasher: &mut ChunkHasher,
    ) -> Result<(), Stop> {
        while offset < end {
            let bytes = (end - offset).min(BLOCK_BYTES as u64);
            let data = self.window.read(open, offset, offset + bytes).map_err(|error| cannot_read(offset, &error))?;
            if (data.len() as u64) < bytes {
                return Err(changed());
            }
            hasher.update(data);
            let length = data.len();
            self.append_block_header(block_header(length, Encoding::Standing));
            self.append(&at.to_le_bytes());
            self.append_data_tag(Encoding::Standing, RUN_OFFSET_BYTES, hasher);
            if self.filled - self.start >= SEND_BYTES {
                self.send()?;
            }
            offset += bytes;
            at += bytes;
            self.left_bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
        Ok(())
    }

    fn data_run(
        &mut self,
        unit: Unit,
        open: &SourceFile,
        (mut offset, end): (u64, u64),
        mixed: bool,
        hasher: &mut ChunkHasher,
    ) -> Result<(), Stop> {
        while offset < end {
            let size = usize::try_from((end - offset).min(BLOCK_BYTES as u64)).expect("at most a block");
            let block = if mixed { look(open, offset, offset + size as u64)? } else { Content::Dense };
            if block == Content::Hole {
                hasher.update(&ZEROS[..size]);
                self.ahead.skip(open, offset, size as u64);
                self.append_block_header(block_header(size, Encoding::Zeros));
            } else {
                self.keep_to_rates(size as u64)?;
                match (open.local_fd(), self.pump.take()) {
                    (Some(fd), Some(pump)) => self.routed_block(pump, fd, offset, size, block, hasher)?,
                    _ => self.data_block(unit, open, offset, size, block, hasher)?,
                }
            }
            if self.filled - self.start >= SEND_BYTES {
                self.send()?;
            }
            offset += size as u64;
            self.left_bytes.fetch_sub(size as u64, Ordering::Relaxed);
        }
        Ok(())
    }

    fn data_block(
        &mut self,
        unit: Unit,
        open: &SourceFile,
        offset: u64,
        size: usize,
        content: Content,
        hasher: &mut ChunkHasher,
    ) -> Result<(), Stop> {
        self.align_next_block();
        let at = self.filled + self.block_header_bytes();
        let data = &mut self.buffer[at..at + size];
        let storage = &self.shared.reading.storage;
        let read = match open.local() {
            Some(_) => storage.during(|| self.ahead.read(unit, open, data, offset)),
            // Another end has its own limits, and a lane may wait there while others read.
            None => self.ahead.read(unit, open, data, offset),
        };
        let read = read.map_err(|error| cannot_read(offset, &error))?;
        self.watch.lap(Waiting::Storage);
        if read < size {
            return Err(changed());
        }
        hasher.update(data);
        let (wire_bytes, encoding) = match &mut self.compressor {
            Some((compressor, packed)) => compress(compressor, packed, data),
            None => (size, Encoding::Plain),
        };
        self.append_block_header(block_header(wire_bytes, content.of(encoding)));
        self.filled = at + wire_bytes;
        self.append_data_tag(encoding, wire_bytes, hasher);
        Ok(())
    }

    /// Sends a block past the buffer. Its header gave the length: if the file ends before, zeros fill the rest of a void unit.
    fn routed_block(
        &mut self,
        mut pump: SendPump,
        open: BorrowedFd<'_>,
        offset: u64,
        size: usize,
        content: Content,
        hasher: &mut ChunkHasher,
    ) -> Result<(), Stop> {
        self.append_block_header(block_header(size, content.of(Encoding::Plain)));
        self.send()?;
        let mut tap = |bytes: &[u8]| hasher.update(bytes);
        let sent = pump.send(&mut self.stream, open, offset, size as u64, true, Some(&mut tap));
        self.shared.count_move();
        self.watch.lap(Waiting::Network);
        if self.stream.is_sealed_in_kernel() {
            self.shared.reading.route.tell_kernel_seals();
        }
        if self.shared.reading.route.is_kept() {
            self.pump = Some(pump);
        }
        let Err(SendFailed { sent_bytes, why }) = sent else {
            self.append_data_tag(Encoding::Plain, size, hasher);
            return Ok(());
        };
        let why = match why {
            SendError::Lane(error) => return Err(Stop::Lane(error)),
            SendError::Ended => changed(),
            SendError::Source(error) => cannot_read(offset + sent_bytes, &error),
        };
        let missing = size - usize::try_from(sent_bytes).expect("at most a block");
        self.append(&ZEROS[..missing]);
        if self.tags.is_some() {
            // What was not read has no tag. These bytes match no data, so the receiver drops the block; the trailer voids the
            // unit.
            self.append(&[0; TAG_BYTES]);
        }
        Err(why)
    }

    /// Moves what waits so that the next block's data begins with a cache line.
    fn align_next_block(&mut self) {
        let pending = self.filled - self.start;
        if pending > MOVED_AT_MOST_BYTES {
            return;
        }
        let place = pending + self.block_header_bytes();
        let shift = self.buffer[place..].as_ptr().align_offset(CACHE_LINE_BYTES);
        let start = if shift < CACHE_LINE_BYTES { shift } else { 0 };
        self.buffer.copy_within(self.start..self.filled, start);
        self.start = start;
        self.filled = start + pending;
    }

    fn withdraw(&mut self, file: &SourceItem, why: String, kind: FailureKind) -> io::Result<()> {
        self.shared.withdraw(file, why, kind).map_err(|error| {
            let lane_error = state::lane_error(&error);
            self.shared.failure.set(error);
            lane_error
        })
    }

    /// Client, job and stream each take the bytes from their own limit.
    fn keep_to_rates(&mut self, bytes: u64) -> io::Result<()> {
        let waited = self.spend(bytes)?;
        if self.shared.pace(bytes) | self.stream.keep_to_rate(bytes) | waited {
            self.watch.lap(Waiting::Rate);
        }
        Ok(())
    }

    /// Charges a daemon's client. One that may move no more ends the session.
    fn spend(&self, bytes: u64) -> io::Result<bool> {
        self.shared.watch.spend(bytes).map_err(|error| {
            let lane_error = state::lane_error(&error);
            self.shared.failure.set(error);
            lane_error
        })
    }

    fn append_header(&mut self, header: UnitHeader) {
        let header = header.encode();
        self.append(&header);
        if let Some(tag) = self.tags.as_mut().map(|tags| tags.header(&header)) {
            self.append(tag.bytes());
        }
    }

    fn append_block_header(&mut self, header: [u8; BLOCK_HEADER_BYTES]) {
        self.append(&header);
        if let Some(tag) = self.tags.as_mut().map(|tags| tags.block(&header)) {
            self.append(tag.bytes());
        }
    }

    fn append_data_tag(&mut self, encoding: Encoding, wire_bytes: usize, hasher: &ChunkHasher) {
        let Some(tags) = &self.tags else { return };
        let tag = match encoding {
            Encoding::Zstd | Encoding::ZstdWithHoles => {
                tags.packed(&self.buffer[self.filled - wire_bytes..self.filled])
            }
            Encoding::Plain | Encoding::PlainWithHoles | Encoding::Zeros | Encoding::Standing => {
                tags.data(&hasher.so_far())
            }
        };
        self.append(tag.bytes());
    }

    fn block_header_bytes(&self) -> usize {
        BLOCK_HEADER_BYTES + if self.tags.is_some() { TAG_BYTES } else { 0 }
    }

    fn append_trailer(&mut self, trailer: Trailer) {
        let trailer = trailer.encode();
        self.append(&trailer);
        if let Some(tag) = self.tags.as_ref().map(|tags| tags.trailer(&trailer)) {
            self.append(tag.bytes());
        }
    }

    fn append(&mut self, bytes: &[u8]) {
        self.buffer[self.filled..self.filled + bytes.len()].copy_from_slice(bytes);
        self.filled += bytes.len();
    }

    /// Sends what is enough for a write, or has waited for long enough.
    fn leave(&mut self) -> io::Result<()> {
        let is_due = self.filled - self.start >= SEND_BYTES || self.left.elapsed() >= LEAVES_EVERY;
        if is_due { self.send() } else { Ok(()) }
    }

    fn send(&mut self) -> io::Result<()> {
        self.left = Instant::now();
        if self.filled > self.start {
            self.stream.write_all(&self.buffer[self.start..self.filled])?;
            self.stream.flush()?;
            (self.start, self.filled) = (0, 0);
            self.shared.count_move();
            self.watch.lap(Waiting::Network);
        }
        Ok(())
    }
}

fn compressor(wanted: bool) -> io::Result<Option<(zstd::bulk::Compressor<'static>, Vec<u8>)>> {
    if !wanted {
        return Ok(None);
    }
    let compressor = zstd::bulk::Compressor::new(ZSTD_LEVEL)?;
    Ok(Some((compressor, vec![0; zstd::zstd_safe::compress_bound(BLOCK_BYTES)])))
}

fn compress(compressor: &mut zstd::bulk::Compressor, packed: &mut [u8], data: &mut [u8]) -> (usize, Encoding) {
    match compressor.compress_to_buffer(data, packed) {
        Ok(length) if length + data.len() / WORTH_COMPRESSING < data.len() => {
            data[..length].copy_from_slice(&packed[..length]);
            (length, Encoding::Zstd)
        }
        Ok(_) | Err(_) => (data.len(), Encoding::Plain),
    }
}

fn block_header(bytes: usize, encoding: Encoding) -> [u8; BLOCK_HEADER_BYTES] {
    BlockHeader { bytes: u32::try_from(bytes).expect("at most a block"), encoding }.encode()
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Content {
    Dense,
    Mixed,
    Hole,
}

impl Content {
    fn of(self, encoding: Encoding) -> Encoding {
        if self == Content::Mixed { encoding.with_holes() } else { encoding }
    }
}

/// A unit is a hole only if its aligned block is: then its hash is in the table.
fn content(unit: Unit, file: &SourceItem, open: &SourceFile) -> Result<Content, Stop> {
    let (start, length) = file.layout.range(unit.chunk).expect("the scheduler keeps to the layout");
    if length == 0 || !file.may_have_holes() {
        return Ok(Content::Dense);
    }
    let content = look(open, start, start + length)?;
    if content != Content::Hole {
        return Ok(content);
    }
    match zeros::blocks_around(&file.layout, unit.chunk) {
        Some((start, end)) if look(open, start, end)? == Content::Hole => Ok(Content::Hole),
        _ => Ok(Content::Mixed),
    }
}

fn look(open: &SourceFile, start: u64, end: u64) -> Result<Content, Stop> {
    let data = open.next_data(start, end).map_err(|error| cannot_read(start, &error))?;
    Ok(match data {
        None => Content::Hole,
        Some(data) if data == (start, end) => Content::Dense,
        Some(_) => Content::Mixed,
    })
}
