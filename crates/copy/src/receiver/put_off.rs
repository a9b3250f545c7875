//! Deletions wait until all of the source is known: whoever has typed the wrong source loses nothing.
//!
//! ```text
//! end of a directory: what is extra there is noted -> all is settled -> it is deleted
//!                                                          or: it is most of what stood here, and stays
//! ```

use std::io;
use std::os::fd::BorrowedFd;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use haul_kept::sync::lock;
use haul_store::PathList;

/// Among so few entries, a wrong source shows.
const FEW_ENTRIES: u64 = 100;

#[derive(Default)]
pub(super) struct PutOff {
    paths: Mutex<Option<PathList>>,
    /// Entries within noted directories count, too.
    entries: AtomicU64,
    staying: AtomicU64,
}

pub(super) struct Due {
    pub(super) paths: PathList,
    pub(super) entries: u64,
    /// Entries that stood here before, including those to delete.
    pub(super) of: u64,
}

impl PutOff {
    pub(super) fn note(&self, path: &[u8], root: Option<BorrowedFd<'_>>) -> io::Result<()> {
        let mut paths = lock(&self.paths);
        let list = match paths.take() {
            Some(list) => list,
            None => PathList::new(root)?,
        };
        paths.insert(list).add(path)
    }

    pub(super) fn count_entry(&self) {
        self.entries.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn count_staying(&self) {
        self.staying.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn take(&self) -> Option<Due> {
        let paths = lock(&self.paths).take()?;
        let entries = self.entries.swap(0, Ordering::Relaxed);
        Some(Due { paths, entries, of: entries + self.staying.load(Ordering::Relaxed) })
    }
}

impl Due {
    /// Whether more than half of many entries would go.
    pub(super) fn is_suspect(&self) -> bool {
        self.of > FEW_ENTRIES && self.entries > self.of / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn due(entries: u64, staying: u64) -> Due {
        let put_off = PutOff::default();
        put_off.note(b"path", None).unwrap();
        (0..entries).for_each(|_| put_off.count_entry());
        (0..staying).for_each(|_| put_off.count_staying());
        put_off.take().unwrap()
    }

    #[test]
    fn more_than_half_of_more_than_a_hundred_is_suspect() {
        for (entries, staying, expected) in
            [(1, 0, false), (100, 0, false), (101, 0, true), (51, 50, true), (50, 51, false), (500, 500, false)]
        {
            assert_eq!(due(entries, staying).is_suspect(), expected, "{entries} beside {staying}");
        }
        assert!(PutOff::default().take().is_none());
    }
}
