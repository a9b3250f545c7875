//! Every limit of the web service, with its arithmetic.

use std::time::Duration;

/// The limits that a test or an operator may change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, with those at haul's own port. An idle one costs 0.3 KiB here and 4 KiB in the kernel: 80 MiB for
    /// 16,384.
    pub connections: usize,
    /// Three quarters, so no single host keeps all others out.
    pub connections_per_source: usize,
    /// Time from a request's first byte to its complete header.
    pub header: Duration,
    /// Time for a connection without a request. nginx has 75 s.
    pub idle: Duration,
    /// Time for a reader that takes nothing. nginx has 60 s.
    pub stall: Duration,
    /// Time for a TLS handshake.
    pub handshake: Duration,
    /// Time for running requests when the service ends.
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

/// A longer header, with its first line, gets 431. nginx takes four times 8 KiB.
pub const MAX_HEADER_BYTES: usize = 32 << 10;

/// More fields get 431.
pub const MAX_HEADER_FIELDS: usize = 100;

/// A longer path with query gets 414. A path has 4 KiB in the kernel, three characters a byte; nginx takes 8 KiB.
pub const MAX_TARGET_BYTES: usize = 16 << 10;

/// More ranges get the whole file (CVE-2011-3192 had hundreds).
pub const MAX_RANGES: usize = 8;

/// Names that one pass over a directory keeps, and on a page in JSON.
pub const MAX_NAMES_AT_ONCE: usize = 20_000;

/// 20,000 names of about 70 bytes, and two blocks of text.
pub const LISTING_BYTES: usize = 2 << 20;

/// Text sent together. Most directories are one block, and have a length.
pub const LISTING_BLOCK_BYTES: usize = 128 << 10;

/// Longer READMEs are cut.
pub const MAX_README_BYTES: usize = 64 << 10;

/// Threads that may wait for disks, each for one call. One address has a third, one connection a sixth, one directory half: a
/// dead file system leaves the others enough. The same holds for jobs.
pub const DISK_THREADS: usize = 96;

/// Directories of lines opened at once, one for each line, even if its file system never answers.
pub const SHELF_THREADS: usize = 64;

/// Time to wait for place and path, before 503.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// Each page takes a processor.
pub const LISTINGS_AT_ONCE: usize = 2;

/// Each digest or manifest takes a processor and a disk.
pub const HASHING_AT_ONCE: usize = 2;

/// A turn of hashing: a quarter of a second.
pub const HASHING_TURN_BYTES: u64 = 256 << 20;

/// Digests and manifests begun or waiting: each has a thread, and a manifest 320 KiB of text. One address has a quarter.
pub const HASH_JOBS: usize = 32;

/// Threads of those pools that a file system may block.
pub const STUCK_THREADS: usize = 32;

/// Silence that costs a job its place.
pub const JOB_SILENT: Duration = Duration::from_secs(10);

/// Time until an unwanted background digest makes way for another.
pub const BACKGROUND_WANTED: Duration = Duration::from_secs(60);

/// One address may hold a quarter of each shared thing.
pub const SOURCES_SHARE: usize = 4;

/// About 200 bytes each.
pub const MAX_WAITING: usize = 4_096;

/// One for every stream. A stream has kilobytes anyway, and once begun it is not refused.
pub const MAX_WAITING_BODIES: usize = 16_384 * MAX_STREAMS as usize;

/// A reader that takes nothing for this long stands still: its connection ends if others wait for what it holds.
pub const STANDS_STILL: Duration = Duration::from_secs(2);

/// Bytes of log for one address: some 400 requests, as for a key at haul's port.
pub const LOGGED_BYTES_PER_SOURCE_AND_MINUTE: usize = 64 << 10;

/// Bytes of log for all strangers: 1.5 GB in a day.
pub const LOGGED_BYTES_PER_MINUTE: usize = 1 << 20;

/// Bytes of log for the holder of a line, from all addresses.
pub const LOGGED_BYTES_PER_HOLDER_AND_MINUTE: usize = 256 << 10;

/// Two threads move 10 Gbit/s on a small host; more than eight would fight for memory bandwidth.
pub const ASYNC_THREADS_MAX: usize = 8;

/// Each window of a file is in the page cache before the kernel sends it: no thread of connections waits for a disk.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// The window where a class has a rate: haul's own port pays for as much at once, so both share evenly.
pub const RATED_WINDOW_BYTES: u64 = 256 << 10;

/// A file or range up to this size leaves with its header in one write: copying 4 KiB costs less than a system call.
pub const INLINE_BYTES: u64 = 4 << 10;

/// [`INLINE_BYTES`] where bytes pass through this process anyway, or this user cannot see what the kernel has in memory: sendfile
/// might wait for a disk.
pub const INLINE_BYTES_MAX: u64 = 32 << 10;

/// One read of a body that is encrypted or goes over HTTP/2.
pub const BLOCK_BYTES: usize = 128 << 10;

/// The first piece over HTTP/2. A stream without a window holds it: 19,000 hold 19 MiB, of 128 for one address.
pub const FIRST_PIECE_BYTES: usize = 1 << 10;

/// Streams of an HTTP/2 connection.
pub const MAX_STREAMS: u32 = 100;

/// An HTTP/2 connection that takes fewer bytes in the idle time is ended. A stream can stand still while pings are answered:
/// 3,855 answers of 17 bytes would do.
pub const MIN_STREAM_BYTES: u64 = 64 << 10;

/// Unanswered streams that the peer may reset (CVE-2023-44487, rapid reset).
pub const MAX_RESET_STREAMS: usize = 20;

/// Bytes of an HTTP/2 stream queued here.
pub const STREAM_SEND_BYTES: usize = 256 << 10;

/// Memory for blocks that wait for readers, over TLS and HTTP/2. One address has a quarter. A stopped stream holds one block.
pub const BODY_MEMORY_BYTES: usize = 512 << 20;

/// The same for one connection. Below half, blocks are small, so each stream has one.
pub const BODY_MEMORY_OF_CONNECTION_BYTES: usize = 32 * BLOCK_BYTES;
const _: () = assert!(MAX_STREAMS as usize * SCARCE_BLOCK_BYTES <= BODY_MEMORY_OF_CONNECTION_BYTES / 2 - BLOCK_BYTES);

/// Memory for pages of directories until they are sent.
pub const PAGE_MEMORY_BYTES: usize = 256 << 20;

/// The same for one connection: eight listings.
pub const PAGE_MEMORY_OF_CONNECTION_BYTES: usize = 8 * LISTING_BYTES;

/// Time that a request waits for its page, before 503.
pub const PAGE_DEADLINE: Duration = Duration::from_secs(10);

/// The size of blocks when less than half of that memory is free: 16 KiB for each of 16,384 connections are 256 MiB. Idle readers
/// then slow others, but keep nobody out.
pub const SCARCE_BLOCK_BYTES: usize = 8 << 10;
const _: () = assert!(16_384 * 2 * SCARCE_BLOCK_BYTES <= BODY_MEMORY_BYTES / 2);

/// A digest of a file up to this size is computed while the reader waits: a quarter of a second. Others are computed in the
/// background.
pub const DIGEST_AT_ONCE_BYTES: u64 = 256 << 20;

/// 65,536 x about 220 bytes are 14 MB. Their file has at most twice as many records of 152 bytes: 20 MB.
pub const MAX_DIGESTS_KEPT: usize = 65_536;

/// Smaller files are read in a millisecond, so their digests are not stored.
pub const DIGEST_FILE_BYTES_MIN: u64 = 1 << 20;

/// Four blocks of about 64 KiB wait for the reader.
pub const MANIFEST_BLOCKS: usize = 4;
/// Bytes of text sent together.
pub const MANIFEST_BLOCK_BYTES: usize = 64 << 10;

/// Each packing has a thread and 0.5 MiB of blocks.
pub const TARS_AT_ONCE: usize = 32;

/// As deep as a walk goes.
pub const MAX_MANIFEST_DEPTH: usize = 1024;

/// Names of one directory in a manifest.
pub const MAX_MANIFEST_NAMES: usize = 4_000_000;

/// Time after which an asker's directory is examined again.
pub const SHELF_KEPT: Duration = Duration::from_secs(1);

/// Time for which the earlier directory serves meanwhile.
pub const SHELF_AGED: Duration = Duration::from_secs(30);

/// An entity tag is strong after this long without change: clocks of file systems tick every 10 ms or faster (CONFIG_HZ 100), so
/// two changes within a tick may look alike.
pub const FRESH: Duration = Duration::from_millis(100);

/// The watchdog's longest interval: a look at 16,384 connections takes less than a millisecond.
pub const WATCH_EVERY_MAX: Duration = Duration::from_secs(1);

/// The interval of looks at silent connections. Some hundred new ones come meanwhile, each in the memory of one that left.
pub const SILENT_LOOK_EVERY: Duration = Duration::from_millis(100);

/// Looks after which a silent connection gives its task back: 0.1 to 0.2 s.
pub const SILENT_LOOKS: u32 = 2;

/// [`SILENT_LOOKS`] after a second request: 2 s, longer than programs pause.
pub const SILENT_LOOKS_OF_BUSY: u32 = 20;

/// Readers told that there is no room; more are closed silently.
pub const TURNED_AWAY_AT_ONCE: usize = 256;

/// Time for such a reader's request and answer.
pub const TURNED_AWAY_DEADLINE: Duration = Duration::from_secs(1);

/// An idle connection ends within 75 s.
pub const RETRY_AFTER_S: u32 = 10;

/// The least time between reports of them in the log.
pub const TOLD_EVERY: Duration = Duration::from_secs(10);

/// The pause after a failed accept, such as without free descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// The first bytes of HTTP/2.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
