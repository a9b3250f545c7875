//! Makes pieces of a body wait for the rates of the reader's network classes.
//!
//! All connections of a class share its rates, at haul's own port and here. A piece is paid for before it waits.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Buf as _;
use tokio::time::Sleep;

use crate::transport::line::Line;
use crate::transport::piece::Piece;

/// Counts bytes about to be sent, and returns how long they wait.
pub(crate) type Charge = Box<dyn Fn(u64) -> Duration + Send + Sync>;

pub(crate) struct Paced {
    charge: Charge,
    line: Arc<Line>,
    waiting: Option<Waiting>,
    waited: Duration,
}

struct Waiting {
    piece: Piece,
    turn: Pin<Box<Sleep>>,
    since: Instant,
}

impl Paced {
    pub(crate) fn new(charge: Charge, line: Arc<Line>) -> Paced {
        Paced { charge, line, waiting: None, waited: Duration::ZERO }
    }

    pub(crate) fn poll_piece(
        &mut self,
        cx: &mut Context<'_>,
        next: impl FnOnce(&mut Context<'_>) -> Poll<Option<io::Result<Piece>>>,
    ) -> Poll<Option<io::Result<Piece>>> {
        if self.waiting.is_none() {
            let piece = match ready!(next(cx)) {
                Some(Ok(piece)) => piece,
                other => return Poll::Ready(other),
            };
            let wait = (self.charge)(piece.remaining() as u64);
            if wait.is_zero() {
                return Poll::Ready(Some(Ok(piece)));
            }
            self.line.is_held_back(true);
            let turn = Box::pin(tokio::time::sleep(wait));
            self.waiting = Some(Waiting { piece, turn, since: Instant::now() });
        }
        if let Some(waiting) = &mut self.waiting {
            ready!(waiting.turn.as_mut().poll(cx));
        }
        Poll::Ready(self.end_wait().map(Ok))
    }

    pub(crate) fn waiting_bytes(&self) -> u64 {
        self.waiting.as_ref().map_or(0, |waiting| waiting.piece.remaining() as u64)
    }

    pub(crate) fn waited(&self) -> Duration {
        self.waited + self.waiting.as_ref().map_or(Duration::ZERO, |waiting| waiting.since.elapsed())
    }

    fn end_wait(&mut self) -> Option<Piece> {
        let Waiting { piece, since, .. } = self.waiting.take()?;
        self.line.is_held_back(false);
        self.waited += since.elapsed();
        Some(piece)
    }
}

impl Drop for Paced {
    fn drop(&mut self) {
        self.end_wait();
    }
}
