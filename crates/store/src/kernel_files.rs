//! Keeps confined jobs out of the kernel's own file systems, such as procfs (`haul_sys::kernel_files`).

use std::io;
use std::os::fd::AsFd;

use haul_sys::kernel_files;

/// Whether such files may be reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelFiles {
    /// A job with the rights of an account may.
    Reached,
    /// A job that is confined to a directory may not, wherever they are mounted beneath it.
    Refused,
}

impl KernelFiles {
    pub(crate) fn of(is_confined: bool) -> Self {
        if is_confined { KernelFiles::Refused } else { KernelFiles::Reached }
    }

    /// Fails if `opened` lies in such a file system.
    pub(crate) fn check(self, opened: impl AsFd) -> io::Result<()> {
        if self == KernelFiles::Reached {
            return Ok(());
        }
        match kernel_files::kind_of(opened.as_fd())? {
            Some(kind) => {
                let why = format!("a daemon leaves it alone: it is in a file system of the kernel's own ({kind})");
                Err(io::Error::new(io::ErrorKind::PermissionDenied, why))
            }
            None => Ok(()),
        }
    }

    /// As above, and passes the descriptor on.
    pub(crate) fn checked<T: AsFd>(self, opened: T) -> io::Result<T> {
        self.check(&opened).map(|()| opened)
    }
}
