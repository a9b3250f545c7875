//! Devices, FIFOs and sockets.

use std::io;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{AtFlags, FileType, Mode};

/// A device, FIFO or socket.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Special {
    /// A FIFO.
    Fifo,
    /// The name of a socket.
    Socket,
    /// A character device: major, minor number.
    Character(u32, u32),
    /// A block device: major, minor number.
    Block(u32, u32),
}

impl Special {
    /// Tells what stands under a name, if one of these. `follows`: a link's target counts.
    pub(crate) fn of_name(dir: BorrowedFd<'_>, name: &[u8], follows: bool) -> io::Result<Option<Special>> {
        let flags = if follows { AtFlags::empty() } else { AtFlags::SYMLINK_NOFOLLOW };
        let stat = rustix::io::retry_on_intr(|| rustix::fs::statat(dir, name, flags))?;
        let device = || (rustix::fs::major(stat.st_rdev), rustix::fs::minor(stat.st_rdev));
        Ok(match FileType::from_raw_mode(stat.st_mode) {
            FileType::Fifo => Some(Special::Fifo),
            FileType::Socket => Some(Special::Socket),
            FileType::CharacterDevice => Some(Special::Character(device().0, device().1)),
            FileType::BlockDevice => Some(Special::Block(device().0, device().1)),
            _ => None,
        })
    }

    /// Whether it gives access to a device.
    pub fn is_device(self) -> bool {
        matches!(self, Special::Character(..) | Special::Block(..))
    }

    /// Makes the entry under a free name, closed to others until it has owner and mode.
    pub(crate) fn make(self, dir: &OwnedFd, name: &[u8]) -> rustix::io::Result<()> {
        let (kind, device) = match self {
            Special::Fifo => (FileType::Fifo, 0),
            Special::Socket => (FileType::Socket, 0),
            Special::Character(major, minor) => (FileType::CharacterDevice, rustix::fs::makedev(major, minor)),
            Special::Block(major, minor) => (FileType::BlockDevice, rustix::fs::makedev(major, minor)),
        };
        rustix::fs::mknodat(dir, name, kind, Mode::empty(), device)
    }
}
