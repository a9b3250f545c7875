//! Opens the target of a job by cp's rule, as on a local disk.

use std::io;
use std::sync::Arc;

use haul_store::{NO_DIRECTORY, StoreError, check_new_path};
use rustix::io::Errno;

use super::tree::{Tell, Tree, is_missing};
use crate::codec::Attributes;
use crate::entry;
use crate::paths::{expand, join, means_contents, parent_and_name};
use crate::pool::Pool;
use crate::server::Server;

/// How a typed target is understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// One file is copied, so the path may be its new name.
    pub single_file: bool,
    /// Make missing directories of the path.
    pub make: bool,
    /// Make nothing; a missing target is an empty tree.
    pub dry_run: bool,
}

/// Opens the target. The path is the tree if it is an existing directory, ends in a slash, or will hold more than one file.
/// Otherwise it is the new name of the single file: the name is returned, and its parent is the tree.
pub(crate) fn open(
    pool: Arc<Pool>,
    typed: &[u8],
    options: OpenOptions,
    tell: Tell,
) -> Result<(Arc<Tree>, Option<Vec<u8>>), StoreError> {
    let (path, server) = (expand(typed), pool.server());
    let fail = |op, error: io::Error| StoreError::new(op, typed, error);
    let into_directory = means_contents(&path) || !options.single_file;
    match look(&server, &path).map_err(|error| fail("use as target", error))? {
        Some(attributes) if entry::is_dir(&attributes) == Some(true) => {
            return Ok((Tree::new(pool, Some(path), tell), None));
        }
        Some(_) if into_directory => {
            return Err(fail("use as target", io::Error::new(io::ErrorKind::NotADirectory, NO_DIRECTORY)));
        }
        Some(attributes) if !entry::is_file(&attributes) => {
            let why = "it is a device, a FIFO or a socket, which a file would replace";
            return Err(fail("write", io::Error::new(io::ErrorKind::AlreadyExists, why)));
        }
        _ => {}
    }
    if into_directory {
        let root = make(&server, &path, options).map_err(|error| fail("make target directory", error))?;
        return Ok((Tree::new(pool, root, tell), None));
    }
    let (parent, name) = parent_and_name(&path);
    check_new_path(name).map_err(|error| fail("write", error))?;
    let root = make(&server, parent, options).map_err(|error| fail("open target directory", error))?;
    Ok((Tree::new(pool, root, tell), Some(name.to_vec())))
}

fn look(server: &Server, path: &[u8]) -> io::Result<Option<Attributes>> {
    match server.stat(path) {
        Err(error) if is_missing(&error) => Ok(None),
        looked => looked.map(Some),
    }
}

/// Makes the directory with those above it. `None`: a dry run makes none.
fn make(server: &Server, path: &[u8], options: OpenOptions) -> io::Result<Option<Vec<u8>>> {
    match look(server, path)? {
        Some(attributes) if entry::is_dir(&attributes) == Some(true) => return Ok(Some(path.to_vec())),
        Some(_) => return Err(io::ErrorKind::NotADirectory.into()),
        None if options.dry_run => return Ok(None),
        None if !options.make => return Err(Errno::NOENT.into()),
        None => {}
    }
    let mut made = if path.starts_with(b"/") { b"/".to_vec() } else { b".".to_vec() };
    for name in path.split(|byte| *byte == b'/').filter(|name| !matches!(*name, b"" | b".")) {
        made = join(&made, name);
        if look(server, &made)?.is_none() {
            // Somebody else may make it at the same time.
            let mkdir = server.mkdir(&made, NEW_DIRECTORY_MODE);
            match look(server, &made)? {
                Some(attributes) if entry::is_dir(&attributes) == Some(true) => {}
                _ => mkdir?,
            }
        }
    }
    Ok(Some(path.to_vec()))
}

/// As mkdir(1) asks for; the server's umask takes from it.
const NEW_DIRECTORY_MODE: u32 = 0o777;
