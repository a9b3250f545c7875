//! Counts for a deadline what was found so far, and what of it is over.

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Found {
    files: u64,
    bytes: u64,
    settled_files: u64,
    settled_bytes: u64,
}

impl Found {
    pub(super) fn file(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes = self.bytes.saturating_add(bytes);
    }

    pub(super) fn settled(&mut self, bytes: u64) {
        self.settled_files += 1;
        self.settled_bytes = self.settled_bytes.saturating_add(bytes);
    }

    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    pub(super) fn settled_files(&self) -> u64 {
        self.settled_files
    }

    /// Returns the bytes and files left of at least `foreseen_bytes`, when `confirmed_bytes` of open files have arrived. Files
    /// not found yet are reckoned to be like the others.
    pub(super) fn left(&self, foreseen_bytes: u64, confirmed_bytes: u64) -> (u64, u64) {
        let all = self.bytes.max(foreseen_bytes);
        let unfound = u128::from(all - self.bytes) * u128::from(self.files) / u128::from(self.bytes.max(1));
        let unfound = u64::try_from(unfound).unwrap_or(u64::MAX);
        let files = self.files.saturating_sub(self.settled_files).saturating_add(unfound);
        (all.saturating_sub(self.settled_bytes).saturating_sub(confirmed_bytes), files)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_no_walk_has_found_yet_is_of_files_like_those_that_it_has() {
        let mut found = Found::default();
        for _ in 0..10 {
            found.file(1_000);
        }
        found.settled(1_000);
        assert_eq!(found.left(0, 500), (8_500, 9));
        assert_eq!(found.left(100_000, 500), (98_500, 99));
        assert_eq!(Found::default().left(5, 0), (5, 0));
    }
}
