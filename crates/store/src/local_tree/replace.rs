//! Replaces an entry by one made under a temporary name.

use std::io;
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::fs::AtFlags;
use rustix::io::Errno;

pub(crate) fn replace(
    dir: &Arc<OwnedFd>,
    name: &[u8],
    temporary: &[u8],
    make: impl Fn(&[u8]) -> rustix::io::Result<()>,
) -> io::Result<()> {
    match make(temporary) {
        // A crash left it, or it is the part of a former file.
        Err(Errno::EXIST) => {
            rustix::fs::unlinkat(dir, temporary, AtFlags::empty())?;
            make(temporary)?;
        }
        made => made?,
    }
    if let Err(error) = rustix::fs::renameat(dir, temporary, dir, name) {
        let _ = rustix::fs::unlinkat(dir, temporary, AtFlags::empty());
        return Err(error.into());
    }
    Ok(())
}
