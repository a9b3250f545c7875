//! Entries left out of a walk because an earlier source has their names.

/// Their number, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    count: u64,
    first: Vec<Vec<u8>>,
}

impl Duplicates {
    /// As many names as a sentence can hold.
    pub const MOST_NAMED: usize = 8;

    pub(crate) fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.first.len() < Self::MOST_NAMED {
            self.first.push(path.to_vec());
        }
    }

    /// Their number.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The first paths, relative to the target.
    pub fn first(&self) -> &[Vec<u8>] {
        &self.first
    }
}
