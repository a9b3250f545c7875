//! Extended attributes of open files, and of names in an open directory. `/proc/self/fd` serves descriptors with `O_PATH`:
//! the same inode, whatever its path.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use rustix::fs::XattrFlags;
use rustix::io::{Errno, Result};

/// The names of all attributes. A file system without attributes has none.
pub fn list(fd: BorrowedFd<'_>) -> io::Result<Vec<Vec<u8>>> {
    let through_proc = proc_path(fd);
    read_list(|buffer| match rustix::fs::flistxattr(fd, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::listxattr(&through_proc, buffer),
        result => result,
    })
}

/// The value of one attribute, if it exists.
pub fn get(fd: BorrowedFd<'_>, attribute: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let through_proc = proc_path(fd);
    read_value(|buffer| match rustix::fs::fgetxattr(fd, attribute, &mut *buffer) {
        Err(Errno::BADF) => rustix::fs::getxattr(&through_proc, attribute, buffer),
        result => result,
    })
}

/// Creates or replaces one attribute.
pub fn set(fd: BorrowedFd<'_>, attribute: &[u8], value: &[u8]) -> io::Result<()> {
    let set = match rustix::fs::fsetxattr(fd, attribute, value, XattrFlags::empty()) {
        Err(Errno::BADF) => rustix::fs::setxattr(proc_path(fd), attribute, value, XattrFlags::empty()),
        result => result,
    };
    set.map_err(io::Error::from)
}

/// Removes one attribute; its absence is fine.
pub fn remove(fd: BorrowedFd<'_>, attribute: &[u8]) -> io::Result<()> {
    let result = match rustix::fs::fremovexattr(fd, attribute) {
        Err(Errno::BADF) => rustix::fs::removexattr(proc_path(fd), attribute),
        result => result,
    };
    match result {
        Err(Errno::NODATA) => Ok(()),
        result => Ok(result?),
    }
}

/// [`list`] of `name` in the open directory, not of a link's target. Opens nothing: for unreadable files, too.
pub fn list_at(dir: BorrowedFd<'_>, name: &[u8]) -> io::Result<Vec<Vec<u8>>> {
    let path = proc_child_path(dir, name);
    read_list(|buffer| rustix::fs::llistxattr(&path, buffer))
}

/// [`get`] for a name, as [`list_at`].
pub fn get_at(dir: BorrowedFd<'_>, name: &[u8], attribute: &[u8]) -> io::Result<Option<Vec<u8>>> {
    let path = proc_child_path(dir, name);
    read_value(|buffer| rustix::fs::lgetxattr(&path, attribute, buffer))
}

/// [`set`] for a name, as [`list_at`].
pub fn set_at(dir: BorrowedFd<'_>, name: &[u8], attribute: &[u8], value: &[u8]) -> io::Result<()> {
    Ok(rustix::fs::lsetxattr(proc_child_path(dir, name), attribute, value, XattrFlags::empty())?)
}

/// [`remove`] for a name, as [`list_at`].
pub fn remove_at(dir: BorrowedFd<'_>, name: &[u8], attribute: &[u8]) -> io::Result<()> {
    match rustix::fs::lremovexattr(proc_child_path(dir, name), attribute) {
        Err(Errno::NODATA) => Ok(()),
        result => Ok(result?),
    }
}

fn read_list(read: impl FnMut(&mut [u8]) -> Result<usize>) -> io::Result<Vec<Vec<u8>>> {
    let bytes = match read_growing(read) {
        Ok(bytes) => bytes,
        Err(Errno::OPNOTSUPP) => return Ok(Vec::new()),
        Err(error) => return Err(error.into()),
    };
    Ok(bytes.split(|&byte| byte == 0).filter(|name| !name.is_empty()).map(<[u8]>::to_vec).collect())
}

fn read_value(read: impl FnMut(&mut [u8]) -> Result<usize>) -> io::Result<Option<Vec<u8>>> {
    match read_growing(read) {
        Ok(bytes) => Ok(Some(bytes)),
        Err(Errno::NODATA | Errno::OPNOTSUPP) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Mostly a small buffer suffices.
fn read_growing(mut read: impl FnMut(&mut [u8]) -> Result<usize>) -> Result<Vec<u8>> {
    let mut small = [0; SMALL_BYTES];
    match read(&mut small) {
        Ok(len) => return Ok(small[..len].to_vec()),
        Err(Errno::RANGE) => {}
        Err(error) => return Err(error),
    }
    let mut large = vec![0; KERNEL_MAX_BYTES];
    let len = read(&mut large)?;
    large.truncate(len);
    large.shrink_to_fit();
    Ok(large)
}

fn proc_path(fd: BorrowedFd<'_>) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn proc_child_path(dir: BorrowedFd<'_>, name: &[u8]) -> Vec<u8> {
    let mut path = proc_path(dir).into_bytes();
    path.push(b'/');
    path.extend_from_slice(name);
    path
}

const SMALL_BYTES: usize = 1024;

/// XATTR_SIZE_MAX and XATTR_LIST_MAX of Linux.
const KERNEL_MAX_BYTES: usize = 65_536;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::condition::unmet;
    use rustix::fs::{Mode, OFlags};
    use std::os::fd::AsFd;

    #[test]
    fn sets_reads_and_removes_also_through_a_path_descriptor() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("file"), b"").unwrap();
        let parent = rustix::fs::open(dir.path(), OFlags::PATH | OFlags::DIRECTORY, Mode::empty()).unwrap();
        for flags in [OFlags::RDONLY, OFlags::PATH] {
            let file = rustix::fs::openat(&parent, "file", flags, Mode::empty()).unwrap();
            if let Err(error) = set(file.as_fd(), b"user.short", b"value") {
                unmet(format_args!("the file system of the temporary directory has no attributes: {error}"));
                return;
            }
            let long = vec![7; 2000];
            set(file.as_fd(), b"user.long", &long).unwrap();
            assert_eq!(get(file.as_fd(), b"user.short").unwrap().as_deref(), Some(b"value".as_slice()));
            assert_eq!(get_at(parent.as_fd(), b"file", b"user.long").unwrap(), Some(long));
            let mut names = list(file.as_fd()).unwrap();
            names.retain(|name| name.starts_with(b"user."));
            names.sort();
            assert_eq!(names, [b"user.long".to_vec(), b"user.short".to_vec()]);
            remove(file.as_fd(), b"user.long").unwrap();
            remove(file.as_fd(), b"user.long").unwrap();
            remove(file.as_fd(), b"user.short").unwrap();
            assert_eq!(get(file.as_fd(), b"user.long").unwrap(), None);
            assert!(!list_at(parent.as_fd(), b"file").unwrap().iter().any(|name| name.starts_with(b"user.")));
        }
    }
}
