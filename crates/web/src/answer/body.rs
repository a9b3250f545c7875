//! The body of an answer: bytes in memory, and ranges of a file that are sent by the kernel or read block by block.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use haul_store::LocalFile;
use http_body::{Frame, SizeHint};
use tokio::sync::OwnedSemaphorePermit;
use tokio::sync::mpsc::Receiver;
use tokio::task::JoinHandle;

use crate::answer::paced::Paced;
use crate::limits::{BLOCK_BYTES, RATED_WINDOW_BYTES, WINDOW_BYTES};
use crate::request::range::Part;
use crate::transport::piece::{Piece, Queue, Range};

/// The body.
pub(crate) struct Body {
    segments: VecDeque<Segment>,
    left: u64,
    source: Option<Source>,
    /// Made while it is sent.
    stream: Option<Receiver<io::Result<Bytes>>>,
    /// Its share of the memory for bodies, until it has been sent.
    memory: Option<OwnedSemaphorePermit>,
    /// `None`: no rate holds for its reader.
    paced: Option<Box<Paced>>,
    /// Is told what was given out, when the body is dropped.
    on_end: Option<OnEnd>,
    given: u64,
}

/// See [`Body::on_end`].
pub(crate) type OnEnd = Box<dyn FnOnce(Given) + Send>;

/// What became of a body.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    /// Bytes that were given out.
    pub(crate) bytes: u64,
    /// How long the disk was waited for.
    pub(crate) disk: Duration,
    /// How long the rates of its network classes were waited for.
    pub(crate) rate: Duration,
}

/// What a body is made of.
pub(crate) enum Segment {
    /// Bytes in memory.
    Bytes(Bytes),
    /// A part of the file.
    Part(Part),
}

/// The file, and how it gets to the reader.
struct Source {
    file: Arc<LocalFile>,
    queue: Option<Queue>,
    /// The first window is known to be in the page cache.
    is_cached: bool,
    /// Bytes that the kernel is asked to send at once.
    window: u64,
    /// Bytes that are read at once, where they pass through this process.
    block: usize,
    work: Option<JoinHandle<io::Result<Fetched>>>,
    /// When that work began.
    work_since: Option<Instant>,
    /// How long the disk was waited for.
    disk: Duration,
}

/// The result of a wait for the disk.
enum Fetched {
    /// The window is in the page cache now.
    Cached,
    /// The block.
    Block(Vec<u8>),
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body::of(VecDeque::new())
    }

    pub(crate) fn full(bytes: Bytes) -> Body {
        Body::of(if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([Segment::Bytes(bytes)]) })
    }

    /// One whose length is not known. It ends early where an error comes.
    pub(crate) fn stream(blocks: Receiver<io::Result<Bytes>>) -> Body {
        let mut body = Body::empty();
        body.stream = Some(blocks);
        body
    }

    fn of(segments: VecDeque<Segment>) -> Body {
        let left = segments.iter().map(Segment::len).sum();
        Body { segments, left, source: None, stream: None, memory: None, paced: None, on_end: None, given: 0 }
    }

    /// Keeps its share of the memory as long as it lives.
    pub(crate) fn holding(self, memory: OwnedSemaphorePermit) -> Body {
        let mut body = self;
        body.memory = Some(memory);
        body
    }

    /// Has the end of the body told.
    pub(crate) fn on_end(&mut self, on_end: OnEnd) {
        self.on_end = Some(on_end);
    }

    /// Has its pieces wait for a rate. They are small, so that all who share it advance.
    pub(crate) fn keeps_to(&mut self, paced: Paced) {
        self.paced = Some(Box::new(paced));
        if let Some(source) = &mut self.source {
            source.window = RATED_WINDOW_BYTES;
        }
    }

    /// Parts of a file and bytes between them. With a queue, the kernel sends the parts.
    pub(crate) fn of_file(file: Arc<LocalFile>, segments: VecDeque<Segment>, queue: Option<Queue>) -> Body {
        let mut body = Body::of(segments);
        body.source = Some(Source {
            file,
            queue,
            is_cached: false,
            window: WINDOW_BYTES,
            block: BLOCK_BYTES,
            work: None,
            work_since: None,
            disk: Duration::ZERO,
        });
        body
    }

    /// All of it is known to be in the page cache.
    pub(crate) fn is_cached(&mut self) {
        if let Some(source) = &mut self.source {
            source.is_cached = true;
        }
    }

    /// So many bytes are read at once, where they pass through this process.
    pub(crate) fn in_blocks_of(self, bytes: usize) -> Body {
        let mut body = self;
        if let Some(source) = &mut body.source {
            source.block = bytes;
        }
        body
    }

    /// The part, when the body is one part of a file and nothing else.
    pub(crate) fn only_part(&self) -> Option<Part> {
        match (self.segments.len(), self.segments.front()) {
            (1, Some(Segment::Part(part))) => Some(*part),
            _ => None,
        }
    }

    /// Its length.
    pub(crate) fn len(&self) -> u64 {
        self.left
    }
}

impl Segment {
    fn len(&self) -> u64 {
        match self {
            Segment::Bytes(bytes) => bytes.len() as u64,
            Segment::Part(part) => part.len(),
        }
    }
}

impl Body {
    /// Bytes that wait for a rate.
    fn waiting_bytes(&self) -> u64 {
        self.paced.as_ref().map_or(0, |paced| paced.waiting_bytes())
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        if let Some(stream) = &mut self.stream {
            return Poll::Ready(ready!(stream.poll_recv(cx)).map(|block| block.map(Piece::Bytes)));
        }
        let (piece, count) = match self.segments.front_mut() {
            None => return Poll::Ready(None),
            Some(Segment::Bytes(bytes)) => {
                let bytes = std::mem::take(bytes);
                let count = bytes.len() as u64;
                self.segments.pop_front();
                (Piece::Bytes(bytes), count)
            }
            Some(Segment::Part(part)) => {
                let source = self.source.as_mut().expect("only a body of a file has parts of one");
                let (piece, count) = ready!(source.poll_next(cx, *part))?;
                part.start += count;
                if part.start == part.end {
                    self.segments.pop_front();
                }
                (piece, count)
            }
        };
        self.left -= count;
        Poll::Ready(Some(Ok(piece)))
    }
}

impl http_body::Body for Body {
    type Data = Piece;
    type Error = io::Error;

    fn poll_frame(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Piece>>>> {
        let next = match self.paced.take() {
            None => ready!(self.poll_piece(cx)),
            Some(mut paced) => {
                let next = paced.poll_piece(cx, |cx| self.poll_piece(cx));
                self.paced = Some(paced);
                ready!(next)
            }
        };
        if let Some(Ok(piece)) = &next {
            self.given += piece.remaining() as u64;
        }
        Poll::Ready(next.map(|piece| piece.map(Frame::data)))
    }

    fn is_end_stream(&self) -> bool {
        self.stream.is_none() && self.segments.is_empty() && self.waiting_bytes() == 0
    }

    fn size_hint(&self) -> SizeHint {
        match self.stream {
            Some(_) => SizeHint::default(),
            None => SizeHint::with_exact(self.left + self.waiting_bytes()),
        }
    }
}

impl Drop for Body {
    fn drop(&mut self) {
        if let Some(on_end) = self.on_end.take() {
            let disk = self.source.as_ref().map_or(Duration::ZERO, |source| source.disk);
            let rate = self.paced.as_ref().map_or(Duration::ZERO, |paced| paced.waited());
            on_end(Given { bytes: self.given, disk, rate });
        }
    }
}

impl Source {
    fn begin_work(&mut self, work: impl FnOnce() -> io::Result<Fetched> + Send + 'static) {
        self.work = Some(tokio::task::spawn_blocking(work));
        self.work_since = Some(Instant::now());
    }

    fn end_work(&mut self) {
        self.work = None;
        self.disk += self.work_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    /// The next piece of a part, and its length.
    fn poll_next(&mut self, cx: &mut Context<'_>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        match &self.queue {
            Some(_) => self.poll_window(cx, part),
            None => self.poll_block(cx, part),
        }
    }

    fn poll_window(&mut self, cx: &mut Context<'_>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        let len = part.len().min(self.window);
        let is_cached = match self.work.as_mut() {
            Some(work) => {
                ready!(Pin::new(work).poll(cx)).map_err(io::Error::other)??;
                self.end_work();
                true
            }
            None => std::mem::take(&mut self.is_cached) || self.file.has_cached(part.start, len),
        };
        if !is_cached {
            let file = Arc::clone(&self.file);
            self.begin_work(move || read_through(&file, part.start, len));
            return self.poll_window(cx, part);
        }
        let range = Range { file: Arc::clone(&self.file), offset: part.start, left: len };
        let queue = self.queue.as_ref().expect("only a body with a queue has windows");
        Poll::Ready(Ok((queue.add(range), len)))
    }

    fn poll_block(&mut self, cx: &mut Context<'_>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        let len = usize::try_from(part.len()).unwrap_or(self.block).min(self.block);
        let block = match self.work.as_mut() {
            Some(work) => {
                let fetched = ready!(Pin::new(work).poll(cx)).map_err(io::Error::other)??;
                self.end_work();
                match fetched {
                    Fetched::Block(block) => block,
                    Fetched::Cached => Vec::new(),
                }
            }
            None => {
                let mut block = vec![0; len];
                match self.file.read_cached_at(&mut block, part.start)? {
                    Some(count) => {
                        block.truncate(count);
                        block
                    }
                    None => {
                        let file = Arc::clone(&self.file);
                        self.begin_work(move || {
                            let count = file.read_at(&mut block, part.start)?;
                            block.truncate(count);
                            Ok(Fetched::Block(block))
                        });
                        return self.poll_block(cx, part);
                    }
                }
            }
        };
        if block.is_empty() {
            // The file has become shorter: the reader sees that bytes are missing.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let count = block.len() as u64;
        Poll::Ready(Ok((Piece::Bytes(Bytes::from(block)), count)))
    }
}

/// Brings a window into the page cache, and waits for it.
fn read_through(file: &LocalFile, offset: u64, len: u64) -> io::Result<Fetched> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = offset;
    while at < offset + len {
        match file.read_at(&mut block, at)? {
            0 => break,
            count => at += count as u64,
        }
    }
    Ok(Fetched::Cached)
}
