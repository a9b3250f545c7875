//! The journal of a draft: a file beside the draft, at the server. So a later run finds it, from whichever host.
//!
//! ```text
//!   number of the draft (16) | what the receiver writes
//! ```

use std::io;
use std::sync::{Arc, Mutex};

use haul_store::Journal;

use super::tree::{Matter, Tree, lock};
use crate::codec::Attributes;
use crate::limits::MAX_JOURNAL_BYTES;
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

/// The number of the draft stands in front.
const PREFIX_BYTES: usize = 16;

impl ServerJournal {
    pub(super) fn new(tree: Arc<Tree>, server_path: Vec<u8>, id: (u64, u64)) -> Self {
        Self { tree, server_path, id, state: Mutex::new(State::Nothing) }
    }

    /// Opens the journal that an earlier run left, with the number of its draft; `None`: there is none of ours.
    pub(super) fn resume(tree: &Arc<Tree>, server_path: Vec<u8>) -> io::Result<Option<(Self, Vec<u8>)>> {
        let Some((handle, attributes)) = tree.open_own(&server_path)? else { return Ok(None) };
        let size = attributes.size.unwrap_or(0);
        if size > MAX_JOURNAL_BYTES + PREFIX_BYTES as u64 {
            return Ok(None);
        }
        let mut bytes = vec![0; size as usize];
        let read = handle.read_pipelined(&mut bytes, 0)?;
        bytes.truncate(read);
        let Some((prefix, journal)) = bytes.split_first_chunk::<PREFIX_BYTES>() else { return Ok(None) };
        let number = u128::from_le_bytes(*prefix);
        let id = (number as u64, (number >> 64) as u64);
        let state = Mutex::new(State::Open { handle, bytes: read as u64 });
        Ok(Some((Self { tree: Arc::clone(tree), server_path, id, state }, journal.to_vec())))
    }

    pub(super) fn id(&self) -> (u64, u64) {
        self.id
    }

    pub(super) fn has_begun(&self) -> bool {
        matches!(*lock(&self.state), State::Open { .. })
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

impl Journal for ServerJournal {
    fn begin(&self, header: &[u8], begun: &mut dyn FnMut()) -> io::Result<()> {
        let mut state = lock(&self.state);
        if matches!(*state, State::Ended) {
            return Err(io::Error::new(io::ErrorKind::NotFound, "its draft was given up meanwhile"));
        }
        let number = u128::from(self.id.0) | u128::from(self.id.1) << 64;
        let whole = [&number.to_le_bytes(), header].concat();
        if matches!(*state, State::Nothing) {
            *state = State::Open { handle: self.tree.make_own(&self.tree.server(), &self.server_path)?, bytes: 0 };
        }
        let State::Open { handle, bytes } = &mut *state else { unreachable!("it was opened") };
        // At every moment it has a valid header, the old or the new one; records of another header are ignored.
        handle.write_at(&whole, 0)?;
        if *bytes > whole.len() as u64 {
            handle.fsetstat(&Attributes { size: Some(whole.len() as u64), ..Attributes::default() })?;
        }
        *bytes = whole.len() as u64;
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
        handle.write_at(record, *bytes)?;
        *bytes += record.len() as u64;
        self.flush(handle)
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
