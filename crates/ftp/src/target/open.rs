//! Opens the target of a job by cp's rule, as on a local disk.

use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{NO_DIRECTORY, StoreError, check_new_path};

use super::tree::Tree;
use crate::codec::listing::EntryType;
use crate::paths::{means_contents, split, without_slash};
use crate::refusal::missing;
use crate::server::{Matter, Server};

/// How a typed target is understood.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpenOptions {
    /// One file is copied, so the path may be its new name.
    pub single_file: bool,
    /// Make missing directories of the path.
    pub make: bool,
    /// Make nothing; a missing target is an empty tree.
    pub dry_run: bool,
    /// Files are written under their final names.
    pub in_place: bool,
}

/// Opens the target. The path is the tree if it is an existing directory, ends in a slash, or will hold more than one file. Otherwise it is
/// the new name of the single file: the name is returned, and its parent is the tree.
pub(super) fn open(
    server: &Arc<Server>,
    typed: &[u8],
    options: OpenOptions,
) -> Result<(Arc<Tree>, Option<Vec<u8>>), StoreError> {
    let fail = |op, error: io::Error| StoreError::new(op, typed, error);
    let path = without_slash(typed).to_vec();
    let into_directory = means_contents(typed) || !options.single_file;
    if options.in_place {
        server.tell(Matter::InPlace);
    }
    let tree = |root| Tree::new(Arc::clone(server), root, options.in_place);
    let looked = server.look(&path).map_err(|error| fail("use as target", error))?;
    if server.is_grid() && !server.takes_parts() {
        let why = "this server takes no parts of files (ESTO): name it with ftp:// in front";
        return Err(fail("use as target", io::Error::new(ErrorKind::Unsupported, why)));
    }
    match looked.map(|facts| facts.kind) {
        Some(EntryType::Directory) => return Ok((tree(Some(path)), None)),
        Some(_) if into_directory => {
            return Err(fail("use as target", io::Error::new(ErrorKind::NotADirectory, NO_DIRECTORY)));
        }
        None if into_directory => {
            let root = make(server, &path, options).map_err(|error| fail("make target directory", error))?;
            return Ok((tree(root), None));
        }
        _ => {}
    }
    let (parent, name) = split(&path);
    check_new_path(name).map_err(|error| fail("write", error))?;
    let root = make(server, parent, options).map_err(|error| fail("open target directory", error))?;
    Ok((tree(root), Some(name.to_vec())))
}

/// Makes the directory with those above it. `None`: a dry run makes none.
fn make(server: &Server, path: &[u8], options: OpenOptions) -> io::Result<Option<Vec<u8>>> {
    match server.look(path)?.map(|facts| facts.kind) {
        Some(EntryType::Directory) => return Ok(Some(path.to_vec())),
        Some(_) => return Err(io::Error::new(ErrorKind::NotADirectory, NO_DIRECTORY)),
        None if options.dry_run => return Ok(None),
        None if !options.make => return Err(missing()),
        None => {}
    }
    // From the nearest one that is there; a path has few directories.
    let mut to_make = vec![path];
    loop {
        let above = split(to_make.last().copied().unwrap_or_default()).0;
        if above.is_empty() || above == b"/" || server.look(above)?.is_some() {
            break;
        }
        to_make.push(above);
    }
    for directory in to_make.iter().rev() {
        // Somebody else may make it at the same time.
        if let Err(error) = server.make_directory(directory)
            && server.look(directory)?.is_none()
        {
            return Err(error);
        }
    }
    Ok(Some(path.to_vec()))
}
