//! A lane is read through one fixed buffer, where blocks are also hashed and written.

use std::io::{self, Read};

use haul_net::Stream;
use haul_sys::direct::AlignedBuffer;
use haul_wire::lane::TAG_BYTES;
use haul_wire::limits::BLOCK_BYTES;

/// Hashing and writing are fastest from a cache line's beginning.
const LINE_BYTES: usize = 64;
const HEADER_BYTES_MAX: usize = 2 * LINE_BYTES;
/// Headers of a unit and its first block stand before the block, its tag behind.
const BUFFER_BYTES: usize = 2 * HEADER_BYTES_MAX + BLOCK_BYTES + TAG_BYTES;

pub(super) struct Input {
    stream: Stream,
    buffer: AlignedBuffer,
    start: usize,
    end: usize,
    /// The block has its tag on a clear lane.
    block_bytes_max: usize,
}

impl Input {
    pub(super) fn new(stream: Stream, tag_bytes: usize) -> Self {
        let block_bytes_max = BLOCK_BYTES + tag_bytes;
        Self { stream, buffer: AlignedBuffer::new(BUFFER_BYTES), start: 0, end: 0, block_bytes_max }
    }

    pub(super) fn into_stream(self) -> Option<Stream> {
        (self.end == self.start).then_some(self.stream)
    }

    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    pub(super) fn has_input(&self) -> bool {
        self.end > self.start || self.stream.has_input()
    }

    /// Fills up to `count` bytes: at most a block and its tag.
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
        // A header's block is read with it, and no more: bytes of the next would have to be moved.
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
