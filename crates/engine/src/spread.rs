//! Which range of the queue a lane takes from, where it matters to the source whether a reader goes on or jumps.
//!
//! A place of a web server costs a request: a lane goes on where it was, and a lane without a place halves the longest rest, as
//! download managers do. A server without ranges sends a file from front to back: one lane has it.

use alloc::collections::{BTreeMap, VecDeque};
use core::cmp::Reverse;

use haul_wire::control::ChunkRange;

/// How the chunks of a file are spread over lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// In their order, each to the next lane that has time.
    #[default]
    InTurn,
    /// In runs: a lane goes on where it was.
    Runs,
    /// All of a file to one lane, in their order.
    OneLane,
}

/// Where each lane goes on: the file's index, and the chunk.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<u16, (u64, u32)>);

/// Ranges that are looked at for one take, of a queue that may have thousands of small files.
const LOOKED_AT: usize = 512;

impl Places {
    /// Takes the next chunk for a lane.
    pub(crate) fn take(
        &mut self,
        lane: u16,
        queue: &mut VecDeque<(u64, ChunkRange)>,
        spread: Spread,
    ) -> Option<(u64, u32)> {
        let at = self.find(lane, queue, spread)?;
        let at = match queue[at].1.count {
            count @ 2.. if spread == Spread::Runs && self.is_of_another(lane, queue[at]) => {
                let (index, range) = queue[at];
                let first = count.div_ceil(2);
                queue[at].1.count = first;
                queue.insert(at + 1, (index, ChunkRange { first: range.first + first, count: count - first }));
                at + 1
            }
            _ => at,
        };
        let (index, range) = &mut queue[at];
        let taken = (*index, range.first);
        range.first += 1;
        range.count -= 1;
        if range.count == 0 {
            queue.remove(at);
        }
        match spread {
            Spread::InTurn => {}
            Spread::Runs | Spread::OneLane => drop(self.0.insert(lane, (taken.0, taken.1.saturating_add(1)))),
        }
        Some(taken)
    }

    /// Whether there is something for this lane.
    pub(crate) fn has_some(&self, lane: u16, queue: &VecDeque<(u64, ChunkRange)>, spread: Spread) -> bool {
        self.find(lane, queue, spread).is_some()
    }

    /// The lane does not go on.
    pub(crate) fn leave(&mut self, lane: u16) {
        self.0.remove(&lane);
    }

    /// Nobody goes on with this file.
    pub(crate) fn forget(&mut self, index: u64) {
        self.0.retain(|_, place| place.0 != index);
    }

    fn find(&self, lane: u16, queue: &VecDeque<(u64, ChunkRange)>, spread: Spread) -> Option<usize> {
        let looked = || queue.iter().take(LOOKED_AT).enumerate();
        let own = self.0.get(&lane);
        match spread {
            Spread::InTurn => (!queue.is_empty()).then_some(0),
            Spread::Runs => {
                let goes_on = looked().find(|(_, (index, range))| own == Some(&(*index, range.first)));
                let free = || looked().find(|(_, range)| !self.is_of_another(lane, **range));
                let longest = || looked().max_by_key(|(at, (_, range))| (range.count, Reverse(*at)));
                goes_on.or_else(free).or_else(longest).map(|(at, _)| at)
            }
            Spread::OneLane => {
                let is_had = |index: u64| self.0.iter().any(|(other, place)| *other != lane && place.0 == index);
                let goes_on = looked().find(|(_, (index, _))| own.is_some_and(|own| own.0 == *index));
                goes_on.or_else(|| looked().find(|(_, (index, _))| !is_had(*index))).map(|(at, _)| at)
            }
        }
    }

    /// Whether another lane is about to go on with this range.
    fn is_of_another(&self, lane: u16, (index, range): (u64, ChunkRange)) -> bool {
        self.0.iter().any(|(other, place)| *other != lane && *place == (index, range.first))
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec::Vec;

    use super::*;

    fn queue(ranges: &[(u64, u32, u32)]) -> VecDeque<(u64, ChunkRange)> {
        ranges.iter().map(|(index, first, count)| (*index, ChunkRange { first: *first, count: *count })).collect()
    }

    fn take(
        places: &mut Places,
        queue: &mut VecDeque<(u64, ChunkRange)>,
        spread: Spread,
        lanes: &[u16],
    ) -> Vec<(u64, u32)> {
        lanes.iter().filter_map(|lane| places.take(*lane, queue, spread)).collect()
    }

    #[test]
    fn lanes_go_on_where_they_were_and_one_that_has_no_place_halves_the_longest_rest() {
        let (mut places, mut queue) = (Places::default(), queue(&[(7, 0, 17)]));
        let runs = |places: &mut Places, queue: &mut _, lanes: &[u16]| take(places, queue, Spread::Runs, lanes);
        assert_eq!(
            runs(&mut places, &mut queue, &[0, 1, 2, 0, 1, 2]),
            [(7, 0), (7, 9), (7, 5), (7, 1), (7, 10), (7, 6)]
        );
        assert_eq!(
            runs(&mut places, &mut queue, &[2, 2, 2]),
            [(7, 7), (7, 8), (7, 14)],
            "the longest rest is 11 to 16"
        );
        places.leave(1);
        assert_eq!(runs(&mut places, &mut queue, &[0, 3]), [(7, 2), (7, 11)], "where a lane left, another goes on");
        let rest = runs(&mut places, &mut queue, &[0; 9]);
        assert_eq!((rest.len(), queue.len()), (6, 0), "{rest:?}");
    }

    #[test]
    fn files_come_before_halves_and_small_files_in_their_order() {
        let (mut places, mut queue) = (Places::default(), queue(&[(0, 0, 9), (1, 0, 1), (2, 0, 1), (3, 0, 9)]));
        assert_eq!(
            take(&mut places, &mut queue, Spread::Runs, &[0, 1, 1, 1, 2]),
            [(0, 0), (1, 0), (2, 0), (3, 0), (0, 5)]
        );
    }

    #[test]
    fn a_file_that_one_lane_has_is_left_to_it_until_it_leaves() {
        let (mut places, mut queue) = (Places::default(), queue(&[(0, 0, 2), (0, 5, 2), (1, 0, 2)]));
        let one = |places: &mut Places, queue: &mut _, lanes: &[u16]| take(places, queue, Spread::OneLane, lanes);
        assert_eq!(one(&mut places, &mut queue, &[0, 1, 2, 0, 0]), [(0, 0), (1, 0), (0, 1), (0, 5)]);
        assert!(!places.has_some(2, &queue, Spread::OneLane) && places.has_some(0, &queue, Spread::OneLane));
        places.leave(0);
        assert_eq!(one(&mut places, &mut queue, &[2, 0]), [(0, 6)]);
        places.forget(1);
        assert_eq!(one(&mut places, &mut queue, &[0]), [(1, 1)]);
    }
}
