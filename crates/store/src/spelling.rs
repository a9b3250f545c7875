//! How a directory spells its names. On a file system that takes upper and lower case for one, an entry is found under names that nobody
//! gave it, and only a listing tells which one it has.

use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

use rustix::fs::RawDir;

use crate::error::{Context, Result, StoreError, refusal};
use crate::limits::{LISTING_BUFFER_BYTES, MAX_DIRECTORY_BYTES};
use crate::meta::{Kind, Stat};
use crate::name::name_hash;
use crate::placed::TWIN;
use crate::tree::TargetTree;

/// The entries of one directory: 16 bytes each.
#[derive(Debug)]
pub struct Spellings(Vec<(u64, u64)>);

impl Spellings {
    /// Hashes ([`name_hash`]) of the names that this inode has.
    pub fn of(&self, inode: u64) -> impl Iterator<Item = u64> {
        let start = self.0.partition_point(|(other, _)| *other < inode);
        self.0[start..].iter().take_while(move |(other, _)| *other == inode).map(|(_, name)| *name)
    }
}

impl TargetTree {
    /// Whether what stands at this path is found with its letters (ASCII) in the other case, too. `None`: nothing can be told from it.
    pub fn is_found_in_other_case(&self, path: &[u8]) -> Option<bool> {
        let (dir, name) = self.place(path).ok()?;
        let other: Vec<u8> = name.iter().map(|byte| swapped(*byte)).collect();
        let standing = Stat::of_name(dir.as_fd(), name).ok()?;
        // Two links to one file may well have such names.
        let may_be_two = standing.nlink > 1 && standing.kind != Kind::Directory;
        if other == name || may_be_two {
            return None;
        }
        let found = Stat::of_name(dir.as_fd(), &other);
        Some(found.is_ok_and(|found| found.is_same_inode(&standing)))
    }

    /// How a directory spells the names of its entries.
    pub fn spellings(&self, directory: &[u8]) -> Result<Spellings> {
        let read = || {
            let dir = self.open_dir(directory)?;
            let mut buffer = vec![MaybeUninit::uninit(); LISTING_BUFFER_BYTES];
            let mut listing = RawDir::new(&dir, &mut buffer);
            let mut entries = Vec::new();
            while let Some(entry) = listing.next() {
                let entry = entry?;
                entries.push((entry.ino(), name_hash(entry.file_name().to_bytes())));
                if size_of_val(&entries[..]) > MAX_DIRECTORY_BYTES {
                    return Err(refusal(std::io::ErrorKind::FileTooLarge, "the directory holds too many names"));
                }
            }
            entries.sort_unstable();
            Ok(Spellings(entries))
        };
        read().context("list", directory)
    }
}

impl StoreError {
    /// Another entry of the job has this name on a file system that takes both for one.
    pub fn twin(path: &[u8]) -> StoreError {
        StoreError::new("write", path, refusal(std::io::ErrorKind::AlreadyExists, TWIN))
    }

    /// See [`StoreError::twin`].
    pub fn is_twin(&self) -> bool {
        self.source.raw_os_error().is_none() && self.source.to_string() == TWIN
    }
}

fn swapped(byte: u8) -> u8 {
    if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tree::TargetOptions;

    #[test]
    fn a_directory_says_how_it_spells_what_stands_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["README", "42", "one"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::fs::hard_link(dir.path().join("one"), dir.path().join("two")).unwrap();
        let (tree, _) = TargetTree::open(dir.path().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap();
        let spellings = tree.spellings(b"").unwrap();
        let names = |path: &[u8]| {
            let mut names: Vec<u64> = spellings.of(tree.stat(path).unwrap().unwrap().id.ino).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(b"README"), [name_hash(b"README")]);
        let mut both = [name_hash(b"one"), name_hash(b"two")];
        both.sort_unstable();
        assert_eq!(names(b"one"), both);
        assert_eq!(spellings.of(u64::MAX).count(), 0);
        assert_eq!(tree.is_found_in_other_case(b"README"), Some(false));
        for untold in [&b"42"[..], b"one", b"missing"] {
            assert_eq!(tree.is_found_in_other_case(untold), None);
        }
    }
}
