//! Queues messages on their way to the peer.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use haul_wire::control::{Answer, ChunkProof, Control, MoverWord, Outcome, OutcomeKind, Receipt, Wanted};
use haul_wire::limits::BATCH_BYTES;
use haul_wire::manifest::PackedItem;

use crate::message_memory;
use haul_kept::sync::lock;

/// The queue to the peer. Runs of one kind become one batch. Frequent messages gather for a short time, or until an urgent one
/// leaves: inside ssh each message wakes four processes.
///
/// The window bounds items, and items bound answers, receipts and outcomes; [`MAX_QUEUED_BYTES`] finds a peer that does not
/// read.
#[derive(Default)]
pub struct Outbox {
    state: Mutex<OutboxState>,
    filled: Condvar,
    taken: Condvar,
    drained: Condvar,
}

/// Twice what gathers for an honest peer: 4 MiB of failures and notices ([`ROOM_BYTES`]), and a window of 16 Ki items of 176
/// bytes, 2.8 MiB, with names of 4 MiB (`MAX_OPEN_ITEM_BYTES`).
const MAX_QUEUED_BYTES: usize = 16 << 20;

/// A batch is held twice while it is encoded and written.
pub(crate) const MAX_TAKEN_BYTES: usize = 1 << 20;

const LOOK_EVERY: Duration = Duration::from_millis(50);

/// The unit of progress: at the slowest rate that counts, 1 kB/s, a minute.
pub(crate) const PIECE_BYTES: usize = 64 << 10;

const ROOM_BYTES: usize = 4 << 20;

#[derive(Default)]
struct OutboxState {
    queue: VecDeque<Queued>,
    spacing: Option<Duration>,
    left_last: Option<Instant>,
    moved: Option<Instant>,
    bytes: usize,
    overflowed: bool,
    closing: bool,
    written_out: bool,
    ping_is_due: bool,
    calls: u64,
}

/// Messages that leave together.
#[derive(Debug, PartialEq, Eq)]
pub struct Leaving {
    /// The messages.
    pub messages: Vec<Control>,
    /// Whether a ping goes along.
    pub ping: bool,
    /// Whether nothing more will come.
    pub closing: bool,
}

struct Queued {
    message: Control,
    batch_bytes: usize,
    weight_bytes: usize,
}

impl OutboxState {
    fn admits(&mut self, bytes: usize) -> bool {
        self.bytes += bytes;
        self.overflowed |= self.bytes > MAX_QUEUED_BYTES;
        !self.overflowed
    }

    fn is_sooner(&mut self, spacing: Duration) -> bool {
        let sooner = self.spacing.is_none_or(|least| spacing < least);
        if sooner {
            self.spacing = Some(spacing);
        }
        sooner
    }

    fn wait(&self) -> Option<Duration> {
        let spacing = self.spacing?;
        Some(self.left_last.map_or(Duration::ZERO, |left| spacing.saturating_sub(left.elapsed())))
    }
}

impl Outbox {
    /// Queues a message.
    pub fn send(&self, message: Control) {
        let mut state = self.lock();
        let weight_bytes = message_memory::memory_bytes(&message);
        if !state.admits(weight_bytes) {
            return;
        }
        state.queue.push_back(Queued { message, batch_bytes: BATCH_BYTES, weight_bytes });
        if state.is_sooner(Duration::ZERO) {
            self.filled.notify_one();
        }
    }

    /// Queues an item of `weight_bytes` in the peer's memory.
    pub fn item(&self, item: PackedItem, weight_bytes: usize) {
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

    /// Queues a path of `--files-from`.
    pub fn listed(&self, path: &[u8]) {
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

    /// Queues an answer.
    pub fn answer(&self, answer: Answer) {
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

    /// Queues a receipt.
    pub fn receipt(&self, receipt: Receipt) {
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

    /// Queues the hash of a mover's chunk, for which data may wait at the receiver.
    pub fn proof(&self, proof: ChunkProof) {
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

    /// Queues an outcome.
    pub fn outcome(&self, outcome: Outcome) {
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

    /// Takes all messages.
    #[cfg(any(test, feature = "testing"))]
    pub fn take_all(&self) -> Vec<Control> {
        let mut state = self.lock();
        state.bytes = 0;
        state.queue.drain(..).map(|queued| queued.message).collect()
    }

    pub(crate) fn await_leave(&self, until: Instant, calls: u64) -> bool {
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

    /// Takes the queue, or its beginning.
    pub fn leave(&self) -> Leaving {
        let mut state = self.lock();
        let (mut messages, mut taken_bytes) = (Vec::new(), 0);
        while taken_bytes < MAX_TAKEN_BYTES
            && let Some(queued) = state.queue.pop_front()
        {
            taken_bytes += queued.weight_bytes;
            messages.push(queued.message);
        }
        state.bytes -= taken_bytes;
        state.spacing = (!state.queue.is_empty()).then_some(Duration::ZERO);
        self.taken.notify_all();
        state.left_last = Some(Instant::now());
        let ping = std::mem::take(&mut state.ping_is_due);
        Leaving { messages, ping, closing: state.closing }
    }

    pub(crate) fn want_ping(&self) {
        let mut state = self.lock();
        state.ping_is_due = true;
        if state.is_sooner(Duration::ZERO) {
            self.filled.notify_all();
        }
    }

    /// Makes waiting threads look at the links again.
    pub fn call(&self) {
        self.lock().calls += 1;
        self.filled.notify_all();
    }

    /// Counts calls.
    pub fn calls(&self) -> u64 {
        self.lock().calls
    }

    pub(crate) fn has_overflowed(&self) -> bool {
        self.lock().overflowed
    }

    /// Whether there is room.
    pub fn has_room(&self) -> bool {
        self.lock().bytes <= ROOM_BYTES
    }

    /// Waits until most was read, the channel ends, or `is_over`. Returns false if nothing was read for `limit`.
    pub fn await_room(&self, is_over: impl Fn() -> bool, limit: Duration) -> bool {
        let begun = Instant::now();
        // Asked without our lock: the answer may need the lock of a thread about to send.
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

    /// Whether nothing reaches the peer.
    pub fn has_ended(&self) -> bool {
        self.lock().written_out
    }

    /// Notes that the peer takes what is written.
    pub fn moved(&self) {
        self.lock().moved = Some(Instant::now());
    }

    pub(crate) fn written_out(&self) {
        self.lock().written_out = true;
        self.taken.notify_all();
        self.drained.notify_all();
    }

    /// Waits up to `limit` until all is written. An empty queue without a writer: the peer left.
    pub fn close(&self, limit: Duration, has_writer: impl Fn() -> bool) {
        let mut state = self.lock();
        state.closing = true;
        self.filled.notify_all();
        self.taken.notify_all();
        let begun = Instant::now();
        while !state.written_out && begun.elapsed() < limit {
            let is_empty = state.queue.is_empty();
            // Our lock is free, as in `await_room`.
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

/// Small files need a hundredth of the messages; with one each, 20,000 files of 16 KiB took a sixth longer.
const SPACING: Duration = Duration::from_millis(2);

/// Receipts only show progress, and free what would be sent again.
const RECEIPT_SPACING: Duration = Duration::from_millis(20);

/// A list's longest path fits into a frame, like an item's.
const _: () = assert!(haul_store::MAX_LISTED_PATH_BYTES == haul_wire::limits::MAX_PATH_BYTES);

/// The largest answer, receipt, outcome or fixed part of an item on the wire.
const ELEMENT_BYTES: usize = 96;

/// Two varints of 32 bits.
const RANGE_BYTES: usize = 10;

#[cfg(test)]
mod tests {
    use haul_wire::control::FailureKind;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    fn take(outbox: &Outbox) -> Vec<Control> {
        assert!(outbox.await_leave(Instant::now() + LONG, outbox.calls()));
        outbox.leave().messages
    }

    fn receipt(index: u64) -> Receipt {
        Receipt { index, chunk: 0, data_bytes: 1, matched_bytes: 0 }
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
        outbox.take_all();
        assert!(outbox.await_room(|| false, LONG));
        outbox.lock().bytes = 2 * ROOM_BYTES;
        assert!(outbox.await_room(|| true, LONG));
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
