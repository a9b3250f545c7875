//! Asks an end without haul through the end's own protocol.
//!
//! A thread works, so Ctrl-C and a satisfied reader wait for no server.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::mpsc::{RecvTimeoutError, SyncSender, sync_channel};

use haul_channel::clock::TICK;
use haul_channel::reporter::Watch;
use haul_job::{Endpoint, Error, Fault, Here};
use haul_kept::faults;
use haul_store::StoreError;
use haul_store::place::{Elsewhere, Grounds, SiteBounds};
use haul_wire::place::Told;

use super::answering::answer;
use super::hearer::{Hearer, Piece};
use super::request::{Answered, Request};
use super::ways::{AGAIN, Ways};

/// Pieces of 64 KiB.
const PIECES_AHEAD: usize = 64;

enum Word {
    Piece(Piece),
    End(Result<(), Error>),
}

pub(crate) fn ask_elsewhere(
    end: Here,
    request: &Request,
    ways: &Ways,
    watch: &Arc<Watch>,
    take: &mut dyn FnMut(Piece) -> ControlFlow<()>,
) -> Result<Answered, Error> {
    if take(Piece::Elsewhere(end.clone())).is_break() {
        return Ok(Answered::Enough);
    }
    let (sender, words) = sync_channel(PIECES_AHEAD);
    let work = {
        let (request, ways, watch) = (request.clone(), ways.clone(), Arc::clone(watch));
        move || {
            let outcome = work(&end, &request, &ways, &watch, &sender);
            let _ = sender.send(Word::End(outcome));
        }
    };
    let started = std::thread::Builder::new().name("ask".into()).spawn(work);
    let worker = started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
    loop {
        if watch.interrupted() {
            return Err(faults::interrupted());
        }
        match words.recv_timeout(TICK) {
            Ok(Word::Piece(piece)) => {
                if take(piece).is_break() {
                    return Ok(Answered::Enough);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
            Ok(Word::End(outcome)) => {
                // Closes the connection.
                let _ = worker.join();
                return outcome.map(|()| Answered::Whole);
            }
            Err(RecvTimeoutError::Disconnected) => return Err(Error::new(Fault::Protocol, "the answer broke off")),
        }
    }
}

fn work(
    end: &Here,
    request: &Request,
    ways: &Ways,
    watch: &Arc<Watch>,
    sender: &SyncSender<Word>,
) -> Result<(), Error> {
    let tree = ways.open(end, request, watch)?;
    let elsewhere = Elsewhere::new(tree, SiteBounds::default());
    // A break means that nobody hears, or nothing more comes.
    let _ = answer(&request.question, Grounds::Elsewhere(&elsewhere), &mut Sending { sender, elsewhere: &elsewhere });
    match elsewhere.take_lost() {
        Some(mut lost) => {
            lost.path = Endpoint { place: end.clone().into(), path: lost.path }.written();
            Err(lost_end(&lost))
        }
        None => Ok(()),
    }
}

pub(crate) fn lost_end(error: &StoreError) -> Error {
    match error.is_of_login() {
        true => faults::store_error(error),
        false => Error::new(Fault::Network, error.to_string()).try_this(AGAIN),
    }
}

struct Sending<'a> {
    sender: &'a SyncSender<Word>,
    elsewhere: &'a Elsewhere,
}

impl Sending<'_> {
    fn send(&self, piece: Piece) -> ControlFlow<()> {
        if self.sender.send(Word::Piece(piece)).is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
    }
}

impl Hearer for Sending<'_> {
    fn line(&mut self, line: Told) -> ControlFlow<()> {
        if matches!(line, Told::Failed { .. }) && self.elsewhere.is_lost() {
            return ControlFlow::Break(());
        }
        self.send(Piece::Line(line))
    }

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        self.send(Piece::Data(bytes.to_vec()))
    }

    fn busy(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
