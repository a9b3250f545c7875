//! Removes entries that the source lacks, and goes on after a failure.
//!
//! A server removes a directory with its content, so each one is emptied by entries, listed again, and removed only if empty.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use haul_store::{SourceNames, StoreError, check_new_path, name_hash, parse_haul_name};

use crate::dav::target::listings;
use crate::dav::target::tree::Tree;
use crate::web::index_page::too_long;
use crate::web::limits::{MAX_DEPTH, MAX_PAGE_BYTES};

pub(super) struct Deletion<'a> {
    pub(super) tree: &'a Arc<Tree>,
    pub(super) spare: &'a dyn Fn(&[u8], bool) -> bool,
    pub(super) dry_run: bool,
    pub(super) deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    pub(super) errors: Vec<StoreError>,
}

/// A name, and whether it is a directory.
type Entry = (Vec<u8>, bool);

impl Deletion<'_> {
    /// A missing directory counts as empty.
    pub(super) fn extraneous(&mut self, path: &[u8], has: &SourceNames) {
        let Some(entries) = self.list(path) else { return };
        let drafts: HashSet<u128> = has.names().map(name_hash).collect();
        let is_lacking =
            |(name, _): &Entry| !has.has(name) && !parse_haul_name(name).is_some_and(|hash| drafts.contains(&hash));
        for (name, is_directory) in entries.into_iter().filter(is_lacking) {
            self.remove_all(&join(path, &name), is_directory, 0);
        }
    }

    pub(super) fn entry(&mut self, path: &[u8]) {
        match self.tree.url(path).and_then(|url| self.tree.look(&url)) {
            Ok(Some(there)) => {
                self.remove_all(path, there.is_collection == Some(true), 0);
            }
            Ok(None) => {}
            Err(error) => self.errors.push(StoreError::new("look at", path, error)),
        }
    }

    fn list(&mut self, path: &[u8]) -> Option<Vec<Entry>> {
        let (mut entries, mut kept_bytes) = (Vec::new(), 0);
        let listed = self.tree.directory_url(path).and_then(|url| {
            listings::each(self.tree.client(), &url, &mut |name, properties| {
                check_new_path(&name)?;
                kept_bytes += name.len() + size_of::<Entry>();
                entries.push((name, properties.is_collection == Some(true)));
                if kept_bytes > MAX_PAGE_BYTES { Err(too_long()) } else { Ok(()) }
            })
        });
        match listed {
            Ok(()) => {
                entries.sort();
                entries.dedup();
                Some(entries)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
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
                let why = io::Error::new(io::ErrorKind::InvalidInput, "directories are nested too deep");
                self.errors.push(StoreError::new("delete", path, why));
                return false;
            }
            let Some(entries) = self.list(path) else { return false };
            let mut is_empty = true;
            for (name, is_directory) in entries {
                is_empty &= self.remove_all(&join(path, &name), is_directory, depth + 1);
            }
            // An entry may have come meanwhile.
            if !is_empty || (!self.dry_run && self.list(path).is_none_or(|entries| !entries.is_empty())) {
                return false;
            }
        }
        if !self.dry_run {
            let url = if is_directory { self.tree.directory_url(path) } else { self.tree.url(path) };
            match url.and_then(|url| self.tree.remove(&url)) {
                Ok(true) => self.tree.listings.note(path, None),
                Ok(false) => return true,
                Err(error) => {
                    self.errors.push(StoreError::new("delete", path, error));
                    return false;
                }
            }
        }
        (self.deleted)(path.to_vec(), is_directory);
        true
    }
}

fn join(directory: &[u8], name: &[u8]) -> Vec<u8> {
    if directory.is_empty() { name.to_vec() } else { [directory, b"/", name].concat() }
}
