//! How a part ends: with its metadata and its final name, or discarded.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::sync::{Arc, PoisonError};

use rustix::io::Errno;

use super::{Part, PartFile, given_up};
use crate::error::{Context, Result, StoreError, refusal};
use crate::local_tree::take_name;
use crate::meta::{self, Metadata, Stat, Time};
use crate::name::split;
use crate::own_file::{is_still_there, unlink_if_there};

impl Part {
    /// Finishes the file: metadata, flush if asked, rename over the final name, removal of the journal. The directory
    /// is not flushed, see [`LocalTree::flush_dir`](crate::LocalTree::flush_dir). Without a mode in `meta` the user's
    /// umask decides, in place the mode stays.
    pub fn commit(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.prepare(meta, flush)?;
        self.give_name()
    }

    /// The first half of [`Part::commit`]: everything but the name.
    pub fn prepare(&self, meta: &Metadata, flush: bool) -> Result<()> {
        self.set_metadata(meta, flush)?;
        self.finish_flush(flush)
    }

    /// Everything but the last flush and the name.
    pub fn set_metadata(&self, meta: &Metadata, flush: bool) -> Result<()> {
        let default_mode = (!self.file.inplace).then_some(0o666 & !self.settings.umask);
        let meta = Metadata { mode: meta.mode.or(default_mode), ..meta.clone() };
        // A file that is written in place is known to be finished by its size and time. So the data must be on the
        // medium before them, in case of a power cut.
        if self.file.inplace && flush {
            self.flush()?;
        }
        // Writing has changed the time, so of the metadata seen at the start only the mode still holds.
        let now = Stat { mtime: TIME_UNKNOWN, ..self.file.opened.clone() };
        let applied = meta::apply(self.file.fd.as_fd(), &now, &meta, &self.settings.namespaces);
        self.settings.note_applied(applied.context("set metadata of", &self.file.path)?, &self.file.path);
        Ok(())
    }

    /// The second half of [`Part::commit`]: the final name. Fails when the part was discarded meanwhile: its temporary
    /// name may belong to another part by now.
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

    /// The temporary name must still lead to the file that was written, with the size that was written. Other users
    /// with write access to the directory could have replaced it.
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

    /// Somebody may have replaced the file between the look and the rename.
    fn check_after_rename(&self, place: &Arc<OwnedFd>) -> io::Result<()> {
        match is_still_there(place, split(&self.file.path).1, &self.file.opened) {
            true => Ok(()),
            false => Err(refusal(io::ErrorKind::InvalidData, OTHER_UNDER_NAME)),
        }
    }

    /// Renames over the final name, or to where it waits for it. Returns the directory in which it stands then.
    fn rename(&self) -> io::Result<Arc<OwnedFd>> {
        let PartFile { parent, drafts, path, current_name, opened, .. } = &self.file;
        let rename = |place: &Arc<OwnedFd>, is_final| {
            let (from, to) = ((drafts, &current_name[..]), (place, split(path).1));
            take_name(&self.settings, from, opened, to, path, is_final)
        };
        match self.settings.delayed.get() {
            Some(delayed) => delayed.stage(&self.settings, parent, path, |place| rename(place, false)),
            None => rename(parent, true).map(|()| Arc::clone(parent)),
        }
    }

    /// Gives the file up: removes part and journal. A file written in place stays, and so does its journal, which marks
    /// it as unfinished.
    pub fn discard(&self) -> Result<()> {
        let mut discarded = self.discarded.lock().unwrap_or_else(PoisonError::into_inner);
        *discarded = true;
        if self.file.inplace {
            return Ok(());
        }
        let journal = self.remove_journal();
        // Only if the name is still ours: after a commit another file may have it.
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

/// No valid time has so many nanoseconds.
const TIME_UNKNOWN: Time = Time { s: 0, ns: u32::MAX };
