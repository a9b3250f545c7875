//! The transport of one connection: a TCP socket, a Unix socket, or two pipes.
//!
//! A stream's halves and shutdown handle share a [`Link`]. The deadline is for the total time: one byte a second gains
//! nothing.

use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use haul_sys::poll::{self, Interest};
use haul_sys::tcp_info::{self, TcpInfo};

use crate::mptcp::{self, AsOnePath, Subflow, WayTotals};
use crate::policy::{Membership, Policies};

/// The transport of a stream, by `into()` from a socket or [`Pipes`].
pub enum Transport {
    /// A TCP connection.
    Tcp(TcpStream),
    /// A Unix socket.
    Unix(UnixStream),
    /// Two pipes.
    Pipes(Pipes),
}

/// Two pipes as one connection: a lane inside an ssh session.
pub struct Pipes {
    input: File,
    /// None once writing has ended: closing it shows the peer the end.
    output: Mutex<Option<Arc<File>>>,
    /// Readable after a shutdown, to wake a blocked reader.
    wake: (UnixStream, UnixStream),
    on_shutdown: Option<Box<dyn Fn() + Send + Sync>>,
}

impl Pipes {
    /// Joins a pipe to read from and one to write to, such as a child's.
    ///
    /// A blocked write ends only when the other end is closed: `on_shutdown` should kill the child.
    pub fn new(
        input: impl Into<OwnedFd>,
        output: impl Into<OwnedFd>,
        on_shutdown: Option<Box<dyn Fn() + Send + Sync>>,
    ) -> io::Result<Pipes> {
        Ok(Pipes {
            input: File::from(input.into()),
            output: Mutex::new(Some(Arc::new(File::from(output.into())))),
            wake: UnixStream::pair()?,
            on_shutdown,
        })
    }

    fn output(&self) -> io::Result<Arc<File>> {
        let output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output.clone().ok_or_else(|| io::Error::from(io::ErrorKind::BrokenPipe))
    }
}

impl Transport {
    /// See [`mptcp::is_in_use`](crate::mptcp::is_in_use).
    pub fn is_mptcp(&self) -> Option<bool> {
        match self {
            Transport::Tcp(socket) => mptcp::is_in_use(socket),
            Transport::Unix(_) | Transport::Pipes(_) => None,
        }
    }
}

impl From<TcpStream> for Transport {
    fn from(socket: TcpStream) -> Transport {
        Transport::Tcp(socket)
    }
}

impl From<UnixStream> for Transport {
    fn from(socket: UnixStream) -> Transport {
        Transport::Unix(socket)
    }
}

impl From<Pipes> for Transport {
    fn from(pipes: Pipes) -> Transport {
        Transport::Pipes(pipes)
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        if let (Some(member), Transport::Tcp(socket)) = (&self.member, &self.transport) {
            member.observe(socket);
        }
    }
}

pub(crate) struct Link {
    transport: Transport,
    shut_down: AtomicBool,
    has_deadline: AtomicBool,
    deadline: Mutex<Deadline>,
    /// The policies of its door.
    policies: Option<Arc<Policies>>,
    member: Option<Membership>,
    reading: Reading,
    /// For MPTCP, from the first look at it on.
    paths: OnceLock<Option<AsOnePath>>,
}

/// How one thread reads, as another one wants it.
#[derive(Default)]
struct Reading {
    pause_us: AtomicU32,
    /// The last read has taken all that had come.
    took_all: AtomicBool,
}

#[derive(Clone, Copy, Default)]
struct Deadline {
    end: Option<Instant>,
    given: Duration,
}

impl Link {
    pub(crate) fn new(transport: Transport) -> Link {
        Link {
            transport,
            shut_down: AtomicBool::new(false),
            has_deadline: AtomicBool::new(false),
            deadline: Mutex::default(),
            policies: None,
            member: None,
            reading: Reading::default(),
            paths: OnceLock::new(),
        }
    }

    pub(crate) fn accepted(socket: TcpStream, policies: &Arc<Policies>, member: Membership) -> Link {
        let mut link = Link::new(socket.into());
        (link.policies, link.member) = (Some(Arc::clone(policies)), Some(member));
        link
    }

    pub(crate) fn member(&self) -> Option<&Membership> {
        self.member.as_ref()
    }

    pub(crate) fn policies(&self) -> Option<&Policies> {
        self.policies.as_deref()
    }

    pub(crate) fn tcp(&self) -> Option<&TcpStream> {
        match &self.transport {
            Transport::Tcp(socket) => Some(socket),
            Transport::Unix(_) | Transport::Pipes(_) => None,
        }
    }

    pub(crate) fn is_mptcp(&self) -> Option<bool> {
        self.transport.is_mptcp()
    }

    pub(crate) fn subflows(&self) -> Vec<Subflow> {
        self.tcp().map(mptcp::subflows).unwrap_or_default()
    }

    pub(crate) fn tcp_info(&self) -> Option<TcpInfo> {
        let socket = self.tcp()?;
        match self.paths.get_or_init(|| mptcp::is_socket(socket).then(AsOnePath::default)) {
            Some(paths) => paths.tcp_info(socket),
            None => tcp_info::tcp_info(socket).ok(),
        }
    }

    pub(crate) fn ways(&self) -> Vec<WayTotals> {
        self.paths.get().and_then(Option::as_ref).map(AsOnePath::ways).unwrap_or_default()
    }

    pub(crate) fn input_fd(&self) -> BorrowedFd<'_> {
        match &self.transport {
            Transport::Tcp(socket) => socket.as_fd(),
            Transport::Unix(socket) => socket.as_fd(),
            Transport::Pipes(pipes) => pipes.input.as_fd(),
        }
    }

    pub(crate) fn socket_fd(&self) -> Option<BorrowedFd<'_>> {
        match &self.transport {
            Transport::Tcp(socket) => Some(socket.as_fd()),
            Transport::Unix(socket) => Some(socket.as_fd()),
            Transport::Pipes(_) => None,
        }
    }

    pub(crate) fn set_deadline(&self, limit: Option<Duration>) -> io::Result<()> {
        let deadline = Deadline {
            end: limit.and_then(|limit| Instant::now().checked_add(limit)),
            given: limit.unwrap_or_default(),
        };
        *self.deadline.lock().unwrap_or_else(PoisonError::into_inner) = deadline;
        self.has_deadline.store(deadline.end.is_some(), Ordering::Release);
        if deadline.end.is_none() {
            self.set_write_timeout(None)?;
        }
        Ok(())
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.has_deadline.load(Ordering::Acquire)
    }

    /// Lets data gather for so long before each read: the kernel acknowledges a connection that takes its time once per read, and
    /// else each second segment (`__tcp_ack_snd_check` of Linux).
    pub(crate) fn gather_reads(&self, pause: Duration) {
        let pause_us = u32::try_from(pause.as_micros()).unwrap_or(u32::MAX);
        self.reading.pause_us.store(pause_us, Ordering::Relaxed);
    }

    /// After a read that left something there is enough to read.
    fn gather(&self) {
        let pause_us = self.reading.pause_us.load(Ordering::Relaxed);
        if pause_us > 0 && self.reading.took_all.load(Ordering::Relaxed) {
            std::thread::park_timeout(Duration::from_micros(pause_us.into()));
        }
    }

    fn time_left(&self) -> io::Result<Option<Duration>> {
        if !self.has_deadline() {
            return Ok(None);
        }
        let deadline = *self.deadline.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(end) = deadline.end else {
            return Ok(None);
        };
        let left = end.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(self.timed_out());
        }
        Ok(Some(left))
    }

    fn timed_out(&self) -> io::Error {
        let given = self.deadline.lock().unwrap_or_else(PoisonError::into_inner).given;
        io::Error::new(io::ErrorKind::TimedOut, format!("the peer did not finish within {} s", given.as_secs_f64()))
    }

    fn set_write_timeout(&self, timeout: Option<Duration>) -> io::Result<()> {
        match &self.transport {
            Transport::Tcp(socket) => socket.set_write_timeout(timeout),
            Transport::Unix(socket) => socket.set_write_timeout(timeout),
            Transport::Pipes(_) => Ok(()),
        }
    }

    /// One read(2). After our own shutdown an end of file is an error.
    pub(crate) fn read(&self, buffer: &mut [u8]) -> io::Result<usize> {
        self.gather();
        let outcome = self.read_by(buffer, |transport, buffer| {
            let read = match transport {
                Transport::Tcp(socket) => (&mut &*socket).read(buffer),
                Transport::Unix(socket) => (&mut &*socket).read(buffer),
                Transport::Pipes(pipes) => (&mut &pipes.input).read(buffer),
            };
            read.map(|bytes| (bytes, ()))
        });
        let took_all = outcome.as_ref().is_ok_and(|(bytes, ())| *bytes < buffer.len());
        self.reading.took_all.store(took_all, Ordering::Relaxed);
        outcome.map(|(bytes, ())| bytes)
    }

    pub(crate) fn read_by<T>(
        &self,
        buffer: &mut [u8],
        mut call: impl FnMut(&Transport, &mut [u8]) -> io::Result<(usize, T)>,
    ) -> io::Result<(usize, T)> {
        loop {
            let left = self.time_left()?;
            match &self.transport {
                Transport::Pipes(pipes) => {
                    let watched = [(pipes.input.as_fd(), Interest::Read), (pipes.wake.1.as_fd(), Interest::Read)];
                    match poll::wait(&watched, left)?[..] {
                        [_, true] => return Err(shut_down_here()),
                        [false, _] => return Err(self.timed_out()),
                        _ => {}
                    }
                }
                _ if left.is_none() => {}
                _ => {
                    if !poll::wait(&[(self.input_fd(), Interest::Read)], left)?[0] {
                        return Err(self.timed_out());
                    }
                }
            }
            match call(&self.transport, buffer) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Ok((0, _)) if !buffer.is_empty() && self.shut_down.load(Ordering::Acquire) => {
                    return Err(shut_down_here());
                }
                outcome => return outcome,
            }
        }
    }

    /// One write(2), which may take a part.
    pub(crate) fn write(&self, bytes: &[u8]) -> io::Result<usize> {
        self.write_vectored(&[IoSlice::new(bytes)])
    }

    pub(crate) fn write_vectored(&self, parts: &[IoSlice<'_>]) -> io::Result<usize> {
        loop {
            if let Some(left) = self.time_left()? {
                match &self.transport {
                    Transport::Pipes(pipes) => {
                        let output = pipes.output()?;
                        if !poll::wait(&[(output.as_fd(), Interest::Write)], Some(left))?[0] {
                            return Err(self.timed_out());
                        }
                    }
                    _ => self.set_write_timeout(Some(left))?,
                }
            }
            let outcome = match &self.transport {
                Transport::Tcp(socket) => (&mut &*socket).write_vectored(parts),
                Transport::Unix(socket) => (&mut &*socket).write_vectored(parts),
                Transport::Pipes(pipes) => (&mut &*pipes.output()?).write_vectored(parts),
            };
            match outcome {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    return Err(self.timed_out());
                }
                Err(_) if self.shut_down.load(Ordering::Acquire) => return Err(shut_down_here()),
                outcome => return outcome,
            }
        }
    }

    pub(crate) fn write_all(&self, mut bytes: &[u8]) -> io::Result<()> {
        while !bytes.is_empty() {
            let taken = self.write(bytes)?;
            if taken == 0 {
                return Err(io::ErrorKind::WriteZero.into());
            }
            bytes = &bytes[taken..];
        }
        Ok(())
    }

    pub(crate) fn finish_write(&self) -> io::Result<()> {
        match &self.transport {
            Transport::Tcp(socket) => socket.shutdown(Shutdown::Write),
            Transport::Unix(socket) => socket.shutdown(Shutdown::Write),
            Transport::Pipes(pipes) => {
                let mut output = pipes.output.lock().unwrap_or_else(PoisonError::into_inner);
                *output = None;
                Ok(())
            }
        }
    }

    /// Fails after this end's shutdown, where the kernel does not report it.
    pub(crate) fn check_open(&self) -> io::Result<()> {
        if self.shut_down.load(Ordering::Acquire) { Err(shut_down_here()) } else { Ok(()) }
    }

    pub(crate) fn is_shut_down(&self) -> bool {
        self.shut_down.load(Ordering::Acquire)
    }

    pub(crate) fn shut_down(&self) {
        if self.shut_down.swap(true, Ordering::AcqRel) {
            return;
        }
        // An error: the connection was gone already.
        match &self.transport {
            Transport::Tcp(socket) => drop(socket.shutdown(Shutdown::Both)),
            Transport::Unix(socket) => drop(socket.shutdown(Shutdown::Both)),
            Transport::Pipes(pipes) => {
                drop(pipes.wake.0.shutdown(Shutdown::Both));
                drop(self.finish_write());
                if let Some(on_shutdown) = &pipes.on_shutdown {
                    on_shutdown();
                }
            }
        }
    }
}

/// Ends a connection from another thread.
#[derive(Clone)]
pub struct ShutdownHandle(Arc<Link>);

impl ShutdownHandle {
    pub(crate) fn of(link: &Arc<Link>) -> ShutdownHandle {
        ShutdownHandle(Arc::clone(link))
    }

    /// Whether this end has shut it down.
    pub fn is_shut_down(&self) -> bool {
        self.0.is_shut_down()
    }

    /// Ends both directions, also for other threads.
    pub fn shutdown(&self) {
        self.0.shut_down();
    }

    /// Ends sending, behind what was written.
    pub fn finish_write(&self) {
        drop(self.0.finish_write());
    }

    pub(crate) fn has_deadline(&self) -> bool {
        self.0.has_deadline()
    }
}

fn shut_down_here() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the connection was shut down at this end")
}
