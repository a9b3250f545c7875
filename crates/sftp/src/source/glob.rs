//! Expands a wildcard path at a server to the existing paths, sorted, component by component as a shell does.

use std::io;

use haul_store::{NamePattern, has_wildcard};
use rustix::io::Errno;

use crate::entry;
use crate::limits::{MAX_NAMES_LISTED, MAX_SOURCES};
use crate::listing::Listing;
use crate::paths::join;
use crate::pool::Pool;

/// Returns the existing paths that match. A trailing slash stays.
pub(crate) fn expand(pool: &Pool, path: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = vec![if path.starts_with(b"/") { b"/".to_vec() } else { b".".to_vec() }];
    let mut names_left = MAX_NAMES_LISTED;
    for component in path.split(|byte| *byte == b'/').filter(|part| !part.is_empty()) {
        if !has_wildcard(component) {
            found.iter_mut().for_each(|parent| *parent = join(parent, component));
            continue;
        }
        let pattern = NamePattern::new(component).map_err(|_| io::Error::from(Errno::NAMETOOLONG))?;
        let mut next = Vec::new();
        for parent in &found {
            // A directory that cannot be read matches no names, as in a shell.
            let Ok(Listing { names, .. }) = Listing::read(pool, parent) else { continue };
            names_left = names_left
                .checked_sub(names.len())
                .ok_or_else(|| too_many("its wildcards are compared with too many names"))?;
            next.extend(
                names.iter().filter(|listed| pattern.matches(&listed.name)).map(|listed| join(parent, &listed.name)),
            );
            if next.len() > MAX_SOURCES {
                return Err(too_many("there are too many sources"));
            }
        }
        found = next;
    }
    let server = pool.server();
    if path.ends_with(b"/") {
        found.retain(|path| server.stat(path).is_ok_and(|there| entry::is_dir(&there) == Some(true)));
        found.iter_mut().for_each(|path| path.push(b'/'));
    } else if !path.rsplit(|byte| *byte == b'/').next().is_some_and(has_wildcard) {
        found.retain(|path| server.lstat(path).is_ok());
    }
    Ok(found)
}

fn too_many(what: &str) -> io::Error {
    io::Error::new(io::ErrorKind::ArgumentListTooLong, format!("{what}; name the directories that hold them"))
}
