//! Streams a file of any place, such as a list of hashes.

use std::io::{self, Read};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use haul_job::{Error, Fault, Observer};
use haul_wire::place::{Told, Verb};

use super::asking::ask;
use super::hearer::Piece;
use super::request::Request;
use super::ways::Ways;

/// Together a megabyte.
const PIECES_AHEAD: usize = 16;

/// Dropping the reader ends the transfer.
pub(crate) struct FileAt {
    pieces: Receiver<io::Result<Vec<u8>>>,
    piece: Vec<u8>,
    taken: usize,
}

impl FileAt {
    pub fn open(request: &Request, ways: &Ways, observer: &Arc<dyn Observer>) -> Result<Self, Error> {
        debug_assert_eq!(request.question.verb, Verb::Read);
        let (sender, pieces) = sync_channel(PIECES_AHEAD);
        let (request, ways, observer) = (request.clone(), ways.clone(), Arc::clone(observer));
        let read = move || {
            let mut take = |piece| {
                let sent = match piece {
                    Piece::Data(bytes) => sender.send(Ok(bytes)),
                    Piece::Line(Told::Failed { why, .. }) => sender.send(Err(io::Error::other(why))),
                    Piece::Line(_) | Piece::Elsewhere(_) => Ok(()),
                };
                if sent.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
            };
            if let Err(error) = ask(&request, &ways, observer, &mut take) {
                let _ = sender.send(Err(io::Error::other(error)));
            }
        };
        let started = std::thread::Builder::new().name("list".into()).spawn(read);
        started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
        Ok(Self { pieces, piece: Vec::new(), taken: 0 })
    }
}

impl Read for FileAt {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        while self.taken == self.piece.len() {
            // The thread ends behind the last piece or an error.
            let Ok(next) = self.pieces.recv() else { return Ok(0) };
            (self.piece, self.taken) = (next?, 0);
        }
        let length = buffer.len().min(self.piece.len() - self.taken);
        buffer[..length].copy_from_slice(&self.piece[self.taken..self.taken + length]);
        self.taken += length;
        Ok(length)
    }
}

/// Names the place, or the file in the words of `of_file`.
pub(crate) fn told(error: io::Error, of_file: impl FnOnce() -> String) -> Error {
    match error.downcast::<Error>() {
        Ok(error) => error,
        Err(error) => Error::new(Fault::FileIo, of_file()).because(error),
    }
}
