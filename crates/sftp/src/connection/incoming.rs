//! Reads packets of a server from a pipe, and never waits for longer than a look at the clock allows.

use std::fs::File;
use std::io::{self, PipeReader, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::time::Duration;

use haul_sys::poll::{self, Interest};

use crate::codec::{HEAD_BYTES, id_of};
use crate::limits::MAX_PACKET_BYTES;

pub(crate) struct Incoming {
    output: File,
    /// Ends when the connection is closed from this side: a kept login may hold the other pipe for a round trip more.
    closed: PipeReader,
    buffer: Box<[u8]>,
    start: usize,
    end: usize,
}

/// Why no packet comes.
#[derive(Debug)]
pub(crate) enum NoPacket {
    /// The pipe ended between two packets.
    End,
    /// The pipe ended inside a packet.
    Cut,
    /// The pipe failed.
    Io(io::Error),
    /// A length, or a number, that the server must not send.
    Refused(String),
    /// The one who looks at the clock gave up.
    GivenUp,
}

/// Most of a data packet goes straight to where it stays.
const BUFFER_BYTES: usize = 64 << 10;

impl Incoming {
    pub(crate) fn new(output: OwnedFd, closed: PipeReader, heard: &[u8]) -> Self {
        let mut buffer = vec![0; BUFFER_BYTES.max(heard.len())].into_boxed_slice();
        buffer[..heard.len()].copy_from_slice(heard);
        Self { output: File::from(output), closed, buffer, start: 0, end: heard.len() }
    }

    /// The bytes that were read and not taken.
    pub(crate) fn rest(&self) -> &[u8] {
        &self.buffer[self.start..self.end]
    }

    /// Reads the next packet without its length. `longest` says how long the answer to a request may be. `look` is called
    /// at each step, at most `every` apart, with whether bytes came: false gives up.
    pub(crate) fn packet(
        &mut self,
        every: Duration,
        look: &mut dyn FnMut(bool) -> bool,
        longest: &dyn Fn([u8; HEAD_BYTES]) -> Option<usize>,
    ) -> Result<Vec<u8>, NoPacket> {
        let mut length = [0; 4];
        if !self.fill(&mut length, every, look)? {
            return Err(NoPacket::End);
        }
        let length = u32::from_be_bytes(length) as usize;
        if !(HEAD_BYTES..=MAX_PACKET_BYTES).contains(&length) {
            return Err(NoPacket::Refused(format!("it sends a packet of {length} bytes")));
        }
        let mut head = [0; HEAD_BYTES];
        self.fill_all(&mut head, every, look)?;
        match longest(head) {
            None => {
                return Err(NoPacket::Refused(format!("it answers request {}, which nobody made", id_of(head))));
            }
            Some(longest) if length > longest => {
                return Err(NoPacket::Refused(format!("its answer has {length} bytes, and at most {longest} fit")));
            }
            Some(_) => {}
        }
        let mut packet = vec![0; length];
        packet[..HEAD_BYTES].copy_from_slice(&head);
        self.fill_all(&mut packet[HEAD_BYTES..], every, look)?;
        Ok(packet)
    }

    fn fill_all(
        &mut self,
        into: &mut [u8],
        every: Duration,
        look: &mut dyn FnMut(bool) -> bool,
    ) -> Result<(), NoPacket> {
        if into.is_empty() || self.fill(into, every, look)? { Ok(()) } else { Err(NoPacket::Cut) }
    }

    /// Fills all of it; false: the pipe ended before the first byte.
    fn fill(&mut self, into: &mut [u8], every: Duration, look: &mut dyn FnMut(bool) -> bool) -> Result<bool, NoPacket> {
        let mut filled = 0;
        while filled < into.len() {
            if self.start == self.end {
                let rest = &mut into[filled..];
                let watched = [(self.output.as_fd(), Interest::Read), (self.closed.as_fd(), Interest::Read)];
                while !poll::wait(&watched, Some(every)).map_err(NoPacket::Io)?[0] {
                    if !look(false) {
                        return Err(NoPacket::GivenUp);
                    }
                }
                let is_direct = rest.len() >= BUFFER_BYTES;
                let read = if is_direct { self.output.read(rest) } else { self.output.read(&mut self.buffer) };
                match read {
                    Ok(0) if filled == 0 => return Ok(false),
                    Ok(0) => return Err(NoPacket::Cut),
                    Ok(read) if is_direct => filled += read,
                    Ok(read) => (self.start, self.end) = (0, read),
                    Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(NoPacket::Io(error)),
                }
                if !look(true) {
                    return Err(NoPacket::GivenUp);
                }
            }
            let step = (self.end - self.start).min(into.len() - filled);
            into[filled..filled + step].copy_from_slice(&self.buffer[self.start..self.start + step]);
            self.start += step;
            filled += step;
        }
        Ok(true)
    }
}
