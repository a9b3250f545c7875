//! The names of one directory, sorted, with what the server tells of them.

use std::io::{self, ErrorKind};

use crate::codec::listing::{Entry, EntryType, Facts};
use crate::limits::MAX_LISTING_BYTES;
use crate::paths::is_name;
use crate::server::Server;

/// A directory as it was listed.
#[derive(Debug, Default)]
pub(crate) struct Names {
    /// In their order, each once.
    pub(crate) entries: Vec<Entry>,
    /// Names that no file can have.
    pub(crate) refused: Refused,
}

/// Names that no file can have, the first of them.
#[derive(Debug, Default)]
pub(crate) struct Refused(pub(crate) Vec<Vec<u8>>);

impl Refused {
    pub(crate) fn add(&mut self, name: Vec<u8>) {
        if self.0.len() < MAX_REFUSED {
            self.0.push(name);
        }
    }
}

impl Names {
    /// Lists a directory. Memory is bounded by the names.
    pub(crate) fn read(server: &Server, path: &[u8]) -> io::Result<Names> {
        let (mut names, mut bytes) = (Names::default(), 0);
        server.list(path, &mut |entry| {
            bytes += entry.name.len() + size_of::<Entry>();
            if let EntryType::Link(Some(target)) = &entry.facts.kind {
                bytes += target.len();
            }
            if bytes > MAX_LISTING_BYTES {
                return Err(io::Error::new(ErrorKind::QuotaExceeded, "it has more names than fit into 1 GiB"));
            }
            match is_name(&entry.name) {
                true => names.entries.push(entry),
                false => names.refused.add(entry.name),
            }
            Ok(())
        })?;
        names.entries.sort_by(|one, other| one.name.cmp(&other.name));
        names.entries.dedup_by(|one, other| one.name == other.name);
        Ok(names)
    }

    /// What is known of a name.
    pub(crate) fn of(&self, name: &[u8]) -> Option<&Facts> {
        let at = self.entries.binary_search_by(|entry| entry.name[..].cmp(name)).ok()?;
        Some(&self.entries[at].facts)
    }
}

/// Names of one directory that are named as failures.
const MAX_REFUSED: usize = 100;
