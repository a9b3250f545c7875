//! Removes the entries of the target that the source lacks. Never follows a link, and goes on after a failure.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{SourceNames, StoreError, name_hash, parse_haul_name};

use super::tree::{Tree, split};
use crate::codec::listing::EntryType;
use crate::limits::MAX_DEPTH;
use crate::paths::join;
use crate::refusal::is_missing;
use crate::source::Names;

/// A deletion, and who is told of it.
pub(super) struct Deletion<'a> {
    pub(super) tree: &'a Arc<Tree>,
    pub(super) spare: &'a dyn Fn(&[u8], bool) -> bool,
    pub(super) dry_run: bool,
    pub(super) deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    pub(super) errors: Vec<StoreError>,
}

impl Deletion<'_> {
    /// Removes what the source lacks in a directory. A missing directory counts as empty.
    pub(super) fn extraneous(&mut self, path: &[u8], has: &SourceNames) {
        let Some(names) = self.list(path) else { return };
        if let Err(error) = self.check_spelling(path, has, &names) {
            return self.errors.push(StoreError::new("delete what the source lacks in", path, error));
        }
        let drafts: HashSet<u128> = has.names().map(name_hash).collect();
        for entry in names.entries {
            let is_draft = parse_haul_name(&entry.name).is_some_and(|hash| drafts.contains(&hash));
            if !has.has(&entry.name) && !is_draft {
                self.remove_all(&join(path, &entry.name), entry.facts.kind == EntryType::Directory, 0);
            }
        }
    }

    /// Removes one entry with all that lies in it.
    pub(super) fn entry(&mut self, path: &[u8]) {
        match self.tree.look(path) {
            Ok(Some(facts)) => drop(self.remove_all(path, facts.kind == EntryType::Directory, 0)),
            Ok(None) => {}
            Err(error) => self.errors.push(StoreError::new("look at", path, error)),
        }
    }

    /// Many servers take two spellings for one name (case, accents). An entry that is found under a name of the source, and is not listed so,
    /// must not be deleted under the name by which it is listed.
    fn check_spelling(&self, path: &[u8], has: &SourceNames, names: &Names) -> io::Result<()> {
        if names.entries.iter().all(|entry| has.has(&entry.name)) {
            return Ok(());
        }
        let place = self.tree.place(path)?;
        for name in has.names().filter(|name| names.of(name).is_none()) {
            if self.tree.server.look(&join(&place, name))?.is_some() {
                return Err(io::Error::new(ErrorKind::InvalidData, UNLISTED));
            }
        }
        Ok(())
    }

    /// The names of a directory. `None`: it is missing, or cannot be read.
    fn list(&mut self, path: &[u8]) -> Option<Names> {
        match self.tree.place(path).and_then(|place| Names::read(&self.tree.server, &place)) {
            Ok(names) => {
                for name in &names.refused.0 {
                    let why = io::Error::new(ErrorKind::InvalidData, "the server lists a name that no file can have");
                    self.errors.push(StoreError::new("delete", name, why));
                }
                Some(names)
            }
            Err(error) if is_missing(&error) => None,
            Err(error) => {
                self.errors.push(StoreError::new("read directory", path, error));
                None
            }
        }
    }

    /// Returns whether it is gone.
    fn remove_all(&mut self, path: &[u8], is_directory: bool, depth: usize) -> bool {
        if (self.spare)(path, is_directory) {
            return false;
        }
        if is_directory {
            if depth >= MAX_DEPTH {
                let why = io::Error::new(ErrorKind::InvalidInput, "directories are nested too deep");
                self.errors.push(StoreError::new("delete", path, why));
                return false;
            }
            let Some(names) = self.list(path) else { return false };
            let mut is_empty = names.refused.0.is_empty();
            for entry in names.entries {
                let is_directory = entry.facts.kind == EntryType::Directory;
                is_empty &= self.remove_all(&join(path, &entry.name), is_directory, depth + 1);
            }
            if !is_empty {
                return false;
            }
        }
        if !self.dry_run {
            match self.tree.remove(path, is_directory) {
                Ok(()) => {}
                Err(error) if is_missing(&error) || self.is_gone(path) => return true,
                Err(error) => {
                    self.errors.push(StoreError::new("delete", path, error));
                    return false;
                }
            }
        }
        (self.deleted)(path.to_vec(), is_directory);
        true
    }

    fn is_gone(&self, path: &[u8]) -> bool {
        self.tree.listings.forget(split(path).0);
        matches!(self.tree.look(path), Ok(None))
    }
}

const UNLISTED: &str = "the server finds an entry under a name of the source that it does not list, so nobody knows what the source lacks; nothing is deleted here";
