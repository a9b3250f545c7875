//! The handles of one file: one for each connection that serves it.
//!
//! Each further connection opens the file on a thread of its own, for the round trips of an open must not hold up those that work.

use std::io;
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::pool::Pool;
use crate::server::{Handle, Server};

/// The handles of one file.
#[derive(Debug)]
pub(crate) struct Handles {
    shared: Arc<Mutex<State>>,
    /// Dropping them ends the waits for a first turn.
    waits: Mutex<Vec<Sender<()>>>,
}

#[derive(Debug)]
struct State {
    open: Vec<Arc<Handle>>,
    /// The connections over which the file was opened, or is to be: as many as a pool has at most.
    tried: Vec<Arc<Server>>,
}

impl Handles {
    pub(crate) fn new(first: Handle) -> Self {
        let tried = vec![Arc::clone(first.server())];
        let shared = Arc::new(Mutex::new(State { open: vec![Arc::new(first)], tried }));
        Self { shared, waits: Mutex::default() }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those whose connections stand; the first one, if none does.
    pub(crate) fn standing(&self) -> Vec<Arc<Handle>> {
        let state = self.lock();
        let standing: Vec<_> = state.open.iter().filter(|handle| !handle.server().is_lost()).cloned().collect();
        if standing.is_empty() { state.open[..1].to_vec() } else { standing }
    }

    /// The one with which the file was opened first.
    pub(crate) fn first(&self) -> Arc<Handle> {
        Arc::clone(&self.lock().open[0])
    }

    /// Adds one that was opened elsewhere.
    pub(crate) fn add(&self, handle: Handle) -> Arc<Handle> {
        let handle = Arc::new(handle);
        self.lock().open.push(Arc::clone(&handle));
        handle
    }

    /// Opens the file over those connections that do not serve it yet. One that cannot is left out: the others go on.
    pub(crate) fn spread(
        &self,
        pool: &Arc<Pool>,
        open: impl Fn(&Arc<Server>) -> io::Result<Handle> + Send + Clone + 'static,
    ) {
        let mut state = self.lock();
        for server in pool.servers() {
            if server.is_lost() || state.tried.iter().any(|tried| Arc::ptr_eq(tried, &server)) {
                continue;
            }
            state.tried.push(Arc::clone(&server));
            let (open, pool, shared) = (open.clone(), Arc::clone(pool), Arc::clone(&self.shared));
            let (waits, over) = channel();
            self.waits.lock().unwrap_or_else(PoisonError::into_inner).push(waits);
            // Without a thread it stays with those that stand.
            let _ = std::thread::Builder::new().name("sftp-open".into()).spawn(move || {
                // The file may be closed before the first turn of this connection.
                if let Ok(handle) = open(&server)
                    && over.recv_timeout(pool.until_phase(&server)) == Err(RecvTimeoutError::Timeout)
                {
                    shared.lock().unwrap_or_else(PoisonError::into_inner).open.push(Arc::new(handle));
                }
            });
        }
    }
}
