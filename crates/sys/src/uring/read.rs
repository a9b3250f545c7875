//! Reads ahead, past the page cache.

use std::collections::VecDeque;
use std::io;
use std::mem::ManuallyDrop;
use std::sync::Arc;

use io_uring::opcode;

use super::requests::{Requests, fd};
use crate::direct::{AlignedBuffer, DirectSource};

/// Reads pieces of files past the page cache into its own buffers, in order, while others are worked on.
pub struct ReadRing {
    requests: Requests,
    buffers: ManuallyDrop<Vec<AlignedBuffer>>,
    buffer_bytes: usize,
    registered: bool,
    free: Vec<usize>,
    /// The buffers in use, the oldest first.
    pieces: VecDeque<Piece>,
    in_flight_max: usize,
}

struct Piece {
    buffer: usize,
    file: Arc<DirectSource>,
    offset: u64,
    /// The wanted bytes, before rounding up.
    len: usize,
    state: State,
}

enum State {
    Reading,
    Read(io::Result<usize>),
    Complete(usize),
}

impl ReadRing {
    /// Makes a ring of buffers of this size, a multiple of [`MAX_ALIGNMENT_BYTES`](crate::direct::MAX_ALIGNMENT_BYTES).
    ///
    /// # Panics
    /// If `buffer_bytes` is no such multiple, or 0.
    pub fn new(buffers: usize, buffer_bytes: usize) -> io::Result<ReadRing> {
        assert!(buffer_bytes.is_multiple_of(crate::direct::MAX_ALIGNMENT_BYTES), "a buffer holds whole blocks");
        let entries = u32::try_from(buffers).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let requests = Requests::new(entries.max(1))?;
        let mut buffers: Vec<AlignedBuffer> = (0..buffers).map(|_| AlignedBuffer::new(buffer_bytes)).collect();
        let places: Vec<libc::iovec> = buffers
            .iter_mut()
            .map(|buffer| libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() })
            .collect();
        // SAFETY: the buffers live, at their places, until the ring is gone (`drop`). As for `WriteRing`, a user who
        // may pin no memory has them pinned at each read.
        let registered = unsafe { requests.ring.submitter().register_buffers(&places) }.is_ok();
        let free = (0..buffers.len()).collect();
        let buffers = ManuallyDrop::new(buffers);
        Ok(ReadRing { requests, buffers, buffer_bytes, registered, free, pieces: VecDeque::new(), in_flight_max: 0 })
    }

    /// The size of one buffer.
    pub fn buffer_bytes(&self) -> usize {
        self.buffer_bytes
    }

    /// Whether a buffer is free.
    pub fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// Begins to read `len` bytes from an aligned `offset` on. An error is the ring's, which is then useless.
    ///
    /// # Panics
    /// If no buffer is free, or the piece is too long or not aligned.
    pub fn begin(&mut self, file: &Arc<DirectSource>, offset: u64, len: usize) -> io::Result<()> {
        assert!(offset.is_multiple_of(file.alignment_bytes()) && len <= self.buffer_bytes, "a piece that fits");
        let index = self.free.pop().expect("whoever begins has looked for room");
        let alignment = usize::try_from(file.alignment_bytes()).expect("at most 64 KiB");
        let bytes = &mut self.buffers[index][..len.next_multiple_of(alignment)];
        let size = u32::try_from(bytes.len()).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
        let request = if self.registered {
            let index = u16::try_from(index).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
            opcode::ReadFixed::new(fd(file.direct()), bytes.as_mut_ptr(), size, index).offset(offset).build()
        } else {
            opcode::Read::new(fd(file.direct()), bytes.as_mut_ptr(), size).offset(offset).build()
        };
        self.pieces.push_back(Piece { buffer: index, file: Arc::clone(file), offset, len, state: State::Reading });
        // SAFETY: the buffer belongs to `self`. Until the completion was seen, `oldest` hides the buffer and `release`
        // keeps it from other pieces. `drop` frees it only when no request is on its way.
        unsafe { self.requests.submit(&[request.user_data(index as u64)]) }?;
        self.in_flight_max = self.in_flight_max.max(self.requests.in_flight);
        Ok(())
    }

    /// Waits for the oldest piece's bytes: fewer only at the file's end. `None` if nothing was begun.
    pub fn oldest(&mut self) -> io::Result<Option<&[u8]>> {
        self.await_oldest()?;
        let Some(piece) = self.pieces.front_mut() else { return Ok(None) };
        let len = match std::mem::replace(&mut piece.state, State::Complete(0)) {
            State::Complete(len) => len,
            State::Read(result) => {
                let completed = piece.file.complete(&mut self.buffers[piece.buffer][..piece.len], piece.offset, result);
                completed.inspect_err(|error| piece.state = State::Read(Err(same(error))))?
            }
            State::Reading => return Err(io::Error::other("a read without an end")),
        };
        piece.state = State::Complete(len);
        Ok(Some(&self.buffers[piece.buffer][..len]))
    }

    /// Gives up the oldest piece, once the kernel no longer writes into it.
    pub fn release_oldest(&mut self) -> io::Result<()> {
        self.await_oldest()?;
        if let Some(piece) = self.pieces.pop_front() {
            self.free.push(piece.buffer);
        }
        Ok(())
    }

    /// The most reads at once so far.
    pub fn in_flight_max(&self) -> usize {
        self.in_flight_max
    }

    fn await_oldest(&mut self) -> io::Result<()> {
        while self.pieces.front().is_some_and(|piece| matches!(piece.state, State::Reading)) {
            let (name, result) = self.requests.wait()?;
            let of = |piece: &&mut Piece| piece.buffer as u64 == name && matches!(piece.state, State::Reading);
            let Some(piece) = self.pieces.iter_mut().find(of) else {
                return Err(io::Error::other("a completion without a request"));
            };
            piece.state = State::Read(result);
        }
        Ok(())
    }
}

impl Drop for ReadRing {
    fn drop(&mut self) {
        if self.requests.settle() {
            let _ = self.requests.ring.submitter().unregister_buffers();
            // SAFETY: dropped once, here, and the kernel is done with them.
            unsafe { ManuallyDrop::drop(&mut self.buffers) };
        }
    }
}

fn same(error: &io::Error) -> io::Error {
    error.raw_os_error().map_or_else(|| error.kind().into(), io::Error::from_raw_os_error)
}

#[cfg(test)]
mod tests {
    use std::fs::File;
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::condition::unmet;

    const BUFFER: usize = 64 << 10;

    const LENGTH: usize = 5 * BUFFER + 1_234;

    fn content() -> Vec<u8> {
        (0..LENGTH as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect()
    }

    fn file_and_ring(buffers: usize) -> Option<(File, Arc<DirectSource>, ReadRing)> {
        let file = tempfile::tempfile().unwrap();
        crate::file::write_all_at(file.as_fd(), &content(), 0).unwrap();
        crate::file::flush_all(file.as_fd()).unwrap();
        crate::file::drop_cache(file.as_fd(), 0, LENGTH as u64);
        let plain = Arc::new(file.as_fd().try_clone_to_owned().unwrap());
        let made = DirectSource::of(&plain).and_then(|direct| Ok((direct, ReadRing::new(buffers, BUFFER)?)));
        match made {
            Ok((direct, ring)) => Some((file, Arc::new(direct), ring)),
            Err(error) => {
                unmet(format_args!("no reading ahead past the page cache here: {error}"));
                None
            }
        }
    }

    #[test]
    fn more_pieces_than_buffers_come_in_order_up_to_the_ragged_end_and_leave_no_pages() {
        let Some((file, direct, mut ring)) = file_and_ring(3) else { return };
        let mut pieces = (0..LENGTH).step_by(BUFFER).map(|at| (at as u64, BUFFER.min(LENGTH - at)));
        let mut got = Vec::new();
        loop {
            while ring.has_room()
                && let Some((offset, len)) = pieces.next()
            {
                ring.begin(&direct, offset, len).unwrap();
            }
            let Some(bytes) = ring.oldest().unwrap() else { break };
            got.extend_from_slice(bytes);
            assert_eq!(
                ring.oldest().unwrap().unwrap().len(),
                got.len() - got.len().saturating_sub(1) / BUFFER * BUFFER
            );
            ring.release_oldest().unwrap();
        }
        assert!(got == content(), "{} bytes", got.len());
        assert_eq!(ring.in_flight_max(), 3);
        assert!(!direct.is_refused());
        let in_memory = crate::cached::cached_bytes(file.as_fd(), 0, LENGTH as u64);
        assert!(in_memory.as_ref().map_or(true, |bytes| *bytes < 4096), "{in_memory:?}");
    }

    #[test]
    fn a_file_that_was_cut_gives_what_is_left_of_it() {
        let Some((file, direct, mut ring)) = file_and_ring(2) else { return };
        file.set_len(BUFFER as u64 + 7).unwrap();
        ring.begin(&direct, BUFFER as u64, BUFFER).unwrap();
        ring.begin(&direct, 2 * BUFFER as u64, BUFFER).unwrap();
        assert!(ring.oldest().unwrap().unwrap() == &content()[BUFFER..BUFFER + 7]);
        ring.release_oldest().unwrap();
        assert_eq!(ring.oldest().unwrap().unwrap().len(), 0);
    }

    #[test]
    fn what_may_not_be_read_past_the_page_cache_is_read_through_it() {
        let Some((_file, direct, mut ring)) = file_and_ring(1) else { return };
        let mut buffer = vec![0; 1000];
        let refused = || Err(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(direct.complete(&mut buffer, 17, refused()).unwrap(), 1000);
        assert!(buffer == content()[17..1017] && direct.is_refused());
        let broken = Err(io::Error::from_raw_os_error(libc::EIO));
        assert_eq!(direct.complete(&mut buffer, 17, broken).unwrap_err().raw_os_error(), Some(libc::EIO));
        ring.begin(&direct, 0, 100).unwrap();
        ring.await_oldest().unwrap();
        ring.pieces[0].state = State::Read(Ok(30));
        ring.buffers[ring.pieces[0].buffer][30..100].fill(0);
        assert!(ring.oldest().unwrap().unwrap() == &content()[..100]);
    }

    #[test]
    fn pieces_that_nobody_looked_at_are_given_up_and_a_ring_may_go_while_it_reads() {
        let Some((_file, direct, mut ring)) = file_and_ring(2) else { return };
        ring.begin(&direct, 0, BUFFER).unwrap();
        ring.begin(&direct, BUFFER as u64, BUFFER).unwrap();
        assert!(!ring.has_room());
        ring.release_oldest().unwrap();
        assert!(ring.has_room());
        assert!(ring.oldest().unwrap().unwrap() == &content()[BUFFER..2 * BUFFER]);
        ring.begin(&direct, 2 * BUFFER as u64, BUFFER).unwrap();
        drop(ring);
    }

    #[test]
    fn a_file_in_memory_is_never_read_past_the_page_cache() {
        let Ok(file) = tempfile::tempfile_in("/dev/shm") else { return unmet("no /dev/shm") };
        if !crate::medium::lies_in_memory(file.as_fd()).unwrap() {
            return unmet("/dev/shm is no memory");
        }
        let file = Arc::new(file.into());
        assert_eq!(DirectSource::of(&file).unwrap_err().kind(), io::ErrorKind::Unsupported);
    }
}
