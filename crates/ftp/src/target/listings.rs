//! What directories of the target have, as they were listed: one list for a directory in place of questions for each name.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::codec::listing::{EntryType, Facts};
use crate::limits::{MAX_KEPT_ENTRIES, MAX_KEPT_LISTINGS};
use crate::paths::is_name;
use crate::server::Server;

/// The entries of a directory by their names.
type Entries = HashMap<Vec<u8>, Facts>;

/// Lists of directories, the latest last.
#[derive(Debug, Default)]
pub(super) struct Listings(Mutex<VecDeque<Kept>>);

/// The path of a directory and its entries. `None`: it is too large.
type Kept = (Vec<u8>, Option<Arc<Entries>>);

impl Listings {
    fn lock(&self) -> MutexGuard<'_, VecDeque<Kept>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The entries of a directory, which has this path at the server. `None`: too many to keep.
    pub(super) fn of(&self, server: &Server, place: &[u8], directory: &[u8]) -> io::Result<Option<Arc<Entries>>> {
        // Others wait: they mostly ask for the same directory.
        let mut kept = self.lock();
        if let Some((_, entries)) = kept.iter().find(|(path, _)| path == directory) {
            return Ok(entries.clone());
        }
        let mut entries = Some(Entries::new());
        server.list(place, &mut |entry| {
            // No name that this job brings is other than a name.
            if let Some(known) = entries.as_mut().filter(|_| is_name(&entry.name)) {
                known.insert(entry.name, entry.facts);
            }
            if entries.as_ref().is_some_and(|known| known.len() > MAX_KEPT_ENTRIES) {
                entries = None;
            }
            Ok(())
        })?;
        let entries = entries.map(Arc::new);
        keep(&mut kept, directory, entries.clone());
        Ok(entries)
    }

    /// An entry has changed: it is like this now, or gone.
    pub(super) fn note(&self, directory: &[u8], name: &[u8], now: Option<Facts>) {
        let mut kept = self.lock();
        let Some((_, entries)) = kept.iter_mut().find(|(path, _)| path == directory) else { return };
        let Some(known) = entries else { return };
        let known = Arc::make_mut(known);
        match now {
            Some(now) => drop(known.insert(name.to_vec(), now)),
            None => drop(known.remove(name)),
        }
        if known.len() > MAX_KEPT_ENTRIES {
            *entries = None;
        }
    }

    /// A directory was made: it is empty.
    pub(super) fn begin(&self, path: &[u8], directory: &[u8], name: &[u8]) {
        self.note(directory, name, Some(Facts { kind: EntryType::Directory, ..Facts::default() }));
        self.forget(path);
        keep(&mut self.lock(), path, Some(Arc::default()));
    }

    /// Forgets a directory: its entries are not known any more.
    pub(super) fn forget(&self, directory: &[u8]) {
        self.lock().retain(|(path, _)| path != directory);
    }
}

fn keep(kept: &mut VecDeque<Kept>, directory: &[u8], entries: Option<Arc<Entries>>) {
    if kept.len() >= MAX_KEPT_LISTINGS {
        kept.pop_front();
    }
    kept.push_back((directory.to_vec(), entries));
}
