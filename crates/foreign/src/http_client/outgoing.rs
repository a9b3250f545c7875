//! The body of a request: whole, or from another thread.
//!
//! ```text
//! Content::Whole(bytes)                          -> blocks of 128 KiB -> the connection; again as often as it has to be
//! stream(length) -> Feed (another thread fills)  -> a queue of 4 blocks -> the connection; once
//! ```
//! The connection takes a block when the one before is in the kernel. So each block is progress, and a long upload has a limit
//! only of silence.

use std::fmt;
use std::io::{self, ErrorKind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body::{Body, Frame, SizeHint};
use tokio::sync::{mpsc, oneshot};
use tokio::time::Sleep;

use crate::http_client::limits::{CONTINUE_AFTER, FEED_BLOCKS, OUTGOING_BLOCK_BYTES};

#[derive(Debug, Default)]
pub(crate) enum Content {
    #[default]
    Nothing,
    Whole(Bytes),
    /// A stream of a [`Feed`], sent once.
    Stream(Mutex<Option<Stream>>),
}

impl Content {
    pub(crate) fn is_at_hand(&self) -> bool {
        match self {
            Content::Nothing | Content::Whole(_) => true,
            Content::Stream(stream) => stream.lock().unwrap_or_else(PoisonError::into_inner).is_some(),
        }
    }

    pub(crate) fn whole(&self) -> Option<&[u8]> {
        match self {
            Content::Nothing => Some(&[]),
            Content::Whole(bytes) => Some(bytes),
            Content::Stream(_) => None,
        }
    }

    /// The body of one try. `None`: a stream that was sent.
    pub(crate) fn body(&self) -> Option<Outgoing> {
        let (left, source) = match self {
            Content::Nothing => (Some(0), Source::Whole(Bytes::new())),
            Content::Whole(bytes) => (Some(bytes.len() as u64), Source::Whole(bytes.clone())),
            Content::Stream(stream) => {
                let Stream { length, pieces } = stream.lock().unwrap_or_else(PoisonError::into_inner).take()?;
                (length, Source::Fed(pieces))
            }
        };
        let is_over = left == Some(0);
        let progress = Arc::new(Progress { is_whole: AtomicBool::new(is_over), ..Progress::default() });
        Some(Outgoing { source, left, gate: None, is_over, progress })
    }
}

#[derive(Debug)]
pub(crate) struct Stream {
    length: Option<u64>,
    pieces: mpsc::Receiver<Piece>,
}

#[derive(Debug)]
enum Piece {
    Data(Bytes),
    End,
}

/// The filling end of a stream. Dropping it early breaks the request off.
#[derive(Debug)]
pub(crate) struct Feed(mpsc::Sender<Piece>);

/// Makes a body of this length, or in chunks.
pub(crate) fn stream(length: Option<u64>) -> (Feed, Content) {
    let (sender, pieces) = mpsc::channel(FEED_BLOCKS);
    (Feed(sender), Content::Stream(Mutex::new(Some(Stream { length, pieces }))))
}

impl Feed {
    /// Waits for room. An error means that the request is over.
    pub(crate) fn send(&self, data: Bytes) -> io::Result<()> {
        self.0.blocking_send(Piece::Data(data)).map_err(|_| over())
    }

    /// Ends the body. The answer tells whether it arrived.
    pub(crate) fn finish(self) {
        let _ = self.0.blocking_send(Piece::End);
    }
}

fn over() -> io::Error {
    io::Error::new(ErrorKind::BrokenPipe, "the request ended before its body")
}

pub(crate) struct Outgoing {
    source: Source,
    /// Announced bytes not given yet; `None`: the body goes in chunks.
    left: Option<u64>,
    gate: Option<Gate>,
    is_over: bool,
    progress: Arc<Progress>,
}

enum Source {
    Whole(Bytes),
    Fed(mpsc::Receiver<Piece>),
}

/// Holds the body back until `100 Continue`, or a moment's silence: many servers know no `Expect`.
struct Gate {
    /// `None`: the answer is there without the body.
    opened: Option<oneshot::Receiver<()>>,
    patience: Option<Pin<Box<Sleep>>>,
}

#[derive(Debug, Default)]
pub(crate) struct Progress {
    given: AtomicU64,
    /// The feed or the gate keeps the connection waiting: the server is not silent.
    waits_for_us: AtomicBool,
    is_whole: AtomicBool,
}

impl Progress {
    pub(crate) fn given(&self) -> u64 {
        self.given.load(Ordering::Relaxed)
    }

    /// Whether the connection can carry another request.
    pub(crate) fn is_whole(&self) -> bool {
        self.is_whole.load(Ordering::Relaxed)
    }

    /// Whether the server took something since `before`, or has nothing to take.
    pub(crate) fn has_moved(&self, before: u64) -> bool {
        self.waits_for_us.load(Ordering::Relaxed) || self.given() != before
    }
}

impl fmt::Debug for Outgoing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Outgoing({:?} left)", self.left)
    }
}

impl Outgoing {
    pub(crate) fn progress(&self) -> Arc<Progress> {
        Arc::clone(&self.progress)
    }

    fn next(&mut self, context: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        if let Some(gate) = &mut self.gate {
            let Some(opened) = &mut gate.opened else { return Poll::Pending };
            match Pin::new(opened).poll(context) {
                Poll::Ready(Ok(())) => {}
                Poll::Ready(Err(_)) => {
                    gate.opened = None;
                    return Poll::Pending;
                }
                Poll::Pending => {
                    let patience = gate.patience.get_or_insert_with(|| Box::pin(tokio::time::sleep(CONTINUE_AFTER)));
                    ready!(patience.as_mut().poll(context));
                }
            }
            self.gate = None;
        }
        let block = match &mut self.source {
            Source::Whole(rest) => rest.split_to(rest.len().min(OUTGOING_BLOCK_BYTES)),
            Source::Fed(pieces) => match ready!(pieces.poll_recv(context)) {
                Some(Piece::Data(block)) => block,
                Some(Piece::End) if self.left.is_none_or(|left| left == 0) => Bytes::new(),
                // Without an error the chunks would look whole.
                Some(Piece::End) | None => {
                    return Poll::Ready(Some(Err(io::Error::new(ErrorKind::UnexpectedEof, "its body was broken off"))));
                }
            },
        };
        if block.is_empty() {
            self.is_over = true;
            return Poll::Ready(None);
        }
        if let Some(left) = &mut self.left {
            let Some(rest) = left.checked_sub(block.len() as u64) else {
                let why = "its body is longer than was announced";
                return Poll::Ready(Some(Err(io::Error::new(ErrorKind::InvalidInput, why))));
            };
            *left = rest;
        }
        self.progress.given.fetch_add(block.len() as u64, Ordering::Relaxed);
        Poll::Ready(Some(Ok(block)))
    }
}

pub(crate) fn hold_back(request: &mut Request<Outgoing>) {
    let (open, opened) = oneshot::channel();
    request.body_mut().gate = Some(Gate { opened: Some(opened), patience: None });
    let open = Mutex::new(Some(open));
    hyper::ext::on_informational(request, move |answer| {
        let taken = (answer.status() == StatusCode::CONTINUE)
            .then(|| open.lock().unwrap_or_else(PoisonError::into_inner).take())
            .flatten();
        if let Some(open) = taken {
            // The answer may have come first.
            let _ = open.send(());
        }
    });
}

impl Body for Outgoing {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        let next = self.next(context);
        self.progress.waits_for_us.store(next.is_pending(), Ordering::Relaxed);
        self.progress.is_whole.store(self.is_end_stream(), Ordering::Relaxed);
        next.map(|block| block.map(|block| block.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        // A given stream of known length lacks only its end mark.
        self.is_over || self.left == Some(0)
    }

    fn size_hint(&self) -> SizeHint {
        self.left.map(SizeHint::with_exact).unwrap_or_default()
    }
}
