//! Follows symbolic links to directories at the target (`--keep-dirlinks`).
//!
//! A link is followed once, where a directory comes. All beneath is then looked for in the opened directory: another link in
//! its place leads nowhere.
//!
//! ```text
//!   the link leads within the tree       followed
//!   out of it, the user's or root's      followed, unless this job made it, or the tree is confined
//!   out of it, of another user           refused: who may lead it anywhere
//! ```

use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};
use std::sync::Arc;

use haul_sys::beneath::{self, Links};
use haul_sys::process;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::{Context, Result, is_missing, refusal};
use crate::limits::MAX_DIRLINKS;
use crate::meta::{Kind, Stat};
use crate::name::check_new_path;
use crate::trusted_path;

use super::LocalTree;
use super::dirlinks::{Followed, ONLY_ROOT};

impl LocalTree {
    /// With [`TargetOptions::keep_dirlinks`](super::TargetOptions::keep_dirlinks): follows the link at this path, where a
    /// directory comes; false: there is no such link.
    pub fn keep_dirlink(&self, path: &[u8]) -> Result<bool> {
        if !self.dirlinks.is_on || self.root.is_none() || path.is_empty() {
            return Ok(false);
        }
        if self.dirlinks.has(path) {
            return Ok(true);
        }
        check_new_path(path).and_then(|()| self.follow(path)).context("follow", path)
    }

    fn follow(&self, path: &[u8]) -> io::Result<bool> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let found = self.place(path).and_then(|(dir, name)| {
            let link = rustix::io::retry_on_intr(|| rustix::fs::openat(&dir, name, flags, Mode::empty()))?;
            Ok((dir, link))
        });
        let Ok((dir, link)) = found else { return Ok(false) };
        let stat = Stat::of_fd(&link)?;
        if !matches!(stat.kind, Kind::Symlink { .. }) {
            return Ok(false);
        }
        let opened = match self.open_dirlink(path, &dir, &link, &stat) {
            Err(error) if is_missing(&error) || is_no_directory(&error) => return Ok(false),
            opened => self.settings.kernel_files.checked(opened?)?,
        };
        let standing = Stat::of_fd(&opened)?;
        self.settings.check_placed(&dir, &standing, path)?;
        let mut followed = self.dirlinks.followed();
        if followed.len() >= MAX_DIRLINKS {
            return Err(refusal(io::ErrorKind::QuotaExceeded, TOO_MANY));
        }
        let number = ONLY_ROOT + 1 + u32::try_from(followed.len()).unwrap_or(u32::MAX - 1);
        followed.insert(path.to_vec(), Followed { number, dir: Arc::new(opened), id: standing.id });
        Ok(true)
    }

    fn open_dirlink(&self, path: &[u8], dir: &OwnedFd, link: &OwnedFd, stat: &Stat) -> io::Result<OwnedFd> {
        let flags = OFlags::PATH | OFlags::DIRECTORY;
        let base = self.base(path)?;
        match beneath::open(base.dir(), base.rest, flags, Mode::empty(), Links::Within) {
            Err(error) if error.raw_os_error() == Some(Errno::XDEV.raw_os_error()) && self.confine.is_none() => {}
            opened => return opened,
        }
        if self.dirlinks.may_be_made_by_this_job(stat) {
            return Err(refusal(io::ErrorKind::PermissionDenied, MADE_BY_THIS_JOB));
        }
        if ![0, process::effective_user()].contains(&stat.uid) {
            return Err(refusal(io::ErrorKind::PermissionDenied, OF_ANOTHER_USER));
        }
        let target = rustix::fs::readlinkat(link, b"".as_slice(), Vec::new())?.into_bytes();
        let target = match target.first() {
            Some(b'/') => target,
            // The path begins at the link's directory, wherever that is by now.
            _ => [format!("/proc/self/fd/{}/", dir.as_raw_fd()).as_bytes(), &target].concat(),
        };
        trusted_path::open(None, &target, flags, Mode::empty())
    }
}

fn is_no_directory(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOTDIR.raw_os_error())
}

const MADE_BY_THIS_JOB: &str = "it is a symbolic link that this copy has brought, and it leads out of the target";
const OF_ANOTHER_USER: &str =
    "it is a symbolic link of another user, who may lead it anywhere, and it leads out of the target";
const TOO_MANY: &str = "it is a symbolic link, and more are followed already than one copy may follow";
