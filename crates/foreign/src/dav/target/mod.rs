//! A tree at a server with WebDAV, as a target.

mod answers;
mod deletion;
mod draft;
mod listings;
pub(crate) mod open;
pub(crate) mod tree;
mod upload;

use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use haul_store::{
    Abilities, Applied, Draft, DraftPlan, FileId, Kind, Metadata, SourceFile, SourceNames, Stat, StoreError,
    TargetTree, Time, Version, check_new_path, check_path,
};

use crate::dav::multistatus::Properties;
use crate::http_client::client::{Client, Settings};
use crate::http_client::url::Url;
use crate::web::file::RemoteFile;
use crate::web::notes::Note;
use deletion::Deletion;
use draft::DavDraft;
use listings::split;
use open::OpenOptions;
use tree::{Tell, Times, Tree};

type Result<T> = std::result::Result<T, StoreError>;

/// A tree at a server that is written.
#[derive(Debug)]
pub struct DavTarget {
    tree: Arc<Tree>,
}

/// A server whose target is opened once the job is known.
#[derive(Debug)]
pub struct DavServer {
    client: Arc<Client>,
    url: Url,
}

impl DavServer {
    /// Prepares a client without asking the server.
    pub fn new(url: Url, settings: Settings) -> DavServer {
        DavServer { client: Arc::new(Client::new(url.origin().clone(), settings)), url }
    }

    /// Connects, and returns the round-trip time. The first request goes over that connection.
    ///
    /// # Errors
    /// The server does not answer.
    pub fn rtt_us(&self) -> Result<u32> {
        context("use as target", self.url.to_string().as_bytes(), || self.client.meet())
    }

    /// Opens the target of a job by cp's rule. The path is the tree if it is an existing directory, ends in a slash, or will hold
    /// more than one file. Else it is the new name of the single file: it is returned, and its parent is the tree.
    ///
    /// # Errors
    /// It is no directory, or cannot be made; the server cannot rename.
    pub fn open(&self, options: OpenOptions, tell: Tell) -> Result<(DavTarget, Option<Vec<u8>>)> {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let begun = Time { s: i64::try_from(since.as_secs()).unwrap_or(i64::MAX), ns: since.subsec_nanos() };
        let (tree, name) = open::open(Arc::clone(&self.client), &self.url, options, tell, begun)?;
        Ok((DavTarget { tree }, name))
    }
}

fn context<T>(op: &'static str, path: &[u8], done: impl FnOnce() -> io::Result<T>) -> Result<T> {
    done().map_err(|error| StoreError::new(op, path, error))
}

impl DavTarget {
    fn look(&self, path: &[u8]) -> io::Result<Option<Stat>> {
        if self.tree.is_missing() {
            return check_path(path).map(|()| None);
        }
        if path.is_empty() {
            return Ok(self.tree.look(&self.tree.directory_url(path)?)?.map(|there| self.stat_of(&there)));
        }
        let (directory, name) = split(path);
        let listed = match self.tree.listings.of(self.tree.client(), &self.tree.directory_url(directory)?, directory) {
            Ok(listed) => listed,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        Ok(match listed {
            Some(entries) => entries.get(name).map(|there| self.stat_of(there)),
            None => self.tree.look(&self.tree.url(path)?)?.map(|there| self.stat_of(&there)),
        })
    }

    fn stat_of(&self, there: &Properties) -> Stat {
        let mtime = there.mtime().unwrap_or(self.tree.begun);
        let is_directory = there.is_collection == Some(true);
        Stat {
            kind: if is_directory { Kind::Directory } else { Kind::File },
            mode: if is_directory { 0o755 } else { 0o644 },
            size: there.size.filter(|_| !is_directory).unwrap_or(0),
            blocks: there.size.unwrap_or(0).div_ceil(512),
            mtime,
            id: FileId { dev: 0, ino: 0 },
            version: Version::new(mtime, 0),
            nlink: 1,
            uid: 0,
            gid: 0,
        }
    }
}

impl TargetTree for DavTarget {
    fn abilities(&self) -> Abilities {
        Abilities {
            random_writes: false,
            times: self.tree.times() != Times::Lost,
            time_step_ns: 1_000_000_000,
            tells_files: false,
            symbolic_links: false,
            hard_links: false,
            holes: false,
            flushes_names: false,
            ..Abilities::ALL
        }
    }

    fn names_at_once(&self) -> usize {
        self.tree.at_once
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        context("look at", path, || self.look(path))
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        context("open", path, || {
            let file = RemoteFile::noted(&self.tree.served, self.tree.url(path)?, Note::default());
            Ok(SourceFile::Other(Arc::new(file)))
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
                _ => Err(io::Error::new(ErrorKind::NotADirectory, "a file stands there")),
            };
            // rclone accepts an existing directory silently.
            if let Some(stat) = self.look(path)? {
                return stands(stat);
            }
            let made = self.tree.mkcol(&self.tree.directory_url(path)?);
            if let Ok(true) = made {
                self.tree.listings.begin(path);
                return Ok(true);
            }
            // Another client may have made it.
            self.tree.listings.forget(split(path).0);
            match (self.look(path)?, made) {
                (Some(stat), _) => stands(stat),
                (None, Ok(_)) => Err(io::Error::new(ErrorKind::Unsupported, "the server makes no directory there")),
                (None, Err(error)) => Err(error),
            }
        })
    }

    fn make_symlink(&self, path: &[u8], _target: &[u8], _meta: &Metadata) -> Result<bool> {
        context("make symbolic link", path, || Err(io::Error::new(ErrorKind::Unsupported, "WebDAV has no links")))
    }

    fn make_hard_link(&self, path: &[u8], _first: &[u8]) -> Result<bool> {
        context("make hard link", path, || Err(io::Error::new(ErrorKind::Unsupported, "WebDAV has no links")))
    }

    /// Sets times of files, as some servers can.
    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        context("set metadata of", path, || {
            let is_file = self.look(path)?.is_some_and(|stat| stat.kind == Kind::File);
            let mtime = meta.mtime.filter(|_| is_file && self.tree.times() != Times::Lost);
            let Some(mtime) = mtime else { return Ok(Applied::default()) };
            let url = self.tree.url(path)?;
            let is_taken = self.tree.set_time(&url, mtime)?.is_some();
            let now = self.tree.look(&url)?;
            let changed = is_taken && now.as_ref().and_then(Properties::mtime).is_some_and(|shown| shown.s == mtime.s);
            if !changed {
                self.tree.keeps_times(Times::Lost);
            }
            self.tree.listings.note(path, now);
            Ok(Applied { changed, ..Applied::default() })
        })
    }

    /// Flushes nothing: a server has no flush.
    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        context("flush directory", path, || check_path(path))
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        context("flush", path, || match self.look(path)? {
            Some(stat) if stat.kind == Kind::File => Ok(()),
            Some(_) => Err(io::Error::new(ErrorKind::InvalidInput, "it is not a regular file")),
            None => Err(ErrorKind::NotFound.into()),
        })
    }

    fn new_draft(&self, path: &[u8], _inplace: bool) -> Result<Draft> {
        context("write", path, || Err(io::Error::new(ErrorKind::Unsupported, "a file of unknown size does not go up")))
    }

    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> Result<Draft> {
        context("write", path, || {
            check_new_path(path)?;
            Ok(Draft::Other(Box::new(DavDraft::new(&self.tree, path, plan)?)))
        })
    }

    fn resume_draft(&self, _path: &[u8], _inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        Ok(None)
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        if self.tree.is_missing() {
            return Vec::new();
        }
        let mut deletion = Deletion { tree: &self.tree, spare, dry_run, deleted, errors: Vec::new() };
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
        if self.tree.is_missing() {
            return Vec::new();
        }
        let mut deletion = Deletion { tree: &self.tree, spare, dry_run, deleted, errors: Vec::new() };
        deletion.entry(path);
        deletion.errors
    }
}
