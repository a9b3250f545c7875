//! Tells how a directory spells its names: where case or accents are ignored, only a listing tells.

use std::io;
use std::mem::MaybeUninit;
use std::os::fd::AsFd as _;

use rustix::fs::{AtFlags, Mode, OFlags, RawDir};
use unicode_normalization::UnicodeNormalization as _;

use crate::error::{Context, Result, StoreError, is_missing, refusal};
use crate::limits::{LISTING_BUFFER_BYTES, MAX_DIRECTORY_BYTES};
use crate::listing::are_listed;
use crate::local_tree::LocalTree;
use crate::meta::Stat;
use crate::name::{name_hash, part_name};
use crate::placed::TWIN;

/// The differences between names that a file system may ignore.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fold {
    /// Case: FAT, ext4 and XFS with their options, servers of Windows.
    Case,
    /// An accented letter, composed or decomposed (UAX #15: NFC, NFD): ZFS with `normalization`, HFS+.
    Accents,
}

impl Fold {
    /// A name that such a file system takes for the same. Only ASCII letters are swapped: other rules differ.
    pub fn respelled(self, name: &[u8]) -> Option<Vec<u8>> {
        if !self.concerns(name) {
            return None;
        }
        let other = match self {
            Fold::Case => name.iter().map(|byte| swapped(*byte)).collect(),
            Fold::Accents => {
                let text = str::from_utf8(name).ok()?;
                let composed: String = text.nfc().collect();
                if composed == text { text.nfd().collect::<String>() } else { composed }.into_bytes()
            }
        };
        (other != name).then_some(other)
    }

    /// Whether it may take another name for this.
    pub fn concerns(self, name: &[u8]) -> bool {
        match self {
            Fold::Case => name.iter().any(|byte| byte.is_ascii_alphabetic() || !byte.is_ascii()),
            Fold::Accents => !name.is_ascii(),
        }
    }
}

/// The entries of one directory, 32 bytes each.
#[derive(Debug)]
pub struct Spellings(Vec<(u64, u128)>);

impl Spellings {
    /// The [`name_hash`]es of this inode's names.
    pub fn of(&self, inode: u64) -> impl Iterator<Item = u128> {
        let start = self.0.partition_point(|(other, _)| *other < inode);
        self.0[start..].iter().take_while(move |(other, _)| *other == inode).map(|(_, name)| *name)
    }
}

impl LocalTree {
    /// Whether the entry is also found under another name by this fold, if it tells.
    pub fn is_found_respelled(&self, path: &[u8], fold: Fold) -> Option<bool> {
        let (dir, name) = self.place(path).ok()?;
        let other = fold.respelled(name)?;
        Stat::of_name(dir.as_fd(), name).ok()?;
        // Inode numbers do not tell: FUSE may number names. Two entries would both be listed.
        let is_found = Stat::of_name(dir.as_fd(), &other).is_ok();
        let are_two = || are_listed(dir.as_fd(), &[name_hash(name), name_hash(&other)]);
        if is_found { are_two().ok().map(|are_two| !are_two) } else { Some(false) }
    }

    /// Whether a directory lists all these different [`name_hash`]es.
    pub fn lists(&self, directory: &[u8], hashes: &[u128]) -> Result<bool> {
        match self.open_dir(directory).and_then(|dir| are_listed(dir.as_fd(), hashes)) {
            Err(error) if is_missing(&error) => Ok(false),
            listed => listed.context("list", directory),
        }
    }

    /// Whether a directory ignores case, by a test file.
    pub fn ignores_case(&self, directory: &[u8]) -> Option<bool> {
        let ask = || {
            let dir = self.open_dir(directory)?;
            let name = part_name(format!("case of {}", std::process::id()).as_bytes());
            let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            drop(rustix::io::retry_on_intr(|| rustix::fs::openat(&dir, &name, flags, Mode::RUSR | Mode::WUSR))?);
            let is_found = Stat::of_name(dir.as_fd(), &name.to_ascii_uppercase()).is_ok();
            rustix::fs::unlinkat(&dir, &name, AtFlags::empty())?;
            Ok::<bool, io::Error>(is_found)
        };
        ask().ok()
    }

    /// Lists how a directory spells its entries.
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
    /// The error for a name that the file system takes for another entry's.
    pub fn twin(path: &[u8]) -> StoreError {
        StoreError::new("write", path, refusal(std::io::ErrorKind::AlreadyExists, TWIN))
    }

    /// See [`StoreError::twin`].
    pub fn is_twin(&self) -> bool {
        self.source.raw_os_error().is_none() && self.source.to_string() == TWIN
    }
}

/// A name without what some file system ignores: case, accents, dots and spaces at the end (FAT).
pub(crate) fn folded(name: &[u8]) -> String {
    let mut text: String = String::from_utf8_lossy(name).to_lowercase().nfkd().collect();
    text.truncate(text.trim_end_matches(['.', ' ']).len());
    text
}

fn swapped(byte: u8) -> u8 {
    if byte.is_ascii_lowercase() { byte.to_ascii_uppercase() } else { byte.to_ascii_lowercase() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::local_tree::TargetOptions;

    #[test]
    fn a_directory_says_how_it_spells_what_stands_in_it() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["README", "42", "one"] {
            std::fs::write(dir.path().join(name), name).unwrap();
        }
        std::fs::hard_link(dir.path().join("one"), dir.path().join("two")).unwrap();
        let (tree, _) = LocalTree::open(dir.path().as_os_str().as_encoded_bytes(), &TargetOptions::default()).unwrap();
        let spellings = tree.spellings(b"").unwrap();
        let names = |path: &[u8]| {
            let mut names: Vec<u128> = spellings.of(tree.stat(path).unwrap().unwrap().id.ino).collect();
            names.sort_unstable();
            names
        };
        assert_eq!(names(b"README"), [name_hash(b"README")]);
        let mut both = [name_hash(b"one"), name_hash(b"two")];
        both.sort_unstable();
        assert_eq!(names(b"one"), both);
        assert_eq!(spellings.of(u64::MAX).count(), 0);
        assert_eq!(tree.is_found_respelled(b"README", Fold::Case), Some(false));
        assert_eq!(tree.is_found_respelled(b"one", Fold::Case), Some(false));
        std::fs::hard_link(dir.path().join("one"), dir.path().join("ONE")).unwrap();
        assert_eq!(tree.is_found_respelled(b"one", Fold::Case), Some(false), "a link of its own");
        for untold in [&b"42"[..], b"missing"] {
            assert_eq!(tree.is_found_respelled(untold, Fold::Case), None);
        }
    }

    #[test]
    fn names_have_other_spellings_under_a_fold() {
        let respelled =
            |fold: Fold, name: &str| fold.respelled(name.as_bytes()).map(|name| String::from_utf8(name).unwrap());
        let (composed, decomposed) = ("caf\u{e9}", "cafe\u{301}");
        assert_eq!(respelled(Fold::Accents, composed).as_deref(), Some(decomposed));
        assert_eq!(respelled(Fold::Accents, decomposed).as_deref(), Some(composed));
        // Composed and decomposed letters mixed, and one that is never composed (UAX #15, table 5).
        assert_eq!(respelled(Fold::Accents, "e\u{301}\u{e9}").as_deref(), Some("\u{e9}\u{e9}"));
        assert_eq!(respelled(Fold::Accents, "\u{958}").as_deref(), Some("\u{915}\u{93c}"));
        for plain in ["README", "\u{4e2d}", ""] {
            assert_eq!(respelled(Fold::Accents, plain), None, "{plain}");
        }
        assert_eq!(Fold::Accents.respelled(b"caf\xe9"), None, "no UTF-8");
        assert_eq!(respelled(Fold::Case, "Data.7z").as_deref(), Some("dATA.7Z"));
        assert_eq!(respelled(Fold::Case, "42"), None);
        assert!(Fold::Case.concerns("\u{e9}".as_bytes()) && Fold::Accents.concerns("\u{e9}".as_bytes()));
        assert!(Fold::Case.concerns(b"a") && !Fold::Accents.concerns(b"a"));
    }
}
