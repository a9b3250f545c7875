//! Gives a complete file its name.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use rustix::fs::RenameFlags;
use rustix::io::Errno;

use crate::meta::Stat;

use super::settings::{Settings, check_twin};

/// Renames over a name in an open directory, unless another entry of this job stands there, whose name counts as the same.
/// `is_final`: a replaced entry may get a backup.
pub(crate) fn take_name(
    settings: &Settings,
    from: (&Arc<OwnedFd>, &[u8]),
    file: &Stat,
    to: (&Arc<OwnedFd>, &[u8]),
    path: &[u8],
    is_final: bool,
) -> io::Result<()> {
    settings.placed().note(file, path);
    let renamed = rename_noted(settings, from, to, path, is_final);
    if renamed.is_err() {
        settings.placed().forget(file, path);
    }
    renamed
}

fn rename_noted(
    settings: &Settings,
    from: (&Arc<OwnedFd>, &[u8]),
    to: (&Arc<OwnedFd>, &[u8]),
    path: &[u8],
    is_final: bool,
) -> io::Result<()> {
    let ((drafts, current_name), (parent, name)) = (from, to);
    // A free name needs no check: of two entries at once, one gets `EXIST`.
    match rustix::fs::renameat_with(drafts, current_name, parent, name, RenameFlags::NOREPLACE) {
        Ok(()) => return Ok(()),
        // Not every file system has such a call.
        Err(Errno::EXIST | Errno::INVAL | Errno::NOSYS | Errno::OPNOTSUPP) => {}
        Err(error) => return Err(error.into()),
    }
    // The lock keeps the job's other threads from renaming in between.
    let mut placed = settings.placed();
    let standing = Stat::of_name(parent.as_fd(), name).ok();
    if let Some(standing) = &standing {
        check_twin(&placed, parent, standing, path)?;
    }
    if is_final {
        settings.keep_backup(&placed, parent, path)?;
    }
    rustix::fs::renameat(drafts, current_name, parent, name)?;
    // The replaced inode is free now.
    if let Some(standing) = standing {
        placed.forget(&standing, path);
    }
    Ok(())
}
