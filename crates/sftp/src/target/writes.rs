//! The writes of one draft that the server has not confirmed yet, and the first that failed.

use std::collections::BTreeSet;
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use super::tree::lock;
use crate::codec::Reply;
use crate::connection::Recipient;

/// The unconfirmed writes of one draft.
#[derive(Debug, Default)]
pub(super) struct Writes {
    state: Mutex<State>,
    confirmed: Condvar,
}

#[derive(Debug, Default)]
struct State {
    /// The numbers of those that are not confirmed: as many as the connections have requests under way.
    open: BTreeSet<u64>,
    next: u64,
    failure: Option<Failure>,
}

/// A failure that is told again and again.
#[derive(Clone, Debug)]
struct Failure {
    errno: Option<i32>,
    kind: io::ErrorKind,
    text: String,
}

impl Failure {
    fn of(error: &io::Error) -> Self {
        Self { errno: error.raw_os_error(), kind: error.kind(), text: error.to_string() }
    }

    fn error(&self) -> io::Error {
        match self.errno {
            Some(errno) => io::Error::from_raw_os_error(errno),
            None => io::Error::new(self.kind, self.text.clone()),
        }
    }
}

impl Writes {
    /// Counts a write, and makes who gets its answer. Fails if an earlier one has failed.
    pub(super) fn begin(self: &Arc<Self>) -> io::Result<Recipient> {
        let mut state = lock(&self.state);
        if let Some(failure) = &state.failure {
            return Err(failure.error());
        }
        let number = state.next;
        state.next += 1;
        state.open.insert(number);
        drop(state);
        let writes = Begun { writes: Arc::clone(self), number };
        Ok(Box::new(move |reply: io::Result<Reply>| {
            writes.end(match reply {
                Ok(Reply::Status(status)) => status.ok(),
                Ok(_) => Err(io::Error::new(io::ErrorKind::InvalidData, NO_STATUS)),
                Err(error) => Err(error),
            });
        }))
    }

    /// Waits until all that began before are confirmed: other lanes may go on writing. After one failure it always fails.
    pub(super) fn wait(&self) -> io::Result<()> {
        self.wait_for(self.begun())
    }

    /// How many have begun so far.
    fn begun(&self) -> u64 {
        lock(&self.state).next
    }

    fn wait_for(&self, end: u64) -> io::Result<()> {
        let waits = |state: &mut State| state.open.first().is_some_and(|first| *first < end);
        let state = self.confirmed.wait_while(lock(&self.state), waits).unwrap_or_else(PoisonError::into_inner);
        state.failure.as_ref().map_or(Ok(()), |failure| Err(failure.error()))
    }

    /// Notes a failure beside the writes, such as that of a flush. It stays.
    pub(super) fn fail(&self, error: io::Error) -> io::Error {
        lock(&self.state).failure.get_or_insert_with(|| Failure::of(&error));
        error
    }
}

/// A write that was counted. If nobody hears of its end, it has failed.
struct Begun {
    writes: Arc<Writes>,
    number: u64,
}

impl Begun {
    fn end(&self, outcome: io::Result<()>) {
        if let Err(error) = outcome {
            lock(&self.writes.state).failure.get_or_insert_with(|| Failure::of(&error));
        }
    }
}

impl Drop for Begun {
    fn drop(&mut self) {
        lock(&self.writes.state).open.remove(&self.number);
        self.writes.confirmed.notify_all();
    }
}

const NO_STATUS: &str = "the server answers a WRITE with something else than its status";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::codec::Status;

    #[test]
    fn the_first_failure_stays_and_a_write_that_was_never_sent_is_not_waited_for() {
        let writes = Arc::new(Writes::default());
        let (one, two, three) = (writes.begin().unwrap(), writes.begin().unwrap(), writes.begin().unwrap());
        let status = |code| Ok(Reply::Status(Status { code, text: String::new() }));
        one(status(Status::OK));
        two(status(Status::PERMISSION_DENIED));
        drop(three);
        for _ in 0..2 {
            assert_eq!(writes.wait().unwrap_err().kind(), io::ErrorKind::PermissionDenied);
        }
        assert!(writes.begin().is_err());
    }

    #[test]
    fn who_waits_does_not_wait_for_what_begins_later() {
        let writes = Arc::new(Writes::default());
        let earlier = writes.begin().unwrap();
        let end = writes.begun();
        let _later = writes.begin().unwrap();
        earlier(Ok(Reply::Status(Status { code: Status::OK, text: String::new() })));
        writes.wait_for(end).unwrap();
    }
}
