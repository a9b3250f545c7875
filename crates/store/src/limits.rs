//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// Directories inside directories. A tree deeper than this is a mistake or an attack; 4096 levels of one-letter names
/// already make a path of 8 KiB, twice what the kernel takes in one call.
pub const MAX_DEPTH: usize = 4096;

/// Directories a walk holds open at once. Those above are reopened on the way back, so depth costs no descriptors.
pub const MAX_OPEN_DIRS: usize = 64;

/// A path of a list: as long as the protocol takes one.
pub const MAX_LISTED_PATH_BYTES: usize = 32 << 10;

/// Names of one directory: 1 GiB holds 4 million names of 255 bytes. Offsets into it are 32 bit.
pub const MAX_DIRECTORY_BYTES: usize = 1 << 30;

/// What one `getdents` call may return. Larger buffers did not make listing faster than the `stat` calls that follow.
pub const LISTING_BUFFER_BYTES: usize = 64 << 10;

/// Open hard-link groups that are remembered: about 100 bytes each, so 26 MB. Files beyond are copied one by one.
pub const MAX_HARD_LINK_GROUPS: usize = 262_144;

/// Parent directories kept open by a source or a target. Lanes work on neighbours, so few are needed at a time.
pub const MAX_CACHED_PARENTS: usize = 64;

/// One extended attribute. The kernel's own limit, so only a peer can exceed it.
pub const MAX_XATTR_VALUE_BYTES: usize = 64 << 10;

/// All extended attributes of one entry, names included.
pub const MAX_XATTR_BYTES: usize = 256 << 10;

/// A filter pattern or wildcard. Matching takes time in proportion to pattern times path.
pub const MAX_PATTERN_BYTES: usize = 4096;

/// Rules of a filter: each is tried on every entry.
pub const MAX_FILTER_RULES: usize = 10_000;

/// Sources of a job, wildcards expanded, and paths that one wildcard matches on the way: each takes about half a kilobyte.
pub const MAX_SOURCES: usize = 1_000_000;

/// Those of a job that is confined to a directory, at a daemon with many jobs: 64 Ki x half a kilobyte = 32 MiB.
pub const MAX_SOURCES_CONFINED: usize = 64 << 10;

/// Names that the wildcards of one job are compared with: two directories of the largest kind, which take some seconds each.
pub const MAX_NAMES_LISTED: usize = 8_000_000;

/// A journal that is read back: a million records of 64 bytes, and a file has at most 65,536 chunks.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;

/// Somebody may remove or replace a part between two of our calls; after this many times it is an attack.
pub const MAX_PART_ATTEMPTS: u32 = 8;

/// Entries of a job that are remembered to notice two names that are one: twice the items that may be open, so that those which are
/// under way at once are among them. 32 Ki x about 64 bytes = 2 MiB.
pub const MAX_PLACED: usize = 32 << 10;

/// Zeros written at a time where holes cannot be made.
pub const ZERO_BUFFER_BYTES: usize = 64 << 10;

/// Measuring a disk, each way: enough to leave its caches behind; at 0.5 GB/s it takes two seconds.
pub const DISK_RATE_BYTES: u64 = 1 << 30;

/// A slow disk shows its rate sooner, too.
pub const DISK_RATE_TIME: Duration = Duration::from_secs(3);

/// As large as a writer of chunks would take.
pub const DISK_RATE_BLOCK_BYTES: u64 = 4 << 20;

/// One block alone leaves the disk idle between two calls. Memory: 4 x 4 MiB.
pub const DISK_RATE_BLOCKS_IN_FLIGHT: usize = 4;

/// A larger file goes past the page cache, on its way in and out, where the file system lets it: it would push out of memory what others
/// need, and be gone from there before anybody comes back to it. On virtual machines new pages are dear, too: 10 GB from disk to disk took
/// 42 s of processor time in the kernel.
pub const DIRECT_FROM_BYTES: u64 = 256 << 20;

/// Written to try a way of writing: at 150 MB/s the trial takes a fifth of a second, and a file for which it is made at least two.
pub const TRIAL_BYTES: u64 = 8 << 20;

/// As a copy writes.
pub const TRIAL_WRITE_BYTES: usize = 256 << 10;

/// As a copy has.
pub const TRIAL_WRITERS: usize = 4;

/// The better of so many counts: what else the host does then only makes slower.
pub const TRIAL_TURNS: usize = 3;

/// On a disk with no more than milliseconds for all of it, threads that wait for a processor made one way or the other look three times as
/// slow; a file system that waits for an answer over a network at each write is slower by more.
pub const TRIAL_SLOWER_MAX: u32 = 4;

/// What the page cache has of a large file is looked at, and dropped, by stretches: a multiple of the largest pages that it is made of
/// (2 MiB on most machines). Asking for one takes some microseconds.
pub const COLD_STRETCH_BYTES: u64 = 16 << 20;

/// Stretches of one file; those of a file beyond 64 GiB are longer. 4096 x 16 bytes = 64 KiB for each open large file.
pub const MAX_COLD_STRETCHES: u64 = 4096;

/// A stretch counts as cached when less than this part of it, a sixteenth, is missing.
pub const MISSING_FRACTION: u64 = 16;
