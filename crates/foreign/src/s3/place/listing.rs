//! Lists a directory of a bucket, page by page.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;

use haul_store::place::{EntryFacts, Lacks, NodeKind};
use haul_store::{EachListed, Listed};

use crate::s3::at_once::at_once;
use crate::s3::limits::{LOOKS_AHEAD, LOOKS_AT_ONCE, MAX_LINK_BYTES};
use crate::s3::place::tree::{Looked, S3Place, directory_key, facts_of};
use crate::s3::source::names::{Names, Seen};
use crate::s3::source::walk::{CLASH, LINK_ENDING};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Kinds,
    /// The listing has the sizes.
    Sizes,
    /// Time and mode need a look at each object.
    Facts,
}

enum Entry {
    Known(io::Result<Listed>),
    Object(Vec<u8>),
}

impl S3Place {
    /// Gives each entry to `each`, sorted by name.
    pub(super) fn each_entry(&self, path: &[u8], wanted: Wanted, each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        let prefix = directory_key(path);
        let mut names = Names::of(self.store(), prefix.clone(), true);
        let (mut has_any, mut outcome) = (false, Ok(()));
        while outcome.is_ok() {
            let mut portion = Vec::new();
            while portion.len() < LOOKS_AHEAD {
                match names.next() {
                    Ok(Some((name, seen))) => enter(&mut portion, &prefix, &name, seen, wanted),
                    Ok(None) => break,
                    // Entries before the error come first.
                    Err(error) => {
                        outcome = Err(error);
                        break;
                    }
                }
            }
            if portion.is_empty() {
                break;
            }
            has_any = true;
            let to_look: Vec<&Vec<u8>> = portion.iter().filter_map(|(_, entry)| entry.key()).collect();
            let mut looked = at_once(LOOKS_AT_ONCE, &to_look, |key| self.listed(key)).into_iter();
            for (name, entry) in portion {
                let listed = match entry {
                    Entry::Known(listed) => listed,
                    Entry::Object(_) => looked.next().unwrap_or_else(|| Err(ErrorKind::NotFound.into())),
                };
                if each(&name, listed).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        outcome?;
        if !has_any {
            self.is_directory(path)?;
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Fails unless the path without entries is a directory.
    fn is_directory(&self, path: &[u8]) -> io::Result<()> {
        match facts_of(self.found(path)?).kind {
            NodeKind::Directory => Ok(()),
            _ => Err(ErrorKind::NotADirectory.into()),
        }
    }

    fn listed(&self, key: &[u8]) -> io::Result<Listed> {
        let looked = match key.ends_with(LINK_ENDING) {
            true => {
                let object = self.bucket.look_and_read(key, MAX_LINK_BYTES)?.ok_or(ErrorKind::NotFound)?;
                let target = self.bucket.link(&object)?;
                Looked::Link { key: key.to_vec(), object: Box::new(object), target }
            }
            false => self.of_object(key, self.bucket.look(key)?.ok_or(ErrorKind::NotFound)?)?,
        };
        Ok(Listed::Facts(Box::new(facts_of(looked))))
    }
}

impl Entry {
    fn key(&self) -> Option<&Vec<u8>> {
        match self {
            Entry::Object(key) => Some(key),
            Entry::Known(_) => None,
        }
    }
}

/// The first of several things with a name wins, as in a copy: an object, a link, a directory.
fn enter(portion: &mut Vec<(Vec<u8>, Entry)>, prefix: &[u8], name: &[u8], seen: Seen, wanted: Wanted) {
    let Seen { is_object, is_link, is_directory, is_late, size } = seen;
    let mut is_taken = is_late;
    let things = [
        (is_object, NodeKind::File, &b""[..]),
        (is_link, NodeKind::Symlink, LINK_ENDING),
        (is_directory, NodeKind::Directory, b"/"),
    ];
    for (is_there, kind, ending) in things {
        if !is_there {
            continue;
        }
        let entry = match (std::mem::replace(&mut is_taken, true), wanted) {
            (true, _) => Entry::Known(Err(io::Error::new(ErrorKind::InvalidInput, CLASH))),
            (false, Wanted::Kinds) => Entry::Known(Ok(Listed::Kind(kind))),
            (false, Wanted::Facts) if kind != NodeKind::Directory => Entry::Object([prefix, name, ending].concat()),
            (false, Wanted::Facts | Wanted::Sizes) => {
                let nothing = EntryFacts::of_kind(kind);
                let lacks = Lacks { size: kind != NodeKind::File, ..nothing.lacks };
                Entry::Known(Ok(Listed::Facts(Box::new(EntryFacts { size, lacks, ..nothing }))))
            }
        };
        portion.push((name.to_vec(), entry));
    }
}
