//! Listings of the target's directories, in place of a request for each name.

use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Mutex};

use crate::dav::href::Names;
use crate::dav::multistatus::{Properties, Resource};
use crate::dav::propfind::{Depth, propfind};
use crate::http_client::client::{Client, lock};
use crate::http_client::url::Url;
use crate::web::index_page::MAX_NAME_BYTES;

/// A session has entries of few directories open.
const MAX_KEPT: usize = 8;

/// About 32 MB. Names of a larger directory are asked for one by one.
const MAX_ENTRIES: usize = 100_000;

pub(crate) type Entries = HashMap<Vec<u8>, Properties>;

/// The listings, the latest last.
#[derive(Debug, Default)]
pub(crate) struct Listings(Mutex<VecDeque<Kept>>);

/// `None`: the directory is too large.
type Kept = (Vec<u8>, Option<Arc<Entries>>);

impl Listings {
    /// `None`: the directory is too large.
    pub(crate) fn of(&self, client: &Client, url: &Url, directory: &[u8]) -> io::Result<Option<Arc<Entries>>> {
        // Others wait, mostly for the same directory.
        let mut kept = lock(&self.0);
        if let Some((_, entries)) = kept.iter().find(|(path, _)| path == directory) {
            return Ok(entries.clone());
        }
        let mut entries = Some(Entries::new());
        each(client, url, &mut |name, properties| {
            // This job brings no longer name.
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

    /// Notes a changed entry; `None`: it is gone.
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

    /// Notes a new, empty directory.
    pub(crate) fn begin(&self, directory: &[u8]) {
        self.note(directory, Some(Properties { is_collection: Some(true), ..Properties::default() }));
        self.forget(directory);
        keep(&mut lock(&self.0), directory, Some(Arc::default()));
    }

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

pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

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
