//! A bounded queue, first in, first out.

use std::collections::VecDeque;

use super::payload::Nanos;
use crate::limits;

#[derive(Clone, Debug)]
pub(super) struct Waiting<T> {
    pub item: T,
    pub wire_bytes: u64,
    /// When it came.
    pub since: Nanos,
}

/// Drops a packet that does not fit (drop tail).
#[derive(Clone, Debug)]
pub(super) struct Fifo<T> {
    waiting: VecDeque<Waiting<T>>,
    bytes: u64,
    limit_bytes: u64,
}

impl<T> Fifo<T> {
    pub fn new(limit_bytes: u64) -> Fifo<T> {
        Fifo { waiting: VecDeque::new(), bytes: 0, limit_bytes }
    }

    /// Returns false if it dropped the packet for lack of room; one above the limit never fits.
    #[must_use]
    pub fn push(&mut self, frame: Waiting<T>) -> bool {
        let fits = self.bytes + frame.wire_bytes <= self.limit_bytes;
        if !fits || self.waiting.len() >= limits::MAX_WAITING_PACKETS {
            return false;
        }
        self.bytes += frame.wire_bytes;
        self.waiting.push_back(frame);
        true
    }

    pub fn pop(&mut self) -> Option<Waiting<T>> {
        let frame = self.waiting.pop_front()?;
        self.bytes -= frame.wire_bytes;
        Some(frame)
    }

    pub fn is_empty(&self) -> bool {
        self.waiting.is_empty()
    }

    pub fn len(&self) -> usize {
        self.waiting.len()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Waiting packets stay, even above the limit.
    pub fn set_limit(&mut self, limit_bytes: u64) {
        self.limit_bytes = limit_bytes;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_bytes_and_keeps_order() {
        let frame = |item, wire_bytes| Waiting { item, wire_bytes, since: Nanos::ZERO };
        let mut fifo = Fifo::new(100);
        assert!(fifo.push(frame('a', 60)) && !fifo.push(frame('b', 41)) && fifo.push(frame('c', 40)));
        assert_eq!((fifo.len(), fifo.bytes()), (2, 100));
        fifo.set_limit(10);
        assert_eq!((fifo.pop().unwrap().item, fifo.bytes()), ('a', 40));
        assert!(!fifo.push(frame('d', 1)), "too much waits for the new limit");
        assert_eq!((fifo.pop().unwrap().item, fifo.is_empty()), ('c', true));
        assert!(fifo.push(frame('e', 1)));
    }
}
