//! While the far side is still being reached, the bytes of the sources are counted, and files that lie in memory are hashed.
//!
//! ```text
//! ssh logs in                       | lanes carry chunks
//! find a file -> hash its chunks .. | a chunk hashed before: read and send it, with that hash
//! (threads that yield to all else)  | another: read, hash and send it
//! ```
//! A login takes a quarter of a second, and leaves the processors idle, which later are the limit. For 2 GB in memory, half of
//! the sender's hashing is done by then.
//!
//! An early hash promises no less: data that does not match it at the target is asked for again, and all chunks of the file are
//! then hashed as they are sent.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::num::NonZero;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use haul_engine::integrity::{Hash, UnitHasher};
use haul_engine::plan::ChunkLayout;
use haul_job::{Job, Selection};
use haul_store::{EntryKind, FileList, Found, LocalFile, SourceFile, SourceSet, Walk};
use haul_wire::limits::BLOCK_BYTES;
use haul_wire::manifest::Identity;

use haul_channel::convert;
use haul_channel::foreseen::Foreseen;
use haul_kept::files::sparse;
use haul_kept::sync::lock;

use super::resolve_options::resolve_options;
use super::walk_options;

/// More threads would hash faster than memory is read.
const MAX_THREADS: usize = 4;

/// Hashes of 56 bytes cover 64 GiB in chunks of 1 MiB: minutes of waiting for a password. Clear lanes take 32 bytes more for
/// each 256 KiB in memory.
const MAX_CHUNKS: u32 = 64 << 10;

/// Bounds the search for files.
const MAX_ENTRIES: usize = 16 << 10;

/// Gives way to all else, above all to ssh: setpriority(2).
const LEAST_URGENT: i32 = 19;

/// Holds early hashes of files. The threads end once it is dropped or stopped.
#[derive(Default)]
pub struct EarlyLook(Arc<Work>);

#[derive(Default)]
struct Work {
    stopped: AtomicBool,
    files: Mutex<HashMap<Identity, Arc<FileHashes>>>,
    foreseen: Foreseen,
    tags_blocks: bool,
}

pub(super) struct FileHashes {
    chunks: Box<[OnceLock<ChunkHashes>]>,
    doubted: AtomicBool,
}

#[derive(Clone)]
struct ChunkHashes {
    chunk: Hash,
    /// The chunk's hash up to each block's end, for a clear lane's tags.
    blocks: Box<[Hash]>,
}

impl EarlyLook {
    /// Begins with the first of these paths, as the session will. `None`: no thread is to be had.
    pub fn begin(job: &Job, home: Option<PathBuf>) -> Option<Self> {
        let early = Self::that_tags(job.carriage.clear);
        let (paths, selection, listed) = (job.source_paths(), job.selection.clone(), job.files_from.clone());
        let work = Arc::clone(&early.0);
        let begun = std::thread::Builder::new().name("early look".into()).spawn(move || {
            let _ = haul_sys::affinity::set_niceness(LEAST_URGENT);
            work.run(&paths, home, &selection, listed);
        });
        begun.is_ok().then_some(early)
    }

    fn that_tags(clear_lanes: bool) -> Self {
        Self(Arc::new(Work { tags_blocks: clear_lanes, ..Work::default() }))
    }

    /// Takes known bytes, without a look.
    pub fn of_bytes(bytes: u64) -> Self {
        let early = Self::default();
        early.0.foreseen.0.store(bytes, Ordering::Relaxed);
        early
    }

    /// Returns the bytes to send.
    pub fn foreseen(&self) -> Foreseen {
        self.0.foreseen.clone()
    }

    /// Leaves the processors to the lanes.
    pub(super) fn stop(&self) {
        self.0.stopped.store(true, Ordering::Relaxed);
    }

    /// Returns the hashes of a file in this state, or still to come.
    pub(super) fn of(&self, identity: &Identity) -> Option<Arc<FileHashes>> {
        lock(&self.0.files).get(identity).cloned()
    }
}

impl Drop for EarlyLook {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Work {
    fn run(&self, paths: &[Vec<u8>], home: Option<PathBuf>, selection: &Selection, listed: Option<Arc<FileList>>) {
        // The session tells what is missing, or cannot be understood.
        let (sources, _) = SourceSet::resolve_lossy(paths, &resolve_options(home, selection.follow_links));
        let Ok(options) = walk_options::options(selection, listed) else { return };
        let sources = Arc::new(sources);
        let finder = Mutex::new(Finder::new(&sources, sources.walk(options)));
        let threads = std::thread::available_parallelism().map_or(1, NonZero::get).min(MAX_THREADS);
        std::thread::scope(|scope| {
            for _ in 1..threads {
                // With fewer threads, less is hashed.
                let _ =
                    std::thread::Builder::new().name("early look".into()).spawn_scoped(scope, || self.hash(&finder));
            }
            self.hash(&finder);
        });
    }

    fn hash(&self, finder: &Mutex<Finder>) {
        let mut buffer = vec![0; BLOCK_BYTES];
        while let Some((file, chunk)) = self.next_chunk(finder) {
            if let Some(hash) = self.hash_chunk(&file, chunk, &mut buffer) {
                let _ = file.hashes.chunks[chunk as usize].set(hash);
            }
        }
    }

    fn next_chunk(&self, finder: &Mutex<Finder>) -> Option<(Arc<FoundFile>, u32)> {
        let mut finder = lock(finder);
        while !self.is_stopped() {
            if let Some(next) = finder.next_of_file() {
                return Some(next);
            }
            let Some((identity, file)) = finder.find(&self.foreseen)? else { continue };
            // A second name needs no second look.
            if let Entry::Vacant(place) = lock(&self.files).entry(identity) {
                place.insert(Arc::clone(&file.hashes));
                finder.file = Some((file, 0));
            }
        }
        None
    }

    fn hash_chunk(&self, found: &FoundFile, chunk: u32, buffer: &mut [u8]) -> Option<ChunkHashes> {
        let (mut offset, length) = found.layout.range(chunk)?;
        let end = offset + length;
        let mut hasher = UnitHasher::new(&found.layout, chunk);
        let mut blocks = Vec::new();
        while offset < end && !self.is_stopped() {
            let size = usize::try_from(end - offset).unwrap_or(usize::MAX).min(buffer.len());
            let block = &mut buffer[..size];
            if found.file.read_at(block, offset).ok()? < size {
                return None;
            }
            hasher.update(block);
            offset += size as u64;
            if self.tags_blocks {
                blocks.push(hasher.finish());
            }
        }
        (offset == end).then(|| ChunkHashes { chunk: hasher.finish(), blocks: blocks.into() })
    }

    fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }
}

struct Finder {
    sources: Arc<SourceSet>,
    walk: Walk,
    file: Option<(Arc<FoundFile>, u32)>,
    entries_left: usize,
    chunks_left: u32,
}

struct FoundFile {
    file: LocalFile,
    layout: ChunkLayout,
    hashes: Arc<FileHashes>,
}

impl Finder {
    fn new(sources: &Arc<SourceSet>, walk: Walk) -> Self {
        Self { sources: Arc::clone(sources), walk, file: None, entries_left: MAX_ENTRIES, chunks_left: MAX_CHUNKS }
    }

    /// Leaves a file at the first chunk that the page cache lacks: it is better read past the page cache, and once.
    fn next_of_file(&mut self) -> Option<(Arc<FoundFile>, u32)> {
        let (file, next) = self.file.as_mut()?;
        let in_memory = file.layout.range(*next).is_some_and(|(offset, length)| file.file.is_in_memory(offset, length));
        if !in_memory {
            self.file = None;
            return None;
        }
        *next += 1;
        Some((Arc::clone(file), *next - 1))
    }

    fn find(&mut self, foreseen: &Foreseen) -> Option<Option<(Identity, Arc<FoundFile>)>> {
        self.entries_left = self.entries_left.checked_sub(1)?;
        let Found::Entry(entry) = self.walk.next()? else { return Some(None) };
        if !matches!(entry.kind, EntryKind::File { .. }) {
            return Some(None);
        }
        let allocated_bytes = entry.stat.blocks.saturating_mul(512);
        foreseen.0.fetch_add(entry.stat.size.min(allocated_bytes), Ordering::Relaxed);
        let layout = ChunkLayout::of(entry.stat.size);
        if layout.is_whole() || sparse::is_sparse(&entry.stat) {
            return Some(None);
        }
        self.chunks_left = self.chunks_left.checked_sub(layout.count())?;
        let Ok(SourceFile::Local(file)) = self.sources.open(entry.source, &entry.source_path) else {
            return Some(None);
        };
        let chunks = (0..layout.count()).map(|_| OnceLock::new()).collect();
        let hashes = Arc::new(FileHashes { chunks, doubted: AtomicBool::new(false) });
        Some(Some((convert::identity(&entry.stat), Arc::new(FoundFile { file, layout, hashes }))))
    }
}

impl FileHashes {
    pub(super) fn doubt(&self) {
        self.doubted.store(true, Ordering::Relaxed);
    }

    fn of(&self, chunk: u32) -> Option<ChunkHashes> {
        self.chunks.get(chunk as usize)?.get().filter(|_| !self.doubted.load(Ordering::Relaxed)).cloned()
    }
}

pub(super) struct ChunkHasher {
    hasher: UnitHasher,
    known: Option<ChunkHashes>,
    passed_bytes: usize,
}

impl ChunkHasher {
    pub(super) fn new(layout: &ChunkLayout, chunk: u32, early: Option<&FileHashes>) -> Self {
        let known = early.and_then(|early| early.of(chunk));
        Self { hasher: UnitHasher::new(layout, chunk), known, passed_bytes: 0 }
    }

    pub(super) fn update(&mut self, data: &[u8]) {
        self.passed_bytes += data.len();
        if self.known.is_none() {
            self.hasher.update(data);
        }
    }

    pub(super) fn so_far(&self) -> Hash {
        match &self.known {
            Some(known) => known.blocks[(self.passed_bytes - 1) / BLOCK_BYTES],
            None => self.hasher.finish(),
        }
    }

    pub(super) fn finish(&self) -> Hash {
        self.known.as_ref().map_or_else(|| self.hasher.finish(), |known| known.chunk)
    }
}

#[cfg(any(test, feature = "testing"))]
impl EarlyLook {
    /// Hashes all of these paths.
    pub fn complete(paths: &[Vec<u8>], clear_lanes: bool) -> Self {
        let early = Self::that_tags(clear_lanes);
        early.0.run(paths, None, &Selection::default(), None);
        early
    }

    /// Falsifies this chunk's hash in each file.
    pub fn falsified(self, chunk: u32) -> Self {
        for hashes in lock(&self.0.files).values_mut() {
            let mut chunks = hashes.chunks.clone();
            let blocks = chunks[chunk as usize].get().map(|hashes| hashes.blocks.iter().map(|_| [7; 32]).collect());
            chunks[chunk as usize] = OnceLock::from(ChunkHashes { chunk: [7; 32], blocks: blocks.unwrap_or_default() });
            *hashes = Arc::new(FileHashes { chunks, doubted: AtomicBool::new(false) });
        }
        self
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use haul_wire::limits::MIN_CHUNK_BYTES;

    use super::*;

    const CHUNKS: u32 = 3;

    fn write_large(from: &Path, byte: u8) {
        std::fs::write(from.join("d/large"), vec![byte; 2 * MIN_CHUNK_BYTES as usize + 17]).unwrap();
    }

    fn source() -> (tempfile::TempDir, Vec<Vec<u8>>) {
        let from = tempfile::tempdir().unwrap();
        std::fs::create_dir(from.path().join("d")).unwrap();
        write_large(from.path(), 1);
        std::fs::write(from.path().join("small"), [1; 1000]).unwrap();
        let sparse = std::fs::File::create(from.path().join("sparse")).unwrap();
        sparse.set_len(1 << 30).unwrap();
        let path = from.path().as_os_str().as_encoded_bytes().to_vec();
        (from, vec![path])
    }

    fn identity(from: &Path, name: &str) -> Identity {
        let path = from.join(name).into_os_string().into_encoded_bytes();
        let sources = SourceSet::resolve(&[path], &resolve_options(None, false)).unwrap();
        let file = sources.open(0, sources.name_of_single_file()).unwrap();
        convert::identity(&file.stat().unwrap())
    }

    #[test]
    fn large_files_in_memory_have_all_their_hashes_before_the_session() {
        let (from, paths) = source();
        let early = EarlyLook::complete(&paths, false);
        assert!(early.of(&identity(from.path(), "small")).is_none(), "not worth it");
        assert!(early.of(&identity(from.path(), "sparse")).is_none(), "zeros would be hashed that nobody sends");
        let hashes = early.of(&identity(from.path(), "d/large")).unwrap();
        let hashes: Vec<Hash> = (0..CHUNKS).map(|chunk| hashes.of(chunk).unwrap().chunk).collect();
        let data = std::fs::read(from.path().join("d/large")).unwrap();
        let root = haul_engine::integrity::file_hash(&ChunkLayout::of(data.len() as u64), &hashes);
        assert_eq!(root, *blake3::hash(&data).as_bytes());
    }

    #[test]
    fn another_state_of_a_file_has_no_hashes_and_a_doubted_one_none_any_more() {
        let (from, paths) = source();
        let early = EarlyLook::complete(&paths, false);
        let before = early.of(&identity(from.path(), "d/large")).unwrap();
        write_large(from.path(), 2);
        assert!(early.of(&identity(from.path(), "d/large")).is_none());
        before.doubt();
        assert!(before.of(0).is_none());
    }

    #[test]
    fn once_the_lanes_carry_nothing_more_is_hashed() {
        let (from, paths) = source();
        let early = EarlyLook::default();
        early.stop();
        early.0.run(&paths, None, &Selection::default(), None);
        assert!(early.of(&identity(from.path(), "d/large")).is_none());
    }
}
