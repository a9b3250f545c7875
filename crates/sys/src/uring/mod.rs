//! Several requests with one call, and writes that go on meanwhile: `io_uring(7)`.
//!
//! Many containers forbid it (`EPERM`, `ENOSYS`), some operators by `kernel.io_uring_disabled`. The ring owns the buffers,
//! because the kernel uses them until completion; else they are leaked.

mod read;
mod requests;

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::BorrowedFd;
use std::sync::Arc;

use io_uring::opcode;

use crate::direct::{AlignedBuffer, DirectFile};
use crate::splice::Pipe;

pub use read::ReadRing;
use requests::{Requests, fd};

/// Sends a file to a socket through a pipe, in one call.
pub struct SpliceRing {
    requests: Requests,
    pipe: Pipe,
}

impl SpliceRing {
    /// Makes a ring with a pipe of about this size.
    pub fn new(pipe_bytes: usize) -> io::Result<SpliceRing> {
        Ok(SpliceRing { requests: Requests::new(2)?, pipe: Pipe::new(pipe_bytes)? })
    }

    /// Sends at most `len` bytes of a file from `offset` on; returns how many, 0 at its end. `more` as in
    /// [`Pipe::drain_to_socket`].
    pub fn send_from_file(
        &mut self,
        socket: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
        more: bool,
    ) -> io::Result<usize> {
        self.pipe.check_empty()?;
        let invalid = |_| io::Error::from(io::ErrorKind::InvalidInput);
        let len = u32::try_from(len.min(self.pipe.capacity_bytes())).map_err(invalid)?;
        let offset = i64::try_from(offset).map_err(invalid)?;
        let (out, into) = self.pipe.ends();
        let flags = libc::SPLICE_F_MOVE | if more { libc::SPLICE_F_MORE } else { 0 };
        let fill = opcode::Splice::new(fd(file), offset, fd(into), NO_OFFSET, len).flags(libc::SPLICE_F_MOVE);
        let drain = opcode::Splice::new(fd(out), NO_OFFSET, fd(socket), NO_OFFSET, len).flags(flags);
        // SAFETY: the requests point to no memory.
        let [filled, drained] = unsafe { self.requests.pair(fill.build(), drain.build()) }?;
        let filled = filled?;
        let drained = match drained {
            Ok(drained) => drained,
            // A short first step ends the link: the rest goes without the ring.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => 0,
            Err(error) => {
                self.pipe.set_held(filled);
                return Err(error);
            }
        };
        self.pipe.set_held(filled.saturating_sub(drained));
        self.pipe.drain_to_socket(socket, more).map_err(cut_short)?;
        Ok(filled)
    }
}

/// Sends a file to a socket through a buffer, in one call.
pub struct SendRing {
    requests: Requests,
    buffer: ManuallyDrop<AlignedBuffer>,
}

impl SendRing {
    /// Makes a ring with a buffer of this size.
    pub fn new(buffer_bytes: usize) -> io::Result<SendRing> {
        Ok(SendRing { requests: Requests::new(2)?, buffer: ManuallyDrop::new(AlignedBuffer::new(buffer_bytes)) })
    }

    /// As [`SpliceRing::send_from_file`].
    pub fn send_from_file(
        &mut self,
        socket: BorrowedFd<'_>,
        file: BorrowedFd<'_>,
        offset: u64,
        len: usize,
    ) -> io::Result<usize> {
        let len =
            u32::try_from(len.min(self.buffer.len())).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let start = self.buffer.as_mut_ptr();
        let read = opcode::Read::new(fd(file), start, len).offset(offset);
        let send = opcode::Send::new(fd(socket), start, len).flags(libc::MSG_WAITALL | libc::MSG_NOSIGNAL);
        // SAFETY: the buffer belongs to `self` and is used by this request only. `drop` frees the buffer only when no
        // request is on its way.
        let [read, sent] = unsafe { self.requests.pair(read.build(), send.build()) }?;
        let read = read?;
        let sent = match sent {
            Ok(sent) => sent,
            // A read that found the end of the file ends the link.
            Err(error) if error.raw_os_error() == Some(libc::ECANCELED) => 0,
            Err(error) => return Err(error),
        };
        let mut rest =
            self.buffer[..read].get(sent..).ok_or_else(|| io::Error::other("more was sent than was read"))?;
        while !rest.is_empty() {
            let send = || rustix::net::send(socket, rest, rustix::net::SendFlags::NOSIGNAL);
            let taken = rustix::io::retry_on_intr(send).map_err(|error| cut_short(error.into()))?;
            rest = &rest[taken..];
        }
        Ok(read)
    }
}

impl Drop for SendRing {
    fn drop(&mut self) {
        if self.requests.settle() {
            // SAFETY: dropped once, here, and the kernel is done with it.
            unsafe { ManuallyDrop::drop(&mut self.buffer) };
        }
    }
}

/// Writes files past the page cache: while the kernel writes some buffers, others are filled.
pub struct WriteRing {
    requests: Requests,
    buffers: ManuallyDrop<Vec<AlignedBuffer>>,
    states: Vec<State>,
    registered: bool,
    in_flight_max: usize,
}

/// One buffer of a [`WriteRing`], to be filled.
#[derive(Debug)]
pub struct Slot(usize);

enum State {
    Free,
    /// The [`Slot`] is out.
    Filling,
    Writing {
        file: Arc<DirectFile>,
        offset: u64,
        len: usize,
    },
}

impl WriteRing {
    /// Makes a ring of buffers of this size, a multiple of a page.
    pub fn new(buffers: usize, buffer_bytes: usize) -> io::Result<WriteRing> {
        let entries = u32::try_from(buffers).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let requests = Requests::new(entries.max(1))?;
        let mut buffers: Vec<AlignedBuffer> = (0..buffers).map(|_| AlignedBuffer::new(buffer_bytes)).collect();
        let places: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
            .collect();
        // SAFETY: the buffers live, at their places, until the ring is gone (`drop`). A registered buffer is pinned
        // once instead of at each write; where the user may pin no memory (RLIMIT_MEMLOCK) they are pinned at each
        // write.
        let registered = unsafe { requests.ring.submitter().register_buffers(&places) }.is_ok();
        let states = buffers.iter().map(|_| State::Free).collect();
        Ok(WriteRing { requests, buffers: ManuallyDrop::new(buffers), states, registered, in_flight_max: 0 })
    }

    /// Returns an unused buffer, perhaps after a write. Errors of writes show here and in [`WriteRing::finish`].
    pub fn slot(&mut self) -> io::Result<Slot> {
        loop {
            if let Some(free) = self.states.iter().position(|state| matches!(state, State::Free)) {
                self.states[free] = State::Filling;
                return Ok(Slot(free));
            }
            self.reap()?;
        }
    }

    /// Gives a buffer back unwritten.
    ///
    /// # Panics
    /// If the slot is of another ring: its buffer may be the kernel's here.
    pub fn give_back(&mut self, slot: Slot) {
        assert!(matches!(self.states[slot.0], State::Filling), "a slot of another ring");
        self.states[slot.0] = State::Free;
    }

    /// The bytes of a buffer.
    ///
    /// # Panics
    /// If the slot is of another ring.
    pub fn bytes_mut(&mut self, slot: &Slot) -> &mut [u8] {
        assert!(matches!(self.states[slot.0], State::Filling), "a slot of another ring");
        &mut self.buffers[slot.0]
    }

    /// Begins to write `len` bytes of a buffer at `offset`, both aligned for the file.
    ///
    /// # Panics
    /// If the slot is of another ring, or `len` more than a buffer.
    pub fn write(&mut self, slot: Slot, file: &Arc<DirectFile>, len: usize, offset: u64) -> io::Result<()> {
        assert!(matches!(self.states[slot.0], State::Filling), "a slot of another ring");
        let bytes = &self.buffers[slot.0][..len];
        let size = u32::try_from(len).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let request = if self.registered {
            let index = u16::try_from(slot.0).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            opcode::WriteFixed::new(fd(file.direct()), bytes.as_ptr(), size, index).offset(offset).build()
        } else {
            opcode::Write::new(fd(file.direct()), bytes.as_ptr(), size).offset(offset).build()
        };
        self.states[slot.0] = State::Writing { file: Arc::clone(file), offset, len };
        // SAFETY: the buffer belongs to `self`. In this state `bytes_mut` refuses the buffer, and `drop` frees it only
        // when no request is on its way.
        unsafe { self.requests.submit(&[request.user_data(slot.0 as u64)]) }?;
        self.in_flight_max = self.in_flight_max.max(self.requests.in_flight);
        Ok(())
    }

    /// Waits until all writes have ended.
    pub fn finish(&mut self) -> io::Result<()> {
        while self.requests.in_flight > 0 {
            self.reap()?;
        }
        Ok(())
    }

    /// The most writes at once so far.
    pub fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn reap(&mut self) -> io::Result<()> {
        let (name, result) = self.requests.wait()?;
        let index = usize::try_from(name).unwrap_or(usize::MAX);
        let state = self.states.get_mut(index).map(|state| std::mem::replace(state, State::Free));
        let Some(State::Writing { file, offset, len }) = state else {
            return Err(io::Error::other("a completion without a request"));
        };
        let data = &self.buffers[index][..len];
        match result {
            Ok(written) if written == len => Ok(()),
            // A signal, or a full disk, whose error shows now.
            Ok(written) => crate::file::write_all_at(file.plain(), &data[written..], offset + written as u64),
            Err(error) => file.write_plainly(data, offset, error),
        }
    }
}

impl Drop for WriteRing {
    fn drop(&mut self) {
        if self.requests.settle() {
            let _ = self.requests.ring.submitter().unregister_buffers();
            // SAFETY: dropped once, here, and the kernel is done with them.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

/// Whether this process may make rings, or why not.
pub fn available() -> io::Result<()> {
    Requests::new(1).map(drop)
}

/// Turns a partial send's error into a failed connection: on `EINVAL` the caller would send the part again.
fn cut_short(error: io::Error) -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, error)
}

/// Pipes and sockets have none.
const NO_OFFSET: i64 = -1;

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::io::{Read as _, Write as _};
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::condition::unmet;

    fn allowed() -> Option<()> {
        match available() {
            Ok(()) => Some(()),
            Err(error) => {
                unmet(format_args!("no io_uring here: {error}"));
                None
            }
        }
    }

    fn content() -> Vec<u8> {
        (0..300_000u32).map(|n| (n % 251) as u8).collect()
    }

    fn file_of(content: &[u8]) -> File {
        let mut file = tempfile::tempfile().unwrap();
        file.write_all(content).unwrap();
        file
    }

    fn sent(mut send: impl FnMut(BorrowedFd<'_>, u64) -> usize) -> Vec<u8> {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let reader = std::thread::spawn(move || {
            let mut got = Vec::new();
            far.read_to_end(&mut got).map(|_| got)
        });
        let mut offset = 0;
        loop {
            match send(near.as_fd(), offset) {
                0 => break,
                n => offset += n as u64,
            }
        }
        drop(near);
        reader.join().unwrap().unwrap()
    }

    #[test]
    fn a_file_is_spliced_to_its_end() {
        let Some(()) = allowed() else { return };
        let file = file_of(&content());
        let mut ring = SpliceRing::new(65_536).unwrap();
        let got = sent(|socket, offset| ring.send_from_file(socket, file.as_fd(), offset, 65_536, true).unwrap());
        assert!(got == content(), "{} bytes", got.len());
    }

    #[test]
    fn a_file_is_read_and_sent_to_its_end() {
        let Some(()) = allowed() else { return };
        let file = file_of(&content());
        let mut ring = SendRing::new(65_536).unwrap();
        let got = sent(|socket, offset| ring.send_from_file(socket, file.as_fd(), offset, 100_000).unwrap());
        assert!(got == content(), "{} bytes", got.len());
    }

    #[test]
    fn more_blocks_than_buffers_are_written_where_they_belong() {
        let Some(()) = allowed() else { return };
        let file = tempfile::tempfile().unwrap();
        let Ok(direct) = DirectFile::of(file.as_fd()).map(Arc::new) else {
            unmet("the file system of the temporary directory has no direct I/O");
            return;
        };
        let mut ring = WriteRing::new(2, 8192).unwrap();
        for block in 0..9u64 {
            let slot = ring.slot().unwrap();
            ring.bytes_mut(&slot).fill(block as u8 + 1);
            // Backwards: the order alone cannot make it right.
            ring.write(slot, &direct, 8192, (8 - block) * 8192).unwrap();
        }
        ring.finish().unwrap();
        assert!((1..=2).contains(&ring.in_flight_max()));
        let mut got = vec![0; 9 * 8192];
        crate::file::read_full_at(file.as_fd(), &mut got, 0).unwrap();
        for (at, block) in got.chunks(8192).enumerate() {
            assert!(block.iter().all(|byte| usize::from(*byte) == 9 - at), "block {at}");
        }
    }

    #[test]
    fn what_may_not_go_past_the_page_cache_goes_through_it() {
        let Some(()) = allowed() else { return };
        let file = tempfile::tempfile().unwrap();
        let Ok(direct) = DirectFile::of(file.as_fd()).map(Arc::new) else { return };
        let mut ring = WriteRing::new(1, 4096).unwrap();
        let slot = ring.slot().unwrap();
        ring.bytes_mut(&slot).fill(5);
        ring.write(slot, &direct, 100, 1).unwrap();
        ring.finish().unwrap();
        assert_eq!(file.metadata().unwrap().len(), 101);
        let slot = ring.slot().unwrap();
        ring.give_back(slot);
        ring.slot().unwrap();
    }

    #[test]
    #[should_panic(expected = "a slot of another ring")]
    fn no_ring_takes_back_the_slot_of_another() {
        let (Some(()), Ok(mut ring), Ok(mut other)) = (allowed(), WriteRing::new(1, 4096), WriteRing::new(1, 4096))
        else {
            panic!("a slot of another ring: skipped, this host has no rings");
        };
        let slot = other.slot().unwrap();
        ring.give_back(slot);
    }

    #[test]
    fn a_write_that_fails_is_told_and_its_buffer_is_free_again() {
        let Some(()) = allowed() else { return };
        let file = tempfile::tempfile().unwrap();
        let Ok(direct) = DirectFile::of(file.as_fd()).map(Arc::new) else {
            return unmet("the file system of the temporary directory has no direct I/O");
        };
        let mut ring = WriteRing::new(1, 4096).unwrap();
        let slot = ring.slot().unwrap();
        ring.write(slot, &direct, 4096, 1 << 62).unwrap();
        assert_eq!(ring.finish().unwrap_err().raw_os_error(), Some(libc::EFBIG));
        ring.slot().unwrap();
    }
}
