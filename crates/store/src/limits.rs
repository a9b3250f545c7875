//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// Directories inside directories: 4096 levels of one-letter names make a path of 8 KiB, twice as long as the kernel
/// takes in one call.
pub const MAX_DEPTH: usize = 4096;

/// Directories that a walk holds open at once. Directories above are reopened on the way back, so depth costs no
/// descriptors.
pub const MAX_OPEN_DIRS: usize = 64;

/// The longest path of a list, as long as the protocol takes.
pub const MAX_LISTED_PATH_BYTES: usize = 32 << 10;

/// Names of one directory: 1 GiB holds 4 million names of 255 bytes. Offsets into it have 32 bits.
pub const MAX_DIRECTORY_BYTES: usize = 1 << 30;

/// The buffer of one `getdents` call. A larger buffer gains little: the `stat` calls that follow take most of the time.
pub const LISTING_BUFFER_BYTES: usize = 64 << 10;

/// Open hard-link groups that are remembered: 262,144 x about 100 bytes = 26 MB. The names of further files are copied
/// one by one.
pub const MAX_HARD_LINK_GROUPS: usize = 262_144;

/// Parent directories kept open by a source or a target. Lanes work on neighbours, so few are needed at a time.
pub const MAX_CACHED_PARENTS: usize = 64;

/// Directories that a job writes into and holds open, so that their inode numbers stay. The usual limit of a process is
/// 1024 open files.
pub const MAX_HELD_DIRECTORIES: usize = 128;

/// One extended attribute. The kernel's own limit, so only a peer can exceed it.
pub const MAX_XATTR_VALUE_BYTES: usize = 64 << 10;

/// All extended attributes of one entry, with their names.
pub const MAX_XATTR_BYTES: usize = 256 << 10;

/// A filter pattern or wildcard. Matching takes time in proportion to pattern length times path length.
pub const MAX_PATTERN_BYTES: usize = 4096;

/// Rules of a filter: each is tried on every entry.
pub const MAX_FILTER_RULES: usize = 10_000;

/// Sources of a job, wildcards expanded, and paths that one wildcard matches on the way: about half a kilobyte each.
pub const MAX_SOURCES: usize = 1_000_000;

/// Sources of a job confined to a directory. A daemon has many such jobs: 64 Ki x half a kilobyte = 32 MiB each.
pub const MAX_SOURCES_CONFINED: usize = 64 << 10;

/// Names that the wildcards of one job are compared with: two directories of the largest size, some seconds each.
pub const MAX_NAMES_LISTED: usize = 8_000_000;

/// A journal that is read back: a million records of 64 bytes; a file has at most 65,536 chunks.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;

/// Another process may remove or replace a part between two of our calls. After this many times it counts as an attack.
pub const MAX_PART_ATTEMPTS: u32 = 8;

/// Symbolic links that one job follows at the target, each to an open directory: few are made to move data to another
/// disk, and the usual limit of a process is 1024 open files.
pub const MAX_DIRLINKS: usize = 256;

/// Symbolic links that a job has made and remembers, so that it does not follow them out of the target. After so many,
/// it follows none. 1 Mi x 16 bytes, about 32 MiB with the table.
pub const MAX_MADE_LINKS: usize = 1 << 20;

/// Remembered entries of a job, to notice two names of one file: twice the items that may be open at once. 32 Ki x
/// about 96 bytes = 3 MiB.
pub const MAX_PLACED: usize = 32 << 10;

/// Remembered names of one such entry. Beyond it, a name that the directory lists counts as its own.
pub const MAX_PLACED_LINKS: usize = 64;

/// Zeros written at a time where holes cannot be made.
pub const ZERO_BUFFER_BYTES: usize = 64 << 10;

/// Bytes to measure a disk with, each way: enough to leave its caches behind. At 0.5 GB/s this takes two seconds.
pub const DISK_RATE_BYTES: u64 = 1 << 30;

/// Measuring a slow disk ends after this time, with fewer bytes.
pub const DISK_RATE_TIME: Duration = Duration::from_secs(3);

/// The block size of a writer of chunks.
pub const DISK_RATE_BLOCK_BYTES: u64 = 4 << 20;

/// One block alone leaves the disk idle between two calls. Memory: 4 x 4 MiB.
pub const DISK_RATE_BLOCKS_IN_FLIGHT: usize = 4;

/// A file of this size or more is read and written with direct I/O where the file system has it. In the page cache it
/// would displace other programs' data, and be evicted itself before its next use. New pages also cost much on virtual
/// machines: 10 GB from disk to disk took 42 s of processor time in the kernel.
pub const DIRECT_FROM_BYTES: u64 = 256 << 20;

/// Bytes written to try a way of writing. At 150 MB/s one turn takes 0.05 s; the smallest file that gets a trial takes
/// almost 2 s.
pub const TRIAL_BYTES: u64 = 8 << 20;

/// The size of a copy's writes.
pub const TRIAL_WRITE_BYTES: usize = 256 << 10;

/// The number of writer threads of a copy.
pub const TRIAL_WRITERS: usize = 4;

/// The fastest of these turns counts: other work of the host can only make a turn slower.
pub const TRIAL_TURNS: usize = 3;

/// Direct writing loses only if it is slower by more than this factor, as where each write waits for the network. On a
/// fast disk a turn takes milliseconds, and waiting for a processor made either way look three times as slow.
pub const TRIAL_SLOWER_MAX: u32 = 4;

/// The cached part of a large file is counted and dropped in stretches of this size, a multiple of the largest pages (2
/// MiB on most machines). Counting one stretch takes some microseconds.
pub const COLD_STRETCH_BYTES: u64 = 16 << 20;

/// Stretches of one file; beyond 64 GiB they get longer. 4096 x 16 bytes = 64 KiB for each open large file.
pub const MAX_COLD_STRETCHES: u64 = 4096;

/// A stretch counts as cached when less than this part of it, a sixteenth, is missing.
pub const MISSING_FRACTION: u64 = 16;

/// Tries to lock a file of ours that another process holds: five seconds in all. A daemon whose client is killed holds it until it has
/// flushed its journal.
pub const MAX_LOCK_TRIES: u32 = 100;

/// The time between two of them.
pub const BETWEEN_LOCK_TRIES: Duration = Duration::from_millis(50);
