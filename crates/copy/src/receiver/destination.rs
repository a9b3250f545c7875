//! Knows what the typed path means in the open tree, and which directories want a flush.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};

use haul_job::Error;
use haul_store::{Stat, StoreError, TargetTree, printable};
use haul_wire::control::Selection;
use haul_wire::manifest::Item;

use haul_kept::faults;
use haul_kept::sync::lock;

pub(super) struct Destination {
    tree: Arc<dyn TargetTree>,
    discards: bool,
    makes_files: bool,
    inplace: bool,
    flushes_names: bool,
    rename_to: Option<Vec<u8>>,
    root: Vec<u8>,
    dirty: Mutex<HashSet<Vec<u8>>>,
}

impl Destination {
    pub(super) fn new(
        tree: Arc<dyn TargetTree>,
        rename_to: Option<Vec<u8>>,
        root: Vec<u8>,
        selection: &Selection,
    ) -> Self {
        let abilities = tree.abilities();
        let discards = !abilities.keeps;
        Self {
            tree,
            discards,
            makes_files: !discards && !selection.dry_run,
            inplace: selection.inplace,
            flushes_names: selection.flush && abilities.flushes_names,
            rename_to,
            root,
            dirty: Mutex::default(),
        }
    }

    pub(super) fn tree(&self) -> &dyn TargetTree {
        &*self.tree
    }

    pub(super) fn root(&self) -> &[u8] {
        &self.root
    }

    pub(super) fn discards(&self) -> bool {
        self.discards
    }

    pub(super) fn makes_files(&self) -> bool {
        self.makes_files
    }

    /// Names are flushed with their directory.
    pub(super) fn flushes_names(&self) -> bool {
        self.flushes_names
    }

    pub(super) fn path_of(&self, item: &Item) -> Vec<u8> {
        match &self.rename_to {
            Some(name) => name.clone(),
            None => item.path.as_bytes().to_vec(),
        }
    }

    pub(super) fn is_renamed(&self) -> bool {
        self.rename_to.is_some()
    }

    pub(super) fn check_twin(&self, standing: &Stat, path: &[u8]) -> Result<(), StoreError> {
        self.tree.local().map_or(Ok(()), |tree| tree.check_twin(standing, path))
    }

    /// Counts the entry at this path as placed by this job.
    pub(super) fn keep(&self, standing: &Stat, path: &[u8]) {
        if let Some(tree) = self.tree.local() {
            tree.keep(standing, path);
        }
    }

    /// Removes parts of no use, unless this job makes none.
    pub(super) fn sweep(&self, sweep: impl FnOnce(&dyn TargetTree) -> bool) -> bool {
        self.makes_files && !self.inplace && sweep(&*self.tree)
    }

    pub(super) fn name_changed(&self, path: &[u8]) {
        lock(&self.dirty).insert(parent(path).to_vec());
    }

    pub(super) fn root_changed(&self) {
        lock(&self.dirty).insert(Vec::new());
    }

    /// Whether names changed in this directory since the last flush; they count as flushed from now on.
    pub(super) fn take_dirty(&self, directory: &[u8]) -> bool {
        lock(&self.dirty).remove(directory)
    }

    /// Single entries in the target itself have no directory end.
    pub(super) fn flush_remaining_directories(&self) -> Result<(), Error> {
        let dirty: Vec<Vec<u8>> = lock(&self.dirty).drain().collect();
        if self.flushes_names {
            for directory in dirty {
                self.tree.flush_dir(&directory).map_err(|error| faults::store_error_in(&error, &self.root))?;
            }
        }
        Ok(())
    }
}

pub(super) fn parent(path: &[u8]) -> &[u8] {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => &path[..slash],
        None => b"",
    }
}

pub(super) fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { printable(path) }
}
