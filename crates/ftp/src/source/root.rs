//! Finds what a typed path means.
//!
//! `dir/` means the contents of a directory, `dir` the directory under its own name; a file is itself. A link that is named is followed, as
//! servers do.

use std::collections::HashSet;
use std::io::{self, ErrorKind};
use std::sync::Arc;

use rustix::io::Errno;

use crate::codec::listing::{EntryType, Facts};
use crate::paths::{means_contents, split, without_slash};
use crate::server::Server;
use crate::wildcards;

/// One source: a directory whose contents are copied, or one entry.
#[derive(Clone, Debug)]
pub(super) struct Root {
    /// The path at the server.
    pub(super) path: Vec<u8>,
    /// The first component at the target; empty if the contents go straight into the target's root.
    pub(super) name: Vec<u8>,
    pub(super) facts: Facts,
}

impl Root {
    pub(super) fn is_directory(&self) -> bool {
        self.facts.kind == EntryType::Directory
    }
}

/// The sources that were found so far.
#[derive(Debug, Default)]
pub(super) struct Roots {
    pub(super) all: Vec<Root>,
    names: HashSet<Vec<u8>>,
}

impl Roots {
    fn add(&mut self, root: Root) {
        self.names.insert(root.name.clone());
        self.all.push(root);
    }
}

/// Finds what a typed path means. One with wildcards may also be a literal name: both are taken.
pub(super) fn find(server: &Arc<Server>, typed: &[u8], is_one_of_several: bool, found: &mut Roots) -> io::Result<()> {
    let Some(matches) = wildcards::expand(server, typed) else {
        let root = find_one(server, typed, None, is_one_of_several, found)?;
        found.add(root);
        return Ok(());
    };
    let literal = find_one(server, typed, None, is_one_of_several, found).ok();
    let mut matches = matches?;
    if let Some(root) = literal {
        matches.retain(|(path, _)| *path != root.path);
        found.add(root);
    } else if matches.is_empty() {
        return Err(io::Error::new(ErrorKind::NotFound, "nothing matches the wildcard"));
    }
    let is_one_of_several = is_one_of_several || matches.len() > 1;
    for (path, facts) in matches {
        let root = find_one(server, &path, facts, is_one_of_several, found)?;
        found.add(root);
    }
    Ok(())
}

/// Finds one path. The contents of a directory are the only source.
fn find_one(
    server: &Arc<Server>,
    typed: &[u8],
    facts: Option<Facts>,
    is_one_of_several: bool,
    found: &Roots,
) -> io::Result<Root> {
    let refused = |why: &str| Err(io::Error::new(ErrorKind::InvalidInput, why.to_owned()));
    let path = without_slash(typed).to_vec();
    let facts = match facts {
        Some(facts) => facts,
        None => server.look(&path)?.ok_or(Errno::NOENT)?,
    };
    if means_contents(typed) {
        if is_one_of_several {
            return refused(
                "the contents of a directory are the only source: leave out the slash at its end, or copy it alone",
            );
        }
        if facts.kind != EntryType::Directory {
            return Err(Errno::NOTDIR.into());
        }
        return Ok(Root { path, name: Vec::new(), facts });
    }
    let name = split(&path).1.to_vec();
    if found.names.contains(&name) {
        return refused("another source has the same name: copy them one after the other");
    }
    match facts.kind {
        EntryType::File | EntryType::Directory => Ok(Root { path, name, facts }),
        _ => refused("it is neither a file nor a directory"),
    }
}
