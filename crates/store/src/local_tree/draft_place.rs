//! Where a file's part and journal stand.
//!
//! Parts are renamed, within one file system. If the requested directory lies on another, the part stands beside its file: a
//! copy would show half a file.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use haul_sys::process;
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;

use crate::error::refusal;
use crate::meta::Stat;
use crate::name::{journal_name, part_name};

#[derive(Debug)]
pub(crate) enum Drafts {
    InEach(Vec<u8>),
    InOne(Arc<OwnedFd>),
}

pub(crate) struct DraftPlace {
    pub dir: Arc<OwnedFd>,
    pub part: Vec<u8>,
    pub journal: Vec<u8>,
}

impl DraftPlace {
    fn beside(parent: &Arc<OwnedFd>, name: &[u8]) -> Self {
        Self { dir: Arc::clone(parent), part: part_name(name), journal: journal_name(name) }
    }
}

impl Drafts {
    pub(crate) fn place(
        drafts: Option<&Self>,
        parent: &Arc<OwnedFd>,
        name: &[u8],
        make: bool,
    ) -> io::Result<DraftPlace> {
        let place = match drafts {
            None => return Ok(DraftPlace::beside(parent, name)),
            Some(Self::InEach(directory)) => {
                let dir = open_own_directory(parent, directory, make)?;
                DraftPlace { dir: Arc::new(dir), part: part_name(name), journal: journal_name(name) }
            }
            Some(Self::InOne(dir)) => {
                // Files of several directories may have one name.
                let above = Stat::of_fd(parent)?.id;
                let whole = [&above.dev.to_le_bytes()[..], &above.ino.to_le_bytes(), name].concat();
                DraftPlace { dir: Arc::clone(dir), part: part_name(&whole), journal: journal_name(&whole) }
            }
        };
        let is_near = Stat::of_fd(&place.dir)?.id.dev == Stat::of_fd(parent)?.id.dev;
        Ok(if is_near { place } else { DraftPlace::beside(parent, name) })
    }
}

/// Opens our own directory in an open one, not through a link: another user's could hold anything.
pub(crate) fn open_own_directory(parent: &OwnedFd, name: &[u8], make: bool) -> io::Result<OwnedFd> {
    if make {
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let opened = rustix::io::retry_on_intr(|| rustix::fs::openat(parent, name, flags, Mode::empty()))?;
    match Stat::of_fd(&opened)?.uid == process::effective_user() {
        true => Ok(opened),
        false => Err(refusal(
            io::ErrorKind::PermissionDenied,
            "the directory for its unfinished data belongs to another user",
        )),
    }
}
