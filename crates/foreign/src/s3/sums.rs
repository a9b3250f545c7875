//! CRC64NVME, the sum that a store keeps: computed in any order, and combined.

use std::collections::BTreeMap;
use std::fmt;

use crc_fast::{CrcAlgorithm, Digest, checksum, checksum_combine};
use haul_net::base64_text;

pub(super) fn crc64(data: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, data)
}

/// Writes base64 of the eight bytes, the highest first.
pub(super) fn text(sum: u64) -> String {
    base64_text(&sum.to_be_bytes())
}

/// Whether a text is such a sum. Some stores put another in its place.
pub(super) fn is_one(text: &str) -> bool {
    text.len() == TEXT_CHARACTERS
}

const TEXT_CHARACTERS: usize = 12;

pub(super) fn joined(first: u64, second: u64, second_bytes: u64) -> u64 {
    checksum_combine(CrcAlgorithm::Crc64Nvme, first, second, second_bytes)
}

/// Sums of the ranges seen so far, by their beginnings.
#[derive(Default)]
pub(super) struct Ranges(BTreeMap<u64, Range>);

struct Range {
    end: u64,
    sum: Digest,
}

impl fmt::Debug for Ranges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ranges", self.0.len())
    }
}

/// About one range for each running chunk. A reader that jumps more has no sum.
const MAX_RANGES: usize = 4096;

/// A range that its reader extends alone.
pub(super) struct Longer {
    start: u64,
    range: Range,
}

impl Longer {
    /// Joining two sums takes longer than summing a block.
    pub(super) fn add(&mut self, data: &[u8]) {
        self.range.sum.update(data);
        self.range.end += data.len() as u64;
    }
}

impl Ranges {
    /// Takes the range that ends at `offset`, or an empty one; `None` if some of the next `bytes` were seen.
    pub(super) fn take(&mut self, offset: u64, bytes: u64) -> Option<Longer> {
        let before = self.0.range(..=offset).next_back().map(|(start, range)| (*start, range.end));
        let is_seen = before.is_some_and(|(_, end)| end > offset);
        let overlaps = self.0.range(offset..offset + bytes).next().is_some();
        if bytes == 0 || is_seen || overlaps || self.0.len() >= MAX_RANGES {
            return None;
        }
        let range =
            before.filter(|(_, end)| *end == offset).and_then(|(start, _)| Some((start, self.0.remove(&start)?)));
        let (start, range) =
            range.unwrap_or_else(|| (offset, Range { end: offset, sum: Digest::new(CrcAlgorithm::Crc64Nvme) }));
        Some(Longer { start, range })
    }

    /// Returns a range, joined with its neighbours.
    pub(super) fn put(&mut self, Longer { mut start, mut range }: Longer) {
        if let Some(after) = self.0.remove(&range.end) {
            range.sum.combine(&after.sum);
            range.end = after.end;
        }
        let before = self.0.range(..start).next_back().filter(|(_, before)| before.end == start).map(|(at, _)| *at);
        if let Some((at, before)) = before.and_then(|at| Some((at, self.0.remove(&at)?))) {
            let mut sum = before.sum;
            sum.combine(&range.sum);
            (start, range.sum) = (at, sum);
        }
        self.0.insert(start, range);
    }

    /// `None` until all were seen.
    pub(super) fn of_whole(&self, size: u64) -> Option<u64> {
        match self.0.first_key_value() {
            Some((0, range)) if range.end == size => Some(range.sum.finalize()),
            None if size == 0 => Some(crc64(b"")),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_of_the_standard_and_its_text() {
        assert_eq!((crc64(b"123456789"), text(crc64(b"123456789")).as_str()), (0xae8b_1486_0a79_9888, "rosUhgp5mIg="));
    }

    #[test]
    fn a_range_goes_on_behind_one_that_it_was_joined_with() {
        let data: Vec<u8> = (0..90_u8).collect();
        let mut ranges = Ranges::default();
        let mut lanes = [ranges.take(0, 10).unwrap(), ranges.take(30, 10).unwrap()];
        lanes[0].add(&data[..30]);
        lanes[1].add(&data[30..50]);
        let [first, second] = lanes;
        ranges.put(second);
        ranges.put(first);
        assert!(ranges.take(49, 10).is_none(), "it was seen");
        for (start, end) in [(60, 90), (50, 60)] {
            let mut longer = ranges.take(start as u64, (end - start) as u64).unwrap();
            longer.add(&data[start..end]);
            ranges.put(longer);
        }
        assert_eq!(ranges.of_whole(90), Some(crc64(&data)));
    }

    #[test]
    fn ranges_in_any_order_give_the_sum_of_the_whole() {
        let data: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut ranges = Ranges::default();
        for (start, end) in [(500, 700), (0, 100), (100, 300), (700, 1000), (600, 650), (300, 500), (0, 10)] {
            assert_eq!(ranges.of_whole(1000), None);
            if let Some(mut longer) = ranges.take(start as u64, (end - start) as u64) {
                longer.add(&data[start..end]);
                ranges.put(longer);
            }
            if (start, end) == (300, 500) {
                break;
            }
        }
        assert_eq!(ranges.of_whole(1000), Some(crc64(&data)));
        assert_eq!(ranges.of_whole(999), None);
    }
}
