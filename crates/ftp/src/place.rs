//! A tree at a server that is looked at and changed by hand, one path at a time.

use std::io::{self, ErrorKind};
use std::ops::ControlFlow;
use std::sync::Arc;

use haul_store::place::EntryFacts;
use haul_store::{EachLeft, EachListed, Listed, PlaceTree, SourceFile, check_path};
use rustix::io::Errno;

use crate::account::Settings;
use crate::codec::listing::{Entry, EntryType, Facts};
use crate::entry;
use crate::leftovers::leftovers;
use crate::paths::{is_name, join, split, without_slash};
use crate::refusal::{invalid, missing};
use crate::server::Server;
use crate::source::{FtpFile, Served};
use crate::target::tree::rename_over;
use crate::wildcards;

/// A tree at a server, for `haul ls`, `cat`, `rm` and their like. Paths are as typed: they begin where the server starts, mostly at the home.
#[derive(Debug)]
pub struct FtpPlace {
    served: Arc<Served>,
}

impl FtpPlace {
    /// The server is asked nothing yet.
    pub fn new(settings: Settings) -> FtpPlace {
        FtpPlace { served: Served::new(Server::new(settings)) }
    }

    fn server(&self) -> &Arc<Server> {
        &self.served.server
    }

    fn look(&self, path: &[u8], follow: bool) -> io::Result<Facts> {
        let path = without_slash(path);
        if !follow && let Some(listed) = self.link_at(path)? {
            return Ok(listed);
        }
        self.server().look(path)?.ok_or_else(missing)
    }

    /// A link as the list of its directory tells it. A path that a server finds it follows.
    fn link_at(&self, path: &[u8]) -> io::Result<Option<Facts>> {
        let (directory, name) = split(path);
        if !is_name(name) {
            return Ok(None);
        }
        let mut found = None;
        let listed = self.server().list(directory, &mut |entry| {
            if entry.name == name && matches!(entry.facts.kind, EntryType::Link(_)) {
                found = Some(entry.facts);
            }
            Ok(())
        });
        // A directory that cannot be listed may have an entry that can be looked at.
        Ok(listed.ok().and(found))
    }

    fn open_at(&self, path: &[u8]) -> io::Result<SourceFile> {
        Ok(SourceFile::Other(Arc::new(FtpFile::open(&self.served, path.to_vec())?)))
    }
}

impl PlaceTree for FtpPlace {
    fn join(&self, directory: &[u8], name: &[u8]) -> Vec<u8> {
        join(without_slash(directory), name)
    }

    fn facts(&self, path: &[u8], follow: bool) -> io::Result<EntryFacts> {
        Ok(entry::for_person(&with_size_of_file(self.look(path, follow)?)))
    }

    fn list(&self, path: &[u8], _follow: bool, facts: bool, each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        let directory = without_slash(path).to_vec();
        let mut flow = ControlFlow::Continue(());
        // Those whose exact times are asked for, some at once.
        let mut waiting: Vec<(Vec<u8>, Facts)> = Vec::new();
        let give = |waiting: &mut Vec<(Vec<u8>, Facts)>, each: EachListed<'_>| -> io::Result<ControlFlow<()>> {
            let paths: Vec<Vec<u8>> = waiting.iter().map(|(name, _)| join(&directory, name)).collect();
            let looked = self.server().look_at_files(&paths)?;
            for ((name, listed), now) in waiting.drain(..).zip(looked) {
                let facts = now.map_or(listed.clone(), |now| Facts { mode: listed.mode, ..now });
                if each(&name, Ok(Listed::Facts(Box::new(entry::for_person(&facts))))).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        };
        let listed = self.server().list(&directory, &mut |entry| {
            let is_exact = entry.facts.modified.is_some_and(|modified| modified.is_exact);
            flow = if !is_name(&entry.name) {
                each(&entry.name, Err(invalid("no file can have its name")))
            } else if facts && entry.facts.kind == EntryType::File && !is_exact {
                waiting.push((entry.name, entry.facts));
                match waiting.len() >= LOOKS_AT_ONCE {
                    true => give(&mut waiting, each)?,
                    false => ControlFlow::Continue(()),
                }
            } else if facts {
                each(&entry.name, Ok(Listed::Facts(Box::new(entry::for_person(&entry.facts)))))
            } else {
                each(&entry.name, Ok(Listed::Kind(entry::node_kind(&entry.facts))))
            };
            // No server has this error.
            if flow.is_break() { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        match listed {
            Err(_) if flow.is_break() => Ok(flow),
            Err(error) => Err(error),
            Ok(()) => give(&mut waiting, each),
        }
    }

    fn list_sizes(&self, path: &[u8], each: EachListed<'_>) -> io::Result<ControlFlow<()>> {
        let mut flow = ControlFlow::Continue(());
        let listed = self.server().list(without_slash(path), &mut |Entry { name, facts }| {
            let facts = entry::for_person(&with_size_of_file(facts));
            flow = match is_name(&name) {
                true => each(&name, Ok(Listed::Facts(Box::new(facts)))),
                false => each(&name, Err(invalid("no file can have its name"))),
            };
            // No server has this error.
            if flow.is_break() { Err(ErrorKind::Interrupted.into()) } else { Ok(()) }
        });
        match listed {
            Err(error) if flow.is_continue() => Err(error),
            _ => Ok(flow),
        }
    }

    fn open(&self, path: &[u8]) -> io::Result<SourceFile> {
        self.open_at(path)
    }

    fn open_beneath(&self, directory: &[u8], path: &[u8]) -> io::Result<SourceFile> {
        check_path(path)?;
        let path = join(without_slash(directory), path);
        if self.link_at(&path)?.is_some() {
            return Err(Errno::LOOP.into());
        }
        self.open_at(&path)
    }

    fn make_directory(&self, path: &[u8]) -> io::Result<()> {
        let path = without_slash(path);
        let made = self.server().make_directory(path);
        made.map_err(|error| match self.server().look(path) {
            Ok(Some(_)) => Errno::EXIST.into(),
            _ => error,
        })
    }

    fn rename(&self, from: &[u8], to: &[u8], keep: bool) -> io::Result<()> {
        let (from, to) = (without_slash(from), without_slash(to));
        // Most servers rename onto a file without a word.
        if keep && self.server().look(to)?.is_some() {
            return Err(Errno::EXIST.into());
        }
        rename_over(self.server(), from, to)
    }

    fn remove_files(&self, paths: &[Vec<u8>]) -> Vec<io::Result<()>> {
        paths.iter().map(|path| self.server().remove_file(path)).collect()
    }

    fn remove_directory(&self, path: &[u8]) -> io::Result<()> {
        self.server().remove_directory(without_slash(path))
    }

    fn matches(&self, typed: &[u8]) -> Option<io::Result<Vec<Vec<u8>>>> {
        let matches = wildcards::expand(self.server(), typed)?;
        Some(matches.map(|matches| matches.into_iter().map(|(path, _)| path).collect()))
    }

    fn leftovers(&self, directory: &[u8], remove: bool, each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        leftovers(self.server(), without_slash(directory), remove, each)
    }
}

/// What some servers tell of directories is their size on the disk of the server.
fn with_size_of_file(facts: Facts) -> Facts {
    Facts { size: facts.size.filter(|_| facts.kind == EntryType::File), ..facts }
}

/// Files whose exact times are asked for at once.
const LOOKS_AT_ONCE: usize = 64;
