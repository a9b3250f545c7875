//! The body of an answer: bytes in memory, and ranges of a file that the kernel sends or this process reads.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::{Buf as _, Bytes};
use haul_store::{LocalFile, Opened, Patience, Stat};
use http_body::{Frame, SizeHint};
use tokio::sync::mpsc::Receiver;

use crate::access::Shelf;
use crate::answer::paced::Paced;
use crate::budget::{NoShare, Share};
use crate::limits::{BLOCK_BYTES, FIRST_PIECE_BYTES, RATED_WINDOW_BYTES, SCARCE_BLOCK_BYTES, WINDOW_BYTES};
use crate::pools::{Client, FOREVER, Job, KIB, Leaving, Pools};
use crate::request::range::Part;
use crate::transport::piece::{Piece, Queue, Range};

pub(crate) struct Body {
    segments: VecDeque<Segment>,
    left: u64,
    source: Option<Source>,
    /// The maker of the blocks learns when the body is dropped.
    stream: Option<(Receiver<io::Result<Bytes>>, Option<Leaving>)>,
    held: Vec<Share>,
    paced: Option<Box<Paced>>,
    on_end: Option<OnEnd>,
    given: u64,
}

pub(crate) type OnEnd = Box<dyn FnOnce(Given) + Send>;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Given {
    pub(crate) bytes: u64,
    pub(crate) disk: Duration,
    pub(crate) rate: Duration,
}

pub(crate) enum Segment {
    Bytes(Bytes),
    Part(Part),
}

struct Source {
    /// `None`: the file is opened when the reader takes something.
    file: Option<Arc<LocalFile>>,
    reopening: Option<Box<Reopening>>,
    file_to_come: Option<ToCome<io::Result<OpenFile>>>,
    stream: Option<Share>,
    queue: Option<Queue>,
    is_cached: bool,
    window: u64,
    supply: Supply,
    memory: Option<Share>,
    memory_to_come: Option<ToCome<Result<Share, NoShare>>>,
    work: Option<ToCome<io::Result<Fetched>>>,
    work_since: Option<Instant>,
    disk: Duration,
}

pub(crate) struct Supply {
    pub(crate) pools: Arc<Pools>,
    pub(crate) client: Client,
}

pub(crate) struct Reopening {
    pub(crate) shelf: Arc<Shelf>,
    pub(crate) path: Vec<u8>,
    pub(crate) stat: Stat,
}

impl Reopening {
    fn open(&self) -> io::Result<Arc<LocalFile>> {
        let state = |stat: &Stat| (stat.id, stat.size, stat.version);
        match self.shelf.directory.find(&self.path, Patience::ForDisk)? {
            Opened::File(file, stat) if state(&stat) == state(&self.stat) => Ok(Arc::new(file)),
            _ => Err(io::Error::other("the file has changed since its header was sent")),
        }
    }
}

type ToCome<T> = Pin<Box<dyn Future<Output = T> + Send>>;

type OpenFile = (Arc<LocalFile>, Share);

struct Block {
    bytes: Vec<u8>,
    _memory: Option<Share>,
}

impl AsRef<[u8]> for Block {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

enum Fetched {
    Cached,
    Block(Vec<u8>),
}

impl Body {
    pub(crate) fn empty() -> Body {
        Body::of(VecDeque::new())
    }

    pub(crate) fn full(bytes: Bytes) -> Body {
        Body::of(if bytes.is_empty() { VecDeque::new() } else { VecDeque::from([Segment::Bytes(bytes)]) })
    }

    /// Makes a body of unknown length. An error ends it early.
    pub(crate) fn stream(blocks: Receiver<io::Result<Bytes>>, leaving: Option<Leaving>) -> Body {
        let mut body = Body::empty();
        body.stream = Some((blocks, leaving));
        body
    }

    fn of(segments: VecDeque<Segment>) -> Body {
        let left = segments.iter().map(Segment::len).sum();
        Body { segments, left, source: None, stream: None, held: Vec::new(), paced: None, on_end: None, given: 0 }
    }

    pub(crate) fn hold(&mut self, share: Share) {
        self.held.push(share);
    }

    pub(crate) fn on_end(&mut self, on_end: OnEnd) {
        self.on_end = Some(on_end);
    }

    /// Makes pieces wait for a rate. They are small, so all its readers advance.
    pub(crate) fn keeps_to(&mut self, paced: Paced) {
        self.paced = Some(Box::new(paced));
        if let Some(source) = &mut self.source {
            source.window = RATED_WINDOW_BYTES;
        }
    }

    /// Makes a body of parts of a file with bytes between them; with a queue, the kernel sends the parts.
    pub(crate) fn of_file(
        file: Arc<LocalFile>,
        segments: VecDeque<Segment>,
        queue: Option<Queue>,
        supply: Supply,
    ) -> Body {
        let mut body = Body::of(segments);
        body.source = Some(Source {
            file: Some(file),
            reopening: None,
            file_to_come: None,
            stream: None,
            queue,
            is_cached: false,
            window: WINDOW_BYTES,
            supply,
            memory: None,
            memory_to_come: None,
            work: None,
            work_since: None,
            disk: Duration::ZERO,
        });
        body
    }

    pub(crate) fn is_cached(&mut self) {
        if let Some(source) = &mut self.source {
            source.is_cached = true;
        }
    }

    /// Adapts the body to HTTP/2. A connection may have a hundred streams and take from none, so only some keep their file open.
    /// hyper takes a piece before the reader opens a window, so the first is small.
    pub(crate) fn for_stream(mut self, reopening: Reopening) -> Body {
        self.read_first_piece();
        let has_parts = self.segments.iter().any(|segment| matches!(segment, Segment::Part(_)));
        if !has_parts {
            self.source = None;
        }
        if let Some(source) = &mut self.source {
            match source.supply.pools.streams.try_take(&source.supply.client.claimant, 1) {
                Some(stream) => source.stream = Some(stream.with_reader()),
                None => (source.file, source.reopening) = (None, Some(Box::new(reopening))),
            }
        }
        self
    }

    /// Reads only what the kernel has in memory: the header must leave at once.
    fn read_first_piece(&mut self) {
        let (Some(source), Some(Segment::Part(part))) = (&self.source, self.segments.front_mut()) else { return };
        let Some(file) = source.file.as_ref().filter(|file| !file.is_remote()) else { return };
        let Some(memory) = source.supply.pools.blocks.try_take(&source.supply.client.claimant, FIRST_PIECE_BYTES / KIB)
        else {
            return;
        };
        let count = usize::try_from(part.len()).unwrap_or(FIRST_PIECE_BYTES).min(FIRST_PIECE_BYTES);
        let mut bytes = vec![0; count];
        if !matches!(file.read_cached_at(&mut bytes, part.start), Ok(Some(read)) if read == count) {
            return;
        }
        part.start += count as u64;
        if part.start == part.end {
            self.segments.pop_front();
        }
        let block = Block { bytes, _memory: Some(memory.with_reader()) };
        self.segments.push_front(Segment::Bytes(Bytes::from_owner(block)));
    }

    pub(crate) fn only_part(&self) -> Option<Part> {
        match (self.segments.len(), self.segments.front()) {
            (1, Some(Segment::Part(part))) => Some(*part),
            _ => None,
        }
    }

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
    fn waiting_bytes(&self) -> u64 {
        self.paced.as_ref().map_or(0, |paced| paced.waiting_bytes())
    }

    fn poll_piece(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Piece>>> {
        if let Some((stream, _)) = &mut self.stream {
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
    fn begin_work(&mut self, work: impl FnOnce(&Job) -> io::Result<Fetched> + Send + 'static) {
        let (pools, client) = (Arc::clone(&self.supply.pools), self.supply.client.clone());
        self.work = Some(Box::pin(async move {
            let outcome = pools.disk.run(&client, FOREVER, work).await;
            outcome.unwrap_or_else(|_| Err(io::ErrorKind::ResourceBusy.into()))
        }));
        self.work_since = Some(Instant::now());
    }

    fn end_work(&mut self) {
        self.work = None;
        self.disk += self.work_since.take().map_or(Duration::ZERO, |since| since.elapsed());
    }

    fn poll_next(&mut self, cx: &mut Context<'_>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        let file = ready!(self.poll_file(cx))?;
        match &self.queue {
            Some(_) => self.poll_window(cx, &file, part),
            None => self.poll_block(cx, &file, part),
        }
    }

    fn poll_file(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<Arc<LocalFile>>> {
        if let Some(file) = &self.file {
            return Poll::Ready(Ok(Arc::clone(file)));
        }
        let to_come = self.file_to_come.get_or_insert_with(|| {
            let reopening = self.reopening.take().expect("a closed file can be opened");
            let (pools, client) = (Arc::clone(&self.supply.pools), self.supply.client.clone());
            Box::pin(async move {
                let busy = || io::Error::from(io::ErrorKind::ResourceBusy);
                let stream = pools.streams.take(&client.claimant, 1, FOREVER).await.map_err(|_| busy())?;
                let file = pools.disk.run(&client, FOREVER, move |_| reopening.open()).await.map_err(|_| busy())??;
                Ok((file, stream.with_reader()))
            })
        });
        let (file, stream) = ready!(to_come.as_mut().poll(cx))?;
        self.file_to_come = None;
        (self.file, self.stream) = (Some(Arc::clone(&file)), Some(stream));
        Poll::Ready(Ok(file))
    }

    fn poll_window(&mut self, cx: &mut Context<'_>, of: &Arc<LocalFile>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        let len = part.len().min(self.window);
        let is_cached = match self.work.as_mut() {
            Some(work) => {
                ready!(work.as_mut().poll(cx))?;
                self.end_work();
                true
            }
            None => std::mem::take(&mut self.is_cached) || of.has_cached(part.start, len),
        };
        if !is_cached {
            let file = Arc::clone(of);
            self.begin_work(move |job| read_through(&file, part.start, len, job));
            return self.poll_window(cx, of, part);
        }
        let range = Range { file: Arc::clone(of), offset: part.start, left: len };
        let queue = self.queue.as_ref().expect("only a body with a queue has windows");
        Poll::Ready(Ok((queue.add(range), len)))
    }

    fn poll_memory(&mut self, cx: &mut Context<'_>, part: Part) -> Poll<io::Result<usize>> {
        let (blocks, claimant) = (&self.supply.pools.blocks, &self.supply.client.claimant);
        let size = |most: usize| usize::try_from(part.len()).unwrap_or(most).min(most);
        if let Some(memory) = &self.memory {
            return Poll::Ready(Ok(size(memory.amount() * KIB)));
        }
        if self.memory_to_come.is_none() {
            let is_scarce = blocks.is_scarce_for(claimant);
            let amount = size(if is_scarce { SCARCE_BLOCK_BYTES } else { BLOCK_BYTES }).div_ceil(KIB);
            if let Some(memory) = blocks.try_take(claimant, amount) {
                self.memory = Some(memory);
                return self.poll_memory(cx, part);
            }
            let (blocks, claimant) = (Arc::clone(blocks), claimant.clone());
            self.memory_to_come = Some(Box::pin(async move { blocks.take(&claimant, amount, FOREVER).await }));
        }
        let to_come = self.memory_to_come.as_mut().expect("it was made just now");
        let memory = ready!(to_come.as_mut().poll(cx));
        self.memory_to_come = None;
        self.memory = Some(memory.map_err(|_| io::Error::from(io::ErrorKind::ResourceBusy))?);
        self.poll_memory(cx, part)
    }

    fn poll_block(&mut self, cx: &mut Context<'_>, of: &Arc<LocalFile>, part: Part) -> Poll<io::Result<(Piece, u64)>> {
        let bytes = match self.work.as_mut() {
            Some(work) => {
                let fetched = ready!(work.as_mut().poll(cx))?;
                self.end_work();
                match fetched {
                    Fetched::Block(block) => block,
                    Fetched::Cached => Vec::new(),
                }
            }
            None => {
                let mut block = vec![0; ready!(self.poll_memory(cx, part))?];
                let cached = match of.is_remote() {
                    true => None,
                    false => of.read_cached_at(&mut block, part.start)?,
                };
                match cached {
                    Some(count) => {
                        block.truncate(count);
                        block
                    }
                    None => {
                        let file = Arc::clone(of);
                        self.begin_work(move |_| {
                            let count = file.read_at(&mut block, part.start)?;
                            block.truncate(count);
                            Ok(Fetched::Block(block))
                        });
                        return self.poll_block(cx, of, part);
                    }
                }
            }
        };
        if bytes.is_empty() {
            // The file became shorter: bytes must be missing.
            return Poll::Ready(Err(io::ErrorKind::UnexpectedEof.into()));
        }
        let count = bytes.len() as u64;
        let block = Block { bytes, _memory: self.memory.take().map(Share::with_reader) };
        Poll::Ready(Ok((Piece::Bytes(Bytes::from_owner(block)), count)))
    }
}

fn read_through(file: &LocalFile, offset: u64, len: u64, job: &Job) -> io::Result<Fetched> {
    let mut block = vec![0; BLOCK_BYTES];
    let mut at = offset;
    while at < offset + len {
        job.goes_on()?;
        match file.read_at(&mut block, at)? {
            0 => break,
            count => at += count as u64,
        }
    }
    Ok(Fetched::Cached)
}
