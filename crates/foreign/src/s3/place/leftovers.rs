//! Abandoned uploads. Their parts cost money, and no listing of objects shows them.
//!
//! ```text
//!   a journal of this user on this host, that no process holds   left by a copy that died
//!   a journal that a process holds                               of a copy that lives: never touched
//!   no journal                                                   somebody else's: only if its age was asked for
//!   a journal of an upload that the store does not have          goes: its object was written in another way
//! ```

use std::io;
use std::ops::ControlFlow;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use haul_store::{EachLeft, Journal as _};

use crate::s3::place::tree::{S3Place, shown_beneath};
use crate::s3::target::journal::{Found, UploadJournal};
use crate::s3::uploads::{self, Open};

impl S3Place {
    /// Gives abandoned uploads beneath a directory, or at a key, to `each`; ended if `remove`.
    pub(super) fn each_left(&self, directory: &[u8], remove: bool, each: EachLeft<'_>) -> io::Result<ControlFlow<()>> {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let mut tell = |beneath: &[u8], left| match beneath.is_empty() {
            true => each(b"", left),
            false => each(&shown_beneath(beneath), left),
        };
        let listed = uploads::each_open(self.store(), directory, &mut |upload| {
            let Some(beneath) = beneath(directory, &upload.key) else { return ControlFlow::Continue(()) };
            match self.left(&upload, now, remove).transpose() {
                None => ControlFlow::Continue(()),
                Some(left) => tell(beneath, left),
            }
        })?;
        let Some(journals) = self.settings.journals.as_deref().filter(|_| listed.is_continue()) else {
            return Ok(listed);
        };
        for journal in UploadJournal::all(journals)? {
            // An unreadable journal is of no known upload.
            let Ok(Found::Left(left)) = journal.look_at_any() else { continue };
            let key = left.upload.object.strip_prefix(&self.store().object_name(b"")[..]);
            let Some((key, beneath)) = key.and_then(|key| Some((key, beneath(directory, key)?))) else { continue };
            let gone = self.remove_if_gone(&journal, key, &left.upload.id, remove);
            if let Some(gone) = gone.transpose()
                && tell(beneath, gone).is_break()
            {
                return Ok(ControlFlow::Break(()));
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    /// Removes the journal of an upload that the store no longer has.
    fn remove_if_gone(&self, journal: &UploadJournal, key: &[u8], id: &str, remove: bool) -> io::Result<Option<u64>> {
        if uploads::list_parts(self.store(), key, id)?.is_some() {
            return Ok(None);
        }
        if remove {
            journal.remove()?;
        }
        Ok(Some(0))
    }

    /// The bytes of an abandoned upload.
    fn left(&self, upload: &Open, now: Duration, remove: bool) -> io::Result<Option<u64>> {
        let object = self.store().object_name(&upload.key);
        let journal = UploadJournal::new(self.settings.journals.as_deref(), &object)?;
        let is_ours = match journal.look(&object)? {
            Found::Written => return Ok(None),
            Found::Left(left) => left.upload.id == upload.id,
            Found::Nothing => false,
        };
        if !is_ours && !self.is_old(upload, now) {
            return Ok(None);
        }
        // The upload may have been ended meanwhile.
        let Some(parts) = uploads::list_parts(self.store(), &upload.key, &upload.id)? else { return Ok(None) };
        let bytes = parts.values().map(|part| part.size).fold(0, u64::saturating_add);
        if remove {
            uploads::abort(self.store(), &upload.key, &upload.id)?;
            if is_ours {
                journal.remove()?;
            }
        }
        Ok(Some(bytes))
    }

    /// Whether the user asked for uploads of this age. An unknown start is not old.
    fn is_old(&self, upload: &Open, now: Duration) -> bool {
        let Some((after, begun)) = self.settings.others_after.zip(upload.begun) else { return false };
        u64::try_from(begun.s).is_ok_and(|begun| begun.saturating_add(after.as_secs()) <= now.as_secs())
    }
}

/// The key as seen from a directory. `None`: it lies elsewhere.
fn beneath<'a>(directory: &[u8], key: &'a [u8]) -> Option<&'a [u8]> {
    let beneath = key.strip_prefix(directory)?;
    match (directory.is_empty() || directory.ends_with(b"/"), beneath) {
        (true, beneath) => Some(beneath),
        (false, [b'/', beneath @ ..]) => Some(beneath),
        (false, []) => Some(&[]),
        // A longer name with the same start.
        (false, _) => None,
    }
}
