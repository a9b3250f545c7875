//! Who asks, and which directory the asker reads.

use std::fmt;
use std::sync::Arc;

use haul_store::Published;

use crate::budget::{Bounds, Budget};
use crate::limits::{DISK_THREADS, HASH_JOBS, MAX_WAITING, STUCK_THREADS, TARS_AT_ONCE};

use crate::token::Number;

/// The asker, as far as connection and request prove it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// An asker without proof.
    Anyone,
    /// The holder of the certificate with this SHA-256.
    Certificate([u8; 32]),
    /// The holder of a token for this line of the list.
    Token(String),
}

/// A directory for an asker.
pub struct Shelf {
    /// The directory.
    pub directory: Published,
    /// The reader's name in the log.
    pub name: String,
    /// Whether a line of the list grants the directory.
    pub(crate) is_of_line: bool,
    pub(crate) threads: ShelfThreads,
}

/// Bounds the threads that wait for a shelf's file systems: a dead one holds up only its own readers.
#[derive(Clone, Debug)]
pub(crate) struct ShelfThreads {
    pub(crate) disk: Arc<Budget>,
    pub(crate) listings: Arc<Budget>,
    pub(crate) hashing: Arc<Budget>,
    pub(crate) tars: Arc<Budget>,
}

impl Shelf {
    /// Names a directory for the log.
    pub fn new(directory: Published, name: String) -> Shelf {
        let half = |threads| {
            let all = threads / 2;
            Budget::new(Bounds { all, per_source: all, per_connection: all, waiting: MAX_WAITING })
        };
        let threads = ShelfThreads {
            disk: half(DISK_THREADS),
            listings: half(STUCK_THREADS),
            hashing: half(HASH_JOBS),
            tars: half(TARS_AT_ONCE),
        };
        Shelf { directory, name, is_of_line: false, threads }
    }

    /// Marks the shelf as granted by a line of the list.
    #[must_use]
    pub fn of_line(self) -> Shelf {
        Shelf { is_of_line: true, ..self }
    }
}

/// The answer about an asker's directory.
pub enum Lookup {
    /// The directory. `None`: this asker may read nothing.
    Found(Option<Arc<Shelf>>),
    /// The directory, due to be opened again for later requests.
    Aged(Option<Arc<Shelf>>),
    /// The directory is not open yet.
    Unopened,
}

/// Decides who may read what.
pub trait Access: Send + Sync + 'static {
    /// Looks up an asker's directory. Runs for each request, so it waits for a small file at most.
    fn look_up(&self, asker: &Asker) -> Lookup;

    /// Returns the work that opens the directory and may wait for a disk. `None`: another thread does it.
    fn open(self: Arc<Self>, asker: &Asker) -> Option<Box<dyn FnOnce() + Send>>;

    /// Whether the operator has revoked a token. Runs for each request, like [`Access::look_up`].
    fn is_revoked(&self, _: Number) -> bool {
        false
    }

    /// Whether readers are asked for a certificate; they need none.
    fn knows_certificates(&self) -> bool {
        false
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("name", &self.name).finish_non_exhaustive()
    }
}
