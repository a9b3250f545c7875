//! Groups a walk's names by file: the first is copied, further ones become hard links.

use std::collections::HashMap;
use std::os::fd::AsFd;

use haul_sys::beneath::{self, Links};
use rustix::fs::{Mode, OFlags};

use crate::at::At;
use crate::limits::MAX_HARD_LINK_GROUPS;
use crate::meta::{Stat, Time};
use crate::source::SourceSet;

#[derive(Default)]
pub(crate) struct HardLinks {
    groups: HashMap<(u64, u64), Group>,
}

#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The file's first name.
    First { further_names: u64 },
    /// The first name has this path at the target.
    Further { first: Vec<u8> },
    /// [`MAX_HARD_LINK_GROUPS`] files are remembered already.
    Forgotten,
}

struct Group {
    first: Vec<u8>,
    names_left: u64,
    source: u32,
    source_path: Option<Vec<u8>>,
    /// If size or time differ later, the inode number may be a new file's: the first name is looked at again.
    size: u64,
    mtime: Time,
}

impl HardLinks {
    pub(crate) fn note(&mut self, at: At<'_>, path: &[u8], stat: &Stat) -> Name {
        if stat.nlink < 2 {
            return Name::First { further_names: 0 };
        }
        let key = (stat.id.dev, stat.id.ino);
        if let Some(group) = self.groups.get_mut(&key).filter(|group| group.has(stat, at.set)) {
            let first = group.first.clone();
            group.names_left -= 1;
            // Memory holds only groups with unseen names.
            if group.names_left == 0 {
                self.groups.remove(&key);
            }
            return Name::Further { first };
        }
        if self.groups.len() >= MAX_HARD_LINK_GROUPS && !self.groups.contains_key(&key) {
            return Name::Forgotten;
        }
        let (first, names_left) = (path.to_vec(), stat.nlink - 1);
        let source_path = (at.source_path != path).then(|| at.source_path.to_vec());
        let group = Group { first, names_left, source: at.source, source_path, size: stat.size, mtime: stat.mtime };
        self.groups.insert(key, group);
        Name::First { further_names: names_left }
    }
}

impl Group {
    fn has(&self, stat: &Stat, set: &SourceSet) -> bool {
        (self.size, self.mtime) == (stat.size, stat.mtime) || self.is_still(stat, set)
    }

    fn is_still(&self, stat: &Stat, set: &SourceSet) -> bool {
        let root = set.source(self.source).root.as_fd();
        let path = self.source_path.as_deref().unwrap_or(&self.first);
        beneath::open(root, path, OFlags::PATH | OFlags::NOFOLLOW, Mode::empty(), Links::Refused)
            .and_then(Stat::of_fd)
            .is_ok_and(|now| now.is_same_inode(stat))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::meta::{FileId, Kind, Version};
    use crate::resolve::ResolveOptions;

    const FIRST: Name = Name::First { further_names: 2 };

    fn stat(ino: u64, size: u64, mtime: Time) -> Stat {
        let (id, version) = (FileId { dev: 1, ino }, Version::default());
        Stat { kind: Kind::File, mode: 0o644, size, blocks: 8, mtime, id, version, nlink: 3, uid: 0, gid: 0 }
    }

    #[test]
    fn a_new_file_with_the_inode_number_of_a_deleted_one_is_no_name_of_it() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().as_os_str().as_encoded_bytes().to_vec();
        let set = SourceSet::resolve(&[path], &ResolveOptions::default()).unwrap();
        let mut links = HardLinks::default();
        let mut note = |path: &str, stat: &Stat| {
            let (dir, path) = (set.source(0).root.as_fd(), path.as_bytes());
            links.note(At { set: &set, source: 0, dir, name: path, source_path: path }, path, stat)
        };
        let link = |first: &str| Name::Further { first: first.as_bytes().to_vec() };
        let time = |s, ns| Time { s, ns };
        let (first, other) = (stat(7, 100, time(5, 5)), stat(8, 100, time(5, 5)));
        assert_eq!(note("a", &first), FIRST);
        assert_eq!(note("b", &first), link("a"));
        assert_eq!(note("c", &other), FIRST);
        for (name, second_name, new) in [
            ("d", "e", stat(7, 99, time(5, 5))),
            ("f", "g", stat(7, 99, time(6, 5))),
            ("h", "i", stat(7, 99, time(6, 6))),
            ("j", "k", stat(7, 0, time(7, 0))),
        ] {
            assert_eq!(note(name, &new), FIRST, "{name}");
            assert_eq!(note(second_name, &new), link(name));
        }
        assert_eq!((note("l", &other), note("m", &other)), (link("c"), link("c")));
        assert_eq!(note("n", &other), FIRST, "all names of the former were seen");
    }
}
