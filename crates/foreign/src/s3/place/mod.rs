//! A bucket, to look at and change one path at a time: for `haul ls`, `cat`, `rm` and their like.
//!
//! ```text
//!   tree      a path -> a look (HEAD), or whether keys begin so -> a file, a link, a directory
//!   listing   names as their pages come; sizes are in them, the other facts cost a look each
//!   removal   keys as they are listed, a thousand by one request
//!   moving    the store copies, then the old key goes
//!   leftovers uploads that nobody has ended
//! ```
//! A path is a key, or the beginning of keys before a slash: directories are no more than that.

mod leftovers;
mod listing;
mod moving;
mod tree;

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use bytes::Bytes;
use haul_store::place::EntryFacts;
use haul_store::{EachLeft, EachListed, EachRemoved, PlaceTree, SourceFile};
use http::header::IF_NONE_MATCH;
use http::{HeaderValue, Method};

use crate::http_client::outgoing::Content;
use crate::s3::kept;
use crate::s3::listing::{Listing, has_any};
use crate::s3::place::listing::Wanted;
use crate::s3::place::tree::{Looked, check_key, directory_key, facts_of, shown_beneath};
pub use crate::s3::place::tree::{PlaceSettings, S3Place};
use crate::s3::removal;
use crate::s3::source::now;
use crate::s3::store::Request;
use crate::web::place::lost;

impl S3Place {
    fn make(&self, path: &[u8]) -> io::Result<()> {
        if self.look(path)?.is_some() {
            return Err(ErrorKind::AlreadyExists.into());
        }
        let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
        if !parent.is_empty() && !has_any(self.store(), &directory_key(parent))? {
            let why = "the directory above it has no key: -p makes it";
            return Err(io::Error::new(ErrorKind::NotFound, why));
        }
        let key = directory_key(path);
        let mut is_new = true;
        loop {
            let mut fields = kept::fields(Some(now()), None, [None, None]);
            fields.extend(is_new.then_some((IF_NONE_MATCH, HeaderValue::from_static("*"))));
            let content = Content::Whole(Bytes::new());
            match self.store().ask(&Request { fields, content, ..Request::new(Method::PUT, &key) })? {
                Ok(answer) => {
                    self.store().client.give_back(answer.url.origin(), answer.body);
                    return Ok(());
                }
                Err(refusal) if is_new && refusal.is_of_unknown_field() => is_new = false,
                Err(refusal) if refusal.is_of_condition() => return Err(ErrorKind::AlreadyExists.into()),
                Err(refusal) => return Err(refusal.as_io()),
            }
        }
    }

    fn key_of(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        match self.found(path)? {
            Looked::File(object) => Ok(object.key),
            Looked::Link { key, .. } => Ok(key),
            Looked::Directory => Err(ErrorKind::IsADirectory.into()),
        }
    }

    fn remove_all(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        let keys: Vec<io::Result<Vec<u8>>> = paths.iter().map(|path| self.key_of(path)).collect();
        let there: Vec<Vec<u8>> = keys.iter().flatten().cloned().collect();
        let mut removed = removal::remove(self.store(), &there).into_iter();
        keys.into_iter()
            .map(|key| key.and_then(|_| removed.next().unwrap_or_else(|| Err(ErrorKind::NotFound.into()))))
            .collect()
    }

    fn remove_mark(&self, path: &[u8]) -> io::Result<()> {
        let key = directory_key(path);
        let page = Listing::of_all(self.store(), key.clone()).next_page()?;
        if page.iter().any(|listed| listed.key() != key) {
            return Err(ErrorKind::DirectoryNotEmpty.into());
        }
        // A directory without a mark went with its last key.
        removal::remove(self.store(), &if page.is_empty() { Vec::new() } else { vec![key] }).into_iter().collect()
    }

    fn remove_beneath(&self, path: &[u8], dry_run: bool, each: EachRemoved<'_>) -> io::Result<ControlFlow<()>> {
        let prefix = directory_key(path);
        let mut listing = Listing::of_all(self.store(), prefix.clone());
        loop {
            let page = listing.next_page()?;
            if page.is_empty() {
                return Ok(ControlFlow::Continue(()));
            }
            let keys: Vec<Vec<u8>> = page.into_iter().map(|listed| listed.key().to_vec()).collect();
            let outcomes = match dry_run {
                true => keys.iter().map(|_| Ok(())).collect(),
                false => removal::remove(self.store(), &keys),
            };
            for (key, outcome) in keys.iter().zip(outcomes) {
                let beneath = &key[prefix.len()..];
                // The directory itself comes last.
                if beneath.is_empty() && outcome.is_ok() {
                    continue;
                }
                if each(&shown_beneath(beneath), outcome.map_err(lost)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
    }
}

impl PlaceTree for S3Place {
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        [&directory_key(directory), name].concat()
    }

    /// A walk keeps the store's order of keys.
    fn lists_in_order(&self) -> bool {
        true
    }

    fn facts(&self, path: &[u8], _follow: bool) -> io::Result<EntryFacts> {
        self.found(path).map(facts_of).map_err(lost)
    }

    fn list(&self, path: &[u8], _follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        self.each_entry(path, if facts { Wanted::Facts } else { Wanted::Kinds }, each).map_err(lost)
    }

    fn list_sizes(&self, path: &[u8], each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        self.each_entry(path, Wanted::Sizes, each).map_err(lost)
    }

    fn open(&self, path: &[u8]) -> io::Result<SourceFile> {
        self.file(path).map_err(lost)
    }

    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile> {
        haul_store::check_path(path)?;
        self.file(&self.join(directory, path)).map_err(lost)
    }

    fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        check_key(&directory_key(path))?;
        self.make(path).map_err(lost)
    }

    fn rename(&self, from: &[u8], to: &[u8], keep: bool) -> io::Result<()> {
        self.move_entry(from, to, keep).map_err(lost)
    }

    fn remove_files(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        self.remove_all(paths).into_iter().map(|removed| removed.map_err(lost)).collect()
    }

    fn remove_directory(&self, path: &[u8]) -> io::Result<()> {
        self.remove_mark(path).map_err(lost)
    }

    fn remove_tree(&self, path: &[u8], dry_run: bool, each: EachRemoved<'_>) -> Option<io::Result<ControlFlow<()>>> {
        Some(self.remove_beneath(path, dry_run, each).map_err(lost))
    }

    fn leftovers(&self, directory: &[u8], remove: bool, each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        self.each_left(directory, remove, each).map_err(lost)
    }
}
