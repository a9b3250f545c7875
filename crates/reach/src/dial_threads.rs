//! Runs the threads that bring lanes to a session. They end with it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_net::Policies;
use haul_net::dial::Cancel;

use haul_kept::sync::lock;

/// Ends a session's dial threads when dropped.
pub struct DialThreadsOwner(DialThreads);

impl Default for DialThreadsOwner {
    fn default() -> Self {
        Self::new()
    }
}

impl DialThreadsOwner {
    /// Begins without threads.
    pub fn new() -> Self {
        // Without its descriptors a dial ends by its time limit.
        let cancel = Cancel::new().ok();
        let policies = OnceLock::new();
        Self(DialThreads(Arc::new(Inside { cancel, policies, state: Mutex::default(), over: Condvar::new() })))
    }

    /// The starter of threads.
    pub fn threads(&self) -> DialThreads {
        self.0.clone()
    }
}

impl Drop for DialThreadsOwner {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Starts threads, and tells them of the session's end.
#[derive(Clone)]
pub struct DialThreads(Arc<Inside>);

struct Inside {
    cancel: Option<Cancel>,
    policies: OnceLock<Arc<Policies>>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    threads: Vec<JoinHandle<()>>,
    breaks: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
    next_number: u64,
}

impl DialThreads {
    /// Starts a thread, unless the session is over.
    pub fn start(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        if state.is_over {
            return Err(io::Error::other("the session is over"));
        }
        let (ended, running) = std::mem::take(&mut state.threads).into_iter().partition(JoinHandle::is_finished);
        state.threads = running;
        Vec::into_iter(ended).for_each(|thread: JoinHandle<()>| drop(thread.join()));
        state.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Pauses. Returns false when the session is over.
    pub fn pause(&self, pause: Duration) -> bool {
        let state = lock(&self.0.state);
        let waited = self.0.over.wait_timeout_while(state, pause, |state| !state.is_over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.0.cancel.as_ref()
    }

    /// Sets the network classes of dials, once.
    pub fn tune_by(&self, policies: Arc<Policies>) {
        let _ = self.0.policies.set(policies);
    }

    /// The policies of dials.
    pub fn policies(&self) -> Arc<Policies> {
        self.0.policies.get().map(Arc::clone).unwrap_or_default()
    }

    /// Runs `act` at the session's end, or at once after it, unless the guard is dropped.
    pub fn on_end(&self, act: impl FnOnce() + Send + 'static) -> Waiting {
        let mut state = lock(&self.0.state);
        let number = state.next_number;
        if state.is_over {
            drop(state);
            act();
        } else {
            state.next_number += 1;
            state.breaks.insert(number, Box::new(act));
        }
        Waiting { dial_threads: self.clone(), number }
    }

    /// Shuts a connection down at the session's end.
    pub fn watches(&self, socket: &TcpStream) -> Option<Waiting> {
        // Without a second descriptor the handshake ends by its time limit.
        let socket = socket.try_clone().ok()?;
        Some(self.on_end(move || drop(socket.shutdown(Shutdown::Both))))
    }

    fn end(&self) {
        let (threads, breaks) = {
            let mut state = lock(&self.0.state);
            state.is_over = true;
            (std::mem::take(&mut state.threads), std::mem::take(&mut state.breaks))
        };
        self.0.over.notify_all();
        self.0.cancel.iter().for_each(Cancel::cancel);
        breaks.into_values().for_each(|act| act());
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// Guards a wait that the session's end breaks off.
pub struct Waiting {
    dial_threads: DialThreads,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.dial_threads.0.state).breaks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    const SOON: Duration = Duration::from_secs(2);

    #[test]
    fn a_session_that_ends_waits_for_its_threads_and_they_wait_for_nothing() {
        let dial_owner = DialThreadsOwner::new();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let here = Arc::new(());
        let (dial_threads, held) = (dial_owner.threads(), Arc::clone(&here));
        dial_owner
            .threads()
            .start("pause".into(), move || {
                assert!(!dial_threads.pause(Duration::from_secs(3600)));
                drop(held);
            })
            .unwrap();
        let (dial_threads, held) = (dial_owner.threads(), Arc::clone(&here));
        dial_owner
            .threads()
            .start("handshake".into(), move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let _watched = dial_threads.watches(&socket);
                let read = io::Read::read(&mut socket, &mut [0]);
                assert_eq!(read.unwrap(), 0);
                drop(held);
            })
            .unwrap();
        let begun = Instant::now();
        drop(dial_owner);
        assert!(begun.elapsed() < SOON);
        assert_eq!(Arc::strong_count(&here), 1, "a thread was left behind");
    }

    #[test]
    fn nothing_is_started_once_the_session_is_over() {
        let dial_owner = DialThreadsOwner::new();
        let dial_threads = dial_owner.threads();
        drop(dial_owner);
        assert!(dial_threads.start("late".into(), || panic!("nobody wants it")).is_err());
        assert!(!dial_threads.pause(Duration::from_secs(3600)));
    }
}
