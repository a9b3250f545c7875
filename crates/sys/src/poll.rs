//! Readiness of file descriptors, by `poll(2)`.

use std::io;
use std::os::fd::{AsFd, BorrowedFd};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};

/// The events that a descriptor is watched for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interest {
    /// Bytes, an end of file or an error.
    Read,
    /// Room, or an error.
    Write,
}

/// Whether a read on `fd` would return without waiting.
pub fn readable_now(fd: impl AsFd) -> bool {
    wait(&[(fd.as_fd(), Interest::Read)], Some(Duration::ZERO)).is_ok_and(|ready| ready[0])
}

/// Whether the peer has ended its direction, or the connection broke. Earlier bytes may be left.
pub fn has_hung_up(fd: impl AsFd) -> bool {
    let fd = fd.as_fd();
    let mut poll_fds = [PollFd::from_borrowed_fd(fd, PollFlags::RDHUP)];
    let now = Timespec { tv_sec: 0, tv_nsec: 0 };
    rustix::event::poll(&mut poll_fds, Some(&now)).is_ok_and(|ready| ready > 0)
}

/// Waits until a descriptor is ready, or the time is over; says which are. Signals do not end the wait. Errors and hang-ups
/// count as ready.
pub fn wait(watched: &[(BorrowedFd<'_>, Interest)], timeout: Option<Duration>) -> io::Result<Vec<bool>> {
    let mut poll_fds: Vec<PollFd<'_>> = watched
        .iter()
        .map(|(fd, interest)| {
            let flags = match interest {
                Interest::Read => PollFlags::IN,
                Interest::Write => PollFlags::OUT,
            };
            PollFd::from_borrowed_fd(*fd, flags)
        })
        .collect();
    let end = timeout.and_then(|timeout| Instant::now().checked_add(timeout));
    loop {
        let left = end.map(|end| end.saturating_duration_since(Instant::now()));
        let left: Option<Timespec> = match left {
            Some(left) => Some(left.try_into().map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?),
            None => None,
        };
        match rustix::event::poll(&mut poll_fds, left.as_ref()) {
            Ok(_) => {
                return Ok(poll_fds.iter().map(|poll_fd| !poll_fd.revents().is_empty()).collect());
            }
            Err(rustix::io::Errno::INTR) => continue,
            Err(errno) => return Err(errno.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn readable_after_a_byte_and_after_a_hang_up() {
        let (mut near, far) = UnixStream::pair().unwrap();
        assert!(!readable_now(&far));
        near.write_all(b"x").unwrap();
        assert!(readable_now(&far));
        drop(far);
        assert!(readable_now(&near));
    }

    #[test]
    fn a_hang_up_is_seen_before_the_bytes_in_front_of_it_are_read() {
        let (mut near, far) = UnixStream::pair().unwrap();
        near.write_all(b"x").unwrap();
        assert!(!has_hung_up(&far) && !has_hung_up(&near));
        drop(near);
        assert!(has_hung_up(&far));
    }

    #[test]
    fn wait_names_the_ready_one_and_gives_up_in_time() {
        let (one, _keep) = UnixStream::pair().unwrap();
        let (two, mut other) = UnixStream::pair().unwrap();
        let watched = [(one.as_fd(), Interest::Read), (two.as_fd(), Interest::Read)];
        assert_eq!(wait(&watched, Some(Duration::from_millis(1))).unwrap(), [false, false]);
        other.write_all(b"x").unwrap();
        assert_eq!(wait(&watched, None).unwrap(), [false, true]);
    }
}
