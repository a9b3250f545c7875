//! Files on their way: a data connection with its control connection.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::time::{Duration, Instant};

use haul_grid::{Incoming, write_block, write_end};

use crate::codec::command::Command;
use crate::codec::reply::Reply;
use crate::control::{BlockData, Data, Direction};
use crate::markers::Markers;
use crate::pool::Held;
use crate::refusal::{invalid, refusal};
use crate::stripes::Stripes;

/// A control connection to a server that files come from and go to.
pub(crate) type Line = Held<Download>;

/// A file, or a list, on its way here.
#[derive(Debug)]
pub(crate) struct Download {
    carrier: Option<Carrier>,
    line: Line,
    pub(crate) began_at: u64,
    /// The byte of the file that comes next.
    pub(crate) at: u64,
    /// The server has said how it ended.
    is_over: bool,
    /// The next transfer is expected, so its port is asked for ahead.
    asks_ahead: bool,
    /// The byte behind the last one that was asked for. `None`: the end of the file.
    pub(crate) end: Option<u64>,
}

/// What brings the bytes.
#[derive(Debug)]
enum Carrier {
    Stream(Data),
    Blocks(Data, Incoming),
    Stripes(Stripes),
}

impl Carrier {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        match self {
            Carrier::Stream(data) => {
                data.counted.gather();
                data.wire.read(buffer)
            }
            Carrier::Blocks(data, incoming) => {
                data.counted.gather();
                incoming.read(&mut data.wire, buffer)
            }
            Carrier::Stripes(stripes) => stripes.read(buffer),
        }
    }

    /// All of it was read: the server says so on the control connection, too.
    fn end(self, line: &mut Line, asks_ahead: bool) -> io::Result<()> {
        let (kept, is_kept) = match self {
            Carrier::Stream(data) => {
                drop(data);
                return line.end_transfer(asks_ahead);
            }
            Carrier::Blocks(data, incoming) => (Some(BlockData::of_one(data)), incoming.is_kept()),
            Carrier::Stripes(_) => (None, false),
        };
        line.end_blocks(kept, Direction::Down, is_kept, &mut Markers::new(Instant::now()))
    }
}

impl Download {
    fn by(carrier: Carrier, line: Line, at: u64, end: Option<u64>) -> Download {
        let asks_ahead = line.is_far();
        Download { carrier: Some(carrier), line, began_at: at, at, is_over: false, asks_ahead, end }
    }

    pub(crate) fn new(data: Data, line: Line, at: u64) -> Download {
        Download::by(Carrier::Stream(data), line, at, None)
    }

    /// A part of a file in blocks.
    pub(crate) fn in_blocks(data: Data, line: Line, at: u64, end: Option<u64>) -> Download {
        Download::by(Carrier::Blocks(data, Incoming::default()), line, at, end)
    }

    /// A whole file from all data nodes of a server.
    pub(crate) fn in_stripes(stripes: Stripes, line: Line) -> Download {
        Download::by(Carrier::Stripes(stripes), line, 0, None)
    }

    pub(crate) fn is_in_blocks(&self) -> bool {
        !matches!(self.carrier, Some(Carrier::Stream(_)) | None)
    }

    pub(crate) fn is_in_stripes(&self) -> bool {
        matches!(self.carrier, Some(Carrier::Stripes(_)))
    }

    /// The next bytes. None: the server has announced the end, on the data connection and on the control connection. Any other end is a
    /// cut.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(carrier) = &mut self.carrier else { return Ok(0) };
        let count = carrier.read(buffer).inspect_err(|error| {
            if matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::Unsupported) {
                self.line.break_off();
            }
        })?;
        if count > 0 || buffer.is_empty() {
            self.at += count as u64;
            if self.end.is_some_and(|end| self.at > end) {
                self.line.break_off();
                return Err(invalid("the server sent more of it than it was asked for"));
            }
            return Ok(count);
        }
        self.is_over = true;
        let Some(carrier) = self.carrier.take() else { return Ok(0) };
        carrier.end(&mut self.line, self.asks_ahead).map_err(|error| match error.kind() {
            ErrorKind::InvalidData => error,
            _ => io::Error::new(ErrorKind::UnexpectedEof, format!("it was cut: {error}")),
        })?;
        Ok(0)
    }
}

impl Drop for Download {
    fn drop(&mut self) {
        if !self.is_over {
            // The server notices that nobody reads, and says so on the control connection.
            self.carrier = None;
            self.line.owe(Direction::Down);
        }
    }
}

/// A file on its way to the server.
#[derive(Debug)]
pub(crate) struct Upload {
    data: Option<Data>,
    pub(crate) line: Line,
    is_over: bool,
    /// The reply to REST is still to come.
    owes_rest: bool,
}

impl Upload {
    pub(crate) fn new(data: Data, line: Line) -> Upload {
        Upload::of_range(data, line, false)
    }

    pub(crate) fn of_range(data: Data, line: Line, owes_rest: bool) -> Upload {
        data.counted.sends();
        Upload { data: Some(data), line, is_over: false, owes_rest }
    }

    /// Waits until the server says that it begins. It has no longer than this for each step, until the end.
    pub(crate) fn await_begin(&mut self) -> io::Result<()> {
        self.take_rest()?;
        let reply = self.line.next_reply()?;
        match reply.is_preliminary() {
            true => Ok(()),
            false => {
                self.is_over = true;
                Err(refusal(&reply))
            }
        }
    }

    /// Gives the server so long for each step of this transfer.
    pub(crate) fn be_patient(&self, patience: Duration) -> io::Result<()> {
        if let Some(data) = &self.data {
            data.wire.be_patient(patience)?;
        }
        self.line.be_patient(patience)
    }

    /// A server that does not go on at the byte begins anew: then nothing that it confirms counts. Its end is waited for, so that what is
    /// removed afterwards stays away.
    fn take_rest(&mut self) -> io::Result<()> {
        if !std::mem::take(&mut self.owes_rest) {
            return Ok(());
        }
        let reply = self.line.next_reply()?;
        if reply.wants_more() {
            return Ok(());
        }
        (self.data, self.is_over) = (None, true);
        let _ = self.line.answer();
        Err(invalid(format!("the server did not go on inside the file ({})", reply.shown())))
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(data) = &mut self.data else { return Err(ErrorKind::BrokenPipe.into()) };
        data.wire.write_all(bytes).map_err(|error| self.explained(error))
    }

    /// Waits until the server says that it has all of it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.end()?;
        self.confirm()
    }

    /// Says that this was all.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let Some(data) = &mut self.data else { return Err(ErrorKind::BrokenPipe.into()) };
        data.wire.finish().map_err(|error| self.explained(error))
    }

    /// Waits until the server says that it has all of it, once [`Upload::end`] was said.
    pub(crate) fn confirm(&mut self) -> io::Result<()> {
        if self.data.is_none() {
            return Err(ErrorKind::BrokenPipe.into());
        }
        self.is_over = true;
        let ended = self.take_rest().and_then(|()| self.line.answer());
        if let Some(mut data) = self.data.take() {
            data.wire.take_tickets();
        }
        let reply = ended?;
        if !reply.is_success() {
            return Err(refusal(&reply));
        }
        if self.line.is_far() {
            self.line.ask_ahead()?;
        }
        Ok(())
    }

    /// Whoever refuses a transfer closes the data connection, and tells the reason on the other one.
    fn explained(&mut self, error: io::Error) -> io::Error {
        self.data = None;
        if self.is_over || error.kind() == ErrorKind::TimedOut {
            return error;
        }
        self.is_over = true;
        match self.take_rest().and_then(|()| self.line.answer()) {
            Ok(reply) if !reply.is_success() => refusal(&reply),
            _ => error,
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_over {
            self.data = None;
            if self.owes_rest {
                self.line.owe_any();
            }
            self.line.owe(Direction::Up);
        }
    }
}

/// Blocks of a file on their way to the server, each with its place.
#[derive(Debug)]
pub(crate) struct BlockUpload {
    data: Option<BlockData>,
    line: Option<Line>,
    markers: Markers,
    /// Bytes so far.
    pub(crate) sent: u64,
}

impl BlockUpload {
    pub(crate) fn new(data: BlockData, line: Line) -> BlockUpload {
        data.carrier.counted.sends();
        BlockUpload { data: Some(data), line: Some(line), markers: Markers::new(Instant::now()), sent: 0 }
    }

    fn parts(&mut self) -> io::Result<(&mut BlockData, &mut Line, &mut Markers)> {
        match (&mut self.data, &mut self.line) {
            (Some(data), Some(line)) => Ok((data, line, &mut self.markers)),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// Nothing has gone over a connection that had rested: the server may have closed it meanwhile.
    pub(crate) fn may_be_closed(&self) -> bool {
        self.sent == 0 && self.line.as_ref().is_some_and(|line| line.has_rested)
    }

    pub(crate) fn write(&mut self, bytes: &[u8], offset: u64) -> io::Result<()> {
        let (data, line, markers) = self.parts()?;
        let written = write_block(&mut data.carrier.wire, bytes, offset);
        let heard = written.is_ok().then(|| line.hear(markers));
        match (written, heard) {
            (Err(error), _) => Err(self.explained(error)),
            (Ok(()), Some(Err(error))) => {
                self.data = None;
                Err(error)
            }
            (Ok(()), _) => {
                self.sent += bytes.len() as u64;
                Ok(())
            }
        }
    }

    /// Says to each data node that this was all, and that it came over one connection.
    pub(crate) fn end(&mut self) -> io::Result<()> {
        let (BlockData { carrier, others }, ..) = self.parts()?;
        let ended = std::iter::once(carrier).chain(others).try_for_each(|data| write_end(&mut data.wire));
        ended.map_err(|error| self.explained(error))
    }

    /// Waits until the server says that it has all of it, once [`BlockUpload::end`] was said.
    pub(crate) fn confirm(&mut self) -> io::Result<()> {
        let data = self.data.take();
        match &mut self.line {
            Some(line) if data.is_some() => line.end_blocks(data, Direction::Up, true, &mut self.markers),
            _ => Err(ErrorKind::BrokenPipe.into()),
        }
    }

    /// Asks behind the end of the transfer, in the same round trip.
    pub(crate) fn confirm_and_ask(&mut self, commands: &[Command]) -> io::Result<Vec<Reply>> {
        let asked = self.parts()?.1.ask_behind(commands);
        let confirmed = asked.and_then(|()| self.confirm());
        let line = self.line.as_mut().ok_or(ErrorKind::BrokenPipe)?;
        // Without it, replies would be taken for those of later commands.
        confirmed.and_then(|()| line.answers_behind(commands.len())).inspect_err(|_| line.break_off())
    }

    /// Whoever refuses a transfer may close the data connection, and tells the reason on the other one.
    fn explained(&mut self, error: io::Error) -> io::Error {
        self.data = None;
        let Some(line) = &mut self.line else { return error };
        if error.kind() == ErrorKind::TimedOut {
            line.owe(Direction::Up);
            return error;
        }
        match line.end_blocks(None, Direction::Up, false, &mut self.markers) {
            Err(why) if !line.is_broken() => why,
            Err(_) => error,
            // It has confirmed what it cannot have.
            Ok(()) => {
                line.break_off();
                error
            }
        }
    }

    /// The control connection. A transfer that was not confirmed is given up.
    pub(crate) fn into_line(mut self) -> Line {
        self.give_up();
        self.line.take().expect("it is there until now")
    }

    fn give_up(&mut self) {
        if let (Some(_), Some(line)) = (self.data.take(), &mut self.line) {
            line.owe(Direction::Up);
        }
    }
}

impl Drop for BlockUpload {
    fn drop(&mut self) {
        self.give_up();
    }
}
