//! Entries that are left out of a walk because an earlier source has their names.

/// How many there are, and the first of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Duplicates {
    count: u64,
    first: Vec<Vec<u8>>,
}

impl Duplicates {
    /// So many names are kept: a sentence can name them.
    pub const MOST_NAMED: usize = 8;

    pub(crate) fn add(&mut self, path: &[u8]) {
        self.count += 1;
        if self.first.len() < Self::MOST_NAMED {
            self.first.push(path.to_vec());
        }
    }

    /// How many there are.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The paths of the first [`Duplicates::MOST_NAMED`], relative to the target.
    pub fn first(&self) -> &[Vec<u8>] {
        &self.first
    }
}
