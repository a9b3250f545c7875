//! Resolves typed source paths at the server.
//!
//! `dir/` means the contents of a directory, `dir` the directory under its own name; a file is itself. Links are not
//! followed. Wildcards are not expanded: a name is taken literally.

use std::io;

use haul_store::StoreError;

use crate::codec::Attributes;
use crate::entry;
use crate::paths::{expand, means_contents, parent_and_name};
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
pub(crate) fn resolve(server: &Server, typed: &[Vec<u8>]) -> (Vec<Root>, Vec<StoreError>) {
    let (mut roots, mut errors) = (Vec::<Root>::new(), Vec::new());
    for typed in typed {
        let fail = |op, why: io::Error| StoreError::new(op, typed, why);
        match root(server, typed) {
            Ok(found)
                if roots
                    .iter()
                    .any(|root| root.name == found.name || root.name.is_empty() || found.name.is_empty()) =>
            {
                errors.push(fail("copy", io::Error::new(io::ErrorKind::AlreadyExists, MEETS_ANOTHER)));
            }
            Ok(found) => roots.push(found),
            Err(why) => errors.push(fail("find", why)),
        }
    }
    (roots, errors)
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
    let attributes = server.lstat(&path).map_err(|error| match error.raw_os_error() {
        Some(_) if typed.iter().any(|byte| b"*?[".contains(byte)) => {
            io::Error::new(io::ErrorKind::NotFound, "there is no such file, and wildcards are not expanded over sftp")
        }
        _ => error,
    })?;
    let name = parent_and_name(&path).1.to_vec();
    Ok(Root { is_dir: entry::is_dir(&attributes) == Some(true), path, name, attributes, typed })
}

const MEETS_ANOTHER: &str = "another source would land in the same place, and sources are not merged over sftp";
