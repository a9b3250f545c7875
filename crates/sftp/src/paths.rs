//! Paths at a server, from a root that was typed and a path beneath it that was checked.

use std::io;

use haul_store::check_path;

/// The typed path as the server understands it: it begins at the directory in which the server starts, mostly the home.
pub fn expand(typed: &[u8]) -> Vec<u8> {
    match typed {
        b"" | b"~" | b"~/" => b".".to_vec(),
        [b'~', b'/', rest @ ..] => rest.to_vec(),
        path => path.to_vec(),
    }
}

/// Joins a path beneath a root. Refuses what is not plainly beneath it.
pub(crate) fn beneath(root: &[u8], path: &[u8]) -> io::Result<Vec<u8>> {
    check_path(path)?;
    Ok(join(root, path))
}

/// Joins without a check.
pub(crate) fn join(root: &[u8], path: &[u8]) -> Vec<u8> {
    match (root, path) {
        (root, b"") => root.to_vec(),
        (b"" | b".", path) => path.to_vec(),
        (root, path) if root.ends_with(b"/") => [root, path].concat(),
        (root, path) => [root, b"/", path].concat(),
    }
}

/// The parent and the last component; the parent of a name in the root is the empty path.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b"", path),
    }
}

/// Whether a typed path can only mean a directory, and so its contents: it ends in `/`, `.` or `..`.
pub(crate) fn means_contents(path: &[u8]) -> bool {
    let last = path.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    matches!(last, b"" | b"." | b"..")
}

/// The parent and the last component of a typed path that does not mean contents.
pub(crate) fn parent_and_name(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(slash) => (&path[..slash], &path[slash + 1..]),
        None => (b".", path),
    }
}

/// Checks a name that a server lists. No file can have a name with a slash or a zero, and with such a name a server could
/// lead out of the directory.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty() && !matches!(name, b"." | b"..") && !name.contains(&b'/') && !name.contains(&0)
}
