//! Hands pages on inside the kernel, through a pipe: `splice(2)`.
//!
//! ```text
//! file   --fill_from_file-->    Pipe --drain_to_socket--> socket
//! socket --fill_from_socket-->  Pipe --drain_to_file-->   file, /dev/null
//! ```
//! A pipe is only filled while empty: its thread could wait for itself.

use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use rustix::pipe::{PipeFlags, SpliceFlags};

/// A pipe that one thread moves pages through.
#[derive(Debug)]
pub struct Pipe {
    read: OwnedFd,
    write: OwnedFd,
    capacity_bytes: usize,
    held_bytes: usize,
}

impl Pipe {
    /// Makes a pipe of up to `wanted_bytes`, as `/proc/sys/fs/pipe-max-size` permits, or 64 KiB (pipe(7)).
    pub fn new(wanted_bytes: usize) -> io::Result<Pipe> {
        let (read, write) = rustix::pipe::pipe_with(PipeFlags::CLOEXEC)?;
        // Over the user's soft limit (EPERM), or the largest size, a smaller one works.
        let mut wanted = wanted_bytes.max(SMALLEST_BYTES);
        while rustix::pipe::fcntl_setpipe_size(&write, wanted).is_err() && wanted > SMALLEST_BYTES {
            wanted = (wanted / 2).max(SMALLEST_BYTES);
        }
        let capacity_bytes = rustix::pipe::fcntl_getpipe_size(&write)?;
        Ok(Pipe { read, write, capacity_bytes, held_bytes: 0 })
    }

    /// The granted capacity, with every page full.
    pub fn capacity_bytes(&self) -> usize {
        self.capacity_bytes
    }

    /// The bytes in it now.
    pub fn held_bytes(&self) -> usize {
        self.held_bytes
    }

    /// Takes at most `len` bytes of a file into the empty pipe; 0 at its end.
    pub fn fill_from_file(&mut self, file: BorrowedFd<'_>, offset: u64, len: usize) -> io::Result<usize> {
        let mut at = offset;
        self.fill(file, Some(&mut at), len)
    }

    /// Waits for at most `len` bytes of a socket, for the empty pipe; 0 at the peer's end.
    pub fn fill_from_socket(&mut self, socket: BorrowedFd<'_>, len: usize) -> io::Result<usize> {
        self.fill(socket, None, len)
    }

    fn fill(&mut self, from: BorrowedFd<'_>, mut at: Option<&mut u64>, len: usize) -> io::Result<usize> {
        self.check_empty()?;
        let len = len.min(self.capacity_bytes);
        let taken = rustix::io::retry_on_intr(|| {
            rustix::pipe::splice(from, at.as_deref_mut(), &self.write, None, len, SpliceFlags::MOVE)
        })?;
        self.held_bytes = taken;
        Ok(taken)
    }

    /// Hands all to a socket. `more`: the last segment waits for further bytes.
    pub fn drain_to_socket(&mut self, socket: BorrowedFd<'_>, more: bool) -> io::Result<()> {
        let flags = if more { SpliceFlags::MOVE | SpliceFlags::MORE } else { SpliceFlags::MOVE };
        while self.held_bytes > 0 {
            self.drain(socket, None, flags)?;
        }
        Ok(())
    }

    /// Hands all to a file, at `offset`.
    pub fn drain_to_file(&mut self, file: BorrowedFd<'_>, offset: u64) -> io::Result<()> {
        let mut at = offset;
        while self.held_bytes > 0 {
            self.drain(file, Some(&mut at), SpliceFlags::MOVE)?;
        }
        Ok(())
    }

    /// Discards all into a device without offsets, such as `/dev/null`.
    pub fn drain_to_device(&mut self, device: BorrowedFd<'_>) -> io::Result<()> {
        while self.held_bytes > 0 {
            self.drain(device, None, SpliceFlags::MOVE)?;
        }
        Ok(())
    }

    /// Moves bytes into `buffer`: when a splice refuses, a socket's must not be lost.
    pub fn read_out(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let wanted = buffer.len().min(self.held_bytes);
        let taken = rustix::io::retry_on_intr(|| rustix::io::read(&self.read, &mut buffer[..wanted]))?;
        self.held_bytes -= taken;
        Ok(taken)
    }

    fn drain(&mut self, to: BorrowedFd<'_>, mut at: Option<&mut u64>, flags: SpliceFlags) -> io::Result<()> {
        let held = self.held_bytes;
        let moved =
            rustix::io::retry_on_intr(|| rustix::pipe::splice(&self.read, None, to, at.as_deref_mut(), held, flags))?;
        if moved == 0 {
            return Err(io::ErrorKind::WriteZero.into());
        }
        self.held_bytes -= moved;
        Ok(())
    }

    pub(crate) fn check_empty(&self) -> io::Result<()> {
        match self.held_bytes {
            0 => Ok(()),
            _ => Err(io::Error::new(io::ErrorKind::InvalidInput, "the pipe still holds bytes")),
        }
    }

    pub(crate) fn set_held(&mut self, held_bytes: usize) {
        self.held_bytes = held_bytes;
    }

    pub(crate) fn ends(&self) -> (BorrowedFd<'_>, BorrowedFd<'_>) {
        (self.read.as_fd(), self.write.as_fd())
    }
}

const SMALLEST_BYTES: usize = 4096;

#[cfg(test)]
mod tests {
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    #[test]
    fn a_file_reaches_another_file_over_a_connection_without_a_buffer_of_ours() {
        let content: Vec<u8> = (0..200_000u32).map(|n| (n % 251) as u8).collect();
        let source = tempfile::tempfile().unwrap();
        let target = tempfile::tempfile().unwrap();
        crate::file::write_all_at(source.as_fd(), &content, 0).unwrap();
        let (near, far) = connected();
        let (mut out, mut back) = (Pipe::new(1 << 20).unwrap(), Pipe::new(1 << 20).unwrap());
        let (mut sent, mut written) = (0, 0);
        while written < content.len() {
            if sent < content.len() {
                let taken = out.fill_from_file(source.as_fd(), sent as u64, 65_536).unwrap();
                out.drain_to_socket(near.as_fd(), false).unwrap();
                sent += taken;
            }
            let taken = back.fill_from_socket(far.as_fd(), 65_536).unwrap();
            back.drain_to_file(target.as_fd(), written as u64).unwrap();
            written += taken;
        }
        assert_eq!(out.fill_from_file(source.as_fd(), content.len() as u64, 10).unwrap(), 0, "the end of the file");
        let mut got = vec![0; content.len()];
        crate::file::read_full_at(target.as_fd(), &mut got, 0).unwrap();
        assert!(got == content, "changed on the way");
        drop(near);
        assert_eq!(back.fill_from_socket(far.as_fd(), 10).unwrap(), 0, "the end of the stream");
    }

    #[test]
    fn a_full_pipe_refuses_instead_of_waiting_for_itself() {
        let source = tempfile::tempfile().unwrap();
        crate::file::write_all_at(source.as_fd(), &[7; 8192], 0).unwrap();
        let mut pipe = Pipe::new(4096).unwrap();
        let held = pipe.fill_from_file(source.as_fd(), 0, 8192).unwrap();
        assert_eq!((held, pipe.capacity_bytes()), (4096, 4096));
        assert_eq!(pipe.fill_from_file(source.as_fd(), 0, 1).unwrap_err().kind(), io::ErrorKind::InvalidInput);
        let mut rescued = [0; 8192];
        assert_eq!(pipe.read_out(&mut rescued).unwrap(), 4096);
        assert_eq!((pipe.held_bytes(), &rescued[..4096]), (0, &[7; 4096][..]));
        assert_eq!(pipe.read_out(&mut rescued).unwrap(), 0, "nothing left, and no wait for it");
    }

    #[test]
    fn what_is_not_wanted_goes_to_the_null_device() {
        let null = std::fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
        let (mut near, far) = connected();
        near.write_all(&[1; 1000]).unwrap();
        drop(near);
        let mut pipe = Pipe::new(65_536).unwrap();
        let mut gone = 0;
        loop {
            match pipe.fill_from_socket(far.as_fd(), 65_536).unwrap() {
                0 => break,
                n => gone += n,
            }
            pipe.drain_to_device(null.as_fd()).unwrap();
        }
        assert_eq!(gone, 1000);
        assert_eq!((&far).read(&mut [0; 1]).unwrap(), 0);
    }
}
