//! Every limit of the web service, with its arithmetic.

use std::time::Duration;

/// The limits that a test or an operator may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, with those at haul's own port. An idle one costs about 0.3 KiB here and 4 KiB in the
    /// kernel: 80 MiB for 16,384.
    pub connections: usize,
    /// Connections of one address: three quarters, so that no single host keeps all others out.
    pub connections_per_source: usize,
    /// Time from the first byte of a request until its header is complete.
    pub header: Duration,
    /// A connection without a request is closed after this. nginx has 75 s.
    pub idle: Duration,
    /// A reader that takes nothing for this long is cut off. nginx has 60 s.
    pub stall: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for requests in progress when the service ends.
    pub orderly_stop: Duration,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits {
            connections: 16_384,
            connections_per_source: 12_288,
            header: Duration::from_secs(20),
            idle: Duration::from_secs(75),
            stall: Duration::from_secs(60),
            handshake: Duration::from_secs(10),
            orderly_stop: Duration::from_millis(3_500),
        }
    }
}

/// The header of a request with its first line; a longer one gets 431. nginx takes four times 8 KiB.
pub const MAX_HEADER_BYTES: usize = 32 << 10;

/// Fields of a header; more get 431.
pub const MAX_HEADER_FIELDS: usize = 100;

/// Path and query; longer ones get 414. A path of the kernel has 4 KiB, each byte at most three characters; nginx takes
/// 8 KiB.
pub const MAX_TARGET_BYTES: usize = 16 << 10;

/// Ranges in one request. More are answered with the whole file (CVE-2011-3192 had hundreds).
pub const MAX_RANGES: usize = 8;

/// Names that one pass over a directory keeps, and names on a page in JSON.
pub const MAX_NAMES_AT_ONCE: usize = 20_000;

/// The memory of a listing: 20,000 names with about 70 bytes each, and two blocks of text.
pub const LISTING_BYTES: usize = 2 << 20;

/// Text of a listing that is sent together. Most directories are one block, and have a length.
pub const LISTING_BLOCK_BYTES: usize = 128 << 10;

/// A longer README is cut on the page.
pub const MAX_README_BYTES: usize = 64 << 10;

/// Threads that may wait for disks, each for one call. One address has a third of them, one connection a sixth, one
/// directory half, so that a dead file system beneath it leaves the others enough. The same holds for jobs.
pub const DISK_THREADS: usize = 96;

/// Directories of lines that are opened at once. A line has at most one such thread, even if its file system never
/// answers.
pub const SHELF_THREADS: usize = 64;

/// A request waits at most this long for its place and its path, and then gets 503.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// Pages made at once: each takes a processor.
pub const LISTINGS_AT_ONCE: usize = 2;

/// Files hashed at once for digests and manifests: each takes a processor and a disk.
pub const HASHING_AT_ONCE: usize = 2;

/// A hashing job lets others have their turn after this many bytes: a quarter of a second.
pub const HASHING_TURN_BYTES: u64 = 256 << 20;

/// Digests and manifests that were begun or wait: each has a thread, and a manifest up to 320 KiB of text. One address
/// has a quarter of them.
pub const HASH_JOBS: usize = 32;

/// Threads of those pools that a file system may keep from their work.
pub const STUCK_THREADS: usize = 32;

/// A job that was silent for this long loses its place.
pub const JOB_SILENT: Duration = Duration::from_secs(10);

/// A digest in the background makes way for another file's when nobody has asked for it for this long.
pub const BACKGROUND_WANTED: Duration = Duration::from_secs(60);

/// The part of each shared thing that one address may hold: a quarter.
pub const SOURCES_SHARE: usize = 4;

/// Requests that wait for one of the shared things, at about 200 bytes each.
pub const MAX_WAITING: usize = 4_096;

/// Bodies that wait: one for every stream. A stream has some kilobytes anyway, and one that has begun is not refused.
pub const MAX_WAITING_BODIES: usize = 16_384 * MAX_STREAMS as usize;

/// A reader that has taken nothing for this long stands still. If others wait for what it holds, its connection ends.
pub const STANDS_STILL: Duration = Duration::from_secs(2);

/// Bytes of the log that one address can cause in a minute: some 400 requests, as much as a key can at haul's port.
pub const LOGGED_BYTES_PER_SOURCE_AND_MINUTE: usize = 64 << 10;

/// Bytes of the log that all strangers together can cause in a minute: 1.5 GB in a day.
pub const LOGGED_BYTES_PER_MINUTE: usize = 1 << 20;

/// Bytes of the log that the holder of a line can cause in a minute, from all addresses.
pub const LOGGED_BYTES_PER_HOLDER_AND_MINUTE: usize = 256 << 10;

/// Threads for connections. Two move 10 Gbit/s on a small host; more than eight would fight for memory bandwidth.
pub const ASYNC_THREADS_MAX: usize = 8;

/// A file is moved in windows of this size, each of which is in the page cache before the kernel sends it: no thread of
/// connections waits for a disk.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// The window where a network class has a rate: what haul's own port pays for at once, so that readers of both share it
/// evenly.
pub const RATED_WINDOW_BYTES: u64 = 256 << 10;

/// A file or a range of at most this size is read, and leaves with its header in one write. Copying 4 KiB costs less
/// than another system call.
pub const INLINE_BYTES: u64 = 4 << 10;

/// [`INLINE_BYTES`] where the bytes pass through this process anyway, or the kernel does not tell this user what it has
/// in memory, so that sendfile might wait for a disk.
pub const INLINE_BYTES_MAX: u64 = 32 << 10;

/// One read of a body that is encrypted or goes over HTTP/2.
pub const BLOCK_BYTES: usize = 128 << 10;

/// The first piece of a file over HTTP/2. A stream whose reader opens no window holds it: 19,000 of them hold 19 MiB,
/// of 128 that one address may have.
pub const FIRST_PIECE_BYTES: usize = 1 << 10;

/// Streams at once in one connection of HTTP/2.
pub const MAX_STREAMS: u32 = 100;

/// A connection of HTTP/2 that takes fewer bytes in the time of an idle one is ended: a stream can stand still while
/// pings are answered. An answer to a ping has 17 bytes: 3,855 of them would do.
pub const MIN_STREAM_BYTES: u64 = 64 << 10;

/// A connection ends after this many streams that the peer reset before they were answered (CVE-2023-44487, rapid
/// reset).
pub const MAX_RESET_STREAMS: usize = 20;

/// Bytes that an HTTP/2 stream may have queued here.
pub const STREAM_SEND_BYTES: usize = 256 << 10;

/// Memory for blocks of files that wait for their readers, over TLS and HTTP/2. One address has a quarter. A stream
/// that its reader stopped holds one block.
pub const BODY_MEMORY_BYTES: usize = 512 << 20;

/// The same for one connection: 32 blocks. When less than half is left, its blocks are small, so that each of its
/// streams has one.
pub const BODY_MEMORY_OF_CONNECTION_BYTES: usize = 32 * BLOCK_BYTES;
const _: () = assert!(MAX_STREAMS as usize * SCARCE_BLOCK_BYTES <= BODY_MEMORY_OF_CONNECTION_BYTES / 2 - BLOCK_BYTES);

/// Memory for pages of directories, from before they are made until they were sent.
pub const PAGE_MEMORY_BYTES: usize = 256 << 20;

/// The same for one connection: eight listings.
pub const PAGE_MEMORY_OF_CONNECTION_BYTES: usize = 8 * LISTING_BYTES;

/// A request waits at most this long for its page, and then gets 503.
pub const PAGE_DEADLINE: Duration = Duration::from_secs(10);

/// The size of blocks when less than half of that memory is free: 16 KiB for each of 16,384 connections are 256 MiB.
/// Readers that take nothing then make others slower, and keep nobody out.
pub const SCARCE_BLOCK_BYTES: usize = 8 << 10;
const _: () = assert!(16_384 * 2 * SCARCE_BLOCK_BYTES <= BODY_MEMORY_BYTES / 2);

/// A digest of at most this many bytes is computed while the reader waits: a quarter of a second. A larger file's is
/// computed in the background, for the next request.
pub const DIGEST_AT_ONCE_BYTES: u64 = 256 << 20;

/// Digests that are kept: 65,536 x about 220 bytes are 14 MB. Their file has at most twice as many records of 152
/// bytes: 20 MB.
pub const MAX_DIGESTS_KEPT: usize = 65_536;

/// Digests of smaller files are not in that file: such a file is read in a millisecond.
pub const DIGEST_FILE_BYTES_MIN: u64 = 1 << 20;

/// Blocks of text of a manifest that wait for its reader: four times about 64 KiB.
pub const MANIFEST_BLOCKS: usize = 4;
/// Bytes of text that are sent together.
pub const MANIFEST_BLOCK_BYTES: usize = 64 << 10;

/// Directories packed at once, each in a thread of its own with 0.5 MiB of blocks.
pub const TARS_AT_ONCE: usize = 32;

/// Directories inside directories of a manifest, as deep as a walk goes.
pub const MAX_MANIFEST_DEPTH: usize = 1024;

/// Names of one directory of a manifest.
pub const MAX_MANIFEST_NAMES: usize = 4_000_000;

/// The directory of an asker is looked at again after this long.
pub const SHELF_KEPT: Duration = Duration::from_secs(1);

/// For this long the directory that was opened before is used while it is looked at again.
pub const SHELF_AGED: Duration = Duration::from_secs(30);

/// An entity tag is strong if the file last changed this long ago: the clock of file systems ticks every 10 ms or
/// faster (CONFIG_HZ 100), so two changes within a tick may look alike.
pub const FRESH: Duration = Duration::from_millis(100);

/// The watchdog looks at all connections at least this often: 16,384 of them take less than a millisecond.
pub const WATCH_EVERY_MAX: Duration = Duration::from_secs(1);

/// The interval between looks at silent connections. Some hundred new ones come meanwhile, and each takes the memory of
/// one that has left.
pub const SILENT_LOOK_EVERY: Duration = Duration::from_millis(100);

/// A connection gives its task back when it was silent at this many looks: for 0.1 to 0.2 s.
pub const SILENT_LOOKS: u32 = 2;

/// [`SILENT_LOOKS`] of a connection that has asked more than once: 2 s, longer than programs pause between requests.
pub const SILENT_LOOKS_OF_BUSY: u32 = 20;

/// Readers without room that are told so at once; more are closed without a word.
pub const TURNED_AWAY_AT_ONCE: usize = 256;

/// Time for such a reader to send its request and take the answer.
pub const TURNED_AWAY_DEADLINE: Duration = Duration::from_secs(1);

/// The time after which it should come again: an idle connection ends within 75 s.
pub const RETRY_AFTER_S: u32 = 10;

/// The log reports them at most this often.
pub const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The pause after accept has failed, for example without free descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The first bytes by which a clear connection shows that it speaks HTTP/2.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
