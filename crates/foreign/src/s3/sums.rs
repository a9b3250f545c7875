//! CRC64NVME, the sum that a store keeps of an object: of what was read or sent in any order, combined to that of the whole.

use std::collections::BTreeMap;

use crc_fast::{CrcAlgorithm, checksum, checksum_combine};
use haul_net::base64_text;

/// The CRC64NVME of these bytes.
pub(super) fn crc64(data: &[u8]) -> u64 {
    checksum(CrcAlgorithm::Crc64Nvme, data)
}

/// As a header has it: base64 of the eight bytes, the highest first.
pub(super) fn text(sum: u64) -> String {
    base64_text(&sum.to_be_bytes())
}

/// Whether a store's text is such a sum: base64 of eight bytes. Some stores put another one in its place.
pub(super) fn is_one(text: &str) -> bool {
    text.len() == TEXT_CHARACTERS
}

const TEXT_CHARACTERS: usize = 12;

/// The sum of a whole that is made of two parts.
pub(super) fn joined(first: u64, second: u64, second_bytes: u64) -> u64 {
    checksum_combine(CrcAlgorithm::Crc64Nvme, first, second, second_bytes)
}

/// The sums of the ranges that were seen so far.
#[derive(Debug, Default)]
pub(super) struct Ranges(BTreeMap<u64, (u64, u64)>);

/// Ranges that do not touch. A lane reads on, so there is about one for each chunk that is under way; a reader that jumps more has
/// no sum.
const MAX_RANGES: usize = 4096;

impl Ranges {
    /// Enters what stands at `offset`. What was seen before is left out.
    pub(super) fn enter(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let before = self.0.range(..=offset).next_back().map(|(start, range)| (*start, *range));
        let is_seen = before.is_some_and(|(_, (before_end, _))| before_end > offset);
        let overlaps = self.0.range(offset..end).next().is_some();
        if data.is_empty() || is_seen || overlaps || self.0.len() >= MAX_RANGES {
            return;
        }
        let mut range = (offset, end, crc64(data));
        if let Some((start, (before_end, sum))) = before
            && before_end == offset
        {
            range = (start, end, joined(sum, range.2, end - offset));
        }
        if let Some((after_end, sum)) = self.0.remove(&end) {
            range = (range.0, after_end, joined(range.2, sum, after_end - end));
        }
        self.0.insert(range.0, (range.1, range.2));
    }

    /// The sum of the first `size` bytes, once all were seen.
    pub(super) fn of_whole(&self, size: u64) -> Option<u64> {
        match self.0.first_key_value() {
            Some((0, (end, sum))) if *end == size => Some(*sum),
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
    fn ranges_in_any_order_give_the_sum_of_the_whole() {
        let data: Vec<u8> = (0..1000_u32).map(|at| (at * 7 % 251) as u8).collect();
        let mut ranges = Ranges::default();
        for (start, end) in [(500, 700), (0, 100), (100, 300), (700, 1000), (600, 650), (300, 500), (0, 10)] {
            assert_eq!(ranges.of_whole(1000), None);
            ranges.enter(start as u64, &data[start..end]);
            if (start, end) == (300, 500) {
                break;
            }
        }
        assert_eq!(ranges.of_whole(1000), Some(crc64(&data)));
        assert_eq!(ranges.of_whole(999), None);
    }
}
