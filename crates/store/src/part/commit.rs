//! Ends a part: it gets its metadata and final name, or is discarded.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;

use super::{Part, PartFile, given_up};
use crate::error::{Context, Result, StoreError, refusal};
use crate::local_tree::take_name;
use crate::meta::{self, Kind, Metadata, Stat, Time};
use crate::name::split;
use crate::own_file::{is_still_there, unlink_if_there};

impl Part {
    /// See [`FileToWrite::commit`](crate::FileToWrite::commit). Without a mode: that of a file of this name, else by the
    /// umask; in place it stays.
    pub fn commit(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.prepare(meta, flush)?;
        self.give_name()
    }

    /// All of [`Part::commit`] but the name.
    pub fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.set_metadata(meta, flush)?;
        self.finish_flush(flush)
    }

    /// Sets the metadata, before flush and name.
    pub fn set_metadata(&self, meta: &Metadata, flush: bool) -> Result<()> {
        let meta = Metadata { mode: meta.mode.or_else(|| self.usual_mode(meta)), ..meta.clone() };
        // Its size and time finish a file written in place: after a power cut its data must be there.
        if self.file.inplace && flush {
            self.flush()?;
        }
        // Writing has changed the time; the mode still holds.
        let now = Stat { mtime: TIME_UNKNOWN, ..self.file.opened.clone() };
        let applied = meta::apply(self.file.fd.as_fd(), &now, &meta, &self.settings.namespaces);
        self.settings.note_applied(applied.context("set metadata of", &self.file.path)?, &self.file.path);
        Ok(())
    }

    fn usual_mode(&self, meta: &Metadata) -> Option<u32> {
        if self.file.inplace {
            return None;
        }
        let standing = Stat::of_name(self.file.parent.as_fd(), split(&self.file.path).1).ok();
        let standing = standing.filter(|stat| stat.kind == Kind::File && meta.mode_if_new.is_some());
        let if_new = meta.mode_if_new.unwrap_or(0o666) & 0o777 & !self.settings.umask;
        Some(standing.map_or(if_new, |stat| stat.mode & 0o777))
    }

    /// Gives the name, the rest of [`Part::commit`]. Fails if discarded: the temporary name may be another part's.
    pub fn give_name(&self) -> Result<()> {
        let discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        if *discarded {
            return Err(StoreError::new("rename to", &self.file.path, given_up()));
        }
        if !self.file.inplace {
            let renamed = self.check_before_rename().and_then(|()| self.rename());
            let place = renamed.context("rename to", &self.file.path)?;
            self.check_after_rename(&place).context("rename to", &self.file.path)?;
        }
        self.remove_journal().context("remove the journal of", &self.file.path)
    }

    /// Fails unless the temporary name leads to the written file and size: others may write to the directory.
    fn check_before_rename(&self) -> io::Result<()> {
        let standing = match Stat::of_name(self.file.drafts.as_fd(), &self.file.current_name) {
            Err(Errno::NOENT) => return Err(refusal(io::ErrorKind::NotFound, REMOVED)),
            standing => standing?,
        };
        if !standing.is_same_inode(&self.file.opened) {
            return Err(refusal(io::ErrorKind::InvalidData, REPLACED));
        }
        if standing.size != self.size.load(Ordering::Relaxed) {
            return Err(refusal(io::ErrorKind::InvalidData, RESIZED));
        }
        Ok(())
    }

    fn check_after_rename(&self, place: &Arc<OwnedFd>) -> io::Result<()> {
        match is_still_there(place, split(&self.file.path).1, &self.file.opened) {
            true => Ok(()),
            false => Err(refusal(io::ErrorKind::InvalidData, OTHER_UNDER_NAME)),
        }
    }

    fn rename(&self) -> io::Result<Arc<OwnedFd>> {
        let PartFile { parent, drafts, path, current_name, opened, .. } = &self.file;
        let rename = |place: &Arc<OwnedFd>, is_final| {
            let (from, to) = ((drafts, &current_name[..]), (place, split(path).1));
            take_name(&self.settings, from, opened, to, path, is_final)
        };
        match self.settings.delayed.get() {
            Some(waiting) => {
                let is_noted = |stat: &Stat| self.settings.placed().is_noted(stat, path);
                waiting.stage(is_noted, parent, path, |place| rename(place, false))
            }
            None => rename(parent, true).map(|()| Arc::clone(parent)),
        }
    }

    /// See [`FileToWrite::discard`](crate::FileToWrite::discard). The journal marks a file written in place as unfinished.
    pub fn discard(&self) -> Result<()> {
        let mut discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        *discarded = true;
        if self.file.inplace {
            return Ok(());
        }
        let journal = self.remove_journal();
        // After a commit another file may have the name.
        if is_still_there(&self.file.drafts, &self.file.current_name, &self.file.opened) {
            unlink_if_there(&self.file.drafts, &self.file.current_name).context("discard", &self.file.path)?;
        }
        journal.context("remove the journal of", &self.file.path)
    }
}

const REMOVED: &str = "its temporary file is gone: somebody else has removed it";
const REPLACED: &str = "somebody else has put another file in the place of its temporary file";
const RESIZED: &str = "somebody else has cut or extended its temporary file";
const OTHER_UNDER_NAME: &str =
    "somebody else has put another file there, which nobody has verified; look at it before it is used";

/// Differs from every valid time.
const TIME_UNKNOWN: Time = Time { s: 0, ns: u32::MAX };
