//! Threads for work that may wait for a disk, or for a processor.
//!
//! ```text
//! disk      opens paths and reads blocks: many threads, for each waits for one call
//! listings  pages of directories: as many as there is memory for, a few at a time
//! hashing   digests and manifests: a few at a time, in turns of some hundred megabytes
//! ```
//! A job has a place before it begins, and asks between two steps whether its reader has left. A job that a file system keeps
//! silent for long keeps its thread and loses its place.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::{Duration, Instant};

use tokio::runtime::{Builder, Handle, Runtime};
use tokio::task::JoinHandle;

use crate::access::ShelfThreads;
use crate::budget::{Bounds, Budget, Claimant, NoShare, Share};
use crate::limits;

pub(crate) struct Pools {
    pub(crate) disk: Arc<Pool>,
    pub(crate) listings: Arc<Pool>,
    pub(crate) hashing: Arc<Pool>,
    pub(crate) shelves: Arc<Pool>,
    pub(crate) hash_jobs: Arc<Budget>,
    pub(crate) tars: Arc<Budget>,
    /// In KiB.
    pub(crate) pages: Arc<Budget>,
    /// In KiB.
    pub(crate) blocks: Arc<Budget>,
    /// Files open for streams of HTTP/2.
    pub(crate) streams: Arc<Budget>,
}

pub(crate) struct Pool {
    places: Arc<Budget>,
    of_shelf: fn(&ShelfThreads) -> &Arc<Budget>,
    threads: Option<Runtime>,
    begun: Instant,
    running: Mutex<Vec<Weak<Job>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Busy;

pub(crate) struct Job {
    pool: Weak<Pool>,
    claimant: Claimant,
    has_left: AtomicBool,
    heard_ms: AtomicU64,
    place: Mutex<Option<Share>>,
}

/// The reader, and the directory whose file system the job may wait for.
#[derive(Clone)]
pub(crate) struct Client {
    pub(crate) claimant: Claimant,
    pub(crate) threads: ShelfThreads,
}

impl Pools {
    pub(crate) fn new() -> io::Result<Pools> {
        let in_kib = |bytes: usize| bytes / KIB;
        let memory = |bytes: usize, of_connection: usize, waiting: usize| {
            Budget::new(Bounds {
                all: in_kib(bytes),
                per_source: in_kib(bytes) / limits::SOURCES_SHARE,
                per_connection: in_kib(of_connection),
                waiting,
            })
        };
        let (waiting, bodies) = (limits::MAX_WAITING, limits::MAX_WAITING_BODIES);
        let places = |all: usize, per_source: usize, per_connection: usize| Bounds {
            all,
            per_source,
            per_connection,
            waiting: limits::MAX_WAITING,
        };
        let of = limits::DISK_THREADS / 3;
        let listings = limits::LISTINGS_AT_ONCE;
        let hashing = limits::HASHING_AT_ONCE;
        let (jobs, tars) = (limits::HASH_JOBS, limits::TARS_AT_ONCE);
        // The other half is for connections and all else.
        let files = haul_sys::process::open_file_limit().and_then(|limit| usize::try_from(limit / 2).ok());
        let files = files.unwrap_or(MAX_STREAM_FILES).clamp(MIN_STREAM_FILES, MAX_STREAM_FILES);
        Ok(Pools {
            disk: Pool::new("web-disk", places(limits::DISK_THREADS, of, of / 2), limits::DISK_THREADS, |it| &it.disk)?,
            shelves: Pool::new("web-open", places(limits::SHELF_THREADS, of, of), limits::SHELF_THREADS, |it| {
                &it.disk
            })?,
            listings: Pool::new(
                "web-list",
                places(listings, listings, listings),
                listings + limits::STUCK_THREADS,
                |it| &it.listings,
            )?,
            hashing: Pool::new("web-hash", places(hashing, hashing, hashing), jobs + limits::STUCK_THREADS, |it| {
                &it.hashing
            })?,
            hash_jobs: Budget::new(places(jobs, jobs / limits::SOURCES_SHARE, jobs / limits::SOURCES_SHARE / 2)),
            tars: Budget::new(places(tars, tars / limits::SOURCES_SHARE, tars / limits::SOURCES_SHARE / 2)),
            pages: memory(limits::PAGE_MEMORY_BYTES, limits::PAGE_MEMORY_OF_CONNECTION_BYTES, waiting),
            blocks: memory(limits::BODY_MEMORY_BYTES, limits::BODY_MEMORY_OF_CONNECTION_BYTES, bodies),
            streams: Budget::new(Bounds { waiting: bodies, ..places(files, files / 2, limits::MAX_STREAMS as usize) }),
        })
    }
}

pub(crate) const KIB: usize = 1 << 10;

/// With fewer than twice as many descriptors the service would be of little use.
const MIN_STREAM_FILES: usize = 256;
/// Four times the connections. One address has half: 327 connections with all streams.
const MAX_STREAM_FILES: usize = 65_536;

impl Pool {
    fn new(
        name: &str,
        places: Bounds,
        threads: usize,
        of_shelf: fn(&ShelfThreads) -> &Arc<Budget>,
    ) -> io::Result<Arc<Pool>> {
        // Nothing runs here: the runtime only has threads for blocking work.
        let runtime = Builder::new_current_thread().max_blocking_threads(threads).thread_name(name).build()?;
        Ok(Arc::new(Pool {
            places: Budget::new(places),
            of_shelf,
            threads: Some(runtime),
            begun: Instant::now(),
            running: Mutex::default(),
        }))
    }

    /// Runs work in its turn. If this future is dropped, the job is told.
    pub(crate) async fn run<T: Send + 'static>(
        self: &Arc<Pool>,
        client: &Client,
        patience: Duration,
        work: impl FnOnce(&Job) -> io::Result<T> + Send + 'static,
    ) -> Result<io::Result<T>, Busy> {
        let begun = Instant::now();
        let of_shelf = (self.of_shelf)(&client.threads);
        let thread = of_shelf.take(&client.claimant, 1, patience).await.map_err(|_| Busy)?;
        let place = self.place(&client.claimant, patience).await.ok_or(Busy)?;
        let job = self.job(client.claimant.clone(), Some(place));
        let guard = Leaving(Arc::clone(&job));
        let work = self.begin(job, Some(thread), work);
        let left = patience.saturating_sub(begun.elapsed()).max(MIN_PATIENCE);
        let outcome = tokio::time::timeout(left, work).await.map_err(|_| Busy)?;
        drop(guard);
        Ok(outcome.unwrap_or_else(|failed| Err(io::Error::other(failed))))
    }

    pub(crate) fn begin<T: Send + 'static>(
        &self,
        job: Arc<Job>,
        thread: Option<Share>,
        work: impl FnOnce(&Job) -> io::Result<T> + Send + 'static,
    ) -> JoinHandle<io::Result<T>> {
        self.handle().spawn_blocking(move || {
            let outcome = match job.goes_on() {
                Ok(()) => work(&job),
                Err(left) => Err(left),
            };
            drop(thread);
            outcome
        })
    }

    pub(crate) fn try_begin<T: Send + 'static>(
        self: &Arc<Pool>,
        claimant: &Claimant,
        work: impl FnOnce() -> io::Result<T> + Send + 'static,
    ) -> Option<JoinHandle<io::Result<T>>> {
        let place = self.places.try_take(claimant, 1)?;
        Some(self.begin(self.job(claimant.clone(), Some(place)), None, move |_| work()))
    }

    async fn place(&self, claimant: &Claimant, patience: Duration) -> Option<Share> {
        let begun = Instant::now();
        loop {
            self.pass_over_silent_jobs();
            let left = patience.checked_sub(begun.elapsed())?;
            match self.places.take(claimant, 1, left.min(limits::JOB_SILENT)).await {
                Ok(place) => return Some(place),
                Err(NoShare::TooMany) => return None,
                Err(NoShare::Late) => {}
            }
        }
    }

    pub(crate) fn job(self: &Arc<Pool>, claimant: Claimant, place: Option<Share>) -> Arc<Job> {
        let job = Arc::new(Job {
            pool: Arc::downgrade(self),
            claimant,
            has_left: AtomicBool::new(false),
            heard_ms: AtomicU64::new(self.now_ms()),
            place: Mutex::new(place),
        });
        let mut running = self.running.lock().unwrap_or_else(PoisonError::into_inner);
        if running.len() >= 2 * limits::DISK_THREADS {
            running.retain(|job| job.strong_count() > 0);
        }
        running.push(Arc::downgrade(&job));
        job
    }

    fn pass_over_silent_jobs(&self) {
        let now_ms = self.now_ms();
        let mut silent = Vec::new();
        self.running.lock().unwrap_or_else(PoisonError::into_inner).retain(|job| {
            let Some(job) = job.upgrade() else { return false };
            let heard = Duration::from_millis(now_ms.saturating_sub(job.heard_ms.load(Ordering::Relaxed)));
            if heard >= limits::JOB_SILENT {
                silent.push(job);
            }
            true
        });
        for job in silent {
            drop(job.lock().take());
        }
    }

    fn handle(&self) -> &Handle {
        self.threads.as_ref().expect("it is there until it is dropped").handle()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }
}

/// Does not wait for the threads: one may wait for a dead disk.
impl Drop for Pool {
    fn drop(&mut self) {
        if let Some(threads) = self.threads.take() {
            threads.shutdown_background();
        }
    }
}

/// A century, for readers who wait as long as it takes.
pub(crate) const FOREVER: Duration = Duration::from_secs(100 * 365 * 86_400);

/// The time left to a job that got its place at the last moment.
const MIN_PATIENCE: Duration = Duration::from_millis(100);

impl Job {
    /// Whether to go on, asked between two steps.
    ///
    /// # Errors
    /// The outcome is unwanted.
    pub(crate) fn goes_on(&self) -> io::Result<()> {
        if let Some(pool) = self.pool.upgrade() {
            self.heard_ms.store(pool.now_ms(), Ordering::Relaxed);
        }
        match self.has_left.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::BrokenPipe.into()),
            false => Ok(()),
        }
    }

    #[cfg(test)]
    pub(crate) fn for_test() -> Job {
        let watchdog = Arc::new(crate::transport::line::watchdog::Watchdog::new(limits::Limits::default()));
        let line = crate::transport::line::Line::new(&watchdog, false);
        Job {
            pool: Weak::new(),
            claimant: Claimant { source: std::net::Ipv4Addr::LOCALHOST.into(), line },
            has_left: AtomicBool::new(false),
            heard_ms: AtomicU64::new(0),
            place: Mutex::new(None),
        }
    }

    pub(crate) fn leave(&self) {
        self.has_left.store(true, Ordering::Relaxed);
    }

    /// Lets another job have its turn.
    ///
    /// # Errors
    /// Too many wait, or the outcome is unwanted.
    pub(crate) fn takes_turns(&self) -> io::Result<()> {
        if self.pool.upgrade().is_some_and(|pool| pool.places.is_wanted()) {
            self.rests();
        }
        self.resumes()
    }

    /// Gives the place back while the job waits for its reader.
    pub(crate) fn rests(&self) {
        drop(self.lock().take());
    }

    /// Takes a place again, with the errors of [`Job::takes_turns`].
    pub(crate) fn resumes(&self) -> io::Result<()> {
        let has_place = self.lock().is_some();
        if !has_place && let Some(pool) = self.pool.upgrade() {
            let place = pool.places.wait(&self.claimant, 1);
            *self.lock() = Some(place.ok_or(io::ErrorKind::ResourceBusy)?);
        }
        self.goes_on()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Option<Share>> {
        self.place.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Tells a job, when dropped, that its reader has left.
pub(crate) struct Leaving(Arc<Job>);

impl Leaving {
    pub(crate) fn new(job: &Arc<Job>) -> Leaving {
        Leaving(Arc::clone(job))
    }
}

impl Drop for Leaving {
    fn drop(&mut self) {
        self.0.leave();
    }
}
