//! Expands a wildcard path to sorted existing paths.

use std::io;
use std::os::fd::AsFd;

use rustix::fs::OFlags;
use rustix::io::Errno;

use crate::error::{Result, StoreError, refusal};
use crate::listing::Names;
use crate::pattern::{Manner, Pattern, Start, has_wildcard};
use crate::typed::Typed;

/// A component with wildcards, which match no leading dot.
#[derive(Debug)]
pub struct NamePattern {
    pattern: Pattern,
    is_of_hidden: bool,
}

impl NamePattern {
    /// Reads a component. Fails if it is too long.
    pub fn new(component: &[u8]) -> std::result::Result<Self, String> {
        Ok(Self { pattern: Pattern::new(component, Manner::Shell)?, is_of_hidden: component.starts_with(b".") })
    }

    /// Whether it means this name.
    pub fn matches(&self, name: &[u8]) -> bool {
        (self.is_of_hidden || !name.starts_with(b".")) && self.pattern.matches([b"", name, b""], Start::First)
    }
}

/// Returns the existing paths that match, as in a shell. A trailing slash stays. Each compared name counts against
/// `names_left`; at most `most` paths are held.
pub(crate) fn expand(typed: &Typed, path: &[u8], most: usize, names_left: &mut usize) -> Result<Vec<Vec<u8>>> {
    let mut found: Vec<Vec<u8>> = vec![if path.starts_with(b"/") { b"/".to_vec() } else { Vec::new() }];
    let components: Vec<&[u8]> = path.split(|&byte| byte == b'/').filter(|part| !part.is_empty()).collect();
    for component in components {
        let mut next = Vec::new();
        if has_wildcard(component) {
            let pattern =
                NamePattern::new(component).map_err(|_| StoreError::new("match", path, Errno::NAMETOOLONG))?;
            for parent in &found {
                if *names_left == 0 {
                    let why = "its wildcards are compared with too many names; name the directories that hold them";
                    return Err(StoreError::new("expand", path, refusal(io::ErrorKind::ArgumentListTooLong, why)));
                }
                list_matches(typed, parent, &pattern, names_left, &mut |found| {
                    if next.len() >= most {
                        return Err(too_many_sources(path));
                    }
                    next.push(found);
                    Ok(())
                })?;
            }
        } else {
            next.extend(found.iter().map(|parent| extend(parent, component)));
        }
        found = next;
    }
    if path.ends_with(b"/") {
        found.iter_mut().for_each(|path| path.push(b'/'));
    }
    found.retain(|path| typed.open(path, OFlags::PATH | OFlags::NOFOLLOW).is_ok());
    Ok(found)
}

/// Unreadable directories match no names, as in a shell.
fn list_matches(
    typed: &Typed,
    parent: &[u8],
    pattern: &NamePattern,
    names_left: &mut usize,
    found: &mut dyn FnMut(Vec<u8>) -> Result<()>,
) -> Result<()> {
    let place = if parent.is_empty() { b".".as_slice() } else { parent };
    *names_left = names_left.saturating_sub(1);
    let Ok(dir) = typed.open(place, OFlags::RDONLY | OFlags::DIRECTORY) else { return Ok(()) };
    let Ok(names) = Names::read(dir.as_fd()) else { return Ok(()) };
    *names_left = names_left.saturating_sub(names.len());
    for (name, _) in (0..names.len()).filter_map(|index| names.get(index)) {
        if pattern.matches(name) {
            found(extend(parent, name))?;
        }
    }
    Ok(())
}

pub(crate) fn too_many_sources(path: &[u8]) -> StoreError {
    let why = "there are too many sources; name the directories that hold them";
    StoreError::new("copy", path, refusal(io::ErrorKind::ArgumentListTooLong, why))
}

fn extend(parent: &[u8], name: &[u8]) -> Vec<u8> {
    match parent {
        b"" => name.to_vec(),
        parent if parent.ends_with(b"/") => [parent, name].concat(),
        parent => [parent, b"/", name].concat(),
    }
}
