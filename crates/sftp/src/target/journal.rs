//! The journal of a draft: a file beside the draft, at the server. So a later run finds it, from whichever host.
//!
//! ```text
//!   number of the draft (16) | process that writes it (36) | what the receiver writes
//! ```
//! A server has no locks, so the process says who may write the draft. A later run goes on only if that process is surely dead, or was
//! silent for long. Whoever goes on takes the journal's name away for a moment: a rename has one winner.

use std::io;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_store::{Journal, journal_name};
use haul_sys::process_identity::{Liveness, ProcessIdentity};

use super::tree::{Matter, Tree, is_missing, lock, sibling, unique};
use crate::codec::Attributes;
use crate::limits::{ALIVE_FOR, MAX_JOURNAL_BYTES};
use crate::server::Handle;

/// The journal of one draft.
#[derive(Debug)]
pub(super) struct ServerJournal {
    tree: Arc<Tree>,
    server_path: Vec<u8>,
    id: (u64, u64),
    state: Mutex<State>,
}

#[derive(Debug)]
enum State {
    Nothing,
    Open {
        handle: Handle,
        bytes: u64,
    },
    /// The draft was given up, or has its name.
    Ended,
}

/// The number of the draft, and its process, stand in front.
const PREFIX_BYTES: usize = NUMBER_BYTES + ProcessIdentity::BYTES;
const NUMBER_BYTES: usize = 16;

impl ServerJournal {
    pub(super) fn new(tree: Arc<Tree>, server_path: Vec<u8>, id: (u64, u64)) -> Self {
        Self { tree, server_path, id, state: Mutex::new(State::Nothing) }
    }

    /// Opens the journal that an earlier run left, with the number of its draft; `None`: there is none of ours. It has to be taken over
    /// before the draft is written.
    pub(super) fn resume(tree: &Arc<Tree>, server_path: Vec<u8>) -> io::Result<Option<(Self, Left)>> {
        let Some((handle, attributes)) = tree.open_own(&server_path)? else { return Ok(None) };
        let size = attributes.size.unwrap_or(0);
        if size > MAX_JOURNAL_BYTES + PREFIX_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        let read = handle.read_pipelined(&mut bytes, 0)?;
        bytes.truncate(read);
        let Some((number, rest)) = bytes.split_first_chunk::<NUMBER_BYTES>() else { return Ok(None) };
        let Some((process, records)) = rest.split_first_chunk() else { return Ok(None) };
        let number = u128::from_le_bytes(*number);
        let id = (number as u64, (number >> 64) as u64);
        let left = Left { writer: ProcessIdentity::from_bytes(process), attributes, records: records.to_vec() };
        let state = Mutex::new(State::Open { handle, bytes: read as u64 });
        Ok(Some((Self { tree: Arc::clone(tree), server_path, id, state }, left)))
    }

    /// Makes this process the one that writes the draft, if no other one may still do so.
    pub(super) fn take_over(&self, left: &Left, draft: &Attributes) -> io::Result<()> {
        let state = lock(&self.state);
        let State::Open { handle, .. } = &*state else { return Ok(()) };
        if self.check_dead(left, draft)? == Liveness::Own {
            return Ok(());
        }
        let (server, claimed) = (handle.server(), unique(&self.server_path, journal_name)?);
        // Of several that want to go on, one gets the name.
        server.rename(&self.server_path, &claimed).map_err(|error| match is_missing(&error) {
            true => io::Error::new(io::ErrorKind::WouldBlock, "another haul begins to write this file"),
            false => error,
        })?;
        let written = handle.write_at(&own_process(), NUMBER_BYTES as u64);
        // Nobody writes there any more if the name cannot be given back.
        let back = server.rename(&claimed, &self.server_path).inspect_err(|_| server.remove_some_time(&claimed));
        written.and(back)
    }

    /// Fails if a living process may write the draft.
    pub(super) fn check_dead(&self, left: &Left, draft: &Attributes) -> io::Result<Liveness> {
        let liveness = left.writer.liveness();
        let why = match liveness {
            Liveness::Own | Liveness::Dead => return Ok(liveness),
            Liveness::Alive(process) => format!("another haul (process {process}) is writing this file"),
            Liveness::Elsewhere => {
                let written = |attributes: &Attributes| attributes.times.map(|times| times.1);
                let directory = sibling(&self.server_path, b".");
                let (last, now) =
                    (written(&left.attributes).max(written(draft)), written(&self.tree.probe(&directory)?));
                let (Some(last), Some(now)) = (last, now) else { return Ok(liveness) };
                let silent = Duration::from_secs(now.saturating_sub(last).into());
                if silent >= ALIVE_FOR {
                    return Ok(liveness);
                }
                let (silent, left) = (silent.as_secs(), (ALIVE_FOR - silent).as_secs());
                format!("a haul of another host wrote this file {silent} s ago; if it is dead, try again in {left} s")
            }
        };
        Err(io::Error::new(io::ErrorKind::WouldBlock, why))
    }

    pub(super) fn id(&self) -> (u64, u64) {
        self.id
    }

    pub(super) fn has_begun(&self) -> bool {
        matches!(*lock(&self.state), State::Open { .. })
    }

    /// Removes the journal of a draft that has its name. Nobody waits for it: without its draft, it is no harm.
    pub(super) fn remove_later(&self) {
        if let State::Open { .. } = std::mem::replace(&mut *lock(&self.state), State::Ended) {
            self.tree.remove_later(&self.server_path);
        }
    }

    fn write_and_flush(&self, handle: &Handle, data: &[u8], offset: u64, written: &mut dyn FnMut()) -> io::Result<()> {
        if handle.server().features().fsync {
            return handle.write_and_flush(data, offset, written);
        }
        handle.write_at(data, offset)?;
        written();
        self.flush(handle)
    }

    fn flush(&self, handle: &Handle) -> io::Result<()> {
        match handle.server().features().fsync {
            true => handle.fsync(),
            false => {
                self.tree.tell(Matter::Flushes);
                Ok(())
            }
        }
    }
}

/// What an earlier run left in a journal.
#[derive(Debug)]
pub(super) struct Left {
    pub(super) writer: ProcessIdentity,
    /// Of the journal.
    pub(super) attributes: Attributes,
    pub(super) records: Vec<u8>,
}

/// Without /proc nobody can be told from anybody.
fn own_process() -> [u8; ProcessIdentity::BYTES] {
    ProcessIdentity::own().map_or([0; ProcessIdentity::BYTES], |own| own.to_bytes())
}

impl Journal for ServerJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Ended) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its draft was given up meanwhile"));
        }
        let number = u128::from(self.id.0) | u128::from(self.id.1) << 64;
        let whole = [&number.to_le_bytes()[..], &own_process(), header].concat();
        if matches!(*state, State::Nothing) {
            // The removal of an earlier journal must not meet this one.
            self.tree.await_removals();
            *state =
                State::Open { handle: self.tree.make_own(&self.tree.pool().quiet(), &self.server_path)?, bytes: 0 };
        }
        let State::Open { handle, bytes } = &mut *state else { unreachable!("it was opened") };
        // At every moment it has a valid header, the old or the new one; records of another header are ignored.
        let now = whole.len() as u64;
        if *bytes <= now {
            self.write_and_flush(handle, &whole, 0, begun)?;
            *bytes = now;
            return Ok(());
        }
        handle.write_at(&whole, 0)?;
        handle.fsetstat(&Attributes { size: Some(now), ..Attributes::default() })?;
        *bytes = now;
        begun();
        self.flush(handle)
    }

    fn append(&self, record: &[u8]) -> io::Result<()> {
        let mut state = lock(&self.state);
        let State::Open { handle, bytes } = &mut *state else {
            return Err(io::Error::new(io::ErrorKind::NotFound, "it has no journal"));
        };
        if bytes.saturating_add(record.len() as u64) > MAX_JOURNAL_BYTES {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.write_and_flush(handle, record, *bytes, &mut || ())?;
        *bytes += record.len() as u64;
        Ok(())
    }

    fn keep(&self, len: u64) -> io::Result<()> {
        let mut state = lock(&self.state);
        let State::Open { handle, bytes } = &mut *state else { return Ok(()) };
        let len = len.saturating_add(PREFIX_BYTES as u64);
        if *bytes != len {
            handle.fsetstat(&Attributes { size: Some(len), ..Attributes::default() })?;
            *bytes = len;
            self.flush(handle)?;
        }
        Ok(())
    }

    fn remove(&self) -> io::Result<()> {
        let before = std::mem::replace(&mut *lock(&self.state), State::Ended);
        match before {
            State::Open { .. } => self.tree.server().remove(&self.server_path),
            State::Nothing | State::Ended => Ok(()),
        }
    }
}
