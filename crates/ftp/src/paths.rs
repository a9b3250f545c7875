//! Paths at a server, from a root that was typed and a path beneath it that was checked.

use haul_store::parse_haul_name;

/// Joins without a check. The empty root is the directory in which the server starts.
pub(crate) fn join(root: &[u8], path: &[u8]) -> Vec<u8> {
    match (root, path) {
        (root, b"") => root.to_vec(),
        (b"", path) => path.to_vec(),
        (root, path) if root.ends_with(b"/") => [root, path].concat(),
        (root, path) => [root, b"/", path].concat(),
    }
}

/// The directory of an entry, and its name there.
pub(crate) fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|byte| *byte == b'/') {
        Some(0) => (b"/", &path[1..]),
        Some(at) => (&path[..at], &path[at + 1..]),
        None => (b"", path),
    }
}

/// The path of another name in the same directory.
pub(crate) fn sibling(path: &[u8], name: &[u8]) -> Vec<u8> {
    join(split(path).0, name)
}

/// Whether a typed path can only mean a directory, and so its contents: it ends in `/`, `.` or `..`.
pub(crate) fn means_contents(path: &[u8]) -> bool {
    matches!(path.rsplit(|byte| *byte == b'/').next().unwrap_or_default(), b"" | b"." | b"..")
}

/// A typed path without the slashes at its end. The top stays.
pub(crate) fn without_slash(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |at| at + 1);
    &path[..end]
}

/// Checks a name that a server lists. With a slash in it, it could lead out of the directory, and with a line break it would be a command.
pub(crate) fn is_name(name: &[u8]) -> bool {
    !name.is_empty()
        && !matches!(name, b"." | b"..")
        && name.len() <= MAX_NAME_BYTES
        && !name.iter().any(|byte| matches!(byte, b'/' | b'\r' | b'\n' | 0))
}

/// Whether haul calls its unfinished files so.
pub(crate) fn is_of_haul(name: &[u8]) -> bool {
    parse_haul_name(name).is_some()
}

/// Linux takes no longer name.
const MAX_NAME_BYTES: usize = 255;
