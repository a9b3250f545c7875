//! The tree that is written, as its parts share it: places of paths, what stands there, names that replace others.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{Time, check_path};
use rustix::io::Errno;

use super::listings::Listings;
use crate::codec::listing::{EntryType, Facts};
use crate::paths::join;
use crate::refusal::{is_missing, missing};
use crate::server::{Matter, Server};
use crate::source::Served;

/// The tree that is written.
#[derive(Debug)]
pub(crate) struct Tree {
    pub(super) server: Arc<Server>,
    /// At the server. `None` in a dry run into a missing directory.
    root: Option<Vec<u8>>,
    pub(super) listings: Listings,
    /// Reads files of it.
    pub(super) served: Arc<Served>,
    pub(super) in_place: bool,
}

impl Tree {
    pub(super) fn new(server: Arc<Server>, root: Option<Vec<u8>>, in_place: bool) -> Arc<Tree> {
        let served = Served::new(Arc::clone(&server));
        Arc::new(Tree { server, root, listings: Listings::default(), served, in_place })
    }

    pub(super) fn root(&self) -> Option<&[u8]> {
        self.root.as_deref()
    }

    pub(super) fn is_missing(&self) -> bool {
        self.root.is_none()
    }

    pub(super) fn begun(&self) -> Time {
        self.server.begun
    }

    /// The path at the server. All directories on the way are directories and no links, as far as the server tells: a link could lead out
    /// of the tree. Somebody else who may write there can still put a link there afterwards.
    pub(super) fn place(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        check_path(path)?;
        let root = self.root.as_deref().ok_or(Errno::NOENT)?;
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        for directory in ends.map(|end| &path[..end]) {
            match self.look_listed(root, directory)?.map(|facts| facts.kind) {
                Some(EntryType::Directory) => {}
                Some(EntryType::Link(_)) => return Err(Errno::LOOP.into()),
                Some(_) => return Err(Errno::NOTDIR.into()),
                None => return Err(missing()),
            }
        }
        Ok(join(root, path))
    }

    /// What stands at a path, whose directories are known to be some.
    fn look_listed(&self, root: &[u8], path: &[u8]) -> io::Result<Option<Facts>> {
        let (directory, name) = split(path);
        match self.listings.of(&self.server, &join(root, directory), directory) {
            Ok(Some(entries)) => Ok(entries.get(name).cloned()),
            Ok(None) => self.server.look(&join(root, path)),
            Err(error) if is_missing(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// What stands at a path. `None`: nothing, or a directory on the way is missing.
    pub(super) fn look(&self, path: &[u8]) -> io::Result<Option<Facts>> {
        let place = match self.place(path) {
            Err(error) if is_missing(&error) => return Ok(None),
            place => place?,
        };
        if path.is_empty() {
            return self.server.look(&place);
        }
        let root = self.root.as_deref().ok_or(Errno::NOENT)?;
        let Some(listed) = self.look_listed(root, path)? else { return Ok(None) };
        let is_exact = listed.size.is_some() && listed.modified.is_some_and(|modified| modified.is_exact);
        if listed.kind != EntryType::File || is_exact || self.server.has_no_sizes() {
            return Ok(Some(listed));
        }
        // A list of LIST tells no exact times.
        let now = self.server.look_at_files(std::slice::from_ref(&place))?.into_iter().next().flatten();
        let Some(now) = now else {
            return Ok(self.server.has_no_sizes().then_some(listed));
        };
        let now = Facts { mode: listed.mode, modified: now.modified.or(listed.modified), ..now };
        self.note(path, Some(now.clone()));
        Ok(Some(now))
    }

    /// An entry has changed: it is like this now, or gone.
    pub(super) fn note(&self, path: &[u8], now: Option<Facts>) {
        let (directory, name) = split(path);
        if now.as_ref().is_none_or(|facts| facts.kind != EntryType::Directory) {
            self.listings.forget(path);
        }
        self.listings.note(directory, name, now);
    }

    /// Removes what is not there any more from what is known.
    pub(super) fn remove(&self, path: &[u8], is_directory: bool) -> io::Result<()> {
        let place = self.place(path)?;
        match is_directory {
            true => self.server.remove_directory(&place)?,
            false => self.server.remove_file(&place)?,
        }
        self.note(path, None);
        Ok(())
    }

    /// Renames onto a file, never onto a directory.
    pub(super) fn rename_over(&self, from: &[u8], to: &[u8]) -> io::Result<()> {
        rename_over(&self.server, from, to)
    }
}

/// Renames onto a file or link, never onto a directory. Some servers do not rename onto anything: there what stands there goes first.
pub(crate) fn rename_over(server: &Server, from: &[u8], to: &[u8]) -> io::Result<()> {
    let Err(error) = server.rename(from, to) else { return Ok(()) };
    let may_stand_in_the_way = matches!(error.kind(), ErrorKind::Other | ErrorKind::PermissionDenied);
    if !may_stand_in_the_way {
        return Err(error);
    }
    match server.look(to)?.map(|facts| facts.kind) {
        Some(EntryType::File) if server.look(from)?.is_some() => {}
        Some(EntryType::Directory) => return Err(Errno::ISDIR.into()),
        _ => return Err(error),
    }
    // Who may not remove it has lost nothing.
    server.remove_file(to).map_err(|_| error)?;
    server.tell(Matter::Renames);
    server.rename(from, to)
}

/// The directory of an entry of the tree, and its name there.
pub(super) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}
