//! Threads that hash the files of a tree that are named one by one.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use haul_job::{Error, Fault};
use haul_store::LocalTree;
use haul_wire::hashed::{FileFound, WantedFile};

use crate::files::digest::{self, Read};
use crate::session::convert;
use crate::sync::lock;

/// Takes what was found of the file with a number. Called by the threads.
pub(super) type Done = Box<dyn Fn(u64, FileFound) + Send + Sync>;

/// The threads. They end when it is dropped, after the block that they read.
pub(super) struct HashPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

struct Shared {
    tree: LocalTree,
    done: Done,
    state: Mutex<State>,
    filled: Condvar,
    is_over: AtomicBool,
    bytes: AtomicU64,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, WantedFile)>,
    /// Files that have no answer yet, and what they take.
    open: Open,
}

/// Files that have no answer yet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Open {
    pub(super) files: usize,
    pub(super) bytes: usize,
}

impl HashPool {
    pub(super) fn start(tree: LocalTree, threads: usize, done: Done) -> Result<Self, Error> {
        let (state, filled) = (Mutex::default(), Condvar::new());
        let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let mut pool =
            Self { shared: Arc::new(Shared { tree, done, state, filled, is_over, bytes }), threads: Vec::new() };
        for _ in 0..threads.clamp(1, MAX_THREADS) {
            let shared = Arc::clone(&pool.shared);
            let started = std::thread::Builder::new().name("hash".into()).spawn(move || shared.work());
            let thread = started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// The caller bounds what is open.
    pub(super) fn put(&self, number: u64, wanted: WantedFile) {
        let mut state = lock(&self.shared.state);
        state.open.files += 1;
        state.open.bytes += wanted.weight_bytes();
        state.queue.push_back((number, wanted));
        drop(state);
        self.shared.filled.notify_one();
    }

    pub(super) fn open(&self) -> Open {
        lock(&self.shared.state).open
    }

    /// Read so far.
    pub(super) fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }
}

impl Drop for HashPool {
    fn drop(&mut self) {
        // Under the lock: a thread that is about to wait hears it.
        let state = lock(&self.shared.state);
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.shared.filled.notify_all();
        for thread in self.threads.drain(..) {
            // A thread that panicked has said so.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn is_over(&self) -> bool {
        self.is_over.load(Ordering::Relaxed)
    }

    fn next(&self) -> Option<(u64, WantedFile)> {
        let mut state = lock(&self.state);
        loop {
            if self.is_over() {
                return None;
            }
            match state.queue.pop_front() {
                Some(next) => return Some(next),
                None => state = self.filled.wait(state).unwrap_or_else(std::sync::PoisonError::into_inner),
            }
        }
    }

    fn work(&self) {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Some((number, wanted)) = self.next() {
            let found = match self.read(&wanted, &mut buffer) {
                Ok(Read::All(size, hash, or)) => FileFound::Hashed { size, hash, or },
                Ok(Read::OtherSize(size)) => FileFound::OtherSize { size },
                Ok(Read::Stopped) => return,
                Err(error) => found_instead(&error),
            };
            let mut state = lock(&self.state);
            state.open.files -= 1;
            state.open.bytes -= wanted.weight_bytes();
            drop(state);
            (self.done)(number, found);
        }
    }

    fn read(&self, wanted: &WantedFile, buffer: &mut [u8]) -> io::Result<Read> {
        let file = self.tree.open_file(wanted.path.as_bytes()).map_err(|error| error.source)?;
        digest::read(&file, wanted, buffer, |bytes| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            !self.is_over()
        })
    }
}

fn found_instead(error: &io::Error) -> FileFound {
    match error.kind() {
        io::ErrorKind::NotFound => FileFound::Missing,
        // A component is a file or a link (which of the two errors comes depends on the kernel), the last one something
        // else than a file (refused by the store), or a socket (ENXIO).
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => FileFound::NotAFile,
        _ if matches!(error.raw_os_error(), Some(ELOOP | ENXIO)) => FileFound::NotAFile,
        _ => FileFound::Unreadable { why: convert::bounded(error) },
    }
}

/// One read. Large enough that the system call does not count, small enough to stay in the cache of a core's neighbourhood.
const BLOCK_BYTES: usize = 1024 * 1024;

/// More than the processors of a large host; each has a block.
const MAX_THREADS: usize = 64;

/// Numbers of Linux errors that `std` has no name for; the same on every architecture that Rust supports but MIPS and SPARC.
const ELOOP: i32 = 40;
const ENXIO: i32 = 6;
