//! A lane is read through one fixed buffer, so that blocks are hashed and written where they arrived.

use std::io::{self, Read};

use haul_net::Stream;
use haul_sys::direct::AlignedBuffer;
use haul_wire::lane::TAG_BYTES;
use haul_wire::limits::BLOCK_BYTES;

/// Data is hashed and written fastest from the beginning of a cache line.
const LINE_BYTES: usize = 64;
/// Holds more than any header or trailer with its tag.
const HEADER_BYTES_MAX: usize = 2 * LINE_BYTES;
/// The headers of a unit and of its first block stand before the block, and its tag behind it.
const BUFFER_BYTES: usize = 2 * HEADER_BYTES_MAX + BLOCK_BYTES + TAG_BYTES;

pub(super) struct Input {
    stream: Stream,
    buffer: AlignedBuffer,
    start: usize,
    end: usize,
    /// On a clear lane a block has its tag.
    block_bytes_max: usize,
}

impl Input {
    pub(super) fn new(stream: Stream, tag_bytes: usize) -> Self {
        let block_bytes_max = BLOCK_BYTES + tag_bytes;
        Self { stream, buffer: AlignedBuffer::new(BUFFER_BYTES), start: 0, end: 0, block_bytes_max }
    }

    /// Returns the lane, if nothing has come that was not taken.
    pub(super) fn into_stream(self) -> Option<Stream> {
        (self.end == self.start).then_some(self.stream)
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// A read would return without waiting.
    pub(super) fn has_input(&self) -> bool {
        self.end > self.start || self.stream.has_input()
    }

    /// Makes sure that `count` bytes are there: at most a block and its tag.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<()> {
        debug_assert!(count <= self.block_bytes_max);
        let there = self.end - self.start;
        if there >= count {
            return Ok(());
        }
        if there == 0 || self.start + count > self.buffer.len() {
            let start = count.next_multiple_of(LINE_BYTES) - count;
            self.buffer.copy_within(self.start..self.end, start);
            (self.start, self.end) = (start, start + there);
        }
        // With a header its block is read, and no more: what came of the next one would have to be moved.
        let header_and_block = self.start + count + self.block_bytes_max;
        let most = if count < HEADER_BYTES_MAX { header_and_block.min(self.buffer.len()) } else { self.start + count };
        while self.end - self.start < count {
            match self.stream.read(&mut self.buffer[self.end..most]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The bytes must have been filled.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let taken = &self.buffer[self.start..self.start + count];
        self.start += count;
        taken
    }

    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.fill(N)?;
        Ok(self.take(N).try_into().expect("N bytes were filled"))
    }
}
