//! A file on its way here from several data nodes of a server, over several connections each.
//!
//! ```text
//! ports and connections without a block -> poll -> a connection, or a header: the place of its next block
//! the block that belongs next -> the reader's buffer          all ports complete, and no block left -> the end
//! ```
//! Nothing is kept here: a block that belongs further behind waits in the buffer of its connection, and its data node waits, too.

use std::io::{self, ErrorKind, Read as _};
use std::sync::Arc;

use haul_grid::{Broken, HEADER_BYTES, Header, StripeAccount};
use rustix::event::{PollFlags, Timespec, poll};

use crate::control::data_port::DataPort;
use crate::control::{Data, Habits};
use crate::limits::LISTEN_PATIENCE;

/// The data nodes that send one file.
#[derive(Debug)]
pub(crate) struct Stripes {
    habits: Arc<Habits>,
    ports: Vec<(DataPort, StripeAccount)>,
    streams: Vec<Stream>,
    /// The byte of the file that comes next.
    at: u64,
}

/// A connection of a data node.
#[derive(Debug)]
struct Stream {
    data: Data,
    port: usize,
    /// Where the rest of its block belongs, and how much that is.
    block: Option<(u64, u64)>,
    /// No header comes behind this block.
    ends: bool,
}

/// What happened while the next bytes were waited for.
#[derive(Clone, Copy)]
enum Ready {
    Port(usize),
    Stream(usize),
}

impl Stripes {
    /// A data node connects to each port, over at most so many connections.
    pub(crate) fn new(ports: Vec<DataPort>, streams: u16, habits: &Arc<Habits>) -> Stripes {
        let ports = ports.into_iter().map(|port| (port, StripeAccount::new(streams))).collect();
        Stripes { habits: Arc::clone(habits), ports, streams: Vec::new(), at: 0 }
    }

    /// The next bytes of the file. None: all of it is there.
    ///
    /// # Errors
    /// A connection is cut, or the server breaks the rules. [`ErrorKind::Unsupported`]: it sends in a way that was not asked for.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        if buffer.is_empty() {
            return Ok(0);
        }
        loop {
            if let Some(stream) = self.next_stream()? {
                let (at, left) = stream.block.expect("it has the block");
                let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
                stream.data.counted.gather();
                let count = stream.data.wire.read(&mut buffer[..most])?;
                if count == 0 {
                    return Err(cut());
                }
                let (at, left) = (at + count as u64, left - count as u64);
                stream.block = (left > 0).then_some((at, left));
                self.at = at;
                return Ok(count);
            }
            if self.ports.iter().all(|(_, account)| account.is_complete()) && self.streams.iter().all(Stream::is_over) {
                return Ok(0);
            }
            for ready in self.wait()? {
                match ready {
                    Ready::Port(number) => self.take_connections(number)?,
                    Ready::Stream(number) => self.take_header(number)?,
                }
            }
        }
    }

    /// The connection that has the next byte of the file.
    fn next_stream(&mut self) -> io::Result<Option<&mut Stream>> {
        let blocks = self.streams.iter().map(|stream| stream.block.map(|(at, _)| at));
        match blocks.enumerate().filter_map(|(number, at)| Some((at?, number))).min() {
            Some((at, _)) if at < self.at => Err(refused(Broken::OutOfOrder { came: at, due: self.at })),
            Some((at, number)) if at == self.at => Ok(Some(&mut self.streams[number])),
            _ => Ok(None),
        }
    }

    /// Waits until somebody connects, or a connection without a block has something.
    fn wait(&self) -> io::Result<Vec<Ready>> {
        let (mut waits, mut means) = (Vec::new(), Vec::new());
        for (number, (port, _)) in self.ports.iter().enumerate().filter(|(_, (_, account))| !account.is_complete()) {
            waits.push(port.readable());
            means.push(Ready::Port(number));
        }
        for (number, stream) in self.streams.iter().enumerate().filter(|(_, stream)| stream.wants_header()) {
            waits.push(stream.data.wire.readable());
            means.push(Ready::Stream(number));
        }
        // All connections that came wait for their turn: what is due may come over a further one.
        let may_come_yet = self.streams.iter().any(Stream::wants_header);
        let patience = if may_come_yet { self.habits.silence } else { LISTEN_PATIENCE.min(self.habits.silence) };
        let timeout = Timespec::try_from(patience).map_err(io::Error::other)?;
        let count = match means.is_empty() {
            true => Ok(0),
            false => poll(&mut waits, Some(&timeout)),
        };
        match count {
            Ok(0) if may_come_yet => return Err(io::Error::new(ErrorKind::TimedOut, "the server is silent")),
            Ok(0) => return Err(self.gap()),
            Ok(_) | Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
        let is_ready = waits.iter().map(|wait| wait.revents() != PollFlags::empty());
        Ok(is_ready.zip(means).filter_map(|(is_ready, means)| is_ready.then_some(means)).collect())
    }

    /// The data nodes leave bytes out, send them in another order, or do not reach this host.
    fn gap(&self) -> io::Error {
        match self.streams.iter().filter_map(|stream| stream.block).min() {
            Some((came, _)) => refused(Broken::OutOfOrder { came, due: self.at }),
            None => io::Error::new(ErrorKind::Unsupported, "not every data node of the server connects to this host"),
        }
    }

    fn take_connections(&mut self, number: usize) -> io::Result<()> {
        let (port, account) = &mut self.ports[number];
        while let Some(socket) = port.take()? {
            account.open().map_err(refused)?;
            let data = self.habits.accepted(socket)?;
            self.streams.push(Stream { data, port: number, block: None, ends: false });
        }
        Ok(())
    }

    fn take_header(&mut self, number: usize) -> io::Result<()> {
        let stream = &mut self.streams[number];
        let mut header = [0; HEADER_BYTES];
        stream.data.wire.read_exact(&mut header).map_err(|error| match error.kind() {
            ErrorKind::UnexpectedEof => cut(),
            _ => error,
        })?;
        let header = Header::decode(&header);
        let entered = self.ports[stream.port].1.enter(header).map_err(refused)?;
        stream.block = (entered.bytes > 0).then_some((header.offset, entered.bytes));
        stream.ends |= entered.ends;
        Ok(())
    }
}

impl Stream {
    fn wants_header(&self) -> bool {
        self.block.is_none() && !self.ends
    }

    fn is_over(&self) -> bool {
        self.block.is_none() && self.ends
    }
}

fn refused(broken: Broken) -> io::Error {
    let kind = if broken.is_allowed_elsewhere() { ErrorKind::Unsupported } else { ErrorKind::InvalidData };
    io::Error::new(kind, broken)
}

fn cut() -> io::Error {
    io::Error::new(ErrorKind::UnexpectedEof, "the server closed a data connection before the end of the data")
}
