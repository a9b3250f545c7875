//! The Adler-32 of a file whose parts come in any order.

use std::collections::BTreeMap;

use super::hasher::joined_adler32;

/// Separate parts of a file: begin, end and Adler-32. There are about as many as readers or writers: each goes on behind its last
/// part.
#[derive(Debug, Default)]
pub struct Adler32Parts(BTreeMap<u64, (u64, u32)>);

impl Adler32Parts {
    /// The Adler-32 of some bytes.
    pub fn sum_of(data: &[u8]) -> u32 {
        simd_adler32::adler32(&data)
    }

    /// Joins a part with its neighbours. False: some of it is there already, and nothing was added.
    pub fn add(&mut self, start: u64, bytes: u64, sum: u32) -> bool {
        let end = start + bytes;
        let before = self.0.range(..end).next_back().map(|(start, (end, sum))| (*start, *end, *sum));
        if before.is_some_and(|(_, before_end, _)| before_end > start) {
            return false;
        }
        let (mut start, mut end, mut sum) = (start, end, sum);
        if let Some((before, _, of_before)) = before.filter(|(_, before_end, _)| *before_end == start) {
            sum = joined_adler32(of_before, sum, end - start);
            start = before;
        }
        if let Some((behind_end, of_behind)) = self.0.remove(&end) {
            sum = joined_adler32(sum, of_behind, behind_end - end);
            end = behind_end;
        }
        self.0.insert(start, (end, sum));
        true
    }

    /// The sum of the first `size` bytes; `None` if the first part has another size.
    pub fn of_first(&self, size: u64) -> Option<u32> {
        self.0.get(&0).filter(|(end, _)| *end == size).map(|(_, sum)| *sum)
    }

    /// How many bytes were added.
    pub fn bytes(&self) -> u64 {
        self.0.iter().map(|(start, (end, _))| end - start).sum()
    }

    /// Whether nothing was added.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
