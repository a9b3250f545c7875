//! Names of the source may be one name at the target, however far apart they come.
//!
//! Some file systems take different spellings for one name: upper and lower case, or the ways to write an accent. The tree
//! remembers the names placed last (`store/placed.rs`); this module finds twins further apart.
//!
//! The first entry with another spelling tells: once it stands, it is looked for under that spelling. Until then, and on such a
//! file system, names of open directories are kept: 50 bytes each.
//!
//! Where file systems number names, not files (FUSE, SMB), a twin's inode tells nothing. So a name that differs in case alone
//! makes us ask whether the file system tells them apart.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};

use haul_store::{Fold, LocalTree, Spellings, Stat, StoreError, name_hash};
use haul_wire::limits::MAX_OPEN_ITEMS;

use super::destination::parent;

/// A candidate that does not stand yet is looked for again after so many items.
const LOOK_EVERY: u64 = 256;

/// After so many looks another candidate is taken: 64 x 256 items are as many as may be open at once.
const LOOKS_MAX: u64 = MAX_OPEN_ITEMS as u64 / LOOK_EVERY;

/// 50 MiB of names until the answer; then only names placed last are compared.
const NAMES_MAX: u64 = 1 << 20;

pub(super) struct Twins {
    folds: [Question; 2],
    items: u64,
    names: u64,
    /// The outermost directory has the sources themselves.
    directories: Vec<Directory>,
}

/// A way in which names differ that may be one at the target.
struct Question {
    fold: Fold,
    answer: Option<bool>,
    candidate: Option<(Vec<u8>, u64)>,
}

#[derive(Default)]
struct Directory {
    names: HashSet<u128>,
    /// Each name in lower case leads to its first name.
    lower: HashMap<u128, u128>,
    listing: Option<Spellings>,
    /// A twin, into which nothing is put.
    is_refused: bool,
}

impl Default for Twins {
    fn default() -> Self {
        let folds = [Fold::Case, Fold::Accents].map(|fold| Question { fold, answer: None, candidate: None });
        Self { folds, items: 0, names: 0, directories: vec![Directory::default()] }
    }
}

impl Twins {
    pub(super) fn takes_names_for_one(&self) -> bool {
        self.folds.iter().any(|question| question.answer == Some(true))
    }

    pub(super) fn enter_directory(&mut self, is_refused: bool) {
        self.directories.push(Directory { is_refused, ..Directory::default() });
    }

    pub(super) fn leave_directory(&mut self) {
        self.directories.pop();
    }

    /// Enters the next name of the innermost directory; `standing` is at its path. Fails for another entry of this job. Only
    /// file systems take two names for one, so others have no `tree`. `makes_files`: a file may be made to find out.
    pub(super) fn check(
        &mut self,
        tree: Option<&LocalTree>,
        makes_files: bool,
        path: &[u8],
        standing: Option<&Stat>,
    ) -> Result<(), StoreError> {
        if self.directories.last().is_some_and(|directory| directory.is_refused) {
            return Err(StoreError::twin(path));
        }
        let Some(tree) = tree else { return Ok(()) };
        if self.folds.iter().any(|question| question.answer.is_none()) {
            self.learn(tree, path);
        }
        let concerned = |question: &Question| question.answer != Some(false) && question.fold.concerns(last(path));
        if !self.folds.iter().any(concerned) {
            return Ok(());
        }
        let takes_one = self.takes_names_for_one();
        let Some(directory) = self.directories.last_mut() else { return Ok(()) };
        let [case, _] = &mut self.folds;
        if case.answer != Some(false)
            && let Some(first) = directory.first_in_other_case(last(path))
            && case.is_twin(tree, makes_files, path, first)?
        {
            return Err(StoreError::twin(path));
        }
        if let Some(standing) = standing.filter(|_| takes_one)
            && directory.has_another_name(tree, path, standing)?
        {
            return Err(StoreError::twin(path));
        }
        directory.names.insert(name_hash(last(path)));
        self.names += u64::from(!takes_one);
        Ok(())
    }

    fn learn(&mut self, tree: &LocalTree, path: &[u8]) {
        self.items += 1;
        for question in &mut self.folds {
            if question.answer.is_none() {
                question.look(tree, path, self.items.is_multiple_of(LOOK_EVERY));
                if self.names >= NAMES_MAX {
                    question.answer.get_or_insert(false);
                }
            }
        }
        if self.folds.iter().all(|question| question.answer == Some(false)) {
            let forget = |directory: &mut Directory| {
                (directory.names, directory.lower) = (HashSet::new(), HashMap::new());
            };
            self.directories.iter_mut().for_each(forget);
        }
    }
}

impl Question {
    /// Whether a name is the same as `first`, which differs in case alone.
    fn is_twin(&mut self, tree: &LocalTree, makes_files: bool, path: &[u8], first: u128) -> Result<bool, StoreError> {
        if tree.lists(parent(path), &[first, name_hash(last(path))])? {
            return Ok(false);
        }
        if self.answer.is_none() && makes_files {
            self.answer = tree.ignores_case(parent(path));
        }
        Ok(self.answer == Some(true))
    }

    /// Takes this entry as the candidate if there is none, and looks at it when it is `time`.
    fn look(&mut self, tree: &LocalTree, path: &[u8], time: bool) {
        if self.candidate.is_none() && self.fold.respelled(last(path)).is_some() {
            self.candidate = Some((path.to_vec(), 0));
        }
        if let Some((candidate, looks)) = &mut self.candidate
            && time
        {
            self.answer = tree.is_found_respelled(candidate, self.fold);
            *looks += 1;
            if *looks >= LOOKS_MAX {
                self.candidate = None;
            }
        }
    }
}

impl Directory {
    fn first_in_other_case(&mut self, name: &[u8]) -> Option<u128> {
        let own = name_hash(name);
        match self.lower.entry(name_hash(String::from_utf8_lossy(name).to_lowercase().as_bytes())) {
            Entry::Occupied(first) => Some(*first.get()).filter(|first| *first != own),
            Entry::Vacant(free) => {
                free.insert(own);
                None
            }
        }
    }

    /// Whether the entry at this path has an earlier name of this directory.
    fn has_another_name(&mut self, tree: &LocalTree, path: &[u8], standing: &Stat) -> Result<bool, StoreError> {
        // An older listing may lack what was made since, or name another entry with this inode.
        if self.spells_otherwise(path, standing) != Some(false) {
            self.listing = Some(tree.spellings(parent(path))?);
        }
        Ok(self.spells_otherwise(path, standing) == Some(true))
    }

    fn spells_otherwise(&self, path: &[u8], standing: &Stat) -> Option<bool> {
        let mut names = self.listing.as_ref()?.of(standing.id.ino).peekable();
        names.peek()?;
        let own = name_hash(last(path));
        Some(names.all(|name| name != own && self.names.contains(&name)))
    }
}

fn last(path: &[u8]) -> &[u8] {
    path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
}
