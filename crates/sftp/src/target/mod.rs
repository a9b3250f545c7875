//! A tree at a server, as a target.

mod deletion;
mod draft;
mod journal;
mod open;
mod tree;
mod writes;

use std::io;
use std::sync::Arc;

use haul_store::{
    Abilities, Applied, Draft, Kind, Metadata, SourceFile, SourceNames, Stat, StoreError, TargetTree, check_new_path,
    check_path, journal_name, no_directory, part_name,
};
use rustix::io::Errno;

pub use open::OpenOptions;
pub use tree::Tell;
pub(crate) use tree::{Tree, lock};

use crate::codec::READ;
use crate::entry;
use crate::pool::Pool;
use crate::source::SftpFile;
use deletion::Deletion;
use draft::SftpDraft;
use tree::{Matter, beside, is_missing};

type Result<T> = std::result::Result<T, StoreError>;

/// A tree at a server that is written.
#[derive(Debug)]
pub struct SftpTarget {
    tree: Arc<Tree>,
    /// One file is copied.
    is_single: bool,
}

/// A step in which all that fails fails for one path.
fn context<T>(op: &'static str, path: &[u8], done: impl FnOnce() -> io::Result<T>) -> Result<T> {
    done().map_err(|error| StoreError::new(op, path, error))
}

impl SftpTarget {
    /// Opens the target of a job by cp's rule. The path is the tree if it is an existing directory, ends in a slash, or
    /// will hold more than one file. Otherwise it is the new name of the single file: the name is returned, and its parent
    /// is the tree.
    ///
    /// # Errors
    /// It is no directory, or cannot be made.
    pub fn open(pool: Arc<Pool>, typed: &[u8], options: OpenOptions, tell: Tell) -> Result<(Self, Option<Vec<u8>>)> {
        let (tree, name) = open::open(pool, typed, options, tell)?;
        Ok((Self { tree, is_single: options.single_file }, name))
    }

    fn stat_of(&self, place: &[u8]) -> io::Result<Option<Stat>> {
        let Some(attributes) = self.tree.look(place)? else { return Ok(None) };
        let mut stat = entry::stat(place, &attributes)?;
        if let Kind::Symlink { target } = &mut stat.kind {
            *target = self.tree.server().readlink(place)?;
        }
        Ok(Some(stat))
    }

    /// Makes an entry by `make`, under a temporary name first if something stands there.
    fn make_over(&self, place: &[u8], stands: bool, make: &dyn Fn(&[u8]) -> io::Result<()>) -> io::Result<()> {
        if !stands {
            return make(place);
        }
        let (draft, server) = (beside(place, part_name), self.tree.server());
        if self.tree.look(&draft)?.is_some() {
            server.remove(&draft)?;
        }
        make(&draft)?;
        self.tree.rename_over(&draft, place).inspect_err(|_| server.remove_some_time(&draft))
    }
}

impl TargetTree for SftpTarget {
    fn abilities(&self) -> Abilities {
        let hard_links = self.tree.server().features().hardlink;
        Abilities {
            time_step_ns: 1_000_000_000,
            tells_files: false,
            hard_links,
            flushes_names: false,
            ..Abilities::ALL
        }
    }

    fn stat(&self, path: &[u8]) -> Result<Option<Stat>> {
        if self.tree.is_missing() {
            return context("look at", path, || check_path(path).map(|()| None));
        }
        context("look at", path, || {
            match self.tree.place(path).and_then(|place| match path {
                // The root was typed, and may be a link to a directory.
                b"" => entry::stat(&place, &self.tree.server().stat(&place)?).map(Some),
                _ => {
                    if self.is_single {
                        // The next question is whether an earlier copy has left its journal.
                        self.tree.look_ahead(beside(&place, journal_name));
                    }
                    self.stat_of(&place)
                }
            }) {
                Err(error) if is_missing(&error) => Ok(None),
                stat => stat,
            }
        })
    }

    fn open_file(&self, path: &[u8]) -> Result<SourceFile> {
        context("open", path, || {
            let place = self.tree.place(path)?;
            match self.tree.look(&place)? {
                Some(there) if entry::is_file(&there) => {}
                Some(there) if entry::is_link(&there) => return Err(Errno::LOOP.into()),
                Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
                None => return Err(Errno::NOENT.into()),
            }
            Ok(SourceFile::Other(Arc::new(SftpFile::open(self.tree.pool(), place)?)))
        })
    }

    fn make_dir(&self, path: &[u8]) -> Result<bool> {
        context("make directory", path, || {
            check_new_path(path)?;
            let place = self.tree.place(path)?;
            if path.is_empty() {
                return Ok(false);
            }
            let Err(error) = self.tree.server().mkdir(&place, 0o700) else {
                self.tree.is_directory(path);
                return Ok(true);
            };
            match self.stat_of(&place)? {
                Some(stat) if stat.kind == Kind::Directory => {
                    self.tree.is_directory(path);
                    Ok(false)
                }
                Some(stat) => Err(io::Error::new(io::ErrorKind::NotADirectory, no_directory(&stat.kind))),
                None => Err(error),
            }
        })
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> Result<bool> {
        context("make symbolic link", path, || {
            check_new_path(path)?;
            let place = self.tree.place(path)?;
            let standing = self.stat_of(&place)?;
            let is_new = match standing.as_ref().map(|stat| &stat.kind) {
                Some(Kind::Directory) => return Err(Errno::ISDIR.into()),
                Some(Kind::Symlink { target: now }) => now != target,
                _ => true,
            };
            let server = self.tree.server();
            if is_new {
                self.make_over(&place, standing.is_some(), &|place| server.symlink(target, place))?;
                self.tree.forget(path);
            }
            let wants_some = meta.mtime.is_some() || meta.owner.is_some() || meta.group.is_some();
            if wants_some && !server.features().lsetstat {
                self.tree.tell(Matter::LinkTimes);
            } else if wants_some && let Some(now) = self.stat_of(&place)? {
                self.tree.apply(meta, &now, &|attributes| server.lsetstat(&place, attributes))?;
            }
            Ok(is_new)
        })
    }

    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> Result<bool> {
        context("make hard link", path, || {
            check_new_path(path)?;
            let (server, place, existing) = (self.tree.server(), self.tree.place(path)?, self.tree.place(first)?);
            if !server.features().hardlink {
                return Err(io::Error::new(io::ErrorKind::Unsupported, "this server makes no hard links"));
            }
            match self.tree.look(&existing)? {
                Some(there) if entry::is_file(&there) || entry::is_link(&there) => {}
                Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "its first name is no file")),
                None => return Err(Errno::NOENT.into()),
            }
            let standing = self.tree.look(&place)?;
            if standing.is_some_and(|there| entry::is_dir(&there) == Some(true)) {
                return Err(Errno::ISDIR.into());
            }
            self.make_over(&place, standing.is_some(), &|place| server.hardlink(&existing, place))?;
            self.tree.forget(path);
            // rename(2) leaves both names where they are names of one file. Nothing else tells here that they are.
            let draft = beside(&place, part_name);
            if standing.is_some() && self.tree.look(&draft)?.is_some() {
                server.remove(&draft)?;
                return Ok(false);
            }
            Ok(true)
        })
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> Result<Applied> {
        context("set metadata of", path, || {
            let (server, place) = (self.tree.server(), self.tree.place(path)?);
            let looked = if path.is_empty() { server.stat(&place) } else { server.lstat(&place) };
            let now = entry::stat(&place, &looked?)?;
            if !matches!(now.kind, Kind::File | Kind::Directory) {
                return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is neither a file nor a directory"));
            }
            self.tree.apply(meta, &now, &|attributes| server.setstat(&place, attributes))?;
            Ok(Applied { changed: true, ..Applied::default() })
        })
    }

    /// SFTP cannot flush a directory.
    fn flush_dir(&self, path: &[u8]) -> Result<()> {
        context("flush directory", path, || {
            let place = self.tree.place(path)?;
            match path.is_empty() || self.tree.look(&place)?.is_some() {
                true => Ok(()),
                false => Err(Errno::NOENT.into()),
            }
        })
    }

    fn flush_file(&self, path: &[u8]) -> Result<()> {
        context("flush", path, || {
            let (server, place) = (self.tree.server(), self.tree.place(path)?);
            match self.tree.look(&place)? {
                Some(there) if entry::is_file(&there) => {}
                Some(_) => return Err(io::Error::new(io::ErrorKind::InvalidInput, "it is not a regular file")),
                None => return Err(Errno::NOENT.into()),
            }
            if !server.features().fsync {
                self.tree.tell(Matter::Flushes);
                return Ok(());
            }
            server.open(&place, READ, None)?.fsync()
        })
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> Result<Draft> {
        context("write", path, || {
            check_new_path(path)?;
            if path.is_empty() {
                return Err(Errno::ISDIR.into());
            }
            if inplace {
                return Err(no_writing_in_place());
            }
            Ok(Draft::Other(Box::new(SftpDraft::make(&self.tree, path)?)))
        })
    }

    fn resume_draft(&self, path: &[u8], inplace: bool) -> Result<Option<(Draft, Vec<u8>)>> {
        if inplace || self.tree.is_missing() {
            return Ok(None);
        }
        context("resume", path, || match check_new_path(path).and_then(|()| SftpDraft::resume(&self.tree, path)) {
            Err(error) if is_missing(&error) => Ok(None),
            resumed => Ok(resumed?.map(|(draft, journal)| (Draft::Other(Box::new(draft)), journal))),
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

    fn mark_unfinished(
        &self,
        path: &[u8],
        _header: &dyn Fn(Option<(u64, u64)>) -> Vec<u8>,
        _flush: bool,
    ) -> Result<()> {
        context("mark as unfinished", path, || Err(no_writing_in_place()))
    }

    fn remove_left_journal(&self, path: &[u8]) {
        // A journal that cannot be removed does no harm.
        let _ = self.tree.place(path).and_then(|place| {
            let (draft, journal) = (beside(&place, part_name), beside(&place, journal_name));
            match self.tree.look(&journal)?.is_some() && self.tree.look(&draft)?.is_none() {
                true => self.tree.server().remove(&journal),
                false => Ok(()),
            }
        });
    }
}

fn no_writing_in_place() -> io::Error {
    io::Error::new(io::ErrorKind::Unsupported, "nothing is written in place over sftp: half a file would show")
}
