//! Files that another server of GridFTP sends into this tree ("third party").
//!
//! ```text
//! draft (swept, or of an earlier run that this host has a journal of) -> parts from the source -> the same sums at both servers
//!   -> the source is as it was, size and time -> RNFR, RNTO onto the name
//! ```
//! Both servers tell sums, so a draft needs no restart markers: what has the source's sum counts.

use std::collections::HashMap;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Duration;

use haul_store::{Carried, FileToBring, Journal as _, StoreError, SumKind, ThirdParty};

use super::block_journal::{About, BlockJournal};
use super::draft::{draft_beside, draft_of, has_time, random, size_of_left, sweep};
use super::finished::with_time;
use super::tree::Tree;
use crate::codec::listing::Facts;
use crate::control::between::Watcher;
use crate::limits::{BETWEEN_AT_ONCE, BETWEEN_TRIES, COMPARED_BYTES, GATHERED_BYTES};
use crate::refusal::{invalid, is_lasting, is_missing};
use crate::server::Server;
use crate::server::between::{Between, Gap, Pair};
use crate::server::blocks::{End, Finished};
use crate::source::FtpSource;

/// Two servers, of which one has the sources and the other one the target.
#[derive(Debug)]
pub(super) struct FtpThirdParty {
    tree: Arc<Tree>,
    source: Arc<FtpSource>,
    /// The number of a source by the first component of its files.
    sources: HashMap<Vec<u8>, u32>,
    between: Between,
}

/// A draft that is filled by another server.
struct Filled {
    place: Vec<u8>,
    draft_place: Vec<u8>,
    journal: BlockJournal,
    /// The draft has so many bytes of an earlier run.
    has: Option<u64>,
}

/// What came of a file.
enum Came {
    Whole(Finished),
    /// The source is another file by now.
    Changed,
    Differs,
}

impl FtpThirdParty {
    /// `None`: the servers cannot do it, which is told.
    pub(super) fn between(source: Option<&Arc<FtpSource>>, tree: &Arc<Tree>) -> Option<FtpThirdParty> {
        let to = &tree.server;
        let has_sums = |server: &Server| server.sum_kind() == Some(SumKind::Adler32);
        let why = match source.map(|source| (source, source.server())) {
            None => "a hash of each file is asked for, and servers make none",
            Some((_, from)) if !from.is_grid() || !to.is_grid() => "one server sends to no other",
            Some((_, from)) if !from.sends_blocks() || !to.takes_parts() => {
                "a server knows no parts of files (ERET, ESTO)"
            }
            Some((_, from)) if !has_sums(from) || !has_sums(to) => {
                "a server tells no Adler-32, which would prove what the other one sent"
            }
            Some((source, from)) => {
                let between = Between::new(from, to);
                let sources = source.first_names().map(|(name, number)| (name.to_vec(), number)).collect();
                let (tree, source) = (Arc::clone(tree), Arc::clone(source));
                return Some(FtpThirdParty { tree, source, sources, between });
            }
        };
        to.tell_way(why);
        None
    }

    fn source_of(&self, path: &[u8]) -> Option<Vec<u8>> {
        let first = path.split(|byte| *byte == b'/').next().unwrap_or_default();
        let number = self.sources.get(first).or_else(|| self.sources.get(&b""[..]))?;
        self.source.path_of(*number, path).ok()
    }

    fn prepare(&self, file: &FileToBring<'_>) -> io::Result<Filled> {
        let server = &self.tree.server;
        let place = self.tree.place(file.path)?;
        let draft_place = draft_of(&place);
        server.command("STOR", &place)?;
        let mut journal = BlockJournal::none();
        if let Some(directory) = server.journals().filter(|_| file.size > GATHERED_BYTES) {
            let named = server.named(&draft_place);
            if let Some((journal, left)) = BlockJournal::left(directory, &named)?
                && left.about.size == file.size
                && let Some(has) = size_of_left(&self.tree, file.path, &draft_place, file.size)?
            {
                return Ok(Filled { place, draft_place, journal, has: Some(has) });
            }
            let about = About { place: named, number: random()?, size: file.size, chunk_bytes: COMPARED_BYTES };
            journal = BlockJournal::new(directory, about)?;
        }
        sweep(&self.tree, file.path, &place)?;
        journal.begin(b"", &mut || ())?;
        Ok(Filled { place, draft_place, journal, has: None })
    }

    /// Fills a draft until it has the sums of the source.
    fn fill(&self, source: &[u8], filled: &Filled, file: &FileToBring<'_>) -> io::Result<Came> {
        let pair = Pair { source, draft: &filled.draft_place, size: file.size };
        let watcher = Watcher { is_over: file.is_over, moves: file.moves };
        let (mut begins, mut gaps) = match filled.has {
            Some(has) => (false, self.between.gaps(pair, has, watcher)?),
            None => (true, vec![(0, file.size)]),
        };
        let mut cut = None;
        for tries in 0..BETWEEN_TRIES {
            let pool = &self.tree.server.pool;
            pool.pause(if tries > 0 { pool.backoff(tries) } else { Duration::ZERO });
            let sent = gaps.iter().try_for_each(|gap| self.between.send(pair, *gap, begins, watcher));
            cut = match sent {
                Ok(()) => None,
                Err(error) if (file.is_over)() || is_of_no_use_again(&error) => return Err(error),
                error => error.err(),
            };
            if cut.is_none() {
                match self.judge(pair, file, watcher)? {
                    Ok(came) => return Ok(came),
                    Err(differ) => (begins, gaps) = (false, differ),
                }
                continue;
            }
            (begins, gaps) = match self.between.look(pair)? {
                (_, Some(has)) if has <= file.size => (false, self.between.gaps(pair, has, watcher)?),
                _ => (true, vec![(0, file.size)]),
            };
        }
        cut.map_or(Ok(Came::Differs), Err)
    }

    /// Compares what has come with the source. `Err`: what differs.
    fn judge(
        &self,
        pair: Pair<'_>,
        file: &FileToBring<'_>,
        watcher: Watcher<'_>,
    ) -> io::Result<Result<Came, Vec<Gap>>> {
        let is_as_it_was = |facts: Option<Facts>| {
            facts.is_some_and(|facts| {
                let has_time = facts.modified.is_none_or(|modified| !modified.is_exact) || has_time(&facts, file.mtime);
                facts.size == Some(file.size) && has_time
            })
        };
        let mtime = file.metadata.mtime.or(Some(file.mtime));
        if pair.size <= COMPARED_BYTES {
            let shown = self.between.finish_short(pair, &End { mtime, sums: pair.size > 0 })?;
            return Ok(match (is_as_it_was(shown.source), shown.finished) {
                (false, _) => Ok(Came::Changed),
                (true, Some(finished)) => Ok(Came::Whole(finished)),
                (true, None) => Err(vec![(0, pair.size)]),
            });
        }
        let (facts, has) = self.between.look(pair)?;
        let differ = self.between.gaps(pair, has.unwrap_or(0), watcher)?;
        Ok(match (is_as_it_was(facts), differ.is_empty()) {
            (false, _) => Ok(Came::Changed),
            (true, true) => Ok(Came::Whole(self.tree.server.finish(pair.draft, &End { mtime, sums: false })?)),
            (true, false) => Err(differ),
        })
    }

    /// Gives a whole draft its time, mode and name.
    fn name(&self, filled: &Filled, finished: Finished, file: &FileToBring<'_>) -> io::Result<()> {
        let (tree, server) = (&self.tree, &self.tree.server);
        if let Some(mode) = file.metadata.mode {
            server.set_mode(&filled.draft_place, mode)?;
        }
        let mtime = file.metadata.mtime.unwrap_or(file.mtime);
        let shown = with_time(server, &filled.draft_place, mtime, finished)?;
        let shown = shown.ok_or_else(|| invalid("the server has confirmed it, and does not have it"))?;
        if shown.size != Some(file.size) {
            return Err(invalid("the server shows another size of it than a moment ago"));
        }
        tree.rename_over(&filled.draft_place, &filled.place)?;
        server.compared(Some(SumKind::Adler32));
        tree.note(file.path, Some(shown));
        tree.note(&draft_beside(file.path), None);
        // One that stays tells of a draft that is gone.
        let _ = filled.journal.remove();
        Ok(())
    }

    fn discard(&self, filled: &Filled) {
        let _ = filled.journal.remove();
        // It may not be there yet.
        let _ = self.tree.server.remove_file(&filled.draft_place);
    }
}

impl ThirdParty for FtpThirdParty {
    fn bring(&self, file: &FileToBring<'_>) -> Result<Carried, StoreError> {
        let fail = |error: io::Error| Err(StoreError::new("have it sent to", file.path, error));
        let Some(source) = self.source_of(file.source_path).filter(|_| !self.between.is_given_up()) else {
            return Ok(Carried::ThroughThisHost);
        };
        // What hinders here is told where the file goes through this host.
        let Ok(filled) = self.prepare(file) else { return Ok(Carried::ThroughThisHost) };
        let filled_up = self.fill(&source, &filled, file);
        let error = match filled_up {
            Ok(Came::Whole(finished)) => match self.name(&filled, finished, file) {
                Ok(()) => return Ok(Carried::BetweenServers),
                Err(error) => {
                    if error.kind() == ErrorKind::InvalidData {
                        self.discard(&filled);
                    }
                    return fail(error);
                }
            },
            Ok(Came::Changed) => {
                self.discard(&filled);
                return Ok(Carried::ThroughThisHost);
            }
            Ok(Came::Differs) => {
                self.discard(&filled);
                return Ok(Carried::Differs);
            }
            // A later run goes on with it.
            Err(error) if (file.is_over)() => return fail(error),
            Err(error) => error,
        };
        self.discard(&filled);
        if error.kind() == ErrorKind::StorageFull {
            return fail(error);
        }
        let is_of_this_file = is_missing(&error) || error.kind() == ErrorKind::PermissionDenied;
        if error.kind() == ErrorKind::Unsupported || !(is_of_this_file || self.between.has_worked()) {
            self.between.give_up(&error.to_string());
        }
        Ok(Carried::ThroughThisHost)
    }

    fn at_once(&self) -> usize {
        BETWEEN_AT_ONCE
    }
}

fn is_of_no_use_again(error: &io::Error) -> bool {
    is_lasting(error) || is_missing(error) || error.kind() == ErrorKind::Unsupported
}
