//! Resolves typed source paths at the server.
//!
//! `dir/` means the contents of a directory, `dir` the directory under its own name; a file is itself. Links are not
//! followed.

use std::collections::HashMap;
use std::io;
use std::sync::Arc;

use haul_store::{StoreError, has_wildcard};

use super::glob;

use crate::codec::Attributes;
use crate::entry;
use crate::limits::MAX_SOURCES;
use crate::paths::{expand, means_contents, parent_and_name};
use crate::pool::Pool;
use crate::server::Server;

/// One source: a directory whose contents are copied, or one entry.
#[derive(Clone, Debug)]
pub(crate) struct Root {
    /// The path at the server.
    pub path: Vec<u8>,
    /// The first component at the target; empty if the contents go straight into the target's root.
    pub name: Vec<u8>,
    pub is_dir: bool,
    pub attributes: Attributes,
    /// The source as it was typed, for messages.
    pub typed: Vec<u8>,
}

/// Resolves all paths that can be resolved, and reports the rest.
pub(crate) fn resolve(pool: &Pool, typed: &[Vec<u8>]) -> (Vec<Root>, Vec<StoreError>) {
    let mut resolver = Resolver { server: pool.server(), found: Vec::new(), by_name: HashMap::new() };
    let mut errors = Vec::new();
    for typed in typed {
        if let Err(error) = resolver.resolve(pool, typed) {
            errors.push(error);
        }
    }
    (resolver.found, errors)
}

struct Resolver {
    server: Arc<Server>,
    found: Vec<Root>,
    /// The path of each name at the target.
    by_name: HashMap<Vec<u8>, Vec<u8>>,
}

impl Resolver {
    /// A path with wildcards may also be a literal name. Both are taken.
    fn resolve(&mut self, pool: &Pool, typed: &[u8]) -> Result<(), StoreError> {
        let fail = |error: io::Error| StoreError::new("find", typed, error);
        let literal = root(&self.server, typed);
        if !has_wildcard(typed) {
            return self.add(literal.map_err(fail)?);
        }
        let matches = glob::expand(pool, &expand(typed)).map_err(fail)?;
        if let Ok(literal) = literal {
            self.add(literal)?;
        } else if matches.is_empty() {
            return Err(fail(io::Error::new(io::ErrorKind::NotFound, "nothing matches the wildcard")));
        }
        for found in matches {
            let source = root(&self.server, &found).map_err(|error| StoreError::new("find", &found, error))?;
            self.add(source)?;
        }
        Ok(())
    }

    /// A source that is named twice is taken once. Two that would land in one place are refused.
    fn add(&mut self, source: Root) -> Result<(), StoreError> {
        let is_alone = self.found.is_empty();
        let meets = match self.by_name.get(&source.name) {
            Some(path) if *path == source.path => return Ok(()),
            Some(_) => true,
            // The contents of a directory may have any name.
            None => !is_alone && (source.name.is_empty() || self.by_name.contains_key(&b""[..])),
        };
        if meets || self.found.len() >= MAX_SOURCES {
            let why =
                if meets { MEETS_ANOTHER } else { "there are too many sources; name the directories that hold them" };
            return Err(StoreError::new("copy", &source.typed, io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        self.by_name.insert(source.name.clone(), source.path.clone());
        self.found.push(source);
        Ok(())
    }
}

fn root(server: &Server, typed: &[u8]) -> io::Result<Root> {
    let (path, typed) = (expand(typed), typed.to_vec());
    if means_contents(&path) {
        // What ends in a slash may lead through a link, as with rsync.
        let attributes = server.stat(&path)?;
        if entry::is_dir(&attributes) != Some(true) {
            return Err(io::ErrorKind::NotADirectory.into());
        }
        return Ok(Root { path, name: Vec::new(), is_dir: true, attributes, typed });
    }
    let attributes = server.lstat(&path)?;
    let name = parent_and_name(&path).1.to_vec();
    Ok(Root { is_dir: entry::is_dir(&attributes) == Some(true), path, name, attributes, typed })
}

const MEETS_ANOTHER: &str = "another source would land in the same place, and sources are not merged over sftp";
