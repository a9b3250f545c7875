//! Groups the names of a walk by file: the first name is copied, each further name becomes a hard link to it.

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

/// How a name relates to the names that the walk saw before.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Name {
    /// The first name of its file, and how many further names the file has.
    First { further_names: u64 },
    /// Another name of the file whose first name stands at this path at the target.
    Further { first: Vec<u8> },
    /// Its file has several names, but [`MAX_HARD_LINK_GROUPS`] files are remembered already.
    Forgotten,
}

/// A file with names that the walk has not seen yet.
struct Group {
    first: Vec<u8>,
    names_left: u64,
    /// The source of the first name, and its path there if that differs from its path at the target.
    source: u32,
    source_path: Option<Vec<u8>>,
    /// Size and time when the first name was seen. If they differ, the inode number may belong to a new file: the first
    /// name is looked at again.
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
            // With all names seen the group is closed, so memory holds only open groups.
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
        // Each is a new file, and its name is the first name of the next entry with the same number.
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
