//! Messages on their way to the peer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_wire::control::{Answer, ChunkProof, Control, MoverWord, Outcome, OutcomeKind, Receipt, Wanted};
use haul_wire::limits::BATCH_BYTES;
use haul_wire::manifest::PackedItem;

use crate::session::weight;
use crate::sync::lock;

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
pub(super) const MAX_TAKEN_BYTES: usize = 1 << 20;

/// Who waits for room looks this often whether the session is over.
const LOOK_EVERY: Duration = Duration::from_millis(50);

/// A thread that waits for room sees in pieces of this size that the peer reads. At the slowest rate that counts as progress,
/// a kilobyte a second, a peer takes a minute for one piece.
pub(super) const PIECE_BYTES: usize = 64 << 10;

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
    /// The peer is to hear soon what has arrived.
    ping_is_due: bool,
    /// How often somebody who waits for a message was called away.
    calls: u64,
}

/// What leaves the queue together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Leaving {
    pub(super) messages: Vec<Control>,
    /// A ping goes with them.
    pub(super) ping: bool,
    /// No more will come than is queued.
    pub(super) closing: bool,
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

    /// What a chunk of a mover hashes to. Data may wait for it at the receiver.
    pub(crate) fn proof(&self, proof: ChunkProof) {
        self.append(
            proof,
            ELEMENT_BYTES,
            |last| match last {
                Control::OfMover { word: MoverWord::Proofs(proofs), .. } => Some(proofs),
                _ => None,
            },
            |proofs| Control::OfMover { path: 0, word: MoverWord::Proofs(proofs) },
            SPACING,
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

    /// Waits until something may leave, at most until `until`. False: somebody has called since `calls`.
    pub(super) fn await_leave(&self, until: Instant, calls: u64) -> bool {
        let mut state = self.lock();
        while !state.closing && state.calls == calls {
            let wait = state.wait().unwrap_or_else(|| until.saturating_duration_since(Instant::now()));
            if wait.is_zero() {
                return true;
            }
            (state, _) = self.filled.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
        }
        state.closing
    }

    /// What is queued, or its beginning.
    pub(super) fn leave(&self) -> Leaving {
        let mut state = self.lock();
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
        let ping = std::mem::take(&mut state.ping_is_due);
        Leaving { messages, ping, closing: state.closing }
    }

    /// A ping leaves at once, with what is queued.
    pub(super) fn want_ping(&self) {
        let mut state = self.lock();
        state.ping_is_due = true;
        if state.is_sooner(Duration::ZERO) {
            self.filled.notify_all();
        }
    }

    /// Who waits for a message looks at the links again.
    pub(super) fn call(&self) {
        self.lock().calls += 1;
        self.filled.notify_all();
    }

    /// How often that was done.
    pub(super) fn calls(&self) -> u64 {
        self.lock().calls
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
    pub(super) fn moved(&self) {
        self.lock().moved = Some(Instant::now());
    }

    /// Nothing reaches the peer any more.
    pub(super) fn written_out(&self) {
        self.lock().written_out = true;
        self.taken.notify_all();
        self.drained.notify_all();
    }

    /// Waits until all is written, at most for `limit`. No more will come. Where nothing is queued and nobody writes, the peer has
    /// said its last word and left: then there is nothing to wait for.
    pub(super) fn close(&self, limit: Duration, has_writer: impl Fn() -> bool) {
        let mut state = self.lock();
        state.closing = true;
        self.filled.notify_all();
        self.taken.notify_all();
        let begun = Instant::now();
        while !state.written_out && begun.elapsed() < limit {
            let is_empty = state.queue.is_empty();
            // Asked without our lock, as in `await_room`.
            drop(state);
            if is_empty && !has_writer() {
                return;
            }
            state = self.lock();
            if !state.written_out {
                let wait = LOOK_EVERY.min(limit.saturating_sub(begun.elapsed()));
                (state, _) = self.drained.wait_timeout(state, wait).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, OutboxState> {
        lock(&self.state)
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

#[cfg(test)]
mod tests {
    use haul_wire::control::FailureKind;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    /// What leaves once it may.
    fn take(outbox: &Outbox) -> Vec<Control> {
        assert!(outbox.await_leave(Instant::now() + LONG, outbox.calls()));
        outbox.leave().messages
    }

    fn receipt(index: u64) -> Receipt {
        Receipt { index, chunk: 0, data_bytes: 1 }
    }

    #[test]
    fn the_first_receipt_leaves_at_once_and_the_next_gather_into_one_message() {
        let outbox = Outbox::default();
        outbox.receipt(receipt(0));
        assert_eq!(take(&outbox), vec![Control::Receipts(vec![receipt(0)])]);
        let left = Instant::now();
        (1..100).for_each(|index| outbox.receipt(receipt(index)));
        assert_eq!(take(&outbox), vec![Control::Receipts((1..100).map(receipt).collect())]);
        assert!(left.elapsed() + Duration::from_millis(1) >= RECEIPT_SPACING, "{:?}", left.elapsed());
    }

    #[test]
    fn what_cannot_wait_takes_along_what_gathered_before_it() {
        let outbox = Outbox::default();
        // As if something left in the future: nothing that gathers would leave before the end of this test.
        outbox.lock().left_last = Some(Instant::now() + LONG);
        outbox.receipt(receipt(0));
        assert!(outbox.lock().wait() >= Some(RECEIPT_SPACING));
        outbox.send(Control::EndOfManifest);
        assert_eq!(take(&outbox), vec![Control::Receipts(vec![receipt(0)]), Control::EndOfManifest]);
    }

    #[test]
    fn an_outcome_hastens_the_receipts_before_it() {
        let outbox = Outbox::default();
        outbox.lock().left_last = Some(Instant::now());
        outbox.receipt(receipt(0));
        outbox.outcome(Outcome::of(0, OutcomeKind::Copied { blake3: [0; 32] }));
        assert!(outbox.lock().wait() <= Some(SPACING));
    }

    #[test]
    fn what_gathers_for_a_peer_that_does_not_listen_is_bounded() {
        let outbox = Outbox::default();
        let why = "w".repeat(4000);
        let mut queued = 0;
        while !outbox.has_overflowed() {
            assert!(queued < 2 * MAX_QUEUED_BYTES, "{queued} bytes and no end");
            outbox.outcome(Outcome::of(0, OutcomeKind::Failed { why: why.clone(), kind: FailureKind::Io }));
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
        let failed = |index| Outcome::of(index, OutcomeKind::Failed { why: "w".repeat(4000), kind: FailureKind::Io });
        const COUNT: u64 = 1000;
        (0..COUNT).for_each(|index| outbox.outcome(failed(index)));
        let mut next = 0;
        while next < COUNT {
            // Nothing waits for its spacing once the first has left.
            let messages = take(&outbox);
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
}
