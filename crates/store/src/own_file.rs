//! Makes, opens and locks our own files under names that others may have taken: only our own change.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::thread;

use haul_sys::file;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use crate::error::refusal;
use crate::limits::{BETWEEN_LOCK_TRIES, MAX_LOCK_TRIES, MAX_PART_ATTEMPTS};
use crate::meta::{Kind, Stat};
use crate::regular_file;

/// Opens `name` for writing, empty unless `keep_content`, locked, and surely our regular file with one name.
pub(crate) fn open_new(dir: &Arc<OwnedFd>, name: &[u8], keep_content: bool, user: u32) -> io::Result<(OwnedFd, Stat)> {
    let owner_only = Mode::RUSR | Mode::WUSR;
    for _ in 0..MAX_PART_ATTEMPTS {
        let create = WRITE_FLAGS | OFlags::CREATE | OFlags::EXCL;
        match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, create, owner_only)) {
            Ok(fd) => {
                let locked = file::try_lock(fd.as_fd())?;
                let stat = Stat::of_fd(&fd)?;
                // It looked left behind: a sweep may hold its lock, or have removed it.
                if !locked || stat.nlink == 0 {
                    continue;
                }
                return Ok((fd, stat));
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
        let fd = match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, WRITE_FLAGS, Mode::empty())) {
            Ok(fd) => fd,
            Err(Errno::NOENT) => continue,
            // A planted link or another user's part is removed; a final file written in place only if it is a link.
            Err(error @ (Errno::LOOP | Errno::ACCESS | Errno::NXIO)) => {
                if keep_content && error != Errno::LOOP {
                    if error == Errno::ACCESS && let_owner_write(dir, name, user)? {
                        continue;
                    }
                    return Err(error.into());
                }
                unlink_if_there(dir, name)?;
                continue;
            }
            Err(error) => return Err(error.into()),
        };
        let stat = Stat::of_fd(&fd)?;
        if keep_content {
            regular_file::check(&stat)?;
            lock(&fd)?;
            return Ok((fd, stat));
        }
        if !is_own(&stat, user) {
            unlink_if_there(dir, name)?;
            continue;
        }
        lock(&fd)?;
        // Its last holder may have given it its final name: a complete file must stay.
        if !is_still_there(dir, name, &stat) {
            continue;
        }
        file::set_size(fd.as_fd(), 0)?;
        file::set_mode(&fd, 0o600)?;
        let stat = Stat::of_fd(&fd)?;
        return Ok((fd, stat));
    }
    Err(refusal(io::ErrorKind::ResourceBusy, "somebody keeps replacing its temporary file"))
}

/// Lets the owner read and write a file despite the mode, as rsync does; the mode comes back later.
fn let_owner_write(dir: &Arc<OwnedFd>, name: &[u8], user: u32) -> io::Result<bool> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, flags, Mode::empty()))?;
    let stat = Stat::of_fd(&opened)?;
    if stat.kind != Kind::File || stat.uid != user || stat.mode & 0o600 == 0o600 {
        return Ok(false);
    }
    file::set_mode(&opened, stat.mode | 0o600)?;
    Ok(true)
}

pub(crate) fn open_journal(dir: &Arc<OwnedFd>, name: &[u8], user: u32) -> io::Result<OwnedFd> {
    if let Some((journal, stat)) = open_own(dir, name, user)? {
        lock(&journal)?;
        // Its last holder may have removed the name.
        if is_still_there(dir, name, &stat) {
            return Ok(journal);
        }
    }
    open_new(dir, name, false, user).map(|(journal, _)| journal)
}

/// Begins a journal anew, always with a valid header, old or new; another header's records are ignored.
pub(crate) fn begin_journal(journal: &OwnedFd, header: &[u8]) -> io::Result<()> {
    file::write_all_at(journal.as_fd(), header, 0)?;
    file::set_size(journal.as_fd(), header.len() as u64)
}

pub(crate) fn open_own(dir: &Arc<OwnedFd>, name: &[u8], user: u32) -> io::Result<Option<(OwnedFd, Stat)>> {
    match rustix::io::retry_on_intr(|| rustix::fs::openat(dir, name, WRITE_FLAGS, Mode::empty())) {
        Ok(fd) => {
            let stat = Stat::of_fd(&fd)?;
            Ok(is_own(&stat, user).then_some((fd, stat)))
        }
        Err(Errno::NOENT | Errno::LOOP | Errno::ACCESS | Errno::NXIO | Errno::ISDIR) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Whether this is this user's regular file with one name: else a file elsewhere would change.
pub(crate) fn is_own(stat: &Stat, user: u32) -> bool {
    stat.kind == Kind::File && stat.uid == user && stat.nlink == 1
}

pub(crate) fn is_still_there(dir: impl AsFd, name: &[u8], opened: &Stat) -> bool {
    Stat::of_name(dir.as_fd(), name).is_ok_and(|now| now.is_same_inode(opened))
}

/// Locks a file of ours. A copy's just killed far side may hold it for a moment.
pub(crate) fn lock(fd: &OwnedFd) -> io::Result<()> {
    lock_while(fd, || thread::sleep(BETWEEN_LOCK_TRIES))
}

fn lock_while(fd: &OwnedFd, mut wait: impl FnMut()) -> io::Result<()> {
    for _ in 0..MAX_LOCK_TRIES {
        if file::try_lock(fd.as_fd())? {
            return Ok(());
        }
        wait();
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, is_written_by(file::lock_holder(fd.as_fd()))))
}

fn is_written_by(holder: Option<u32>) -> String {
    let process = holder.map(|pid| format!(" (process {pid})")).unwrap_or_default();
    format!("another haul{process} is writing this file")
}

pub(crate) fn unlink_if_there(dir: &Arc<OwnedFd>, name: &[u8]) -> io::Result<bool> {
    match rustix::fs::unlinkat(dir, name, AtFlags::empty()) {
        Ok(()) => Ok(true),
        Err(Errno::NOENT) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Readable, to verify written data. Non-blocking: a planted FIFO must not hold us.
pub(crate) const WRITE_FLAGS: OFlags =
    OFlags::RDWR.union(OFlags::NOFOLLOW).union(OFlags::NONBLOCK).union(OFlags::CLOEXEC);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_that_is_about_to_end_is_waited_for_and_one_that_goes_on_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let dir = Arc::new(OwnedFd::from(std::fs::File::open(dir.path()).unwrap()));
        let user = haul_sys::process::effective_user();
        let mut before = Some(open_new(&dir, b"part", false, user).unwrap().0);
        let (now, _) = open_own(&dir, b"part", user).unwrap().unwrap();
        let mut waits = 0;
        let error = lock_while(&now, || waits += 1).unwrap_err();
        assert_eq!((waits, error.kind()), (MAX_LOCK_TRIES, io::ErrorKind::WouldBlock));
        assert!(error.to_string().contains("another haul"), "{error}");
        lock_while(&now, || drop(before.take())).unwrap();
    }
}
