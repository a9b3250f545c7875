//! Moves what stands under a key and beneath it; the store copies.
//!
//! A directory is moved page by page: keys are copied, then the copied ones go. An interrupted move loses nothing.

use std::io::{self, ErrorKind};

use haul_store::printable;

use crate::s3::at_once::at_once;
use crate::s3::copying::move_object;
use crate::s3::limits::MOVES_AT_ONCE;
use crate::s3::listing::Listing;
use crate::s3::place::tree::{Looked, S3Place, check_key, directory_key};
use crate::s3::removal;
use crate::s3::source::walk::LINK_ENDING;

impl S3Place {
    pub(super) fn move_entry(&self, from: &[u8], to: &[u8], keep: bool) -> io::Result<()> {
        let (looked, standing) = (self.found(from)?, self.look(to)?);
        if keep && standing.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let (key, ending) = match looked {
            Looked::Directory => return self.move_tree(from, to, standing.is_some()),
            Looked::File(_) if to.ends_with(LINK_ENDING) => {
                let why = "links are kept under names with this ending";
                return Err(io::Error::new(ErrorKind::InvalidFilename, why));
            }
            Looked::Link { key, .. } if key.len() > from.len() => (key, LINK_ENDING),
            // s3fs keeps a link under its own name.
            Looked::File(_) | Looked::Link { .. } => (from.to_vec(), &b""[..]),
        };
        let new = [to, ending].concat();
        check_key(&new)?;
        self.move_one(&key, &new, keep)?;
        match standing {
            // A link replaced by a file, or a file by a link, has another key.
            Some(Looked::Link { key, .. }) if key != new => removal::remove(self.store(), &[key]).into_iter().collect(),
            Some(Looked::File(object)) if object.key != new => {
                removal::remove(self.store(), &[object.key]).into_iter().collect()
            }
            _ => Ok(()),
        }
    }

    fn move_one(&self, from: &[u8], to: &[u8], keep: bool) -> io::Result<()> {
        move_object(self.store(), (from, to), keep, self.settings.journals.as_deref())
    }

    fn move_tree(&self, from: &[u8], to: &[u8], is_standing: bool) -> io::Result<()> {
        let (old, new) = (directory_key(from), directory_key(to));
        if is_standing {
            let there = Listing::of_all(self.store(), new.clone()).next_page()?;
            if there.iter().any(|listed| listed.key() != new) {
                return Err(ErrorKind::DirectoryNotEmpty.into());
            }
        }
        let mut listing = Listing::of_all(self.store(), old.clone());
        let mut moved = 0_u64;
        loop {
            let page = listing.next_page()?;
            if page.is_empty() {
                return Ok(());
            }
            let keys: Vec<Vec<u8>> = page.into_iter().map(|listed| listed.key().to_vec()).collect();
            let done = at_once(MOVES_AT_ONCE, &keys, |key| {
                let target = [&new[..], &key[old.len()..]].concat();
                check_key(&target)?;
                self.move_one(key, &target, false)
            });
            let mut failed = None;
            for (key, done) in keys.iter().zip(done) {
                match done {
                    Ok(()) => moved += 1,
                    Err(error) => {
                        failed.get_or_insert((key, error));
                    }
                }
            }
            if let Some((key, error)) = failed {
                let (key, to) = (printable(key), printable(&new));
                let why =
                    format!("{error}; this was at {key}. {moved} objects are at {to}, the others where they were");
                return Err(io::Error::new(error.kind(), why));
            }
        }
    }
}
