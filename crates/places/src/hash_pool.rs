//! Hashes named files of a tree on several threads.

use std::collections::VecDeque;
use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::thread::JoinHandle;

use haul_job::{Error, Fault};
use haul_store::{LocalTree, PlaceTree, StoreError};
use haul_wire::hashed::{FileFound, WantedFile};

use super::elsewhere::lost_end;

use haul_channel::convert;
use haul_kept::files::digest::{self, Read};
use haul_kept::sync::lock;

pub type Done = Box<dyn Fn(u64, FileFound) + Send + Sync>;

/// Dropping the pool ends its threads after their block.
pub(crate) struct HashPool {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

pub enum Files {
    Here(Box<LocalTree>),
    Elsewhere { tree: Arc<dyn PlaceTree>, directory: Vec<u8> },
}

struct Shared {
    files: Files,
    done: Done,
    state: Mutex<State>,
    filled: Condvar,
    is_over: AtomicBool,
    bytes: AtomicU64,
    lost: Mutex<Option<Error>>,
}

#[derive(Default)]
struct State {
    queue: VecDeque<(u64, WantedFile)>,
    open: Open,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Open {
    pub files: usize,
    pub bytes: usize,
}

impl HashPool {
    pub fn start(files: Files, threads: usize, done: Done) -> Result<Self, Error> {
        let (state, filled) = (Mutex::default(), Condvar::new());
        let (is_over, bytes) = (AtomicBool::new(false), AtomicU64::new(0));
        let shared = Shared { files, done, state, filled, is_over, bytes, lost: Mutex::default() };
        let mut pool = Self { shared: Arc::new(shared), threads: Vec::new() };
        for _ in 0..threads.clamp(1, MAX_THREADS) {
            let shared = Arc::clone(&pool.shared);
            let started = std::thread::Builder::new().name("hash".into()).spawn(move || shared.work());
            let thread = started.map_err(|error| Error::new(Fault::FileIo, "cannot start a thread").because(error))?;
            pool.threads.push(thread);
        }
        Ok(pool)
    }

    /// The caller bounds the open files.
    pub fn put(&self, number: u64, wanted: WantedFile) {
        let mut state = lock(&self.shared.state);
        state.open.files += 1;
        state.open.bytes += wanted.weight_bytes();
        state.queue.push_back((number, wanted));
        drop(state);
        self.shared.filled.notify_one();
    }

    pub fn open(&self) -> Open {
        lock(&self.shared.state).open
    }

    pub fn bytes(&self) -> u64 {
        self.shared.bytes.load(Ordering::Relaxed)
    }

    /// Fails once the end is lost.
    pub fn check(&self) -> Result<(), Error> {
        lock(&self.shared.lost).clone().map_or(Ok(()), Err)
    }
}

impl Drop for HashPool {
    fn drop(&mut self) {
        // Without the lock a thread could miss the end before its wait.
        let state = lock(&self.shared.state);
        self.shared.is_over.store(true, Ordering::Relaxed);
        drop(state);
        self.shared.filled.notify_all();
        // A thread may wait for a server.
        if matches!(self.shared.files, Files::Elsewhere { .. }) {
            return;
        }
        for thread in self.threads.drain(..) {
            // The panic hook has reported a panic.
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
                Err(error) => {
                    self.note_lost(&wanted, &error);
                    found_instead(&error)
                }
            };
            let mut state = lock(&self.state);
            state.open.files -= 1;
            state.open.bytes -= wanted.weight_bytes();
            drop(state);
            (self.done)(number, found);
        }
    }

    fn note_lost(&self, wanted: &WantedFile, error: &io::Error) {
        let copy = io::Error::new(error.kind(), error.to_string());
        let error = StoreError::new("read", wanted.path.as_bytes(), copy);
        if matches!(self.files, Files::Elsewhere { .. }) && error.is_lost() {
            lock(&self.lost).get_or_insert_with(|| lost_end(&error));
        }
    }

    fn read(&self, wanted: &WantedFile, buffer: &mut [u8]) -> io::Result<Read> {
        let path = wanted.path.as_bytes();
        let file = match &self.files {
            Files::Here(tree) => tree.open_file(path).map_err(|error| error.source)?,
            Files::Elsewhere { tree, directory } => tree.open_beneath(directory, path)?,
        };
        digest::read(&file, wanted, buffer, |bytes| {
            self.bytes.fetch_add(bytes, Ordering::Relaxed);
            !self.is_over()
        })
    }
}

fn found_instead(error: &io::Error) -> FileFound {
    match error.kind() {
        io::ErrorKind::NotFound => FileFound::Missing,
        // NotADirectory: a component is a file or a link (or ELOOP). InvalidInput: the store refuses the last component. ENXIO: a
        // socket.
        io::ErrorKind::NotADirectory | io::ErrorKind::InvalidInput => FileFound::NotAFile,
        _ if matches!(error.raw_os_error(), Some(ELOOP | ENXIO)) => FileFound::NotAFile,
        _ => FileFound::Unreadable { why: convert::bounded(error) },
    }
}

/// A block makes system calls cheap, and fits a shared cache.
const BLOCK_BYTES: usize = 1024 * 1024;

/// Each thread has a block.
const MAX_THREADS: usize = 64;

/// `std` does not name these errors, the same on all of Rust's architectures but MIPS and SPARC.
const ELOOP: i32 = 40;
const ENXIO: i32 = 6;
