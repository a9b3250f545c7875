//! What dead copies left at a server: drafts and their journals that nobody has written for a day.
//!
//! A server of sftp has no locks. A copy that is alive writes its drafts, or ends after a minute of silence (`--timeout`).

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_store::{EachLeft, journal_of_part, parse_haul_name};
use rustix::io::Errno;

use crate::codec::Attributes;
use crate::entry;
use crate::limits::{LEFT_AFTER, MAX_DEPTH, MAX_LEFT_DIRECTORIES_BYTES, MAX_OURS};
use crate::paths::{is_name, join};
use crate::target::Tree;

/// Looks through a directory with all beneath it.
pub(crate) fn leftovers(
    tree: &Arc<Tree>,
    directory: &[u8],
    remove: bool,
    each: EachLeft<'_>,
) -> io::Result<ControlFlow<()>> {
    let user = match remove {
        // Who may remove may make a file, which tells user and clock of the server.
        true => tree.probe(directory)?,
        // The home belongs to the user of the login, as far as anybody can tell without writing.
        false => tree.server().stat(b".").map(|home| Attributes { times: Some((0, seconds_now())), ..home })?,
    };
    let mut cleaning = Cleaning { tree, root: directory, user, remove, each };
    cleaning.run()
}

struct Cleaning<'a, 'b> {
    tree: &'a Arc<Tree>,
    root: &'a [u8],
    /// A file of this user that was just made.
    user: Attributes,
    remove: bool,
    each: EachLeft<'b>,
}

/// The names of one directory that matter.
#[derive(Default)]
struct Found {
    directories: Vec<Vec<u8>>,
    ours: Vec<(Vec<u8>, Attributes)>,
}

impl Cleaning<'_, '_> {
    fn run(&mut self) -> io::Result<ControlFlow<()>> {
        // Paths beneath the root that are still to be looked through, with their depth.
        let mut waiting = vec![(Vec::new(), 0)];
        let mut waiting_bytes = 0;
        while let Some((path, depth)) = waiting.pop() {
            waiting_bytes -= path.len();
            let found = match self.look_through(&path) {
                Ok(found) => found,
                Err(error) if path.is_empty() || error.kind() == io::ErrorKind::BrokenPipe => return Err(error),
                Err(error) if error.kind() == io::ErrorKind::NotFound => continue,
                Err(error) => {
                    if (self.each)(&path, Err(error)).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
            };
            if self.each_left(&path, &found.ours).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // The last one is taken first.
            for name in found.directories.into_iter().rev() {
                let beneath = join(&path, &name);
                waiting_bytes += beneath.len();
                let why = match (depth < MAX_DEPTH, waiting_bytes < MAX_LEFT_DIRECTORIES_BYTES) {
                    (true, true) => {
                        waiting.push((beneath, depth + 1));
                        continue;
                    }
                    (false, _) => "directories are nested too deep",
                    (true, false) => "there are too many directories to enter them",
                };
                waiting_bytes -= beneath.len();
                let why = io::Error::new(io::ErrorKind::FileTooLarge, why);
                if (self.each)(&beneath, Err(why)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn look_through(&self, path: &[u8]) -> io::Result<Found> {
        let (server, directory) = (self.tree.server(), join(self.root, path));
        // A link beneath the root is not followed, and may stand there by now.
        if !path.is_empty() && entry::is_dir(&server.lstat(&directory)?) != Some(true) {
            return Err(Errno::NOENT.into());
        }
        let (mut found, mut bytes) = (Found::default(), 0_usize);
        server.opendir(&directory)?.each_name(&mut |listed| {
            if !is_name(&listed.name) {
                return Ok(());
            }
            let attributes = match listed.attributes.mode {
                Some(_) => listed.attributes,
                None => server.lstat(&join(&directory, &listed.name))?,
            };
            if entry::is_dir(&attributes) == Some(true) {
                bytes += listed.name.len() + size_of::<Vec<u8>>();
                if bytes > MAX_LEFT_DIRECTORIES_BYTES {
                    return Err(io::Error::new(io::ErrorKind::FileTooLarge, "there are too many directories in it"));
                }
                found.directories.push(listed.name);
            } else if parse_haul_name(&listed.name).is_some() && found.ours.len() < MAX_OURS {
                found.ours.push((listed.name, attributes));
            }
            Ok(())
        })?;
        found.directories.sort_unstable();
        found.ours.sort_unstable_by(|one, other| one.0.cmp(&other.0));
        Ok(found)
    }

    fn each_left(&mut self, path: &[u8], ours: &[(Vec<u8>, Attributes)]) -> ControlFlow<()> {
        let of_name = |name: &[u8]| ours.binary_search_by(|(other, _)| other[..].cmp(name)).ok().map(|at| &ours[at].1);
        for (name, attributes) in ours {
            match journal_of_part(name) {
                // A journal is removed with its part, and before it: without its part it is useless.
                Some(journal) => {
                    let with_it = of_name(&journal);
                    if !self.is_left(attributes) || with_it.is_some_and(|journal| !self.is_left(journal)) {
                        continue;
                    }
                    if let Some(attributes) = with_it {
                        self.left(path, &journal, attributes)?;
                    }
                    self.left(path, name, attributes)?;
                }
                None => {
                    let stem = name.strip_suffix(b"journal").unwrap_or(name);
                    if of_name(&[stem, b"part"].concat()).is_none() && self.is_left(attributes) {
                        self.left(path, name, attributes)?;
                    }
                }
            }
        }
        ControlFlow::Continue(())
    }

    /// Whether it is a regular file of this user to which nobody else may write, and was not written for a day.
    fn is_left(&self, attributes: &Attributes) -> bool {
        let is_own = entry::is_file(attributes)
            && attributes.mode.is_some_and(|mode| mode & 0o7022 == 0)
            && attributes.owners.map(|owners| owners.0) == self.user.owners.map(|owners| owners.0);
        // A draft that is about to get its name has the time of its source already. Its last access is the time of the copy then.
        let then = attributes.times.map(|times| u64::from(times.0.max(times.1)));
        let now = self.user.times.map(|times| u64::from(times.1));
        let (Some(now), Some(then)) = (now, then) else { return false };
        is_own && then.saturating_add(LEFT_AFTER.as_secs()) <= now
    }

    fn left(&mut self, path: &[u8], name: &[u8], attributes: &Attributes) -> ControlFlow<()> {
        let beneath = join(path, name);
        let removed = match self.remove {
            true => self.tree.server().remove(&join(self.root, &beneath)),
            false => Ok(()),
        };
        match removed {
            // Somebody else has removed it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => ControlFlow::Continue(()),
            removed => (self.each)(&beneath, removed.map(|()| attributes.size.unwrap_or(0))),
        }
    }
}

fn seconds_now() -> u32 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u32::try_from(now.as_secs()).unwrap_or(u32::MAX)
}
