//! Remembers the entries that this job placed, to notice two source names that are one at the target, where case or an
//! accent's spelling is ignored.
//!
//! The sign: an inode has a name that this job did not give it. With several links it may have both: then the directory
//! lists both.

use std::collections::{HashMap, VecDeque};
use std::io;

use crate::limits::{MAX_PLACED, MAX_PLACED_LINKS};
use crate::meta::{Kind, Stat};
use crate::name::{name_hash, split};

type Inode = (u64, u64);

#[derive(Debug, Default)]
pub(crate) struct Placed {
    names: HashMap<Inode, Vec<Name>>,
    order: VecDeque<Inode>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Name {
    directory: u128,
    name: u128,
}

impl Name {
    fn of(path: &[u8]) -> Name {
        let (directory, name) = split(path);
        Name { directory: name_hash(directory), name: name_hash(name) }
    }
}

impl Placed {
    pub(crate) fn note(&mut self, stat: &Stat, path: &[u8]) {
        match self.names.get_mut(&inode(stat)) {
            // These names belong to an entry that is gone.
            Some(names) if has_one_name(stat) => *names = vec![Name::of(path)],
            _ => self.note_link(stat, path),
        }
    }

    pub(crate) fn note_link(&mut self, stat: &Stat, path: &[u8]) {
        let (inode, name) = (inode(stat), Name::of(path));
        let names = self.names.entry(inode).or_default();
        let is_new = names.is_empty();
        if !names.contains(&name) && names.len() < MAX_PLACED_LINKS {
            names.push(name);
        }
        if !is_new {
            return;
        }
        self.order.push_back(inode);
        if self.order.len() > MAX_PLACED
            && let Some(oldest) = self.order.pop_front()
        {
            self.names.remove(&oldest);
        }
    }

    /// Forgets a replaced entry: its inode number may soon be another's.
    pub(crate) fn forget(&mut self, stat: &Stat, path: &[u8]) {
        let (inode, name) = (inode(stat), Name::of(path));
        let Some(names) = self.names.get_mut(&inode) else { return };
        names.retain(|placed| *placed != name);
        if names.is_empty() {
            self.names.remove(&inode);
            self.order.retain(|placed| *placed != inode);
        }
    }

    pub(crate) fn is_noted(&self, standing: &Stat, path: &[u8]) -> bool {
        self.names.get(&inode(standing)).is_some_and(|names| names.contains(&Name::of(path)))
    }

    /// Whether the entry has another path, and this is no name of its own. `are_listed`: whether this path's directory lists
    /// these hashes.
    pub(crate) fn is_twin(
        &self,
        standing: &Stat,
        path: &[u8],
        are_listed: &mut dyn FnMut(&[u128]) -> io::Result<bool>,
    ) -> io::Result<bool> {
        let Some(names) = self.names.get(&inode(standing)) else { return Ok(false) };
        let own = Name::of(path);
        if names.contains(&own) {
            return Ok(false);
        }
        if has_one_name(standing) {
            return Ok(true);
        }
        let beside = names.iter().filter(|placed| placed.directory == own.directory).map(|placed| placed.name);
        let all: Vec<u128> = beside.chain([own.name]).collect();
        are_listed(&all).map(|are_listed| !are_listed)
    }
}

fn inode(stat: &Stat) -> Inode {
    (stat.id.dev, stat.id.ino)
}

fn has_one_name(stat: &Stat) -> bool {
    stat.nlink == 1 || stat.kind == Kind::Directory
}

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
        let is_twin = |placed: &Placed, stat: Stat, path: &[u8], listed: &[&[u8]]| {
            let has = |name: &u128| listed.iter().any(|listed| name_hash(listed) == *name);
            placed.is_twin(&stat, path, &mut |names| Ok(names.iter().all(has))).unwrap()
        };
        placed.note(&stat(1, 1, Kind::File), b"d/README");
        assert!(is_twin(&placed, stat(1, 1, Kind::File), b"d/readme", &[]));
        assert!(!is_twin(&placed, stat(1, 1, Kind::File), b"d/README", &[]), "the same name, from another source");
        assert!(!is_twin(&placed, stat(2, 1, Kind::File), b"d/readme", &[]), "another file");
        assert!(!is_twin(&placed, stat(1, 2, Kind::File), b"d/readme", &[b"readme", b"README"]), "a hard link");
        assert!(is_twin(&placed, stat(1, 2, Kind::File), b"d/readme", &[b"README", b"other"]), "with another link");
        assert!(is_twin(&placed, stat(1, 2, Kind::File), b"d/readme", &[b"readme"]), "that is how it was spelt before");
        placed.note_link(&stat(1, 2, Kind::File), b"d/other");
        assert!(is_twin(&placed, stat(1, 2, Kind::File), b"d/OTHER", &[b"README", b"other"]));
        assert!(!is_twin(&placed, stat(1, 2, Kind::File), b"e/other", &[b"other"]), "a link in another directory");
        assert!(is_twin(&placed, stat(1, 2, Kind::File), b"e/Other", &[b"other"]));
        for path in [b"d/README", &b"d/other"[..]] {
            placed.forget(&stat(1, 1, Kind::File), path);
        }
        assert!(
            !is_twin(&placed, stat(1, 1, Kind::File), b"d/readme", &[]),
            "it got no name, and its inode went to another file"
        );
        placed.note(&stat(3, 4, Kind::Directory), b"Dir");
        assert!(is_twin(&placed, stat(3, 4, Kind::Directory), b"dir", &[]));
    }

    #[test]
    fn it_remembers_no_more_than_agreed() {
        let mut placed = Placed::default();
        let mut stat = stat(0, 1, Kind::File);
        for ino in 0..MAX_PLACED as u64 + 5 {
            stat.id.ino = ino;
            placed.note(&stat, b"a");
        }
        assert_eq!((placed.names.len(), placed.order.len()), (MAX_PLACED, MAX_PLACED));
        stat.id.ino = 0;
        assert!(!placed.is_twin(&stat, b"A", &mut |_| Ok(false)).unwrap());
    }
}
