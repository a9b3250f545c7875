//! Blocks of a file that were asked for before somebody reads them.
//!
//! Lanes read neighbouring chunks of one file at the same time, each from front to back. A front is a stretch that readers
//! go through: a read inside it, or at its end, asks for the blocks behind. Each block is asked for once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The blocks of one file that are asked for.
pub(super) struct Ahead<T> {
    blocks: BTreeMap<u64, Held<T>>,
    fronts: Vec<Front>,
    /// Blocks that one front holds ahead.
    window: u64,
    most_blocks: usize,
    most_bytes: usize,
    held_bytes: Arc<AtomicUsize>,
}

/// Blocks from `begin` on were asked for, up to `end`.
struct Front {
    begin: u64,
    end: u64,
}

/// A block that is held ahead, with its share of what all files may hold.
pub(super) struct Held<T> {
    value: Option<T>,
    bytes: usize,
    of: Arc<AtomicUsize>,
}

/// More readers than these go through one file at a time only where their fronts meet.
const MAX_FRONTS: usize = 16;

impl<T> Ahead<T> {
    pub(super) fn new(window: u64, most_blocks: usize, most_bytes: usize, held_bytes: Arc<AtomicUsize>) -> Self {
        Self { blocks: BTreeMap::new(), fronts: Vec::new(), window, most_blocks, most_bytes, held_bytes }
    }

    /// Takes a block that was asked for.
    pub(super) fn take(&mut self, block: u64) -> Option<T> {
        self.blocks.remove(&block).and_then(Held::into_inner)
    }

    /// Holds a block that was asked for, or of which a part was read.
    pub(super) fn put(&mut self, block: u64, value: T, bytes: usize) {
        if self.blocks.len() >= self.most_blocks {
            // A reader that left its place does not come back for the first of them.
            self.blocks.pop_first();
        }
        self.held_bytes.fetch_add(bytes, Ordering::Relaxed);
        self.blocks.insert(block, Held { value: Some(value), bytes, of: Arc::clone(&self.held_bytes) });
    }

    /// The blocks to ask for when somebody reads this one. `count` is the number of blocks of the file.
    pub(super) fn wanted(&mut self, block: u64, count: u64, block_bytes: usize) -> std::ops::Range<u64> {
        let room = self.most_bytes.saturating_sub(self.held_bytes.load(Ordering::Relaxed)) / block_bytes.max(1);
        let at = self.fronts.iter().position(|front| (front.begin..=front.end).contains(&block));
        let mut front = match at {
            Some(at) => self.fronts.remove(at),
            None => Front { begin: block, end: block + 1 },
        };
        front.end = front.end.max(block + 1);
        let begin = front.end;
        let mut end = (block + 1 + self.window).min(count).min(begin + room as u64).max(begin);
        // Another front begins there: its blocks were asked for.
        if let Some(other) = self.fronts.iter().position(|other| (begin..end).contains(&other.begin)) {
            let other = self.fronts.remove(other);
            end = other.begin;
            front.end = other.end.max(end);
        } else {
            front.end = end;
        }
        if self.fronts.len() >= MAX_FRONTS {
            self.fronts.remove(0);
        }
        self.fronts.push(front);
        begin..end
    }
}

impl<T> Held<T> {
    fn into_inner(mut self) -> Option<T> {
        self.value.take()
    }
}

impl<T> Drop for Held<T> {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ahead() -> (Ahead<()>, Arc<AtomicUsize>) {
        let held = Arc::new(AtomicUsize::new(0));
        (Ahead::new(4, 8, 80, Arc::clone(&held)), held)
    }

    #[test]
    fn each_block_of_a_file_is_asked_for_once_whoever_reads() {
        let (mut ahead, _) = ahead();
        assert_eq!(ahead.wanted(0, 100, 10), 1..5);
        assert_eq!(ahead.wanted(1, 100, 10), 5..6);
        assert_eq!(ahead.wanted(4, 100, 10), 6..9, "another lane begins in the same front");
        assert_eq!(ahead.wanted(2, 100, 10), 9..9);
        assert_eq!(ahead.wanted(50, 100, 10), 51..55, "a lane far away has a front of its own");
        assert_eq!(ahead.wanted(47, 100, 10), 48..50, "which ends where the next one begins");
        assert_eq!(ahead.wanted(52, 100, 10), 55..57, "and is one with it then");
        assert_eq!(ahead.wanted(98, 100, 10), 99..100, "the file ends");
        assert_eq!(ahead.wanted(99, 100, 10), 100..100);
    }

    #[test]
    fn what_is_held_ahead_has_a_bound_for_the_file_and_for_all_files() {
        let (mut ahead, held) = ahead();
        for block in 0..20 {
            ahead.put(block, (), 10);
        }
        assert_eq!(held.load(Ordering::Relaxed), 80);
        assert!(ahead.take(3).is_none() && ahead.take(12).is_some());
        assert_eq!(held.load(Ordering::Relaxed), 70);
        assert_eq!(ahead.wanted(30, 100, 10), 31..32, "room for one");
        drop(ahead);
        assert_eq!(held.load(Ordering::Relaxed), 0);
    }
}
