//! A proxy that harms TCP connections, each direction in its own way.
//!
//! It knows no protocol: it changes, delays or splits bytes, or ends the connection.

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use crate::deadline::settle;

/// The fate of one direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Harm {
    /// No harm.
    None,
    /// Flips all bits of the byte at this place.
    Flip(u64),
    /// Ends the connection after these bytes.
    Cut(u64),
    /// After these bytes nothing passes, and the connection stays open.
    Stall(u64),
    /// Packets of so many bytes.
    Split(usize),
    /// Bytes a second, one at a time.
    Trickle(u32),
    /// Nothing passes before another connection.
    AfterNext,
}

/// The fate of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fate {
    /// From the caller.
    pub forth: Harm,
    /// To the caller.
    pub back: Harm,
}

impl Fate {
    /// No harm.
    pub const GOOD: Fate = Fate { forth: Harm::None, back: Harm::None };
}

/// Runs until dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    door: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// Connections so far; a change wakes those who wait for the next.
    count: Mutex<usize>,
    one_more: Condvar,
    harmed: AtomicUsize,
}

impl Proxy {
    /// Listens at `here` for `there`. `fate` decides by the connection's number, from 0.
    #[track_caller]
    pub fn start(here: SocketAddr, there: SocketAddr, fate: impl Fn(usize) -> Fate + Send + 'static) -> Self {
        let listener = listen(here);
        let address = listener.local_addr().expect("it is bound");
        let shared = Arc::new(Shared::default());
        let at_door = Arc::clone(&shared);
        let door = std::thread::spawn(move || {
            while let Ok((near, _)) = listener.accept() {
                if at_door.stop.load(Ordering::Relaxed) {
                    return;
                }
                // A refusal by the target closes the client's connection, too.
                let Ok(far) = TcpStream::connect(there) else { continue };
                let number = at_door.next();
                let Fate { forth, back } = fate(number);
                for (harm, from, to) in [(forth, &near, &far), (back, &far, &near)] {
                    let (Ok(from), Ok(to)) = (from.try_clone(), to.try_clone()) else { continue };
                    let shared = Arc::clone(&at_door);
                    std::thread::spawn(move || shared.pass(number, harm, from, to));
                }
            }
        });
        Self { address, shared, door: Some(door) }
    }

    /// The listening address.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        *self.shared.count.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Directions whose bytes came far enough for harm.
    pub fn harmed(&self) -> usize {
        self.shared.harmed.load(Ordering::Relaxed)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.shared.one_more.notify_all();
        // Makes the thread check the flag.
        let _ = TcpStream::connect(self.address);
        if let Some(door) = self.door.take() {
            let _ = door.join();
        }
    }
}

impl Shared {
    fn next(&self) -> usize {
        let mut count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        *count += 1;
        self.one_more.notify_all();
        *count - 1
    }

    fn await_next(&self, number: usize) {
        let count = self.count.lock().unwrap_or_else(PoisonError::into_inner);
        let waits = |count: &mut usize| *count <= number + 1 && !self.stop.load(Ordering::Relaxed);
        drop(self.one_more.wait_timeout_while(count, PATIENCE, waits));
    }

    fn did_harm(&self) {
        self.harmed.fetch_add(1, Ordering::Relaxed);
    }

    /// Carries bytes until either side ends or fails, which ends the other.
    fn pass(&self, number: usize, harm: Harm, mut from: TcpStream, mut to: TcpStream) {
        let _ = to.set_nodelay(true);
        if harm == Harm::AfterNext {
            self.did_harm();
            self.await_next(number);
        }
        let mut block = vec![0; 16 << 10];
        let mut passed = 0u64;
        loop {
            let read = match from.read(&mut block) {
                Ok(0) | Err(_) => break,
                Ok(read) => read,
            };
            let data = &mut block[..read];
            let range = passed..passed + read as u64;
            passed = range.end;
            let written = match harm {
                Harm::None | Harm::AfterNext => to.write_all(data),
                Harm::Flip(at) => {
                    if range.contains(&at) {
                        data[(at - range.start) as usize] ^= 0xff;
                        self.did_harm();
                    }
                    to.write_all(data)
                }
                Harm::Cut(at) if range.end > at => {
                    self.did_harm();
                    let _ = to.write_all(&data[..at.saturating_sub(range.start) as usize]);
                    let _ = from.shutdown(Shutdown::Both);
                    let _ = to.shutdown(Shutdown::Both);
                    return;
                }
                Harm::Stall(at) if range.end > at => {
                    self.did_harm();
                    let _ = to.write_all(&data[..at.saturating_sub(range.start) as usize]);
                    // The sender finds no reader; the connection stands as long as the proxy.
                    while !self.stop.load(Ordering::Relaxed) {
                        self.await_next(usize::MAX - 1);
                    }
                    return;
                }
                Harm::Cut(_) | Harm::Stall(_) => to.write_all(data),
                Harm::Split(bytes) => {
                    self.did_harm();
                    data.chunks(bytes).try_for_each(|piece| to.write_all(piece))
                }
                Harm::Trickle(bytes_per_s) => {
                    self.did_harm();
                    let pause = Duration::from_secs(1) / bytes_per_s;
                    data.iter().try_for_each(|byte| {
                        std::thread::park_timeout(pause);
                        to.write_all(std::slice::from_ref(byte))
                    })
                }
            };
            if written.is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Write);
        let _ = from.shutdown(Shutdown::Read);
    }
}

/// Retries after another proxy on the port: between fork and exec, another test's program holds copies of the former
/// listener.
#[track_caller]
fn listen(here: SocketAddr) -> TcpListener {
    let mut last = None;
    settle(PATIENCE, || {
        let listener = TcpListener::bind(here);
        let is_taken = matches!(&listener, Err(error) if error.kind() == ErrorKind::AddrInUse);
        last = Some(listener);
        !is_taken
    });
    last.expect("it was tried").unwrap_or_else(|error| panic!("cannot listen on {here}: {error}"))
}

/// Longer than any test; then the thread checks its end.
const PATIENCE: Duration = Duration::from_secs(5);
