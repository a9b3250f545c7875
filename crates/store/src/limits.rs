//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// 4096 nested one-letter names are a path of 8 KiB, twice what the kernel takes in one call.
pub const MAX_DEPTH: usize = 4096;

/// Directories that a walk holds open; those above are reopened.
pub const MAX_OPEN_DIRS: usize = 64;

/// The longest listed path, as in the protocol.
pub const MAX_LISTED_PATH_BYTES: usize = 32 << 10;

/// Names of one directory: 1 GiB holds 4 million names of 255 bytes. Offsets have 32 bits.
pub const MAX_DIRECTORY_BYTES: usize = 1 << 30;

/// The buffer of one `getdents` call: the `stat` calls take most of the time.
pub const LISTING_BUFFER_BYTES: usize = 64 << 10;

/// 262,144 open hard-link groups x about 100 bytes = 26 MB. Further files' names are copied one by one.
pub const MAX_HARD_LINK_GROUPS: usize = 262_144;

/// Open parent directories of a source or target: lanes work on neighbours.
pub const MAX_CACHED_PARENTS: usize = 64;

/// Directories held open while written into, to keep their inode numbers, of usually 1024 open files.
pub const MAX_HELD_DIRECTORIES: usize = 128;

/// One extended attribute: the kernel's limit, for peers.
pub const MAX_XATTR_VALUE_BYTES: usize = 64 << 10;

/// All extended attributes of an entry, with names.
pub const MAX_XATTR_BYTES: usize = 256 << 10;

/// A filter pattern or wildcard: matching takes pattern times path.
pub const MAX_PATTERN_BYTES: usize = 4096;

/// Rules of a filter: each is tried on every entry.
pub const MAX_FILTER_RULES: usize = 10_000;

/// Sources of a job, and matches of a wildcard: about half a kilobyte each.
pub const MAX_SOURCES: usize = 1_000_000;

/// The same when confined, as a daemon has many: 64 Ki x half a kilobyte = 32 MiB each.
pub const MAX_SOURCES_CONFINED: usize = 64 << 10;

/// Names compared with a job's wildcards: two largest directories, some seconds each.
pub const MAX_NAMES_LISTED: usize = 8_000_000;

/// A journal: a million records of 64 bytes; a file has at most 65,536 chunks.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;

/// A part that was replaced between two calls 8 times was attacked.
pub const MAX_PART_ATTEMPTS: u32 = 8;

/// Links followed at the target, each with an open directory of usually 1024. Few are made, to move data to another disk.
pub const MAX_DIRLINKS: usize = 256;

/// A job's own links, which must not lead it out of the target; beyond, it follows none. 1 Mi x 16 bytes, about 32 MiB with
/// the table.
pub const MAX_MADE_LINKS: usize = 1 << 20;

/// Entries remembered to notice two names of one file: twice the items open at once. 32 Ki x about 96 bytes = 3 MiB.
pub const MAX_PLACED: usize = 32 << 10;

/// Remembered names of such an entry. Beyond, a listed name counts as its own.
pub const MAX_PLACED_LINKS: usize = 64;

/// Zeros written at a time in place of holes.
pub const ZERO_BUFFER_BYTES: usize = 64 << 10;

/// Bytes to measure a disk with, each way, beyond its caches: two seconds at 0.5 GB/s.
pub const DISK_RATE_BYTES: u64 = 1 << 30;

/// The time for measuring a slow disk, with fewer bytes.
pub const DISK_RATE_TIME: Duration = Duration::from_secs(3);

/// The block of a writer of chunks.
pub const DISK_RATE_BLOCK_BYTES: u64 = 4 << 20;

/// One block alone leaves the disk idle between calls. Memory: 4 x 4 MiB.
pub const DISK_RATE_BLOCKS_IN_FLIGHT: usize = 4;

/// From this size files go past the page cache, where they would displace other data, and be evicted before their next use.
/// On virtual machines new pages cost much, too (10 GB from disk to disk: 42 s of kernel time).
pub const DIRECT_FROM_BYTES: u64 = 256 << 20;

/// Bytes of a turn: 0.05 s at 150 MB/s; the smallest tried file takes almost 2 s.
pub const TRIAL_BYTES: u64 = 8 << 20;

/// The size of a copy's writes.
pub const TRIAL_WRITE_BYTES: usize = 256 << 10;

/// The writer threads of a copy.
pub const TRIAL_WRITERS: usize = 4;

/// The fastest turn counts: other work only slows turns.
pub const TRIAL_TURNS: usize = 3;

/// Direct writing loses only if so much slower, as where each write waits for the network. On a fast disk, waiting for a
/// processor made either way look three times as slow.
pub const TRIAL_SLOWER_MAX: u32 = 4;

/// The unit of counting and dropping a file's cache, a multiple of the largest pages (mostly 2 MiB), in some microseconds.
pub const COLD_STRETCH_BYTES: u64 = 16 << 20;

/// Stretches of one file, longer beyond 64 GiB. 4096 x 16 bytes = 64 KiB for each large file.
pub const MAX_COLD_STRETCHES: u64 = 4096;

/// A stretch is cached with less than a sixteenth missing.
pub const MISSING_FRACTION: u64 = 16;

/// Tries for a lock of our file, five seconds in all: a daemon with a killed client first flushes its journal.
pub const MAX_LOCK_TRIES: u32 = 100;

/// The time between two tries.
pub const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(50);
