//! Removes objects that the source lacks, and goes on after a failure.

use std::io;
use std::sync::Arc;

use haul_store::{SourceNames, StoreError};
use http::Method;

use crate::s3::limits::MAX_DEPTH;
use crate::s3::listing::{Listed, Listing};
use crate::s3::source::walk::LINK_ENDING;
use crate::s3::store::Request;
use crate::s3::target::tree::Tree;

pub(super) struct Deletion<'a> {
    pub(super) tree: &'a Arc<Tree>,
    pub(super) spare: &'a dyn Fn(&[u8], bool) -> bool,
    pub(super) dry_run: bool,
    pub(super) deleted: &'a mut dyn FnMut(Vec<u8>, bool),
    pub(super) errors: Vec<StoreError>,
}

struct Gone {
    any: bool,
    all: bool,
}

impl Deletion<'_> {
    pub(super) fn extraneous(&mut self, path: &[u8], has: &SourceNames) {
        self.directory(
            path,
            &|name, is_directory| {
                let bare = if is_directory { name } else { name.strip_suffix(LINK_ENDING).unwrap_or(name) };
                !has.has(name) && !has.has(bare)
            },
            0,
        );
    }

    pub(super) fn entry(&mut self, path: &[u8]) {
        for name in [path.to_vec(), [path, LINK_ENDING].concat()] {
            match self.tree.key(&name).and_then(|key| self.tree.store.head(&key)) {
                Ok(Some(_)) if !(self.spare)(path, false) => drop(self.remove(&name, path, false)),
                Ok(_) => {}
                Err(error) => self.errors.push(StoreError::new("look at", path, error)),
            }
        }
        if (self.spare)(path, true) {
            return;
        }
        let beneath = self.directory(path, &|_, _| true, 1);
        if beneath.any && beneath.all {
            (self.deleted)(path.to_vec(), true);
        }
    }

    fn directory(&mut self, path: &[u8], is_lacking: &dyn Fn(&[u8], bool) -> bool, depth: usize) -> Gone {
        let mut gone = Gone { any: false, all: true };
        let prefix = match path.is_empty() {
            true => self.tree.prefix.clone(),
            false => [&self.tree.prefix[..], path, b"/"].concat(),
        };
        let mut listing = Listing::of_directory(&self.tree.store, prefix.clone());
        loop {
            let page = match listing.next_page() {
                Ok(page) if page.is_empty() => return gone,
                Ok(page) => page,
                Err(error) => {
                    self.errors.push(StoreError::new("list", path, error));
                    return Gone { all: false, ..gone };
                }
            };
            for entry in page {
                gone.any = true;
                let beneath = &entry.key()[prefix.len()..];
                let (name, is_directory) = match &entry {
                    Listed::Object { .. } => (beneath, false),
                    Listed::Prefix(_) => (beneath.strip_suffix(b"/").unwrap_or(beneath), true),
                };
                let at = if path.is_empty() { name.to_vec() } else { [path, b"/", name].concat() };
                // The mark goes with its directory.
                let is_mark = name.is_empty() && !is_directory;
                if (is_mark && depth == 0)
                    || (!is_mark && (!is_lacking(name, is_directory) || (self.spare)(&at, is_directory)))
                {
                    gone.all &= is_mark;
                    continue;
                }
                if !is_directory {
                    let shown = at.strip_suffix(LINK_ENDING).unwrap_or(&at).to_vec();
                    gone.all &= self.remove(&at, &shown, is_mark);
                } else if depth >= MAX_DEPTH {
                    let why = io::Error::new(io::ErrorKind::InvalidInput, "directories are nested too deep");
                    self.errors.push(StoreError::new("delete", &at, why));
                    gone.all = false;
                } else {
                    let beneath = self.directory(&at, &|_, _| true, depth + 1);
                    gone.all &= beneath.all;
                    if beneath.all {
                        (self.deleted)(at, true);
                    }
                }
            }
        }
    }

    /// Returns whether it is gone.
    fn remove(&mut self, path: &[u8], shown: &[u8], is_mark: bool) -> bool {
        if !self.dry_run
            && let Err(error) = self.tree.key(path).and_then(|key| {
                let answer = self.tree.store.need(&Request::new(Method::DELETE, &key))?;
                self.tree.store.client.give_back(answer.url.origin(), answer.body);
                Ok(())
            })
        {
            self.errors.push(StoreError::new("delete", shown, error));
            return false;
        }
        if !is_mark {
            (self.deleted)(shown.to_vec(), false);
        }
        true
    }
}
