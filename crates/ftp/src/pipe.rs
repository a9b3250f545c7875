//! A control connection through the pipes of a program: ssh, with the server at its other end.

use std::fmt;
use std::io::{self, ErrorKind};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::OwnedFd;
use std::sync::Mutex;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{OFlags, fcntl_getfl, fcntl_setfl};
use rustix::io::Errno;

/// Both directions of a byte pipe to a server.
pub struct Pipe {
    /// What the server says.
    pub output: OwnedFd,
    /// What the server hears.
    pub input: OwnedFd,
    /// The part of the output that was read already.
    pub heard: Vec<u8>,
    /// Ends the other side of the pipe.
    pub end: Box<dyn Fn() + Send + Sync>,
    /// Says why the other side ended by itself, if it has said so.
    pub why_ended: Box<dyn Fn() -> Option<String> + Send + Sync>,
}

/// Makes a pipe to the server.
pub type MakePipe = Box<dyn Fn() -> io::Result<Pipe> + Send + Sync>;

impl fmt::Debug for Pipe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Pipe").field("heard", &self.heard.len()).finish_non_exhaustive()
    }
}

/// A pipe as a connection: a read and a write wait for as long as the server may be silent.
#[derive(Debug)]
pub(crate) struct PipeWire {
    pipe: Pipe,
    /// Where data connections lead.
    pub(crate) peer: SocketAddr,
    silence: Mutex<Duration>,
}

impl PipeWire {
    pub(crate) fn new(pipe: Pipe, peer: SocketAddr, silence: Duration) -> io::Result<PipeWire> {
        for end in [&pipe.output, &pipe.input] {
            fcntl_setfl(end, fcntl_getfl(end)? | OFlags::NONBLOCK)?;
        }
        Ok(PipeWire { pipe, peer, silence: Mutex::new(silence) })
    }

    pub(crate) fn be_patient(&self, silence: Duration) {
        *self.silence.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = silence;
    }

    /// The address of this host from which the server's host is reached.
    pub(crate) fn local(&self) -> io::Result<SocketAddr> {
        let any: SocketAddr = if self.peer.is_ipv4() { ([0, 0, 0, 0], 0).into() } else { ([0_u16; 8], 0).into() };
        // It sends nothing: the kernel only looks for the way.
        let socket = UdpSocket::bind(any)?;
        socket.connect(SocketAddr::new(self.peer.ip(), DISCARD_PORT))?;
        socket.local_addr()
    }

    pub(crate) fn readable(&self) -> PollFd<'_> {
        PollFd::new(&self.pipe.output, PollFlags::IN)
    }

    /// Nothing has come, and the server has not ended.
    pub(crate) fn is_quiet(&self) -> bool {
        self.pipe.heard.is_empty() && !ready(&self.pipe.output, PollFlags::IN, Duration::ZERO).unwrap_or(true)
    }

    fn wait(&self, end: &OwnedFd, flags: PollFlags, begun: Instant) -> io::Result<()> {
        let silence = *self.silence.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let left = silence.saturating_sub(begun.elapsed());
        match left.is_zero() {
            true => Err(ErrorKind::TimedOut.into()),
            false => ready(end, flags, left).map(drop),
        }
    }

    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if !self.pipe.heard.is_empty() {
            let count = buffer.len().min(self.pipe.heard.len());
            buffer[..count].copy_from_slice(&self.pipe.heard[..count]);
            self.pipe.heard.drain(..count);
            return Ok(count);
        }
        let begun = Instant::now();
        loop {
            match rustix::io::read(&self.pipe.output, &mut *buffer) {
                Ok(0) => match (self.pipe.why_ended)() {
                    Some(why) => return Err(io::Error::new(ErrorKind::ConnectionAborted, format!("ssh ended: {why}"))),
                    None => return Ok(0),
                },
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(&self.pipe.output, PollFlags::IN, begun)?,
                Err(error) => return Err(error.into()),
            }
        }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let begun = Instant::now();
        loop {
            match rustix::io::write(&self.pipe.input, bytes) {
                Ok(count) => return Ok(count),
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => self.wait(&self.pipe.input, PollFlags::OUT, begun)?,
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Drop for PipeWire {
    fn drop(&mut self) {
        (self.pipe.end)();
    }
}

/// The port to which nothing is sent.
const DISCARD_PORT: u16 = 9;

fn ready(end: &OwnedFd, flags: PollFlags, patience: Duration) -> io::Result<bool> {
    let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
    match poll(&mut [PollFd::new(end, flags)], Some(&timeout)) {
        Ok(count) => Ok(count > 0),
        Err(Errno::INTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
