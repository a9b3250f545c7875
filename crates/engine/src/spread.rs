//! Which range of the queue a lane takes from, where a source is slow for a reader that jumps.
//!
//! A web server's request names the end of its run. So a lane takes a run of chunks, its own while other work waits. Runs get
//! shorter with the work, so that lanes end together; a lane without work halves the longest rest. Without ranges one lane reads
//! a whole file.

use alloc::collections::{BTreeMap, VecDeque};
use core::cmp::Reverse;

use haul_wire::control::ChunkRange;

/// How chunks are spread over lanes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Spread {
    /// In order, to the next free lane.
    #[default]
    InTurn,
    /// A lane goes on where it was.
    Runs {
        /// The lanes among which the work is divided.
        lanes: u32,
        /// The rest of another lane is halved if each half has so many chunks: what a jump costs.
        worth: u32,
    },
    /// A whole file to one lane.
    OneLane,
}

/// Each lane's next file index and chunk. A range that begins there is its run's rest.
#[derive(Debug, Default)]
pub(crate) struct Places(BTreeMap<u16, (u64, u32)>);

/// A queue may have thousands of small files.
const LOOKED_AT: usize = 512;

/// A run's round trip of rest makes long runs worth it; an eighth evens out different speeds.
const SHARE_OF_RUN: (u64, u64) = (7, 8);

const SHORTEST_RUN: u32 = 4;

impl Places {
    pub(crate) fn take(
        &mut self,
        lane: u16,
        queue: &mut VecDeque<(u64, ChunkRange)>,
        spread: Spread,
    ) -> Option<(u64, u32)> {
        let mut at = self.find(lane, queue, spread)?;
        if let Spread::Runs { lanes, worth } = spread {
            at = self.begin_run(lane, queue, at, lanes, worth);
        }
        let (index, range) = &mut queue[at];
        let taken = (*index, range.first);
        range.first += 1;
        range.count -= 1;
        let is_over = range.count == 0;
        if is_over {
            queue.remove(at);
        }
        match spread {
            Spread::InTurn => {}
            // The place behind a run is anybody's.
            Spread::Runs { .. } if is_over => drop(self.0.remove(&lane)),
            Spread::Runs { .. } | Spread::OneLane => drop(self.0.insert(lane, (taken.0, taken.1.saturating_add(1)))),
        }
        Some(taken)
    }

    /// Cuts a range in two, if need be. Returns this lane's part.
    fn begin_run(
        &self,
        lane: u16,
        queue: &mut VecDeque<(u64, ChunkRange)>,
        at: usize,
        lanes: u32,
        worth: u32,
    ) -> usize {
        let (index, range) = queue[at];
        if self.0.get(&lane) == Some(&(index, range.first)) {
            return at;
        }
        let (is_of_another, shortest) = (self.is_of_another(lane, queue[at]), SHORTEST_RUN.max(worth));
        let first = match is_of_another {
            true => range.count.div_ceil(2),
            false => {
                let left: u64 = queue.iter().take(LOOKED_AT).map(|(_, range)| u64::from(range.count)).sum();
                let share = left.div_ceil(u64::from(lanes.max(1)));
                let run = left * SHARE_OF_RUN.0 / SHARE_OF_RUN.1 / u64::from(lanes.max(1));
                // Less than half a jump's cost is not left over.
                let run = if share - run < u64::from(worth / 2) { share } else { run };
                let run = u32::try_from(run).unwrap_or(u32::MAX).max(shortest);
                // A short rest goes with the run.
                if range.count - range.count.min(run) < shortest { range.count } else { run }
            }
        };
        if first >= range.count {
            return at;
        }
        queue[at].1.count = first;
        queue.insert(at + 1, (index, ChunkRange { first: range.first + first, count: range.count - first }));
        if is_of_another { at + 1 } else { at }
    }

    pub(crate) fn run_of(&self, lane: u16, queue: &VecDeque<(u64, ChunkRange)>) -> Option<(u64, u32)> {
        let place = self.0.get(&lane)?;
        let mut looked = queue.iter().take(LOOKED_AT);
        let (index, range) = looked.find(|(index, range)| (*index, range.first) == *place)?;
        Some((*index, range.first.saturating_add(range.count)))
    }

    pub(crate) fn has_some(&self, lane: u16, queue: &VecDeque<(u64, ChunkRange)>, spread: Spread) -> bool {
        self.find(lane, queue, spread).is_some()
    }

    pub(crate) fn leave(&mut self, lane: u16) {
        self.0.remove(&lane);
    }

    pub(crate) fn forget(&mut self, index: u64) {
        self.0.retain(|_, place| place.0 != index);
    }

    fn find(&self, lane: u16, queue: &VecDeque<(u64, ChunkRange)>, spread: Spread) -> Option<usize> {
        let looked = || queue.iter().take(LOOKED_AT).enumerate();
        let own = self.0.get(&lane);
        match spread {
            Spread::InTurn => (!queue.is_empty()).then_some(0),
            Spread::Runs { worth, .. } => {
                let goes_on = looked().find(|(_, (index, range))| own == Some(&(*index, range.first)));
                let free = || looked().find(|(_, range)| !self.is_of_another(lane, **range));
                let longest = || {
                    let worth_it = looked().filter(|(_, (_, range))| range.count / 2 >= worth);
                    worth_it.max_by_key(|(at, (_, range))| (range.count, Reverse(*at)))
                };
                goes_on.or_else(free).or_else(longest).map(|(at, _)| at)
            }
            Spread::OneLane => {
                let is_had = |index: u64| self.0.iter().any(|(other, place)| *other != lane && place.0 == index);
                let goes_on = looked().find(|(_, (index, _))| own.is_some_and(|own| own.0 == *index));
                goes_on.or_else(|| looked().find(|(_, (index, _))| !is_had(*index))).map(|(at, _)| at)
            }
        }
    }

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

    const THREE: Spread = Spread::Runs { lanes: 3, worth: 0 };

    #[test]
    fn lanes_take_runs_that_get_shorter_and_go_on_in_them() {
        let (mut places, mut queue) = (Places::default(), queue(&[(7, 0, 60)]));
        let mut runs = |lanes: &[u16]| take(&mut places, &mut queue, THREE, lanes);
        assert_eq!(runs(&[0, 1, 2]), [(7, 0), (7, 17), (7, 34)], "17 of 60 each");
        assert_eq!(runs(&[0, 1, 2, 0]), [(7, 1), (7, 18), (7, 35), (7, 2)]);
        assert_eq!(runs(&[0; 15]).last(), Some(&(7, 50)), "its run is over, and it takes what the others left");
        assert_eq!((places.run_of(0, &queue), places.run_of(1, &queue)), (Some((7, 60)), Some((7, 34))));
        places.leave(1);
        assert_eq!(
            take(&mut places, &mut queue, THREE, &[0, 3]),
            [(7, 51), (7, 19)],
            "where a lane left, another goes on"
        );
    }

    #[test]
    fn a_lane_that_finds_nothing_else_halves_the_longest_rest() {
        let (mut places, mut queue) = (Places::default(), queue(&[(7, 0, 9)]));
        let mut runs = |lanes: &[u16]| take(&mut places, &mut queue, Spread::Runs { lanes: 1, worth: 0 }, lanes);
        assert_eq!(runs(&[0, 1]), [(7, 0), (7, 5)], "all, for a rest would be too short, and a half of it");
        assert_eq!(runs(&[2, 3]), [(7, 3), (7, 8)], "of 1 to 4, and of 6 to 8");
        let rest = runs(&[0; 9]);
        assert_eq!((rest.len(), queue.len()), (5, 0), "{rest:?}");
    }

    #[test]
    fn a_rest_that_is_not_worth_a_jump_is_left_to_its_lane_until_somebody_has_waited_long() {
        let (mut places, mut queue) = (Places::default(), queue(&[(7, 0, 9)]));
        let strict = Spread::Runs { lanes: 1, worth: 4 };
        assert_eq!(take(&mut places, &mut queue, strict, &[0, 1]), [(7, 0), (7, 5)], "of 1 to 8");
        assert_eq!(take(&mut places, &mut queue, strict, &[2]), [], "of 1 to 4");
        assert!(!places.has_some(2, &queue, strict) && places.has_some(0, &queue, strict));
        assert_eq!(take(&mut places, &mut queue, Spread::Runs { lanes: 1, worth: 0 }, &[2]), [(7, 3)], "of 1 to 4");
    }

    #[test]
    fn small_files_go_in_their_order_and_come_before_the_halves_of_others() {
        let (mut places, mut queue) = (Places::default(), queue(&[(0, 0, 7), (1, 0, 1), (2, 0, 1), (3, 0, 7)]));
        assert_eq!(take(&mut places, &mut queue, THREE, &[0, 1, 1, 1, 2]), [(0, 0), (1, 0), (2, 0), (3, 0), (0, 4)]);
    }

    #[test]
    fn every_chunk_is_taken_once_whatever_lanes_come_and_leave() {
        let (mut places, mut queue) = (Places::default(), queue(&[(0, 0, 100), (1, 3, 1), (2, 0, 40)]));
        let mut taken = Vec::new();
        for turn in 0u16.. {
            let lane = turn * 7 % 5;
            if turn % 11 == 0 {
                places.leave(lane);
            }
            let Some(chunk) = places.take(lane, &mut queue, Spread::Runs { lanes: 5, worth: 0 }) else { break };
            taken.push(chunk);
        }
        taken.sort_unstable();
        let all = (0..100).map(|chunk| (0, chunk)).chain([(1, 3)]).chain((0..40).map(|chunk| (2, chunk)));
        assert_eq!(taken, all.collect::<Vec<_>>());
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
