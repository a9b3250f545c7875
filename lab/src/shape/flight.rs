//! Packets in flight: transmitted, and due at the other end.
//!
//! In the first line, no packet is due before those in front. Packets chosen for reordering stand in a second line, and the
//! first overtakes them. So the next packet is always at a front.

use std::collections::VecDeque;
use std::time::Duration;

use super::payload::Nanos;

#[derive(Clone, Debug)]
pub(super) struct Flight<T> {
    line: VecDeque<Due<T>>,
    /// The second line; each has the number of packets that joined the first before it.
    held: VecDeque<(u64, Due<T>)>,
    last_in_line: Nanos,
    last_held: Nanos,
    joined_line: u64,
    left_line: u64,
    bytes: u64,
    most_packets: usize,
}

#[derive(Clone, Debug)]
struct Due<T> {
    at: Nanos,
    wire_bytes: u64,
    item: T,
}

pub(super) struct Arrival<T> {
    pub at: Nanos,
    pub item: T,
    /// True if later packets arrived before.
    pub was_overtaken: bool,
}

impl<T> Flight<T> {
    pub fn new(most_packets: usize) -> Flight<T> {
        Flight {
            line: VecDeque::new(),
            held: VecDeque::new(),
            last_in_line: Nanos::ZERO,
            last_held: Nanos::ZERO,
            joined_line: 0,
            left_line: 0,
            bytes: 0,
            most_packets,
        }
    }

    /// Adds a packet, due at `at`, or with the one in front if later. `held_back` delays one chosen for reordering. Returns
    /// false if more than `most_bytes` would be in flight: the packet is lost.
    #[must_use]
    pub fn push(&mut self, at: Nanos, held_back: Option<Duration>, item: T, wire_bytes: u64, most_bytes: u64) -> bool {
        if self.bytes + wire_bytes > most_bytes || self.len() >= self.most_packets {
            return false;
        }
        self.bytes += wire_bytes;
        let at = at.max(self.last_in_line);
        match held_back {
            None => {
                self.last_in_line = at;
                self.joined_line += 1;
                self.line.push_back(Due { at, wire_bytes, item });
            }
            Some(time) => {
                let at = at.after(time).max(self.last_held);
                self.last_held = at;
                self.held.push_back((self.joined_line, Due { at, wire_bytes, item }));
            }
        }
        true
    }

    /// When the next packet is due.
    pub fn next_at(&self) -> Option<Nanos> {
        let line = self.line.front().map(|due| due.at);
        let held = self.held.front().map(|(_, due)| due.at);
        [line, held].into_iter().flatten().min()
    }

    /// The next packet, if due.
    pub fn pop(&mut self, now: Nanos) -> Option<Arrival<T>> {
        let next = self.next_at().filter(|&at| at <= now)?;
        let (due, was_overtaken) = if self.line.front().is_some_and(|due| due.at == next) {
            self.left_line += 1;
            (self.line.pop_front()?, false)
        } else {
            let (joined_before, due) = self.held.pop_front()?;
            (due, self.left_line > joined_before)
        };
        self.bytes -= due.wire_bytes;
        Some(Arrival { at: due.at, item: due.item, was_overtaken })
    }

    pub fn len(&self) -> usize {
        self.line.len() + self.held.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::limits::MAX_IN_FLIGHT_BYTES as MOST;

    #[test]
    fn the_line_keeps_its_order_and_the_held_back_are_overtaken() {
        let ms = Duration::from_millis(1);
        let mut flight = Flight::new(10);
        assert!(flight.push(Nanos(10), None, 'a', 1, MOST));
        assert!(flight.push(Nanos(5), None, 'b', 1, MOST), "b would be early, and waits for a");
        assert!(flight.push(Nanos(20), Some(ms), 'c', 1, MOST));
        assert!(flight.push(Nanos(30), None, 'd', 1, MOST));
        assert!(flight.push(Nanos(2_000_000), None, 'e', 1, MOST));
        let mut arrived = Vec::new();
        while let Some(arrival) = flight.pop(Nanos(u64::MAX)) {
            arrived.push((arrival.item, arrival.at.0, arrival.was_overtaken));
        }
        let expected =
            [('a', 10, false), ('b', 10, false), ('d', 30, false), ('c', 1_000_020, true), ('e', 2_000_000, false)];
        assert_eq!(arrived, expected);
    }

    #[test]
    fn holds_no_more_than_it_may() {
        let mut flight = Flight::new(2);
        assert!(!flight.push(Nanos(1), None, 'a', 101, 100), "too many bytes");
        assert!(flight.push(Nanos(1), None, 'b', 10, 100) && flight.push(Nanos(1), None, 'c', 10, 100));
        assert!(!flight.push(Nanos(1), None, 'd', 10, 100), "too many packets");
        assert!(flight.pop(Nanos(0)).is_none() && flight.pop(Nanos(1)).is_some());
        assert!(flight.push(Nanos(1), None, 'e', 90, 100));
    }
}
