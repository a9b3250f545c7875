//! The buffers between the stream and the disk, and who has them.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use haul_sys::direct::{AlignedBuffer, DirectFile};
use haul_sys::file;

/// The end that fills.
pub(super) struct Filling {
    free: Receiver<AlignedBuffer>,
    full: Option<SyncSender<(AlignedBuffer, usize)>>,
    waiting: Arc<AtomicUsize>,
    stands: Stands,
}

/// The end that writes.
pub(super) struct Writing {
    free: SyncSender<AlignedBuffer>,
    full: Receiver<(AlignedBuffer, usize)>,
    waiting: Arc<AtomicUsize>,
}

/// How it went with the ring.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stands {
    /// Buffers that were full and not yet written, at most.
    pub high_water: usize,
    /// How often no buffer was free.
    pub overruns: u64,
    /// How long that lasted altogether.
    pub held_up: Duration,
}

/// A ring of so many buffers of this size, all free, and every page of them touched: the first touch of memory is dear.
pub(super) fn new(buffers: usize, buffer_bytes: usize) -> (Filling, Writing) {
    let (free, to_fill) = sync_channel(buffers);
    let (full, to_write) = sync_channel(buffers);
    for _ in 0..buffers {
        let mut buffer = AlignedBuffer::new(buffer_bytes);
        buffer.fill(0xa5);
        free.send(buffer).expect("the other end is in this function");
    }
    let waiting = Arc::new(AtomicUsize::new(0));
    let filling = Filling { free: to_fill, full: Some(full), waiting: Arc::clone(&waiting), stands: Stands::default() };
    (filling, Writing { free, full: to_write, waiting })
}

impl Filling {
    /// A free buffer. When there is none the stream is held up until there is, which is an overrun; `None` when the writer is gone.
    pub fn free(&mut self) -> Option<AlignedBuffer> {
        match self.free.try_recv() {
            Ok(buffer) => Some(buffer),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => self.overrun(),
        }
    }

    fn overrun(&mut self) -> Option<AlignedBuffer> {
        let start = Instant::now();
        let buffer = self.free.recv().ok()?;
        self.stands.overruns += 1;
        self.stands.held_up += start.elapsed();
        Some(buffer)
    }

    /// Hands over a buffer with so many bytes; only the last one may hold less than it could. False when the writer is gone.
    pub fn full(&mut self, buffer: AlignedBuffer, bytes: usize) -> bool {
        let waiting = self.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        self.stands.high_water = self.stands.high_water.max(waiting);
        self.full.as_ref().is_some_and(|full| full.send((buffer, bytes)).is_ok())
    }

    /// Nothing follows.
    pub fn end(&mut self) -> Stands {
        self.full = None;
        self.stands
    }
}

impl Writing {
    /// Writes what comes, one buffer behind the other, until nothing follows; returns the name of the route. After an error it is gone, and
    /// whoever fills the ring notices.
    pub fn run(self, target: &File) -> io::Result<&'static str> {
        let direct = DirectFile::of(target.as_fd()).ok();
        let mut offset = 0;
        let mut before = None;
        while let Ok((buffer, bytes)) = self.full.recv() {
            let data = &buffer[..bytes];
            match &direct {
                Some(direct) if !direct.is_refused() => direct.write_all_at(data, offset)?,
                _ => {
                    file::write_all_at(target.as_fd(), data, offset)?;
                    let len = bytes as u64;
                    file::start_writeback(target.as_fd(), offset, len);
                    bound_dirty(target, before.replace((offset, len)))?;
                }
            }
            offset += bytes as u64;
            self.waiting.fetch_sub(1, Ordering::AcqRel);
            // Nobody fills any more: then nobody waits for it either.
            let _ = self.free.send(buffer);
        }
        Ok(if direct.is_some_and(|direct| !direct.is_refused()) { "direct" } else { "copy" })
    }
}

/// Waits for the buffer before, while this one is on its way: never more than two are dirty, and none stays in the page cache.
fn bound_dirty(target: &File, before: Option<(u64, u64)>) -> io::Result<()> {
    let Some((offset, len)) = before else { return Ok(()) };
    file::wait_writeback(target.as_fd(), offset, len)?;
    file::drop_cache(target.as_fd(), offset, len);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_writer_that_falls_behind_is_an_overrun_and_the_ring_says_how_full_it_was() {
        let (mut filling, writing) = new(2, 65_536);
        for _ in 0..2 {
            let buffer = filling.free().unwrap();
            assert!(filling.full(buffer, 65_536));
        }
        assert!(matches!(filling.free.try_recv(), Err(TryRecvError::Empty)), "nobody has written yet");
        let file = tempfile::tempfile().unwrap();
        let target = file.try_clone().unwrap();
        let writer = std::thread::spawn(move || writing.run(&target));
        let buffer = filling.overrun().unwrap();
        assert!(filling.full(buffer, 10));
        let stands = filling.end();
        assert!(["direct", "copy"].contains(&writer.join().unwrap().unwrap()));
        assert_eq!((stands.high_water, stands.overruns), (2, 1));
        assert_eq!(file.metadata().unwrap().len(), 2 * 65_536 + 10);
    }

    #[test]
    fn a_disk_that_fails_ends_the_filling() {
        let Ok(full) = File::options().read(true).write(true).open("/dev/full") else { return };
        let (mut filling, writing) = new(2, 65_536);
        let writer = std::thread::spawn(move || writing.run(&full));
        let buffers =
            (0..100).take_while(|_| filling.free().is_some_and(|buffer| filling.full(buffer, 65_536))).count();
        assert!(buffers < 100, "it filled on for ever");
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }
}
