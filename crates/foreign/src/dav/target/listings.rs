//! What directories of the target have, as they were listed: one request for a directory in place of one for each name.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use crate::dav::href::Names;
use crate::dav::multistatus::{Properties, Resource};
use crate::dav::propfind::{Depth, propfind};
use crate::http_client::client::{Client, lock};
use crate::http_client::url::Url;
use crate::web::index_page::MAX_NAME_BYTES;

/// Directories whose lists are kept. A session has entries of few directories open at a time.
const MAX_KEPT: usize = 8;

/// Entries of a directory that is kept, at most: about 32 MB. Names of a larger one are asked for one by one.
const MAX_ENTRIES: usize = 100_000;

/// The entries of a directory by their names.
pub(crate) type Entries = HashMap<Vec<u8>, Properties>;

/// Lists of directories, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<VecDeque<Kept>>);

/// The path of a directory and its entries. `None`: it is too large.
type Kept = (Vec<u8>, Option<Arc<Entries>>);

impl Listings {
    /// The entries of a directory, which has this URL. `None`: too many to keep.
    pub(crate) fn of(&self, client: &Client, url: &Url, directory: &[u8]) -> io::Result<Option<Arc<Entries>>> {
        // Others wait: they mostly ask for the same directory.
        let mut kept = lock(&self.0);
        if let Some((_, entries)) = kept.iter().find(|(path, _)| path == directory) {
            return Ok(entries.clone());
        }
        let mut entries = Some(Entries::new());
        each(client, url, &mut |name, properties| {
            // No name that this job brings is longer.
            if let Some(known) = entries.as_mut().filter(|_| name.len() <= MAX_NAME_BYTES) {
                known.insert(name, properties);
            }
            if entries.as_ref().is_some_and(|known| known.len() > MAX_ENTRIES) {
                entries = None;
            }
            Ok(())
        })?;
        let entries = entries.map(Arc::new);
        keep(&mut kept, directory, entries.clone());
        Ok(entries)
    }

    /// An entry has changed: it is like this now, or gone.
    pub(crate) fn note(&self, path: &[u8], now: Option<Properties>) {
        let (directory, name) = split(path);
        let mut kept = lock(&self.0);
        let Some((_, entries)) = kept.iter_mut().find(|(path, _)| path == directory) else { return };
        let Some(known) = entries else { return };
        let known = Arc::make_mut(known);
        match now {
            Some(now) => drop(known.insert(name.to_vec(), now)),
            None => drop(known.remove(name)),
        }
        if known.len() > MAX_ENTRIES {
            *entries = None;
        }
    }

    /// A directory was made: it is empty.
    pub(crate) fn begin(&self, directory: &[u8]) {
        self.note(directory, Some(Properties { is_collection: Some(true), ..Properties::default() }));
        self.forget(directory);
        keep(&mut lock(&self.0), directory, Some(Arc::default()));
    }

    /// Forgets a directory: its entries are not known any more.
    pub(crate) fn forget(&self, directory: &[u8]) {
        lock(&self.0).retain(|(path, _)| path != directory);
    }
}

fn keep(kept: &mut VecDeque<Kept>, directory: &[u8], entries: Option<Arc<Entries>>) {
    if kept.len() >= MAX_KEPT {
        kept.pop_front();
    }
    kept.push_back((directory.to_vec(), entries));
}

/// The directory of an entry, and its name there.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// Reads the entries of a directory.
pub(crate) fn each(
    client: &Client,
    url: &Url,
    take: &mut dyn FnMut(Vec<u8>, Properties) -> io::Result<()>,
) -> io::Result<()> {
    propfind(client, url, Depth::Children, &mut |found, Resource { at, mut properties }| {
        if let Some([name]) = at.beneath(&Names::of_path(found.path())) {
            properties.is_collection = Some(properties.is_collection.unwrap_or(at.has_slash));
            take(name.clone(), properties)?;
        }
        Ok(())
    })?;
    Ok(())
}
