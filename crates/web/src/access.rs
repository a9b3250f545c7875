//! Who asks, and which directory the asker reads.

use std::fmt;
use std::sync::Arc;

use haul_store::Published;

use crate::budget::{Bounds, Budget};
use crate::limits::{DISK_THREADS, HASH_JOBS, MAX_WAITING, STUCK_THREADS, TARS_AT_ONCE};

use crate::token::Number;

/// The asker, as far as the connection and the request prove it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Asker {
    /// Somebody without any proof.
    Anyone,
    /// The holder of the certificate with this SHA-256 fingerprint, proved in the handshake.
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
    /// Whether it is for the holder of a line of the list, and not for anybody.
    pub(crate) is_of_line: bool,
    pub(crate) threads: ShelfThreads,
}

/// Bounds the threads that may wait for a shelf's file systems, so that a dead one keeps only its own readers from
/// work.
#[derive(Clone, Debug)]
pub(crate) struct ShelfThreads {
    pub(crate) disk: Arc<Budget>,
    pub(crate) listings: Arc<Budget>,
    pub(crate) hashing: Arc<Budget>,
    pub(crate) tars: Arc<Budget>,
}

impl Shelf {
    /// A directory with its name for the log.
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

    /// Marks the shelf as one for the holder of a line of the list.
    #[must_use]
    pub fn of_line(self) -> Shelf {
        Shelf { is_of_line: true, ..self }
    }
}

/// The answer about an asker's directory.
pub enum Lookup {
    /// The directory. `None`: this asker may read nothing.
    Found(Option<Arc<Shelf>>),
    /// The directory, which should be opened again for the requests that follow.
    Aged(Option<Arc<Shelf>>),
    /// The directory has to be opened, or is being opened.
    Unopened,
}

/// Decides who may read what.
pub trait Access: Send + Sync + 'static {
    /// Looks up the directory of an asker. Runs for each request, so it waits for nothing but a small file.
    fn look_up(&self, asker: &Asker) -> Lookup;

    /// Returns the work that opens the directory of an asker, and may wait for a disk. `None`: another thread does it
    /// already.
    fn open(self: Arc<Self>, asker: &Asker) -> Option<Box<dyn FnOnce() + Send>>;

    /// Whether the operator has revoked a token. Runs for each request with a token, and waits for nothing but a small
    /// file.
    fn is_revoked(&self, _: Number) -> bool {
        false
    }

    /// Whether any certificate is known: then readers are asked for one, and may have none.
    fn knows_certificates(&self) -> bool {
        false
    }
}

impl fmt::Debug for Shelf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Shelf").field("name", &self.name).finish_non_exhaustive()
    }
}
