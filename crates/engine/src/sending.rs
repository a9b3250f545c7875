//! The sender's side of a session: which items are open, what the target wants of them, which unit a lane carries next.
//!
//! ```text
//!   item -> open -> answer: wanted -> taken by a lane -> receipt -> ... -> outcome: settled -> gone, in the order of the manifest
//!                                       `-> lane died, data was bad: wanted again
//! ```

use alloc::sync::Arc;
use alloc::vec::Vec;

use haul_wire::control::{ChunkRange, Wanted};

use crate::plan::ChunkLayout;
use crate::schedule::{Retry, Scheduler, To, Unit};
use crate::spread::Spread;
use crate::window::Window;

/// A file as the caller keeps it.
pub trait Offered {
    /// How it is cut.
    fn layout(&self) -> ChunkLayout;
}

impl<F: Offered> Offered for Arc<F> {
    fn layout(&self) -> ChunkLayout {
        F::layout(self)
    }
}

/// The target said what makes no sense.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Broken(pub &'static str);

/// Open items, and what is wanted of them.
#[derive(Debug)]
pub struct Sending<F> {
    window: Window<Open<F>>,
    scheduler: Scheduler,
    walk_done: bool,
}

#[derive(Debug)]
struct Open<F> {
    /// `None`: no data (any more).
    file: Option<F>,
    is_shared: bool,
    answered: bool,
    settled: bool,
    is_retry: bool,
    confirmed_bytes: u64,
}

impl<F> Default for Sending<F> {
    fn default() -> Self {
        Self { window: Window::default(), scheduler: Scheduler::default(), walk_done: false }
    }
}

impl<F: Offered + Clone> Sending<F> {
    /// Whether there is room for this weight.
    pub fn has_room(&self, weight_bytes: usize) -> bool {
        self.window.has_room(weight_bytes)
    }

    /// The index of the next item.
    pub fn next_index(&self) -> u64 {
        self.window.next_index()
    }

    /// Offers the next item.
    pub fn push(&mut self, file: Option<F>, weight_bytes: usize) -> u64 {
        self.offer(file, weight_bytes, false)
    }

    /// Offers a withdrawn item's new state, room or not.
    pub fn push_retry(&mut self, file: Option<F>, weight_bytes: usize) -> u64 {
        self.offer(file, weight_bytes, true)
    }

    fn offer(&mut self, file: Option<F>, weight_bytes: usize, is_retry: bool) -> u64 {
        let open = Open { file, is_shared: false, answered: false, settled: false, is_retry, confirmed_bytes: 0 };
        self.window.push(open, weight_bytes)
    }

    /// Enters that only retries follow.
    pub fn walk_done(&mut self) {
        self.walk_done = true;
    }

    /// Whether the walk is over.
    pub fn is_listed(&self) -> bool {
        self.walk_done
    }

    /// Enters a file that movers may write, before its answer.
    pub fn share(&mut self, index: u64) -> Result<(), Broken> {
        let open = self.window.get_mut(index).filter(|open| !open.settled && !open.answered);
        let open = open.ok_or(Broken("it shares an item that is not open, or that it has asked for"))?;
        open.is_shared = open.file.as_ref().is_some_and(|file| !file.layout().is_whole());
        Ok(())
    }

    /// Enters an answer, and returns the file. Only one: more would grow the queue without bound.
    pub fn want(&mut self, index: u64, wanted: &Wanted) -> Result<&F, Broken> {
        let open = self.window.get_mut(index).filter(|open| !open.settled);
        let open = open.ok_or(Broken("it asks for an item that is not open"))?;
        if core::mem::replace(&mut open.answered, true) {
            return Err(Broken("it asks for an item twice"));
        }
        let file = open.file.as_ref().ok_or(Broken("it asks for an item that has no data"))?;
        let count = file.layout().count();
        let want = if open.is_shared { Scheduler::share } else { Scheduler::want };
        match wanted {
            Wanted::All => want(&mut self.scheduler, index, ChunkRange { first: 0, count }),
            Wanted::Hash => self.scheduler.want(index, ChunkRange { first: 0, count: 1 }),
            Wanted::Chunks(ranges) => {
                let mut next = 0;
                for range in ranges {
                    let end = range.first.checked_add(range.count).filter(|end| *end <= count);
                    match end {
                        Some(end) if range.first >= next && range.count > 0 => next = end,
                        _ => return Err(Broken("it asks for chunks that do not exist")),
                    }
                    want(&mut self.scheduler, index, *range);
                }
            }
        }
        Ok(file)
    }

    /// Sets how chunks are spread over lanes.
    pub fn spread(&mut self, spread: Spread) {
        self.scheduler.spread(spread);
    }

    /// See [`Scheduler::run_of`].
    pub fn run_of(&self, lane: u16) -> Option<(u64, u32)> {
        self.scheduler.run_of(lane)
    }

    /// Frees a lane's place until it asks again.
    pub fn leaves(&mut self, lane: u16) {
        self.scheduler.leaves(lane);
    }

    /// A lane's units, at most so many; one chunk of a large file.
    pub fn take(&mut self, lane: u16, to: To, most: usize) -> Vec<(Unit, F)> {
        self.take_until(lane, to, |units, _| units >= most)
    }

    /// [`Sending::take`] for one of `lanes`: waiting units are divided, but not below one turn. First answers of small files come
    /// a round trip early: lanes without one would grow no window, and few lanes have the last files.
    pub fn take_share(&mut self, lane: u16, to: To, lanes: u32, most: usize) -> Vec<(Unit, F)> {
        let lanes = usize::try_from(lanes).unwrap_or(usize::MAX).max(1);
        let share = self.scheduler.files_waiting().div_ceil(lanes);
        self.take_until(lane, to, |units, bytes| units >= most || (units >= share && bytes >= TURN_BYTES))
    }

    fn take_until(&mut self, lane: u16, to: To, is_enough: impl Fn(usize, u64) -> bool) -> Vec<(Unit, F)> {
        let (mut units, mut bytes) = (Vec::new(), 0u64);
        while !is_enough(units.len(), bytes) {
            let Some(unit) = self.scheduler.take(lane, to) else { break };
            // An item settled meanwhile needs no data.
            let Some(file) = self.window.get(unit.index).and_then(|open| open.file.clone()) else {
                self.scheduler.receipt(unit);
                continue;
            };
            let large = !file.layout().is_whole();
            bytes = bytes.saturating_add(file.layout().size());
            units.push((unit, file));
            if large {
                break;
            }
        }
        units
    }

    /// The file's next chunk, to be read ahead. `None` for another file, and for the last `left` chunks, which other lanes take.
    pub fn take_ahead(&mut self, lane: u16, to: To, index: u64, left: u32) -> Option<(Unit, F)> {
        self.scheduler.next_range(to).filter(|(next, count)| *next == index && *count > left)?;
        self.take(lane, to, 1).pop()
    }

    /// Chunks for movers (see [`Scheduler::take_run`]).
    pub fn take_run(&mut self, lane: u16, most: u32) -> Option<(F, ChunkRange)> {
        if most == 0 {
            return None;
        }
        loop {
            let (index, run) = self.scheduler.take_run(lane, most)?;
            match self.window.get(index).and_then(|open| open.file.clone()) {
                Some(file) => return Some((file, run)),
                None => self.scheduler.settled(index),
            }
        }
    }

    /// Takes an uncarried unit back. False: not this lane's.
    pub fn returned(&mut self, unit: Unit, lane: u16) -> bool {
        self.scheduler.returned(unit, lane)
    }

    /// How many units this lane carries.
    pub fn carried_by(&self, lane: u16) -> usize {
        self.scheduler.carried_by(lane)
    }

    /// The bytes of the units that this lane carries.
    pub fn bytes_carried_by(&self, lane: u16) -> u64 {
        let bytes = |unit: Unit| {
            let file = self.window.get(unit.index).and_then(|open| open.file.as_ref());
            file.and_then(|file| file.layout().range(unit.chunk)).map_or(0, |(_, bytes)| bytes)
        };
        self.scheduler.carried_units(lane).map(bytes).fold(0, u64::saturating_add)
    }

    /// Whether such a lane carries a unit.
    pub fn is_carried(&self, by: impl Fn(u16) -> bool) -> bool {
        self.scheduler.is_carried(by)
    }

    /// Enters a receipt. Returns the unit's lane.
    pub fn on_receipt(&mut self, unit: Unit) -> Option<u16> {
        let lane = self.scheduler.lane_of(unit);
        if self.scheduler.receipt(unit)
            && let Some(open) = self.window.get_mut(unit.index)
            && let Some((_, bytes)) = open.file.as_ref().and_then(|file| file.layout().range(unit.chunk))
        {
            open.confirmed_bytes += bytes;
        }
        lane
    }

    /// Queues an unverified unit, or gives up its file.
    pub fn again(&mut self, unit: Unit) -> Retry {
        let retry = self.scheduler.again(unit);
        if retry == Retry::GiveUp {
            self.scheduler.forget(unit.index);
        }
        retry
    }

    /// The file of an open item; `None` inside: withdrawn.
    pub fn open_file(&self, index: u64) -> Result<Option<&F>, Broken> {
        let open = self.window.get(index).filter(|open| !open.settled);
        open.map(|open| open.file.as_ref()).ok_or(Broken("it wants chunks again of an item that is not open"))
    }

    /// The lane that carries this unit.
    pub fn lane_of(&self, unit: Unit) -> Option<u16> {
        self.scheduler.lane_of(unit)
    }

    /// Queues a unit that the target lost. The caller bounds how often.
    pub fn repair(&mut self, unit: Unit) {
        self.scheduler.repair(unit);
    }

    /// Gives a dead lane's units to others. True: there were some.
    pub fn lane_died(&mut self, lane: u16) -> bool {
        !self.scheduler.lane_died(lane).is_empty()
    }

    /// Withdraws a file that cannot be sent as announced. False: withdrawn or settled.
    pub fn withdraw(&mut self, index: u64) -> bool {
        match self.window.get_mut(index) {
            None | Some(Open { file: None, .. }) => return false,
            Some(open) => open.file = None,
        }
        self.scheduler.forget(index);
        true
    }

    /// Enters an outcome. Returns how many items are gone.
    pub fn settle(&mut self, index: u64, failed: bool) -> Result<usize, Broken> {
        let open = self.window.get_mut(index).ok_or(Broken("it settles an item that is not open"))?;
        open.settled = true;
        // The caller's file goes, even while the item waits.
        open.file = None;
        if failed {
            self.scheduler.forget(index);
        } else {
            // A unit that went twice, because its lane died early, has no second receipt.
            self.scheduler.settled(index);
        }
        let mut gone = 0;
        while self.window.front().is_some_and(|open| open.settled) {
            self.window.pop_front();
            gone += 1;
        }
        Ok(gone)
    }

    /// Whether no unit waits for such a lane.
    pub fn has_none(&self, to: To) -> bool {
        self.scheduler.has_none(to)
    }

    /// Whether nothing waits for this lane.
    pub fn has_none_for(&self, lane: u16, to: To) -> bool {
        self.scheduler.has_none_for(lane, to)
    }

    /// Whether no unit waits for a lane.
    pub fn is_drained(&self) -> bool {
        self.scheduler.is_drained()
    }

    /// Whether only repeats are left to take.
    pub fn is_all_taken(&self) -> bool {
        // Unanswered items are mostly near the back.
        self.walk_done && self.is_drained() && !self.open().rev().any(|open| !open.answered && open.file.is_some())
    }

    /// Each waiting unit's bytes, once only repeats can follow; `None`: more may come, or `most` wait.
    pub fn last_units(&self, most: usize) -> Option<Vec<u64>> {
        if !self.walk_done || self.awaits_answers(0) {
            return None;
        }
        let waiting: Vec<Unit> = self.scheduler.waiting().take(most).collect();
        let bytes = |unit: &Unit| {
            let file = self.window.get(unit.index)?.file.as_ref()?;
            file.layout().range(unit.chunk).map(|(_, bytes)| bytes)
        };
        (waiting.len() < most).then(|| waiting.iter().filter_map(bytes).collect())
    }

    /// Whether data is wanted that has no receipt.
    pub fn has_work(&self) -> bool {
        !self.scheduler.is_drained() || self.scheduler.flying() > 0
    }

    /// Whether the target must still speak.
    pub fn awaits_word(&self) -> bool {
        self.walk_done || !self.window.is_empty()
    }

    /// Enters that the target is done. False: a retry was on its way, and the target will say so again.
    pub fn on_summary(&self) -> Result<bool, Broken> {
        if self.walk_done && self.open().all(|open| open.settled || open.is_retry) {
            return Ok(self.window.is_empty());
        }
        Err(Broken("it ended with items open"))
    }

    /// Items without an outcome, or behind one without.
    pub fn open_items(&self) -> usize {
        self.window.len()
    }

    /// Units that lanes carry.
    pub fn flying(&self) -> usize {
        self.scheduler.flying()
    }

    /// The largest file whose outcome is awaited.
    pub fn largest_open_bytes(&self) -> u64 {
        self.open().filter_map(|open| Some(open.file.as_ref()?.layout().size())).max().unwrap_or(0)
    }

    /// Whether answers are awaited for so many bytes.
    pub fn awaits_answers(&self, least_bytes: u64) -> bool {
        let mut bytes = 0u64;
        self.open().filter(|open| !open.answered).filter_map(|open| open.file.as_ref()).any(|file| {
            bytes = bytes.saturating_add(file.layout().size());
            bytes >= least_bytes
        })
    }

    /// Confirmed bytes that the target may have to flush.
    pub fn confirmed_open_bytes(&self) -> u64 {
        self.open().filter(|open| open.file.is_some()).map(|open| open.confirmed_bytes).sum()
    }

    fn open(&self) -> impl DoubleEndedIterator<Item = &Open<F>> {
        (self.window.first_index()..self.window.next_index()).filter_map(|index| self.window.get(index))
    }
}

/// One write of a lane: 44 segments, as in four first windows.
const TURN_BYTES: u64 = 64_000;

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, Debug)]
    struct File(u64);

    impl Offered for File {
        fn layout(&self) -> ChunkLayout {
            ChunkLayout::of(self.0)
        }
    }

    #[test]
    fn all_is_taken_once_the_walk_is_over_and_every_wanted_unit_has_a_lane() {
        let mut sending = Sending::default();
        let first = sending.push(Some(File(1)), 1);
        sending.push(None, 1);
        let kept = sending.push(Some(File(1)), 1);
        sending.want(first, &Wanted::All).unwrap();
        assert_eq!(sending.take(0, To::Leader, 1).len(), 1);
        sending.settle(kept, false).unwrap();
        assert!(!sending.is_all_taken(), "the walk may find more");
        sending.walk_done();
        assert!(sending.is_all_taken());
        assert!(sending.lane_died(0));
        assert!(!sending.is_all_taken(), "it has to go again");
        sending.take(1, To::Leader, 1);
        assert!(sending.is_all_taken());
        assert!(sending.withdraw(first));
        let fresh = sending.push_retry(Some(File(2)), 1);
        assert!(!sending.is_all_taken(), "the target has not said what it wants of the retry");
        sending.want(fresh, &Wanted::All).unwrap();
        sending.take(1, To::Leader, 1);
        assert!(sending.is_all_taken());
    }

    #[test]
    fn small_files_that_wait_are_divided_among_the_lanes_and_tiny_ones_go_together() {
        let waiting = |files: usize, bytes| {
            let mut sending = Sending::default();
            for _ in 0..files {
                let index = sending.push(Some(File(bytes)), 1);
                sending.want(index, &Wanted::All).unwrap();
            }
            sending
        };
        let shares = |files, bytes, lanes| {
            let mut sending = waiting(files, bytes);
            let mut takes = || sending.take_share(0, To::Leader, lanes, 16).len();
            [takes(), takes()]
        };
        assert_eq!(shares(400, 64_000, 64), [7, 7], "25 lanes would have all of them");
        assert_eq!(shares(40, 64_000, 64), [1, 1]);
        assert_eq!(shares(2000, 64_000, 8), [16, 16]);
        assert_eq!(shares(40, 1000, 64), [16, 16], "they are one write");
        assert_eq!(shares(1, 1000, 0), [1, 0]);
    }

    #[test]
    fn an_end_that_crosses_a_retry_is_not_the_end() {
        let mut sending = Sending::default();
        let file = sending.push(Some(File(1)), 1);
        assert_eq!(sending.on_summary(), Err(Broken("it ended with items open")), "it is still listed");
        sending.walk_done();
        assert!(sending.on_summary().is_err(), "it has no outcome");
        assert!(sending.withdraw(file) && !sending.withdraw(file));
        let retry = sending.push_retry(Some(File(2)), 1);
        sending.settle(file, false).unwrap();
        assert_eq!(sending.on_summary(), Ok(false));
        sending.settle(retry, false).unwrap();
        assert_eq!(sending.on_summary(), Ok(true));
    }

    #[test]
    fn a_unit_that_goes_again_after_its_receipt_is_not_awaited_for_ever() {
        let mut sending = Sending::default();
        let index = sending.push(Some(File(1)), 1);
        sending.want(index, &Wanted::All).unwrap();
        let first = sending.take(0, To::Leader, 1)[0].0;
        sending.lane_died(0);
        assert_eq!(sending.on_receipt(first), None, "it is queued again");
        assert_eq!(sending.take(1, To::Leader, 1)[0].0, first);
        sending.settle(index, false).unwrap();
        assert!(!sending.has_work() && sending.flying() == 0);
    }

    #[test]
    fn chunks_are_taken_ahead_of_one_file_and_not_the_last_of_it() {
        let mut sending = Sending::default();
        let (first, second) = (sending.push(Some(File(5 << 20)), 1), sending.push(Some(File(5 << 20)), 1));
        sending.want(first, &Wanted::All).unwrap();
        sending.want(second, &Wanted::All).unwrap();
        let ahead = |sending: &mut Sending<File>, index| {
            sending.take_ahead(0, To::Leader, index, 2).map(|(unit, _)| unit.chunk)
        };
        assert_eq!(sending.take(0, To::Leader, 16).len(), 1);
        assert_eq!(ahead(&mut sending, second), None, "it is not its turn");
        assert_eq!((ahead(&mut sending, first), ahead(&mut sending, first)), (Some(1), Some(2)));
        assert_eq!(ahead(&mut sending, first), None, "the other lanes are to have the rest");
        assert_eq!(sending.flying(), 3);
        sending.lane_died(0);
        assert_eq!(sending.flying(), 0);
        assert_eq!(
            sending.take(1, To::Leader, 1)[0].0,
            Unit { index: first, chunk: 0 },
            "what was taken ahead goes back with the lane"
        );
    }

    #[test]
    fn what_is_confirmed_and_open_may_have_to_be_flushed() {
        let mut sending = Sending::default();
        let index = sending.push(Some(File(3 << 20)), 1);
        sending.want(index, &Wanted::All).unwrap();
        let [(first, _)] = &sending.take(0, To::Leader, 16)[..] else { panic!("one chunk of a large file") };
        assert_eq!(sending.on_receipt(*first), Some(0));
        assert_eq!(sending.on_receipt(*first), None, "a second receipt counts for nothing");
        assert_eq!((sending.confirmed_open_bytes(), sending.largest_open_bytes()), (1 << 20, 3 << 20));
        sending.settle(index, false).unwrap();
        assert_eq!(sending.confirmed_open_bytes(), 0);
    }

    #[test]
    fn answers_are_awaited_of_files_that_are_offered_together() {
        let mut sending = Sending::default();
        sending.push(None, 1);
        let files: Vec<u64> = (0..2).map(|_| sending.push(Some(File(1 << 20)), 1)).collect();
        assert!(sending.awaits_answers(2 << 20) && !sending.awaits_answers((2 << 20) + 1));
        sending.want(files[0], &Wanted::All).unwrap();
        assert!(sending.awaits_answers(1 << 20) && !sending.awaits_answers(2 << 20));
        sending.settle(files[1], false).unwrap();
        assert!(!sending.awaits_answers(1));
    }
}
