//! Remembers the entries that this job placed, to notice two source names that are one name at the target.
//!
//! Some file systems ignore upper and lower case, or the two spellings of an accent. There the entry of the first name
//! also appears under the second name, and the second entry must not replace it. The sign: an inode with one link is
//! found under two names.

use std::collections::{HashMap, VecDeque};

use crate::limits::MAX_PLACED;
use crate::meta::{Kind, Stat};
use crate::name::name_hash;

/// Device and inode.
type Inode = (u64, u64);

/// The last entries that were placed.
#[derive(Debug, Default)]
pub(crate) struct Placed {
    /// With a hash of the path.
    paths: HashMap<Inode, u128>,
    order: VecDeque<Inode>,
}

impl Placed {
    /// This entry stands at this path.
    pub(crate) fn note(&mut self, stat: &Stat, path: &[u8]) {
        let inode = (stat.id.dev, stat.id.ino);
        if self.paths.insert(inode, name_hash(path)).is_some() {
            return;
        }
        self.order.push_back(inode);
        if self.order.len() > MAX_PLACED
            && let Some(oldest) = self.order.pop_front()
        {
            self.paths.remove(&oldest);
        }
    }

    /// This entry was not placed there after all, or was replaced. Its inode number may soon belong to another entry.
    pub(crate) fn forget(&mut self, stat: &Stat, path: &[u8]) {
        let inode = (stat.id.dev, stat.id.ino);
        if self.paths.get(&inode) == Some(&name_hash(path)) {
            self.paths.remove(&inode);
            self.order.retain(|placed| *placed != inode);
        }
    }

    /// Whether the entry at this path was placed under another path. An entry with several hard links may have both
    /// names, so the answer is no.
    pub(crate) fn is_twin(&self, standing: &Stat, path: &[u8]) -> bool {
        let has_one_name = standing.nlink == 1 || standing.kind == Kind::Directory;
        let placed = self.paths.get(&(standing.id.dev, standing.id.ino));
        has_one_name && placed.is_some_and(|placed| *placed != name_hash(path))
    }
}

/// Why the second name fails.
pub(crate) const TWIN: &str = "another entry of this copy has the name already: the file system takes both for one (upper and lower case, accents)";

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(ino: u64, nlink: u64, kind: Kind) -> Stat {
        let file = tempfile::tempfile().unwrap();
        let mut stat = Stat::of_fd(&file).unwrap();
        (stat.id.ino, stat.nlink, stat.kind) = (ino, nlink, kind);
        stat
    }

    #[test]
    fn an_inode_under_another_name_is_a_twin_unless_it_has_several() {
        let mut placed = Placed::default();
        placed.note(&stat(1, 1, Kind::File), b"d/README");
        assert!(placed.is_twin(&stat(1, 1, Kind::File), b"d/readme"));
        assert!(!placed.is_twin(&stat(1, 1, Kind::File), b"d/README"), "the same name, from another source");
        assert!(!placed.is_twin(&stat(2, 1, Kind::File), b"d/readme"), "another file");
        assert!(!placed.is_twin(&stat(1, 2, Kind::File), b"d/readme"), "a hard link");
        placed.forget(&stat(1, 1, Kind::File), b"d/README");
        assert!(
            !placed.is_twin(&stat(1, 1, Kind::File), b"d/readme"),
            "it got no name, and its inode went to another file"
        );
        placed.note(&stat(3, 4, Kind::Directory), b"Dir");
        assert!(placed.is_twin(&stat(3, 4, Kind::Directory), b"dir"));
    }

    #[test]
    fn it_remembers_no_more_than_agreed() {
        let mut placed = Placed::default();
        let mut stat = stat(0, 1, Kind::File);
        for ino in 0..MAX_PLACED as u64 + 5 {
            stat.id.ino = ino;
            placed.note(&stat, b"a");
        }
        assert_eq!((placed.paths.len(), placed.order.len()), (MAX_PLACED, MAX_PLACED));
        stat.id.ino = 0;
        assert!(!placed.is_twin(&stat, b"A"));
    }
}
