//! Files on their way: a data connection with its control connection.

use std::io::{self, ErrorKind, Read as _, Write as _};

use crate::control::Data;
use crate::pool::Held;
use crate::refusal::refusal;

/// A control connection to a server that files come from and go to.
pub(crate) type Line = Held<Download>;

/// A file, or a list, on its way here.
#[derive(Debug)]
pub(crate) struct Download {
    data: Option<Data>,
    line: Line,
    pub(crate) began_at: u64,
    /// The byte of the file that comes next.
    pub(crate) at: u64,
    /// The server has said how it ended.
    is_over: bool,
    /// Others like it follow.
    asks_ahead: bool,
}

impl Download {
    pub(crate) fn new(data: Data, line: Line, at: u64) -> Download {
        let asks_ahead = line.is_far();
        Download { data: Some(data), line, began_at: at, at, is_over: false, asks_ahead }
    }

    /// The next bytes. None: the server has announced the end, on the data connection and on the control connection. Any other end is a
    /// cut.
    pub(crate) fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let Some(data) = &mut self.data else { return Ok(0) };
        let count = data.wire.read(buffer)?;
        if count > 0 || buffer.is_empty() {
            self.at += count as u64;
            return Ok(count);
        }
        self.data = None;
        self.is_over = true;
        self.line.end_transfer(self.asks_ahead).map_err(|error| match error.kind() {
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
            self.data = None;
            self.line.owe();
        }
    }
}

/// A file on its way to the server.
#[derive(Debug)]
pub(crate) struct Upload {
    data: Option<Data>,
    pub(crate) line: Line,
    is_over: bool,
}

impl Upload {
    pub(crate) fn new(data: Data, line: Line) -> Upload {
        Upload { data: Some(data), line, is_over: false }
    }

    pub(crate) fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        let Some(data) = &mut self.data else { return Err(ErrorKind::BrokenPipe.into()) };
        data.wire.write_all(bytes).map_err(|error| self.explained(error))
    }

    /// Waits until the server says that it has all of it.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        let Some(data) = &mut self.data else { return Err(ErrorKind::BrokenPipe.into()) };
        data.wire.finish().map_err(|error| self.explained(error))?;
        self.is_over = true;
        let ended = self.line.answer();
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
        match self.line.answer() {
            Ok(reply) if !reply.is_success() => refusal(&reply),
            _ => error,
        }
    }
}

impl Drop for Upload {
    fn drop(&mut self) {
        if !self.is_over {
            self.data = None;
            self.line.owe();
        }
    }
}
