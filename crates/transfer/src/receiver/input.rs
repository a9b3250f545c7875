//! Reads a lane through one fixed buffer, so that blocks are hashed and written where they arrived.

use std::io::{self, Read};

use haul_net::Stream;
use haul_wire::limits::BLOCK_BYTES;

/// A block and what came with it; a second block's beginning fits behind.
const BUFFER_BYTES: usize = 2 * BLOCK_BYTES;

pub(super) struct Input {
    stream: Stream,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

impl Input {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, buffer: vec![0; BUFFER_BYTES].into_boxed_slice(), start: 0, end: 0 }
    }

    /// Whether a read would return without waiting.
    pub(super) fn has_input(&self) -> bool {
        self.end > self.start || self.stream.has_input()
    }

    /// Makes sure that `count` bytes are there. At most a block and a few headers.
    pub(super) fn fill(&mut self, count: usize) -> io::Result<()> {
        debug_assert!(count <= BUFFER_BYTES);
        if self.start == self.end {
            (self.start, self.end) = (0, 0);
        }
        if self.start + count > self.buffer.len() {
            self.buffer.copy_within(self.start..self.end, 0);
            (self.start, self.end) = (0, self.end - self.start);
        }
        while self.end - self.start < count {
            match self.stream.read(&mut self.buffer[self.end..]) {
                Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
                Ok(read) => self.end += read,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Takes `count` bytes that were filled.
    pub(super) fn take(&mut self, count: usize) -> &[u8] {
        let taken = &self.buffer[self.start..self.start + count];
        self.start += count;
        taken
    }

    /// Takes the next `N` bytes, waiting for them.
    pub(super) fn array<const N: usize>(&mut self) -> io::Result<[u8; N]> {
        self.fill(N)?;
        Ok(self.take(N).try_into().expect("N bytes were filled"))
    }
}
