//! The buffers between stream and disks, for the writers in turn, one for each stripe.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use haul_sys::direct::{AlignedBuffer, DirectFile};
use haul_sys::file;

pub(super) struct Filling {
    free: Receiver<AlignedBuffer>,
    /// Empty once nothing follows.
    full: Vec<SyncSender<(AlignedBuffer, usize)>>,
    handed_over: usize,
    shared: Arc<Shared>,
    stands: Stands,
}

#[derive(Default)]
struct Shared {
    waiting: AtomicUsize,
    failed: AtomicBool,
}

pub(super) struct Writing {
    free: SyncSender<AlignedBuffer>,
    full: Receiver<(AlignedBuffer, usize)>,
    shared: Arc<Shared>,
    written: Arc<AtomicU64>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Stands {
    pub high_water: usize,
    pub overruns: u64,
    pub held_up: Duration,
}

/// Touches every page, because the first touch is slow.
pub(super) fn new(buffers: usize, buffer_bytes: usize, writers: usize) -> (Filling, Vec<Writing>) {
    let (free, to_fill) = sync_channel(buffers);
    for _ in 0..buffers {
        let mut buffer = AlignedBuffer::new(buffer_bytes);
        buffer.fill(0xa5);
        free.send(buffer).expect("the other end is in this function");
    }
    let shared = Arc::new(Shared::default());
    let (full, writing) = (0..writers)
        .map(|_| {
            let (full, to_write) = sync_channel(buffers);
            let (free, shared) = (free.clone(), Arc::clone(&shared));
            (full, Writing { free, full: to_write, shared, written: Arc::default() })
        })
        .unzip();
    (Filling { free: to_fill, full, handed_over: 0, shared, stands: Stands::default() }, writing)
}

impl Filling {
    /// Counts an overrun if no buffer is free; `None` if a disk has failed.
    pub fn free(&mut self) -> Option<AlignedBuffer> {
        if self.shared.failed.load(Ordering::Acquire) {
            return None;
        }
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

    /// Hands over `bytes` of a buffer, full but for the last. False if a disk has failed.
    pub fn full(&mut self, buffer: AlignedBuffer, bytes: usize) -> bool {
        let waiting = self.shared.waiting.fetch_add(1, Ordering::AcqRel) + 1;
        self.stands.high_water = self.stands.high_water.max(waiting);
        let writer = self.handed_over % self.full.len().max(1);
        self.handed_over += 1;
        let taken = self.full.get(writer).is_some_and(|full| full.send((buffer, bytes)).is_ok());
        taken && !self.shared.failed.load(Ordering::Acquire)
    }

    pub fn end(&mut self) -> Stands {
        self.full.clear();
        self.stands
    }
}

impl Writing {
    /// The bytes written, maybe not yet on the disk.
    pub fn written(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.written)
    }

    /// Returns the route's name. After an error it only gives buffers back, so the filling end notices.
    pub fn run(self, target: &File) -> io::Result<&'static str> {
        let mut stripe = Stripe { target, direct: DirectFile::of(target.as_fd()).ok(), offset: 0, before: None };
        let mut result = Ok(());
        while let Ok((buffer, bytes)) = self.full.recv() {
            if result.is_ok() {
                result = stripe.append(&buffer[..bytes]);
                self.written.store(stripe.offset, Ordering::Release);
                self.shared.waiting.fetch_sub(1, Ordering::AcqRel);
            }
            if result.is_err() {
                self.shared.failed.store(true, Ordering::Release);
            }
            let _ = self.free.send(buffer);
        }
        result.map(|()| if stripe.is_direct() { "direct" } else { "copy" })
    }
}

struct Stripe<'a> {
    target: &'a File,
    direct: Option<DirectFile>,
    offset: u64,
    /// The write before, if through the page cache.
    before: Option<(u64, u64)>,
}

impl Stripe<'_> {
    fn append(&mut self, data: &[u8]) -> io::Result<()> {
        let len = data.len() as u64;
        match &self.direct {
            Some(direct) if !direct.is_refused() => direct.write_all_at(data, self.offset)?,
            _ => {
                file::write_all_at(self.target.as_fd(), data, self.offset)?;
                file::start_writeback(self.target.as_fd(), self.offset, len);
                let before = self.before.replace((self.offset, len));
                // Lost bytes were counted as written.
                let lost = |_: &io::Error| self.offset = before.map_or(self.offset, |(offset, _)| offset);
                bound_dirty(self.target, before).inspect_err(lost)?;
            }
        }
        self.offset += len;
        Ok(())
    }

    fn is_direct(&self) -> bool {
        self.direct.as_ref().is_some_and(|direct| !direct.is_refused())
    }
}

/// Waits for the buffer before, during this one's write: at most two are dirty, and none stays in the page cache.
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
        let (mut filling, mut writing) = new(2, 65_536, 1);
        let writing = writing.remove(0);
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
        let (mut filling, mut writing) = new(2, 65_536, 1);
        let writing = writing.remove(0);
        let writer = std::thread::spawn(move || writing.run(&full));
        let buffers =
            (0..100).take_while(|_| filling.free().is_some_and(|buffer| filling.full(buffer, 65_536))).count();
        assert!(buffers < 100, "it filled on for ever");
        filling.end();
        assert_eq!(writer.join().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
    }

    /// The working disk has no buffer to give back.
    #[test]
    fn one_disk_of_two_that_fails_ends_the_filling() {
        let Ok(full) = File::options().read(true).write(true).open("/dev/full") else { return };
        let (mut filling, mut writing) = new(2, 65_536, 2);
        let well = tempfile::tempfile().unwrap();
        let (fails, works) = (writing.remove(0), writing.remove(0));
        let fails = std::thread::spawn(move || fails.run(&full));
        let works = std::thread::spawn(move || works.run(&well));
        let buffers =
            (0..100).take_while(|_| filling.free().is_some_and(|buffer| filling.full(buffer, 65_536))).count();
        assert!(buffers < 100, "it filled on for ever");
        filling.end();
        assert_eq!(fails.join().unwrap().unwrap_err().kind(), io::ErrorKind::StorageFull);
        works.join().unwrap().unwrap();
    }
}
