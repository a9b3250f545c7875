//! Removes the entries of the target that the source lacks. Never follows a link, and goes on after a failure.

use std::collections::HashSet;
use std::io;
use std::sync::Arc;

use haul_store::{SourceNames, StoreError, name_hash, parse_haul_name};

use super::tree::{Tree, is_missing};
use crate::entry;
use crate::limits::MAX_DEPTH;
use crate::listing::{Listed, Listing};
use crate::paths::{join, split};

/// What is removed, and who is told.
pub(super) struct Deletion<'a> {
    pub tree: &'a Arc<Tree>,
    pub spare: &'a dyn Fn(&[u8], bool) -> bool,
    pub dry_run: bool,
    pub deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    pub errors: Vec<StoreError>,
}

struct Frame {
    path: Vec<u8>,
    names: std::vec::IntoIter<Listed>,
    /// Something in the directory stays, so the directory stays.
    spared: bool,
}

impl Deletion<'_> {
    /// Removes what the source lacks in a directory. A missing directory counts as empty.
    pub(super) fn extraneous(&mut self, path: &[u8], has: &SourceNames) {
        let Some(Frame { names, .. }) = self.list(path) else { return };
        let names: Vec<Listed> = names.collect();
        if let Err(error) = self.check_spelling(path, has, &names) {
            return self.errors.push(StoreError::new("delete what the source lacks in", path, error));
        }
        let mut drafts: Option<HashSet<u128>> = None;
        let hashes = || has.names().map(name_hash).collect();
        let mut is_lacking = |listed: &Listed| {
            let of_draft = |hash| drafts.get_or_insert_with(hashes).contains(&hash);
            !has.has(&listed.name) && !parse_haul_name(&listed.name).is_some_and(of_draft)
        };
        let lacking: Vec<Listed> = names.into_iter().filter(&mut is_lacking).collect();
        self.run(Frame { path: path.to_vec(), names: lacking.into_iter(), spared: false });
    }

    /// Removes one entry with all that lies in it.
    pub(super) fn entry(&mut self, path: &[u8]) {
        let (parent, name) = split(path);
        let looked = self.tree.place(path).and_then(|place| self.tree.look(&place));
        match looked {
            Ok(Some(attributes)) => {
                let names = vec![Listed { name: name.to_vec(), attributes }].into_iter();
                self.run(Frame { path: parent.to_vec(), names, spared: false });
            }
            Ok(None) => {}
            Err(error) if is_missing(&error) => {}
            Err(error) => self.errors.push(StoreError::new("look at", path, error)),
        }
    }

    /// Many servers take two spellings for one name (case, accents). An entry that is found under a name of the source, and
    /// is not listed so, must not be deleted under the name by which it is listed.
    fn check_spelling(&self, path: &[u8], has: &SourceNames, names: &[Listed]) -> io::Result<()> {
        let is_listed = |name: &[u8]| names.binary_search_by(|listed| listed.name[..].cmp(name)).is_ok();
        if names.iter().all(|listed| has.has(&listed.name)) {
            return Ok(());
        }
        let place = self.tree.place(path)?;
        for name in has.names().filter(|name| !is_listed(name)) {
            if self.tree.look(&join(&place, name))?.is_some() {
                return Err(io::Error::new(io::ErrorKind::InvalidData, UNLISTED));
            }
        }
        Ok(())
    }

    fn list(&mut self, path: &[u8]) -> Option<Frame> {
        let listed = self.tree.place(path).and_then(|place| {
            // A link may stand there by now.
            match self.tree.look(&place)? {
                Some(attributes) if path.is_empty() || entry::is_dir(&attributes) == Some(true) => {}
                Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
                None => return Ok(Listing::default()),
            }
            Listing::read(self.tree.pool(), &place)
        });
        match listed {
            Ok(Listing { names, refused }) => {
                for name in &refused {
                    let why =
                        io::Error::new(io::ErrorKind::InvalidData, "the server lists a name that no file can have");
                    self.errors.push(StoreError::new("delete", name, why));
                }
                Some(Frame { path: path.to_vec(), names: names.into_iter(), spared: !refused.is_empty() })
            }
            Err(error) if is_missing(&error) => None,
            Err(error) => {
                self.errors.push(StoreError::new("read directory", path, error));
                None
            }
        }
    }

    fn run(&mut self, top: Frame) {
        let mut stack = vec![top];
        while let Some(frame) = stack.last_mut() {
            let Some(Listed { name, attributes }) = frame.names.next() else {
                let Some(done) = stack.pop() else { return };
                if let Some(above) = stack.last_mut() {
                    above.spared |= done.spared;
                    if !done.spared && !self.remove(&done.path, true) {
                        above.spared = true;
                    }
                }
                continue;
            };
            let path = join(&frame.path, &name);
            let is_dir = match entry::is_dir(&attributes) {
                Some(is_dir) => is_dir,
                None => match self.tree.place(&path).and_then(|place| self.tree.look(&place)) {
                    Ok(Some(looked)) => entry::is_dir(&looked) == Some(true),
                    Ok(None) => continue,
                    Err(error) => {
                        frame.spared = true;
                        self.errors.push(StoreError::new("look at", &path, error));
                        continue;
                    }
                },
            };
            if (self.spare)(&path, is_dir) {
                frame.spared = true;
            } else if !is_dir {
                frame.spared |= !self.remove(&path, false);
            } else if stack.len() >= MAX_DEPTH {
                let why = io::Error::new(io::ErrorKind::InvalidInput, "directories are nested too deep");
                self.errors.push(StoreError::new("delete", &path, why));
            } else if let Some(beneath) = self.list(&path) {
                stack.push(beneath);
            }
        }
    }

    /// Returns whether it is gone.
    fn remove(&mut self, path: &[u8], is_dir: bool) -> bool {
        if !self.dry_run {
            let server = self.tree.server();
            let removed = self.tree.place(path).and_then(|place| match is_dir {
                true => server.rmdir(&place),
                false => server.remove(&place),
            });
            match removed {
                Ok(()) => self.tree.forget(path),
                Err(error) if is_missing(&error) => return true,
                Err(error) => {
                    self.errors.push(StoreError::new("delete", path, error));
                    return false;
                }
            }
        }
        (self.deleted)(path.to_vec(), is_dir);
        true
    }
}

const UNLISTED: &str = "the server finds an entry under a name of the source that it does not list, so nobody knows what the source lacks; nothing is deleted here";
