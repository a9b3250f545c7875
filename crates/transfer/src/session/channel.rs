//! The control channel: one thread reads messages, one writes them, nobody waits for the other.
//!
//! What is read goes to the session's [`Events`], what is to be written waits in its [`Outbox`].

use std::collections::VecDeque;
use std::io::{self, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use haul_job::{Error, Fault};
use haul_net::{ShutdownHandle, Stream};
use haul_wire::codec::{self, LENGTH_BYTES};
use haul_wire::control::{Answer, Control, Outcome, OutcomeKind, Receipt, Wanted};
use haul_wire::limits::BATCH_BYTES;
use haul_wire::manifest::PackedItem;

use crate::session::weight;

/// How often either side says that it is alive.
pub(crate) const PING_EVERY: Duration = Duration::from_secs(1);

pub(crate) use crate::session::inbox::{EventSender, Events, LaneEnd, SessionEvent};

/// The near end of a control channel.
#[derive(Clone)]
pub(crate) struct Channel {
    outbox: Arc<Outbox>,
    heard: Arc<Heard>,
    shutdown: ShutdownHandle,
}

impl Channel {
    /// Starts the two threads on a stream; messages arrive in `events`.
    pub(crate) fn open(stream: Stream, events: EventSender, ping_every: Duration) -> io::Result<Self> {
        let shutdown = stream.shutdown_handle();
        let (input, output) = stream.split();
        let outbox = Arc::new(Outbox::default());
        let heard = Arc::new(Heard::new());
        let (for_reader, for_writer) = (Arc::clone(&heard), Arc::clone(&outbox));
        std::thread::Builder::new()
            .name("control-in".into())
            .spawn(move || read_messages(input, &for_reader, &events))?;
        std::thread::Builder::new()
            .name("control-out".into())
            .spawn(move || write_messages(output, &for_writer, ping_every))?;
        Ok(Self { outbox, heard, shutdown })
    }

    pub(crate) fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// Time since the peer's last byte, as far as we listened.
    pub(crate) fn silence(&self) -> Duration {
        self.heard.silence()
    }

    /// Writes what is queued, within `limit`, and ends the channel.
    pub(crate) fn close(&self, limit: Duration) {
        self.outbox.close(limit);
        self.shutdown.shutdown();
    }
}

/// When the peer was last heard; shared by the reading thread and the session's loop.
struct Heard {
    start: Instant,
    last_ms: AtomicU64,
    /// Nobody listens: the reading thread waits for the session's own loop.
    waits: AtomicBool,
}

impl Heard {
    fn new() -> Self {
        Self { start: Instant::now(), last_ms: AtomicU64::new(0), waits: AtomicBool::new(false) }
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.start.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn touch(&self) {
        self.last_ms.store(self.now_ms(), Ordering::Relaxed);
    }

    /// From here on the peer may say what it likes: it is not heard.
    fn begin_wait(&self) {
        self.waits.store(true, Ordering::Release);
    }

    /// It is heard again, and its silence begins anew.
    fn end_wait(&self) {
        self.touch();
        self.waits.store(false, Ordering::Release);
    }

    fn silence(&self) -> Duration {
        if self.waits.load(Ordering::Acquire) {
            return Duration::ZERO;
        }
        Duration::from_millis(self.now_ms().saturating_sub(self.last_ms.load(Ordering::Relaxed)))
    }
}

fn read_messages(mut input: impl Read, heard: &Heard, events: &EventSender) {
    let mut buffer = Vec::new();
    loop {
        let event = match read_message(&mut input, &mut buffer) {
            Ok(Some(Control::Ping)) => {
                heard.touch();
                continue;
            }
            Ok(Some(message)) => SessionEvent::Control(message),
            Ok(None) => SessionEvent::ControlEnded(None),
            Err(why) => SessionEvent::ControlEnded(Some(why)),
        };
        heard.touch();
        if matches!(event, SessionEvent::ControlEnded(_)) {
            // Nor is it silent from here on: a loop that had long to do has to hear its last words, and how it ended.
            heard.begin_wait();
            // A session that ended no longer listens; that is no error.
            let _ = events.send(event);
            return;
        }
        let sent = events.send_noting(event, || heard.begin_wait());
        heard.end_wait();
        if sent.is_err() {
            return;
        }
    }
}

/// Reads one message; `Ok(None)` at an orderly end.
pub(crate) fn read_message(input: &mut impl Read, buffer: &mut Vec<u8>) -> Result<Option<Control>, String> {
    let mut length = [0; LENGTH_BYTES];
    match read_full(input, &mut length) {
        Ok(0) => return Ok(None),
        Ok(LENGTH_BYTES) => {}
        Ok(_) => return Err("it ended in the middle of a message".into()),
        Err(error) => return Err(error.to_string()),
    }
    let length = codec::decode_length(length).map_err(|fault| fault.to_string())?;
    buffer.resize(length, 0);
    match read_full(input, buffer) {
        Ok(read) if read == length => {}
        Ok(_) => return Err("it ended in the middle of a message".into()),
        Err(error) => return Err(error.to_string()),
    }
    codec::decode(buffer).map(Some).map_err(|fault| fault.to_string())
}

/// Fills `buffer` as far as the input goes.
fn read_full(input: &mut impl Read, buffer: &mut [u8]) -> io::Result<usize> {
    let mut filled = 0;
    while filled < buffer.len() {
        match input.read(&mut buffer[filled..]) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(filled)
}

fn write_messages(mut output: impl Write, outbox: &Outbox, ping_every: Duration) {
    let mut bytes = Vec::new();
    loop {
        let (messages, closing) = outbox.take(ping_every);
        let is_last = closing && messages.is_empty();
        bytes.clear();
        for message in messages {
            if let Err(fault) = codec::encode(&message, &mut bytes) {
                // Only a message of our own making can be too large: a broken invariant, but the peer must not hang.
                debug_assert!(false, "cannot encode {message:?}: {fault}");
                outbox.written_out();
                return;
            }
        }
        let mut pieces = bytes.chunks(PIECE_BYTES);
        let written = pieces.try_for_each(|piece| output.write_all(piece).map(|()| outbox.moved()));
        let written = written.and_then(|()| output.flush());
        if written.is_err() || is_last {
            outbox.written_out();
            return;
        }
    }
}

/// Messages on their way to the peer. Runs of the same kind are sent as one batch; the order among all is kept.
/// Frequent messages are gathered for a short time, or until an urgent message leaves: inside ssh each message wakes four
/// processes.
///
/// While the peer reads, the queue is bounded by its contents: items by the window; answers, receipts and outcomes by the
/// items. A peer that does not read is found by the size of the queue: see [`MAX_QUEUED_BYTES`].
#[derive(Default)]
pub(crate) struct Outbox {
    state: Mutex<OutboxState>,
    filled: Condvar,
    taken: Condvar,
    drained: Condvar,
}

/// Most bytes that may gather for a peer that does not read: twice as many as for an honest peer. An honest peer leaves 4 MiB
/// of failures and notices ([`ROOM_BYTES`]), and a window of items or answers: 16 Ki of 176 bytes are 2.8 MiB, and their names
/// take 4 MiB (`MAX_OPEN_ITEM_BYTES`).
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// What leaves the queue at once, and is held a second time while it is encoded and written.
const MAX_TAKEN_BYTES: usize = 1 << 20;

/// Who waits for room looks this often whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A thread that waits for room sees in pieces of this size that the peer reads. At the slowest rate that counts as progress,
/// a kilobyte a second, a peer takes a minute for one piece.
const PIECE_BYTES: usize = 64 << 10;

/// Who can wait goes on when less than this is queued.
const ROOM_BYTES: usize = 4 << 20;

#[derive(Default)]
struct OutboxState {
    queue: VecDeque<Queued>,
    /// The least that a message of the queue asks to stay behind the one that left before; `None` when it is empty.
    spacing: Option<Duration>,
    left_last: Option<Instant>,
    /// When a piece was last written.
    moved: Option<Instant>,
    /// About what the queue takes.
    bytes: usize,
    overflowed: bool,
    closing: bool,
    written_out: bool,
}

struct Queued {
    message: Control,
    /// About its size on the way, where more of its kind may join it.
    batch_bytes: usize,
    /// About what it takes in memory.
    weight_bytes: usize,
}

impl OutboxState {
    /// Enters what comes next. False: the peer does not listen, and this is not queued.
    fn admits(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.overflowed |= self.bytes > MAX_QUEUED_BYTES;
        !self.overflowed
    }

    /// Notes the spacing of what is queued now; true when the writer may have to leave earlier than it knows.
    fn is_sooner(&mut self, spacing: Duration) -> bool {
        let sooner = self.spacing.is_none_or(|least| spacing < least);
        if sooner {
            self.spacing = Some(spacing);
        }
        sooner
    }

    /// How long until the queue may leave.
    fn wait(&self) -> Option<Duration> {
        let spacing = self.spacing?;
        Some(self.left_last.map_or(Duration::ZERO, |left| spacing.saturating_sub(left.elapsed())))
    }
}

impl Outbox {
    pub(crate) fn send(&self, message: Control) {
        let mut state = self.lock();
        let weight_bytes = weight::memory_bytes(&message);
        if !state.admits(weight_bytes) {
            return;
        }
        state.queue.push_back(Queued { message, batch_bytes: BATCH_BYTES, weight_bytes });
        if state.is_sooner(Duration::ZERO) {
            self.filled.notify_one();
        }
    }

    pub(crate) fn item(&self, item: PackedItem, weight_bytes: usize) {
        self.append(
            item,
            weight_bytes + ELEMENT_BYTES,
            |last| match last {
                Control::Items(items) => Some(items),
                _ => None,
            },
            Control::Items,
            SPACING,
        );
    }

    /// A path of the list of what is wanted.
    pub(crate) fn listed(&self, path: &[u8]) {
        self.append(
            path.to_vec(),
            path.len() + ELEMENT_BYTES,
            |last| match last {
                Control::Listed(paths) => Some(paths),
                _ => None,
            },
            Control::Listed,
            SPACING,
        );
    }

    pub(crate) fn answer(&self, answer: Answer) {
        let ranges = match &answer.wanted {
            Wanted::All | Wanted::Hash => 0,
            Wanted::Chunks(ranges) => ranges.len(),
        };
        self.append(
            answer,
            ranges * RANGE_BYTES + ELEMENT_BYTES,
            |last| match last {
                Control::Answers(answers) => Some(answers),
                _ => None,
            },
            Control::Answers,
            SPACING,
        );
    }

    pub(crate) fn receipt(&self, receipt: Receipt) {
        self.append(
            receipt,
            ELEMENT_BYTES,
            |last| match last {
                Control::Receipts(receipts) => Some(receipts),
                _ => None,
            },
            Control::Receipts,
            RECEIPT_SPACING,
        );
    }

    pub(crate) fn outcome(&self, outcome: Outcome) {
        let text = match &outcome.result {
            OutcomeKind::Failed { why, .. } => why.len(),
            _ => 0,
        };
        self.append(
            outcome,
            text + ELEMENT_BYTES,
            |last| match last {
                Control::Outcomes(outcomes) => Some(outcomes),
                _ => None,
            },
            Control::Outcomes,
            SPACING,
        );
    }

    fn append<T>(
        &self,
        element: T,
        weight_bytes: usize,
        batch_of: impl Fn(&mut Control) -> Option<&mut Vec<T>>,
        batch: impl Fn(Vec<T>) -> Control,
        spacing: Duration,
    ) {
        let mut state = self.lock();
        if !state.admits(weight_bytes) {
            return;
        }
        if let Some(last) = state.queue.back_mut()
            && last.batch_bytes + weight_bytes <= BATCH_BYTES
            && let Some(elements) = batch_of(&mut last.message)
        {
            elements.push(element);
            last.batch_bytes += weight_bytes;
            last.weight_bytes += weight_bytes;
        } else {
            let message = batch(vec![element]);
            state.queue.push_back(Queued { message, batch_bytes: weight_bytes, weight_bytes });
        }
        if state.is_sooner(spacing) {
            self.filled.notify_one();
        }
    }

    /// Everything at once.
    #[cfg(any(test, feature = "fuzzing"))]
    pub(crate) fn take_all(&self) -> Vec<Control> {
        let mut state = self.lock();
        state.bytes = 0;
        state.queue.drain(..).map(|queued| queued.message).collect()
    }

    /// What is queued, or its beginning, once it may leave. Without anything for `ping_every` a ping is due. The flag says that no more will
    /// come than is queued.
    fn take(&self, ping_every: Duration) -> (Vec<Control>, bool) {
        let silent_since = Instant::now();
        let mut state = self.lock();
        while !state.closing {
            let wait = state.wait().unwrap_or_else(|| ping_every.saturating_sub(silent_since.elapsed()));
            if wait.is_zero() {
                break;
            }
            (state, _) = self.filled.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        }
        let (mut messages, mut taken_bytes) = (Vec::new(), 0);
        while taken_bytes < MAX_TAKEN_BYTES
            && let Some(queued) = state.queue.pop_front()
        {
            taken_bytes += queued.weight_bytes;
            messages.push(queued.message);
        }
        state.bytes -= taken_bytes;
        // The rest leaves at the next turn.
        state.spacing = (!state.queue.is_empty()).then_some(Duration::ZERO);
        self.taken.notify_all();
        state.left_last = Some(Instant::now());
        if messages.is_empty() && !state.closing {
            messages.push(Control::Ping);
        }
        (messages, state.closing)
    }

    /// Whether the peer let so much gather that it cannot be listening. From then on nothing is queued.
    pub(crate) fn has_overflowed(&self) -> bool {
        self.lock().overflowed
    }

    /// Whether [`Outbox::await_room`] would not wait.
    pub(crate) fn has_room(&self) -> bool {
        self.lock().bytes <= ROOM_BYTES
    }

    /// Waits until the peer has read most of what was said, the channel ends, or nobody needs it any more. False: for `limit` the peer
    /// has read nothing at all.
    pub(crate) fn await_room(&self, is_over: impl Fn() -> bool, limit: Duration) -> bool {
        let begun = Instant::now();
        // Asked without our lock: the answer may need another one, whose owner may be about to send.
        while !is_over() {
            let state = self.lock();
            if state.bytes <= ROOM_BYTES || state.closing || state.written_out {
                return true;
            }
            if state.moved.map_or(begun, |moved| moved.max(begun)).elapsed() > limit {
                return false;
            }
            drop(self.taken.wait_timeout(state, LOOK_EVERY).unwrap_or_else(PoisonError::into_inner));
        }
        true
    }

    /// Whether nothing reaches the peer any more.
    pub(crate) fn has_ended(&self) -> bool {
        self.lock().written_out
    }

    /// The peer takes what is written.
    fn moved(&self) {
        self.lock().moved = Some(Instant::now());
    }

    fn written_out(&self) {
        self.lock().written_out = true;
        self.taken.notify_all();
        self.drained.notify_all();
    }

    fn close(&self, limit: Duration) {
        let mut state = self.lock();
        state.closing = true;
        self.filled.notify_all();
        self.taken.notify_all();
        let _ = self
            .drained
            .wait_timeout_while(state, limit, |state| !state.written_out)
            .unwrap_or_else(PoisonError::into_inner);
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, OutboxState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Items, answers and outcomes leave this long after the message before them. Nobody notices it, and a tree of small files
/// needs a hundredth of the messages. With one message each, 20,000 files of 16 KiB took a sixth more time.
const SPACING: Duration = Duration::from_millis(2);

/// Receipts leave this long after what left before. Nobody waits for them: the sender shows progress by them and forgets what
/// it would have to send again.
const RECEIPT_SPACING: Duration = Duration::from_millis(20);

/// The longest path of a list fits into a frame, as the longest of an item does.
const _: () = assert!(haul_store::MAX_LISTED_PATH_BYTES == haul_wire::limits::MAX_PATH_BYTES);

/// More than an answer, receipt, outcome or the fixed part of an item takes on the wire.
const ELEMENT_BYTES: usize = 96;

/// Most that one range of chunks takes on the wire: two varints of 32 bits.
const RANGE_BYTES: usize = 10;

/// An error of the session from what the control channel said at its end.
pub(crate) fn ended(why: Option<String>) -> Error {
    match why {
        None => Error::new(Fault::Network, "the far side ended the session early"),
        Some(why) => Error::new(Fault::Network, "the control channel failed").because(why),
    }
    .try_this("run the same command again: what is verified is not sent again")
}

#[cfg(test)]
mod tests {
    use haul_wire::control::FailureKind;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn receipt(index: u64) -> Receipt {
        Receipt { index, chunk: 0, data_bytes: 1 }
    }

    #[test]
    fn the_first_receipt_leaves_at_once_and_the_next_gather_into_one_message() {
        let outbox = Outbox::default();
        outbox.receipt(receipt(0));
        assert_eq!(outbox.take(LONG), (vec![Control::Receipts(vec![receipt(0)])], false));
        let left = Instant::now();
        (1..100).for_each(|index| outbox.receipt(receipt(index)));
        assert_eq!(outbox.take(LONG), (vec![Control::Receipts((1..100).map(receipt).collect())], false));
        assert!(left.elapsed() + Duration::from_millis(1) >= RECEIPT_SPACING, "{:?}", left.elapsed());
    }

    #[test]
    fn what_cannot_wait_takes_along_what_gathered_before_it() {
        let outbox = Outbox::default();
        // As if something left in the future: nothing that gathers would leave before the end of this test.
        outbox.lock().left_last = Some(Instant::now() + LONG);
        outbox.receipt(receipt(0));
        assert!(outbox.lock().wait() >= Some(RECEIPT_SPACING));
        outbox.send(Control::Ping);
        assert_eq!(outbox.take(LONG), (vec![Control::Receipts(vec![receipt(0)]), Control::Ping], false));
    }

    #[test]
    fn an_outcome_hastens_the_receipts_before_it() {
        let outbox = Outbox::default();
        outbox.lock().left_last = Some(Instant::now());
        outbox.receipt(receipt(0));
        outbox.outcome(Outcome { index: 0, result: OutcomeKind::Copied { blake3: [0; 32] } });
        assert!(outbox.lock().wait() <= Some(SPACING));
    }

    #[test]
    fn what_gathers_for_a_peer_that_does_not_listen_is_bounded() {
        let outbox = Outbox::default();
        let why = "w".repeat(4000);
        let mut queued = 0;
        while !outbox.has_overflowed() {
            assert!(queued < 2 * MAX_QUEUED_BYTES, "{queued} bytes and no end");
            outbox
                .outcome(Outcome { index: 0, result: OutcomeKind::Failed { why: why.clone(), kind: FailureKind::Io } });
            queued += why.len();
        }
        assert!(queued > MAX_QUEUED_BYTES / 2, "{queued} bytes are not too much");
        let messages = outbox.lock().queue.len();
        outbox.send(Control::EndOfManifest);
        assert_eq!(outbox.lock().queue.len(), messages, "nothing more is queued");
        // Whoever waits for room goes on when the peer reads, or when the session is over.
        outbox.take_all();
        assert!(outbox.await_room(|| false, LONG));
        outbox.lock().bytes = 2 * ROOM_BYTES;
        assert!(outbox.await_room(|| true, LONG));
        // And does not wait for one that reads nothing.
        assert!(!outbox.await_room(|| false, Duration::from_millis(1)));
    }

    #[test]
    fn what_is_taken_at_once_is_bounded_and_all_of_it_leaves_in_its_order() {
        let outbox = Outbox::default();
        let failed =
            |index| Outcome { index, result: OutcomeKind::Failed { why: "w".repeat(4000), kind: FailureKind::Io } };
        const COUNT: u64 = 1000;
        (0..COUNT).for_each(|index| outbox.outcome(failed(index)));
        let mut next = 0;
        while next < COUNT {
            // Nothing waits for its spacing once the first has left.
            let (messages, _) = outbox.take(LONG);
            let outcomes = messages.into_iter().flat_map(|message| match message {
                Control::Outcomes(outcomes) => outcomes,
                other => panic!("{other:?}"),
            });
            let taken: Vec<u64> = outcomes.map(|outcome| outcome.index).collect();
            assert!(taken.len() * 4000 <= MAX_TAKEN_BYTES + BATCH_BYTES, "{}", taken.len());
            assert!(taken.iter().copied().eq(next..next + taken.len() as u64));
            next += taken.len() as u64;
        }
        assert!(outbox.has_room() && outbox.lock().bytes == 0);
    }

    #[test]
    fn a_peer_is_not_silent_while_nobody_listens_to_it() {
        const BUSY: Duration = Duration::from_millis(500);
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let events = Events::with(64 << 10);
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        let mut flood = Vec::new();
        codec::encode(&Control::EndOfManifest, &mut flood).unwrap();
        let flood = flood.repeat(10_000);
        // It goes on talking for as long as it likes, and more than may wait is under way.
        let talks = std::thread::spawn(move || {
            let _ = theirs.write_all(&flood).and_then(|()| theirs.flush());
            theirs
        });
        let begun = Instant::now();
        while begun.elapsed() < BUSY || channel.silence() > Duration::ZERO {
            assert!(begun.elapsed() < LONG, "it counts as silent for {:?}", channel.silence());
            std::thread::sleep(Duration::from_millis(5));
        }
        let listening = Instant::now();
        let heard = std::iter::from_fn(|| events.next(LONG)).take(10_000).count();
        assert_eq!(heard, 10_000);
        let _peer = talks.join().unwrap();
        // Its silence counts from here on only.
        while channel.silence() == Duration::ZERO {
            assert!(listening.elapsed() < LONG, "it is never silent");
            std::thread::sleep(Duration::from_millis(5));
        }
        assert!(channel.silence() <= listening.elapsed());
    }

    #[test]
    fn a_peer_that_has_said_its_last_word_is_not_silent() {
        let (ours, mut theirs) = Stream::plain_pair().unwrap();
        let events = Events::new();
        let channel = Channel::open(ours, events.sender(), LONG).unwrap();
        let mut last_words = Vec::new();
        codec::encode(&Control::EndOfManifest, &mut last_words).unwrap();
        theirs.write_all(&last_words).and_then(|()| theirs.finish_write()).unwrap();
        drop(theirs);
        assert!(matches!(events.next(LONG), Some(SessionEvent::Control(Control::EndOfManifest))));
        assert!(matches!(events.next(LONG), Some(SessionEvent::ControlEnded(None))));
        let begun = Instant::now();
        while begun.elapsed() < Duration::from_millis(20) {
            assert_eq!(channel.silence(), Duration::ZERO);
        }
    }

    #[test]
    fn silence_brings_a_ping() {
        assert_eq!(Outbox::default().take(Duration::from_millis(1)), (vec![Control::Ping], false));
    }
}
