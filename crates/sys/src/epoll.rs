//! Watches very many descriptors, by `epoll(7)`.

use std::fmt;
use std::io;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd, RawFd};

use rustix::event::{Timespec, epoll};

/// A set of descriptors, readable when one of them is. Remove a descriptor before it is closed: the kernel keeps it while a
/// copy is open.
pub struct ReadableSet {
    epoll: OwnedFd,
}

impl ReadableSet {
    /// An empty set.
    pub fn new() -> io::Result<ReadableSet> {
        Ok(ReadableSet { epoll: epoll::create(epoll::CreateFlags::CLOEXEC)? })
    }

    /// Adds a descriptor under a key.
    pub fn add(&self, fd: impl AsFd, key: u64) -> io::Result<()> {
        let interest = epoll::EventFlags::IN | epoll::EventFlags::RDHUP;
        Ok(epoll::add(&self.epoll, fd, epoll::EventData::new_u64(key), interest)?)
    }

    /// Removes a descriptor.
    pub fn remove(&self, fd: impl AsFd) -> io::Result<()> {
        Ok(epoll::delete(&self.epoll, fd)?)
    }

    /// The keys of at most [`AT_ONCE`] ready descriptors, without waiting. One comes again until read or removed.
    pub fn readable_now(&self) -> io::Result<Vec<u64>> {
        let mut events = [const { MaybeUninit::uninit() }; AT_ONCE];
        let (readable, _) = epoll::wait(&self.epoll, &mut events, Some(&NO_WAIT))?;
        Ok(readable.iter().map(|event| event.data.u64()).collect())
    }
}

/// The most keys of one call.
pub const AT_ONCE: usize = 64;

const NO_WAIT: Timespec = Timespec { tv_sec: 0, tv_nsec: 0 };

impl fmt::Debug for ReadableSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("ReadableSet").field(&self.epoll.as_raw_fd()).finish()
    }
}

impl AsFd for ReadableSet {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.epoll.as_fd()
    }
}

impl AsRawFd for ReadableSet {
    fn as_raw_fd(&self) -> RawFd {
        self.epoll.as_raw_fd()
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write as _;
    use std::os::unix::net::UnixStream;

    use super::*;
    use crate::poll::readable_now;

    #[test]
    fn those_with_bytes_or_an_end_are_told_until_they_are_taken_out() {
        let set = ReadableSet::new().unwrap();
        let mut pairs: Vec<_> = (0..3).map(|_| UnixStream::pair().unwrap()).collect();
        for (key, (near, _)) in (7..).zip(&pairs) {
            set.add(near, key).unwrap();
        }
        assert!(set.readable_now().unwrap().is_empty() && !readable_now(&set));
        pairs[1].1.write_all(b"x").unwrap();
        assert!(readable_now(&set));
        assert_eq!(set.readable_now().unwrap(), [8]);
        assert_eq!(set.readable_now().unwrap(), [8], "nobody has read it");
        set.remove(&pairs[1].0).unwrap();
        assert!(set.readable_now().unwrap().is_empty() && !readable_now(&set));
        let (near, far) = pairs.remove(2);
        drop(far);
        assert_eq!(set.readable_now().unwrap(), [9]);
        set.remove(&near).unwrap();
        assert!(set.readable_now().unwrap().is_empty());
    }
}
