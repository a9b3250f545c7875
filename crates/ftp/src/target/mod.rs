//! A tree at a server, as a target.

mod block_draft;
mod block_journal;
mod deletion;
mod draft;
mod finished;
mod journal;
mod listings;
pub(crate) mod open;
mod proof;
mod ranges;
mod read_back;
mod third_party;
pub(crate) mod tree;
mod uploads;

use std::io::{self, ErrorKind};
use std::sync::Arc;

use haul_store::{
    Abilities, Access, Applied, Draft, DraftPlan, Kind, Metadata, SourceFile, SourceNames, Stat, StoreError,
    TargetTree, ThirdParty, check_new_path, check_path, no_directory,
};
use rustix::io::Errno;

use crate::account::Settings;
use crate::codec::listing::{EntryType, Facts};
use crate::entry;
use crate::paths::without_slash;
use crate::refusal::missing;
use crate::server::{Server, Times};
use crate::source::{FtpFile, FtpSource};
use block_draft::BlockDraft;
use deletion::Deletion;
use draft::FtpDraft;
use open::OpenOptions;
use third_party::FtpThirdParty;
use tree::{Tree, split};
use uploads::Uploads;

type Result<T> = std::result::Result<T, StoreError>;

/// A server whose target is opened once it is known what comes.
#[derive(Debug)]
pub struct FtpServer(Arc<Server>);

/// A tree at a server that is written.
#[derive(Debug)]
pub struct FtpTarget(Arc<Tree>, Arc<Uploads>, Option<Arc<FtpThirdParty>>);

/// Whether a draft goes up in ranges.
enum InRanges {
    Yes(Box<BlockDraft>),
    /// An empty file may stand under its temporary name already.
    No {
        stands: bool,
    },
}

impl FtpServer {
    /// The server is asked nothing yet.
    pub fn new(settings: Settings) -> FtpServer {
        let server = Server::new(settings);
        server.dial_ahead();
        FtpServer(server)
    }

    /// The first login asks for the target, too.
    pub fn looks_first_at(&self, typed: &[u8]) {
        self.0.looks_first_at(without_slash(typed));
    }

    /// Logs in, and returns the round trip of the path in microseconds.
    ///
    /// # Errors
    /// The server cannot be reached, or does not let us in.
    pub fn reach(&self) -> io::Result<u32> {
        self.0.reach()?;
        self.0.foresee_ranges();
        Ok(self.0.rtt_us())
    }

    /// Opens the target of a job by cp's rule. The path is the tree if it is an existing directory, ends in a slash, or will hold more than
    /// one file. Otherwise it is the new name of the single file: the name is returned, and its parent is the tree.
    ///
    /// # Errors
    /// It is no directory, or cannot be made.
    pub fn open(&self, typed: &[u8], options: OpenOptions) -> Result<(FtpTarget, Option<Vec<u8>>)> {
        let (tree, name) = open::open(&self.0, typed, options)?;
        if let Some(root) = tree.root().filter(|_| !options.dry_run && !options.in_place) {
            self.0.try_ranges_ahead(root);
        }
        Ok((FtpTarget(tree, Arc::default(), None), name))
    }
}

/// A step in which all that fails fails for one path.
fn context<T>(op: &'static str, path: &[u8], done: impl FnOnce() -> io::Result<T>) -> Result<T> {
    done().map_err(|error| StoreError::new(op, path, error))
}

impl FtpTarget {
    /// The server of the source sends its files itself, if both servers can. Otherwise it is told why not. `None`: a hash of each file is
    /// wanted.
    #[must_use]
    pub fn taking_from(self, source: Option<&Arc<FtpSource>>) -> FtpTarget {
        let between = FtpThirdParty::between(source, &self.0);
        FtpTarget(self.0, self.1, between.map(Arc::new))
    }

    fn stat_of(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        if self.0.is_missing() {
            return check_path(path).map(|()| None);
        }
        let Some(facts) = self.0.look(path)? else { return Ok(None) };
        Ok(Some(entry::stat(path, &facts, self.0.begun())))
    }

    /// A draft that goes up in ranges, where the server takes them. It is made while that is found out.
    fn draft_in_ranges(&self, path: &[u8], plan: &DraftPlan) -> io::Result<InRanges> {
        let (tree, server) = (&self.0, &self.0.server);
        if plan.inplace || !server.may_take_ranges(plan.size) {
            return Ok(InRanges::No { stands: false });
        }
        let place = tree.place(path)?;
        server.begin_trial(crate::paths::split(&place).0);
        let draft = BlockDraft::in_ranges(tree, path, plan);
        match (server.takes_ranges_by_now(plan.size), draft) {
            (true, draft) => draft.map(|draft| InRanges::Yes(Box::new(draft))),
            (false, Ok(draft)) => {
                draft.leave_to_stream();
                Ok(InRanges::No { stands: true })
            }
            // It says in one stream what is wrong.
            (false, Err(_)) => Ok(InRanges::No { stands: false }),
        }
    }

    fn draft(&self, path: &[u8], plan: Option<&DraftPlan>, inplace: bool) -> Result<Draft> {
        context("write", path, || {
            check_new_path(path)?;
            if path.is_empty() {
                return Err(Errno::ISDIR.into());
            }
            if self.0.server.takes_parts() {
                let draft = BlockDraft::new(&self.0, &self.1, path, plan)?;
                return Ok(Draft::Other(Box::new(draft)));
            }
            let in_ranges = plan.map_or(Ok(InRanges::No { stands: false }), |plan| self.draft_in_ranges(path, plan))?;
            let stands = match in_ranges {
                InRanges::Yes(draft) => return Ok(Draft::Other(draft)),
                InRanges::No { stands } => stands,
            };
            let (mtime, size) = plan.map(|plan| (plan.mtime, plan.size)).unzip();
            let mut draft = FtpDraft::new(&self.0, path, mtime, size, inplace)?;
            draft.stands = stands;
            Ok(Draft::Other(Box::new(draft)))
        })
    }
}

impl TargetTree for FtpTarget {
    fn abilities(&self) -> Abilities {
        Abilities {
            random_writes: self.0.server.takes_parts(),
            times: self.0.server.times() != Times::Lost,
            time_step_ns: 1_000_000_000,
            tells_files: false,
            symbolic_links: false,
            hard_links: false,
            holes: false,
            flushes_names: false,
            ..Abilities::ALL
        }
    }

    fn third_party(&self) -> Option<Arc<dyn ThirdParty>> {
        self.2.clone().map(|between| between as Arc<dyn ThirdParty>)
    }

    fn access(&self) -> Access {
        match &self.0.server {
            server if server.takes_parts() => Access::Random,
            server if server.sends_ranges() => Access::Runs { jump_bytes: server.range_bytes() },
            _ => Access::Sequential,
        }
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        context("look at", path, || self.stat_of(path))
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        context("open", path, || {
            let place = self.0.place(path)?;
            match self.0.look(path)?.map(|facts| facts.kind) {
                Some(EntryType::File) => {}
                Some(EntryType::Link(_)) => return Err(Errno::LOOP.into()),
                Some(_) => return Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
                None => return Err(missing()),
            }
            Ok(SourceFile::Other(Arc::new(FtpFile::open(&self.0.served, place)?)))
        })
    }

    fn make_dir(&self, path: &[u8]) -> Result<bool> {
        context("make directory", path, || {
            check_new_path(path)?;
            if path.is_empty() {
                return Ok(false);
            }
            let stands = |stat: Stat| match stat.kind {
                Kind::Directory => Ok(false),
                kind => Err(io::Error::new(ErrorKind::NotADirectory, no_directory(&kind))),
            };
            if let Some(stat) = self.stat_of(path)? {
                return stands(stat);
            }
            let (directory, name) = split(path);
            let Err(error) = self.0.server.make_directory(&self.0.place(path)?) else {
                self.0.listings.begin(path, directory, name);
                return Ok(true);
            };
            // Somebody else may have made it.
            self.0.listings.forget(directory);
            match self.stat_of(path)? {
                Some(stat) => stands(stat),
                None => Err(error),
            }
        })
    }

    fn make_symlink(&self, path: &[u8], _target: &[u8], _meta: &Metadata) -> Result<bool> {
        context("make symbolic link", path, || Err(io::Error::new(ErrorKind::Unsupported, "FTP makes no links")))
    }

    fn make_hard_link(&self, path: &[u8], _first: &[u8]) -> Result<bool> {
        context("make hard link", path, || Err(io::Error::new(ErrorKind::Unsupported, "FTP makes no links")))
    }

    /// Directories keep no times: few servers set them.
    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        context("set metadata of", path, || {
            let facts = self.0.look(path)?.ok_or_else(missing)?;
            let place = self.0.place(path)?;
            let mut applied = Applied::default();
            if let Some(mode) = meta.mode {
                self.0.server.set_mode(&place, mode)?;
                applied.changed = true;
            }
            if let Some(mtime) = meta.mtime.filter(|_| facts.kind == EntryType::File) {
                let now = draft::set_time(&self.0.server, &place, mtime)?;
                applied.changed |= now.as_ref().is_some_and(|now| draft::has_time(now, mtime));
                self.0.note(path, now.or(Some(facts)));
            }
            Ok(applied)
        })
    }

    /// A server has no flush: what it has confirmed counts.
    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        context("flush directory", path, || match path.is_empty() || self.0.look(path)?.is_some() {
            true => check_path(path),
            false => Err(missing()),
        })
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        context("flush", path, || match self.0.look(path)? {
            Some(Facts { kind: EntryType::File, .. }) => Ok(()),
            Some(_) => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
            None => Err(missing()),
        })
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft> {
        self.draft(path, None, inplace)
    }

    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> Result<Draft> {
        self.draft(path, Some(plan), plan.inplace)
    }

    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        if inplace {
            return Ok(None);
        }
        context("resume", path, || {
            if self.0.server.takes_parts() {
                let resumed = BlockDraft::resume(&self.0, &self.1, path)?;
                return Ok(resumed.map(|(draft, journal)| (Draft::Other(Box::new(draft)), journal)));
            }
            if let Some((draft, journal)) = FtpDraft::resume(&self.0, path)? {
                return Ok(Some((Draft::Other(Box::new(draft)), journal)));
            }
            let resumed = BlockDraft::resume_ranges(&self.0, path)?;
            Ok(resumed.map(|(draft, journal)| (Draft::Other(Box::new(draft)), journal)))
        })
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        if self.0.is_missing() {
            return Vec::new();
        }
        let mut deletion = Deletion { tree: &self.0, spare, dry_run, deleted, errors: Vec::new() };
        deletion.extraneous(path, has);
        deletion.errors
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        if self.0.is_missing() {
            return Vec::new();
        }
        let mut deletion = Deletion { tree: &self.0, spare, dry_run, deleted, errors: Vec::new() };
        deletion.entry(path);
        deletion.errors
    }

    fn mark_unfinished(
        &self,
        path: &[u8],
        _header: &dyn Fn(Option<(u64, u64)>) -> Vec<u8>,
        _flush: bool,
    ) -> Result<()> {
        // A server keeps no mark. With --inplace it was said that half a file may show.
        match self.0.in_place {
            true => Ok(()),
            false => context("mark as unfinished", path, || Err(draft::no_writing_in_place())),
        }
    }

    fn sweep_draft_of(&self, path: &[u8]) -> bool {
        let swept = self.0.place(path).and_then(|place| draft::sweep(&self.0, path, &place));
        swept.unwrap_or(false)
    }
}
