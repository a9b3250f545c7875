//! Connections whose readers rest: each is a descriptor and a seat, without a task, which would cost ten times as much.
//!
//! ```text
//! line      its reader falls silent (`transport/line.rs`)
//! watchdog  sees a tenth of a second later that it still is -> the task leaves the connection here, and ends
//! resting   waits for all in one epoll set, and ends those whose time is over
//! server    a reader speaks again -> the connection has a task again
//! ```

use std::io;
use std::net::TcpStream;
use std::sync::{Mutex, MutexGuard, PoisonError};

use haul_sys::epoll::ReadableSet;
use tokio::io::Interest;
use tokio::io::unix::AsyncFd;

use crate::house::Seat;

pub(crate) struct Rested {
    pub(crate) stream: TcpStream,
    pub(crate) seat: Seat,
    /// The reader has asked before, so it speaks HTTP/1.1.
    pub(crate) has_asked: bool,
    /// The deadline by the watchdog's clock.
    pub(crate) due_ms: u64,
}

/// The size has to stay below twice nginx's 0.5 KiB for 10,000 of them.
const _: () = assert!(size_of::<Option<Rested>>() <= 192);

pub(crate) struct Resting {
    readable: AsyncFd<ReadableSet>,
    places: Mutex<Places>,
}

#[derive(Default)]
struct Places {
    /// The index is the key in the set.
    held: Vec<Option<Rested>>,
    free: Vec<u32>,
}

impl Resting {
    #[expect(
        deprecated,
        reason = "the newer form is unsafe; what it asks for holds: the set owns one descriptor to its end"
    )]
    pub(crate) fn new() -> io::Result<Resting> {
        let readable = AsyncFd::with_interest(ReadableSet::new()?, Interest::READABLE)?;
        Ok(Resting { readable, places: Mutex::default() })
    }

    /// Takes a connection. If the kernel cannot watch it, it ends.
    pub(crate) fn take(&self, rested: Rested) -> io::Result<()> {
        let mut places = self.lock();
        let at = match places.free.pop() {
            Some(at) => at,
            None => {
                places.held.push(None);
                u32::try_from(places.held.len() - 1).expect("there are fewer descriptors")
            }
        };
        let watched = self.readable.get_ref().add(&rested.stream, at.into());
        match watched {
            Ok(()) => places.held[at as usize] = Some(rested),
            Err(_) => places.free.push(at),
        }
        watched
    }

    pub(crate) async fn woken(&self) -> io::Result<Vec<Rested>> {
        let mut ready = self.readable.readable().await?;
        let keys = self.readable.get_ref().readable_now()?;
        if keys.is_empty() {
            ready.clear_ready();
        }
        let mut places = self.lock();
        Ok(keys.into_iter().filter_map(|key| self.give(&mut places, usize::try_from(key).ok()?)).collect())
    }

    pub(crate) fn count(&self) -> usize {
        let places = self.lock();
        places.held.len() - places.free.len()
    }

    pub(crate) fn end_late(&self, now_ms: u64) {
        self.end(|rested| rested.due_ms <= now_ms);
    }

    pub(crate) fn end_all(&self) {
        self.end(|_| true);
    }

    fn end(&self, is_over: impl Fn(&Rested) -> bool) {
        let mut places = self.lock();
        let over = |at: &usize| places.held[*at].as_ref().is_some_and(&is_over);
        let over: Vec<usize> = (0..places.held.len()).filter(over).collect();
        let ended: Vec<Rested> = over.into_iter().filter_map(|at| self.give(&mut places, at)).collect();
        // Seats and sockets go without the lock.
        drop(places);
        drop(ended);
    }

    fn give(&self, places: &mut Places, at: usize) -> Option<Rested> {
        let rested = places.held.get_mut(at)?.take()?;
        places.free.push(u32::try_from(at).ok()?);
        // The connection is in the set: nobody else takes it out.
        let _ = self.readable.get_ref().remove(&rested.stream);
        Some(rested)
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
