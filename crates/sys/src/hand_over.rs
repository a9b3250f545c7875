//! Hands an open descriptor to another process (SCM_RIGHTS, unix(7)).

use std::io::{self, IoSlice};
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

/// Sends a descriptor with one zero byte, as OpenSSH's `mm_send_fd`. Fails if `through` is no socket between processes, or
/// unread.
pub fn hand_over(through: impl AsFd, descriptor: BorrowedFd<'_>) -> io::Result<()> {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut ancillary = SendAncillaryBuffer::new(&mut space);
    let descriptors = [descriptor];
    if !ancillary.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        unreachable!("the space is for one descriptor");
    }
    let byte = [IoSlice::new(&[0])];
    rustix::io::retry_on_intr(|| rustix::net::sendmsg(&through, &byte, &mut ancillary, SendFlags::NOSIGNAL))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::net::UnixStream;

    use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags};

    use super::*;

    #[test]
    fn what_is_handed_over_is_the_same_connection() {
        let (near, far) = UnixStream::pair().unwrap();
        let (mut kept, given) = UnixStream::pair().unwrap();
        hand_over(&near, given.as_fd()).unwrap();
        drop(given);
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let (mut ancillary, mut byte) = (RecvAncillaryBuffer::new(&mut space), [7]);
        let mut buffer = [io::IoSliceMut::new(&mut byte)];
        rustix::net::recvmsg(&far, &mut buffer, &mut ancillary, RecvFlags::CMSG_CLOEXEC).unwrap();
        let Some(RecvAncillaryMessage::ScmRights(mut found)) = ancillary.drain().next() else { panic!("nothing came") };
        drop(UnixStream::from(found.next().unwrap()));
        assert_eq!((byte, kept.read(&mut [0]).unwrap()), ([0], 0));
        assert!(hand_over(std::fs::File::open("/dev/null").unwrap(), kept.as_fd()).is_err());
    }
}
