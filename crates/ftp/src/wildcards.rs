//! Expands a path with wildcards to the existing paths, sorted, component by component as a shell does.

use std::io::{self, ErrorKind};

use haul_store::{NamePattern, has_wildcard};
use rustix::io::Errno;

use crate::codec::listing::{EntryType, Facts};
use crate::limits::{MAX_NAMES_COMPARED, MAX_SOURCES};
use crate::paths::{is_name, is_of_haul, join};
use crate::server::Server;

/// A path that a pattern matches, and what its list told of it.
pub(crate) type Match = (Vec<u8>, Option<Facts>);

/// Returns the existing paths that match. A slash at the end stays, and means directories alone. `None`: there is no wildcard in it.
pub(crate) fn expand(server: &Server, typed: &[u8]) -> Option<io::Result<Vec<Match>>> {
    has_wildcard(typed).then(|| expand_components(server, typed))
}

fn expand_components(server: &Server, typed: &[u8]) -> io::Result<Vec<Match>> {
    let mut found: Vec<Match> = vec![(if typed.starts_with(b"/") { b"/".to_vec() } else { Vec::new() }, None)];
    let mut names_left = MAX_NAMES_COMPARED;
    let mut components = typed.split(|byte| *byte == b'/').filter(|part| !part.is_empty()).peekable();
    while let Some(component) = components.next() {
        if !has_wildcard(component) {
            found.iter_mut().for_each(|(parent, facts)| (*parent, *facts) = (join(parent, component), None));
            continue;
        }
        let needs_directory = components.peek().is_some() || typed.ends_with(b"/");
        let pattern = NamePattern::new(component).map_err(|_| io::Error::from(Errno::NAMETOOLONG))?;
        let mut next: Vec<Match> = Vec::new();
        for (parent, _) in &found {
            let listed = server.list(parent, &mut |entry| {
                names_left = names_left
                    .checked_sub(1)
                    .ok_or_else(|| too_many("its wildcards are compared with too many names"))?;
                let may_be_meant =
                    !needs_directory || !matches!(entry.facts.kind, EntryType::File | EntryType::Special);
                if may_be_meant && is_name(&entry.name) && !is_of_haul(&entry.name) && pattern.matches(&entry.name) {
                    // A link is another thing than what it leads to.
                    let facts = Some(entry.facts).filter(is_told);
                    next.push((join(parent, &entry.name), facts));
                }
                if next.len() > MAX_SOURCES { Err(too_many("there are too many of them")) } else { Ok(()) }
            });
            // A directory that cannot be read matches no names, as in a shell.
            if let Err(error) = listed
                && matches!(error.kind(), ErrorKind::ArgumentListTooLong | ErrorKind::InvalidData)
            {
                return Err(error);
            }
        }
        next.sort_by(|one, other| one.0.cmp(&other.0));
        found = next;
    }
    if typed.ends_with(b"/") {
        found.iter_mut().for_each(|(path, _)| path.push(b'/'));
    }
    if !typed.rsplit(|byte| *byte == b'/').find(|part| !part.is_empty()).is_some_and(has_wildcard) {
        let mut there = Vec::with_capacity(found.len());
        for (path, _) in found {
            if let Some(facts) = server.look(crate::paths::without_slash(&path))? {
                there.push((path, Some(facts)));
            }
        }
        found = there;
    }
    Ok(found)
}

/// The list has told all of it that a look would tell.
fn is_told(facts: &Facts) -> bool {
    match facts.kind {
        EntryType::Directory => true,
        EntryType::File => facts.size.is_some() && facts.modified.is_some_and(|modified| modified.is_exact),
        EntryType::Itself | EntryType::Link(_) | EntryType::Special | EntryType::Unknown => false,
    }
}

fn too_many(what: &str) -> io::Error {
    io::Error::new(ErrorKind::ArgumentListTooLong, format!("{what}; name the directories that hold them"))
}
