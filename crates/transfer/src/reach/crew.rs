//! The threads that bring lanes to a session. They end with it.

use std::collections::BTreeMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use haul_net::Policies;
use haul_net::dial::Cancel;

use crate::sync::lock;

/// Ends its crew when it is dropped, and waits for the threads of it.
pub(crate) struct Lead(Crew);

impl Lead {
    /// Leads a crew without threads.
    pub(crate) fn new() -> Self {
        // Without descriptors for it a dial ends by its time limit.
        let cancel = Cancel::new().ok();
        let policies = OnceLock::new();
        Self(Crew(Arc::new(Inside { cancel, policies, state: Mutex::default(), over: Condvar::new() })))
    }

    /// To start threads with.
    pub(crate) fn crew(&self) -> Crew {
        self.0.clone()
    }
}

impl Drop for Lead {
    fn drop(&mut self) {
        self.0.end();
    }
}

/// Starts threads, and tells them when their session is over.
#[derive(Clone)]
pub(crate) struct Crew(Arc<Inside>);

struct Inside {
    /// Ends dials.
    cancel: Option<Cancel>,
    /// How what it dials is tuned.
    policies: OnceLock<Arc<Policies>>,
    state: Mutex<State>,
    over: Condvar,
}

#[derive(Default)]
struct State {
    is_over: bool,
    threads: Vec<JoinHandle<()>>,
    /// What ends the waits of the threads.
    breaks: BTreeMap<u64, Box<dyn FnOnce() + Send>>,
    next_number: u64,
}

impl Crew {
    /// Starts a thread, unless the session is over.
    pub(crate) fn start(&self, name: String, work: impl FnOnce() + Send + 'static) -> io::Result<()> {
        let mut state = lock(&self.0.state);
        if state.is_over {
            return Err(io::Error::other("the session is over"));
        }
        // A thread that has ended keeps its stack until somebody joins it. It has reported its own panic.
        let (ended, running) = std::mem::take(&mut state.threads).into_iter().partition(JoinHandle::is_finished);
        state.threads = running;
        Vec::into_iter(ended).for_each(|thread: JoinHandle<()>| drop(thread.join()));
        state.threads.push(std::thread::Builder::new().name(name).spawn(work)?);
        Ok(())
    }

    /// Pauses. False: the session is over.
    pub(crate) fn pause(&self, pause: Duration) -> bool {
        let state = lock(&self.0.state);
        let waited = self.0.over.wait_timeout_while(state, pause, |state| !state.is_over);
        !waited.unwrap_or_else(PoisonError::into_inner).0.is_over
    }

    /// Ends dials when the session is over.
    pub(crate) fn cancel(&self) -> Option<&Cancel> {
        self.0.cancel.as_ref()
    }

    /// What it dials is tuned by these network classes. The first who says so is heard.
    pub(crate) fn tune_by(&self, policies: Arc<Policies>) {
        let _ = self.0.policies.set(policies);
    }

    /// How what it dials is tuned.
    pub(crate) fn policies(&self) -> Arc<Policies> {
        self.0.policies.get().map(Arc::clone).unwrap_or_default()
    }

    /// Does this when the session is over, or at once if it is: it ends a wait. Not any more once the guard is dropped.
    pub(crate) fn on_end(&self, act: impl FnOnce() + Send + 'static) -> Waiting {
        let mut state = lock(&self.0.state);
        let number = state.next_number;
        if state.is_over {
            drop(state);
            act();
        } else {
            state.next_number += 1;
            state.breaks.insert(number, Box::new(act));
        }
        Waiting { crew: self.clone(), number }
    }

    /// Shuts this connection down when the session is over, while it shakes hands.
    pub(crate) fn watches(&self, socket: &TcpStream) -> Option<Waiting> {
        // Without a descriptor for it a handshake ends by its time limit.
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
        // It has reported its own panic.
        threads.into_iter().for_each(|thread| drop(thread.join()));
    }
}

/// A wait that is broken off when the session is over.
pub(crate) struct Waiting {
    crew: Crew,
    number: u64,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        lock(&self.crew.0.state).breaks.remove(&self.number);
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;
    use std::time::Instant;

    use super::*;

    /// Longer than anything here takes on a busy machine, and shorter than the limits of dials.
    const SOON: Duration = Duration::from_secs(2);

    #[test]
    fn a_session_that_ends_waits_for_its_threads_and_they_wait_for_nothing() {
        let lead = Lead::new();
        let silent = TcpListener::bind("127.0.0.1:0").unwrap();
        let address = silent.local_addr().unwrap();
        let here = Arc::new(());
        let (crew, held) = (lead.crew(), Arc::clone(&here));
        lead.crew()
            .start("pause".into(), move || {
                assert!(!crew.pause(Duration::from_secs(3600)));
                drop(held);
            })
            .unwrap();
        let (crew, held) = (lead.crew(), Arc::clone(&here));
        lead.crew()
            .start("handshake".into(), move || {
                let mut socket = TcpStream::connect(address).unwrap();
                let _watched = crew.watches(&socket);
                let read = io::Read::read(&mut socket, &mut [0]);
                assert_eq!(read.unwrap(), 0);
                drop(held);
            })
            .unwrap();
        let begun = Instant::now();
        drop(lead);
        assert!(begun.elapsed() < SOON);
        assert_eq!(Arc::strong_count(&here), 1, "a thread was left behind");
    }

    #[test]
    fn nothing_is_started_once_the_session_is_over() {
        let lead = Lead::new();
        let crew = lead.crew();
        drop(lead);
        assert!(crew.start("late".into(), || panic!("nobody wants it")).is_err());
        assert!(!crew.pause(Duration::from_secs(3600)));
    }
}
