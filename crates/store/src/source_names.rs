//! The names that a directory has at the source, for `--delete`.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

use crate::error::refusal;
use crate::listing::{Hint, Names};
use crate::meta::{FileId, Kind, Stat};
use crate::name::{name_hash, parse_haul_name};
use crate::spelling::folded;

/// Names of one directory, 12 bytes more each.
#[derive(Debug, Default)]
pub struct SourceNames(Names);

impl SourceNames {
    /// Adds a name. Fails beyond a directory's bound.
    pub fn add(&mut self, name: &[u8]) -> io::Result<()> {
        self.0.add(name, 0, Hint::Unknown)
    }

    /// Whether no entry is wanted.
    pub fn is_empty(&self) -> bool {
        self.0.len() == 0
    }

    /// Sorts the names, after the last.
    pub fn seal(&mut self) {
        self.0.sort();
    }

    /// The memory that the names take.
    pub fn memory_bytes(&self) -> usize {
        self.0.memory_bytes()
    }

    /// The names, sorted.
    pub fn names(&self) -> impl Iterator<Item = &[u8]> {
        self.0.all().map(|(name, _)| name)
    }

    /// Whether the source has this name.
    pub fn has(&self, name: &[u8]) -> bool {
        self.0.has(name)
    }

    /// The listed entries that the source lacks, but not drafts and journals of its names.
    pub(crate) fn lacks(&self, listed: &Names) -> io::Result<Names> {
        let mut drafts: Option<HashSet<u128>> = None;
        let hashes = || self.0.all().map(|(name, _)| name_hash(name)).collect();
        let mut beyond = Names::default();
        for (name, hint) in listed.all() {
            let of_draft = |hash| drafts.get_or_insert_with(hashes).contains(&hash);
            if !self.has(name) && !parse_haul_name(name).is_some_and(of_draft) {
                beyond.add(name, 0, hint)?;
            }
        }
        beyond.sort();
        Ok(beyond)
    }

    /// Removes from `beyond` the entries that the file system, by its own rules, finds under a source's name (case, accents,
    /// dots at the end). Fails if it cannot tell. `beyond` has the entries of `dir` that the source lacks byte for byte,
    /// `listed` all.
    pub(crate) fn keep_respelled(&self, dir: BorrowedFd<'_>, listed: &Names, beyond: Names) -> io::Result<Names> {
        if beyond.len() == 0 {
            return Ok(beyond);
        }
        let mut found = Vec::new();
        for (name, _) in self.0.all().filter(|(name, _)| !listed.has(name)) {
            match Stat::of_name(dir, name) {
                Ok(stat) => found.push((name, stat)),
                // The name is missing, or invalid on this file system.
                Err(Errno::NOENT | Errno::NAMETOOLONG | Errno::INVAL | Errno::ILSEQ) => {}
                Err(error) => return Err(error.into()),
            }
        }
        if found.is_empty() {
            return Ok(beyond);
        }
        let mut stays = vec![false; beyond.len()];
        let standing = Standing::of(dir, &beyond)?;
        // All are looked at only if the others do not tell.
        let mut all: Option<Standing> = None;
        for (name, stat) in &found {
            let mut same = standing.numbered(stat);
            let alike = standing.alike(name);
            // Another link to the file is not the same name.
            let several_links = stat.nlink > 1 && stat.kind != Kind::Directory;
            if same.is_empty() || (several_links && same.iter().any(|at| alike.contains(at))) {
                // Many FUSE file systems number names, not files.
                same = alike;
            }
            if same.is_empty() {
                let all = match &mut all {
                    Some(all) => all,
                    none => none.insert(Standing::of(dir, listed)?),
                };
                if all.numbered(stat).is_empty() && all.alike(name).is_empty() {
                    return Err(refusal(io::ErrorKind::InvalidData, UNLISTED));
                }
            }
            same.iter().for_each(|at| stays[*at] = true);
        }
        let mut left = Names::default();
        for ((name, hint), _) in beyond.all().zip(&stays).filter(|(_, stays)| !**stays) {
            left.add(name, 0, hint)?;
        }
        left.sort();
        Ok(left)
    }
}

impl<'a> FromIterator<&'a [u8]> for SourceNames {
    /// # Panics
    /// With more names than a directory may have.
    fn from_iter<I: IntoIterator<Item = &'a [u8]>>(names: I) -> Self {
        let mut all = Self::default();
        names.into_iter().for_each(|name| all.add(name).expect("a directory has fewer names"));
        all.seal();
        all
    }
}

struct Standing {
    by_number: HashMap<FileId, Vec<usize>>,
    by_folded_name: HashMap<String, Vec<usize>>,
}

impl Standing {
    fn of(dir: BorrowedFd<'_>, names: &Names) -> io::Result<Standing> {
        let mut standing = Standing { by_number: HashMap::new(), by_folded_name: HashMap::new() };
        for (at, (name, _)) in names.all().enumerate() {
            match Stat::of_name(dir, name) {
                Ok(stat) => standing.by_number.entry(stat.id).or_default().push(at),
                Err(Errno::NOENT) => continue,
                Err(error) => return Err(error.into()),
            }
            standing.by_folded_name.entry(folded(name)).or_default().push(at);
        }
        Ok(standing)
    }

    fn numbered(&self, stat: &Stat) -> &[usize] {
        self.by_number.get(&stat.id).map_or(&[], Vec::as_slice)
    }

    fn alike(&self, name: &[u8]) -> &[usize] {
        self.by_folded_name.get(&folded(name)).map_or(&[], Vec::as_slice)
    }
}

const UNLISTED: &str = "the directory has entries of the source under names that it does not list, so nobody knows what the source lacks; nothing is deleted here";
