//! Keeps confined jobs out of the kernel's file systems, such as procfs (`haul_sys::kernel_files`).

use std::io;
use std::os::fd::AsFd;

use haul_sys::kernel_files;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum KernelFiles {
    /// A job with an account's rights may reach them.
    Reached,
    /// A confined job may not, wherever they are mounted.
    Refused,
}

impl KernelFiles {
    pub(crate) fn of(is_confined: bool) -> Self {
        if is_confined { KernelFiles::Refused } else { KernelFiles::Reached }
    }

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

    pub(crate) fn checked<T: AsFd>(self, opened: T) -> io::Result<T> {
        self.check(&opened).map(|()| opened)
    }
}
