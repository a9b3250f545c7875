//! Takes bytes off a TCP connection without copying them: `MSG_TRUNC` (tcp(7)).

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

/// Waits for the first byte, and discards at most `len` arrived ones. Returns how many; 0 at the peer's end. `EFAULT` except
/// on TCP.
pub fn discard(socket: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
    loop {
        // SAFETY: with MSG_TRUNC a TCP socket writes to no memory, so that a null buffer is never touched; any other
        // socket answers EFAULT. The descriptor is borrowed and so open.
        let taken = unsafe { libc::recv(socket.as_raw_fd(), std::ptr::null_mut(), len, libc::MSG_TRUNC) };
        match usize::try_from(taken) {
            Ok(taken) => return Ok(taken),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;

    #[test]
    fn exactly_what_was_asked_is_gone_and_the_rest_is_there() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(b"0123456789").unwrap();
        drop(near);
        let mut gone = 0;
        while gone < 7 {
            gone += discard(far.as_fd(), 7 - gone).unwrap();
        }
        let mut rest = Vec::new();
        far.read_to_end(&mut rest).unwrap();
        assert_eq!(rest, b"789");
        assert_eq!(discard(far.as_fd(), 1).unwrap(), 0);
    }
}
