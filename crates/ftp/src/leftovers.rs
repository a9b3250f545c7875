//! What dead copies left at a server: drafts that nobody has written for a day.
//!
//! A server of FTP has no locks. A copy of this host that lives holds the journal of its draft. A copy of another host writes its draft, or
//! ends after a minute of silence (`--timeout`). A moment before a draft gets its name it has the time of its source, so it counts only if
//! it still has its own name a little later.

use std::io;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_store::{EachLeft, JournalFile, parse_haul_name};
use rustix::io::Errno;

use crate::codec::listing::{EntryType, Facts};
use crate::limits::{LEFT_AFTER, LEFT_LOOKED_AGAIN, MAX_DEPTH, MAX_LEFT_DIRECTORIES_BYTES, MAX_OURS};
use crate::paths::{is_name, join};
use crate::refusal::is_missing;
use crate::server::Server;

/// Looks through a directory with all beneath it.
pub(crate) fn leftovers(
    server: &Arc<Server>,
    directory: &[u8],
    remove: bool,
    each: EachLeft<'_>,
) -> io::Result<ControlFlow<()>> {
    Cleaning { server, root: directory, remove, each }.run()
}

struct Cleaning<'a, 'b> {
    server: &'a Arc<Server>,
    root: &'a [u8],
    remove: bool,
    each: EachLeft<'b>,
}

/// The names of one directory that matter.
#[derive(Default)]
struct Found {
    directories: Vec<Vec<u8>>,
    drafts: Vec<Vec<u8>>,
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
                Err(error) if path.is_empty() || is_lost(&error) => return Err(error),
                Err(error) if is_missing(&error) => continue,
                Err(error) => {
                    if (self.each)(&path, Err(error)).is_break() {
                        return Ok(ControlFlow::Break(()));
                    }
                    continue;
                }
            };
            if self.each_left(&path, &found.drafts)?.is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // The last one is taken first.
            for name in found.directories.into_iter().rev() {
                let beneath = join(&path, &name);
                let why = match (depth < MAX_DEPTH, waiting_bytes + beneath.len() < MAX_LEFT_DIRECTORIES_BYTES) {
                    (true, true) => {
                        waiting_bytes += beneath.len();
                        waiting.push((beneath, depth + 1));
                        continue;
                    }
                    (false, _) => "directories are nested too deep",
                    (true, false) => "there are too many directories to enter them",
                };
                let why = io::Error::new(io::ErrorKind::FileTooLarge, why);
                if (self.each)(&beneath, Err(why)).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Links are not followed, as far as the server tells them.
    fn look_through(&self, path: &[u8]) -> io::Result<Found> {
        let (mut found, mut bytes) = (Found::default(), 0_usize);
        self.server.list(&join(self.root, path), &mut |entry| {
            match entry.facts.kind {
                _ if !is_name(&entry.name) => {}
                EntryType::Directory => {
                    bytes += entry.name.len() + size_of::<Vec<u8>>();
                    if bytes > MAX_LEFT_DIRECTORIES_BYTES {
                        return Err(Errno::FBIG.into());
                    }
                    found.directories.push(entry.name);
                }
                EntryType::File if parse_haul_name(&entry.name).is_some() && found.drafts.len() < MAX_OURS => {
                    found.drafts.push(entry.name);
                }
                _ => {}
            }
            Ok(())
        })?;
        found.directories.sort_unstable();
        found.drafts.sort_unstable();
        Ok(found)
    }

    fn each_left(&mut self, path: &[u8], drafts: &[Vec<u8>]) -> io::Result<ControlFlow<()>> {
        let paths: Vec<Vec<u8>> = drafts.iter().map(|name| join(self.root, &join(path, name))).collect();
        if paths.is_empty() {
            return Ok(ControlFlow::Continue(()));
        }
        let first = self.server.look_at_files(&paths)?;
        if first.iter().any(is_old) {
            self.server.pool.pause(LEFT_LOOKED_AGAIN);
        }
        let again = if first.iter().any(is_old) { self.server.look_at_files(&paths)? } else { Vec::new() };
        for (((name, place), first), again) in drafts.iter().zip(&paths).zip(first).zip(again) {
            if !is_old(&first) || first != again {
                continue;
            }
            let size = first.and_then(|facts| facts.size).unwrap_or(0);
            if self.left(&join(path, name), place, size).is_break() {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn left(&mut self, beneath: &[u8], place: &[u8], size: u64) -> ControlFlow<()> {
        let journal = match self.server.journals() {
            Some(directory) => JournalFile::in_directory(directory, &self.server.named(place)).ok(),
            None => None,
        };
        // A process that lives holds it.
        if journal.as_ref().is_some_and(|journal| journal.resume_at_once().is_err()) {
            return ControlFlow::Continue(());
        }
        let removed = match self.remove {
            true => self.server.remove_file(place).inspect(|()| {
                if let Some(journal) = journal {
                    // Without its draft it is no harm.
                    let _ = haul_store::Journal::remove(&journal);
                }
            }),
            false => Ok(()),
        };
        (self.each)(beneath, removed.map(|()| size))
    }
}

/// The server is not there any more: nothing else is asked.
fn is_lost(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, NotConnected, TimedOut, UnexpectedEof};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | NotConnected | TimedOut | UnexpectedEof)
}

/// Whether nobody has written it for a day. A server of another time than this host is at most some hours off.
fn is_old(facts: &Option<Facts>) -> bool {
    let modified = facts.as_ref().and_then(|facts| facts.modified);
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let written = modified.and_then(|modified| u64::try_from(modified.time.s).ok());
    written.is_some_and(|written| written.saturating_add(LEFT_AFTER.as_secs()) <= now)
}
