//! Every limit of the web service, with its arithmetic.

use std::time::Duration;

/// The limits that a test or an operator may want otherwise.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// Connections at once, those at haul's own port among them. An idle one costs about 0.3 KiB here and 4 KiB in the kernel: 16,384 of them 80 MiB.
    pub connections: usize,
    /// Of one address: three quarters, so that no single host keeps all others out.
    pub connections_per_source: usize,
    /// From the first byte of a request until its header is complete.
    pub header: Duration,
    /// A connection without a request is closed after this. nginx has 75 s.
    pub idle: Duration,
    /// A reader that takes nothing for this long is cut off. nginx has 60 s.
    pub stall: Duration,
    /// Until a TLS handshake has ended.
    pub handshake: Duration,
    /// Requests in progress have this long when the service ends.
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

/// The header of a request, its first line included: 431 above that. nginx takes four times 8 KiB.
pub const MAX_HEADER_BYTES: usize = 32 << 10;

/// Fields of a header: 431 above that.
pub const MAX_HEADER_FIELDS: usize = 100;

/// Path and query: 414 above that. A path of the kernel has 4 KiB, each byte at most three characters; nginx takes 8 KiB.
pub const MAX_TARGET_BYTES: usize = 16 << 10;

/// Ranges in one request. More are answered with the whole file (CVE-2011-3192 had hundreds).
pub const MAX_RANGES: usize = 8;

/// Names that one pass over a directory keeps, and names on a page in JSON.
pub const MAX_NAMES_AT_ONCE: usize = 20_000;

/// The memory of a listing: 20,000 names with about 70 bytes each, and two blocks of text.
pub const LISTING_BYTES: usize = 2 << 20;

/// Text of a listing that is sent together. Most directories are one block: they have a length.
pub const LISTING_BLOCK_BYTES: usize = 128 << 10;

/// A longer README is cut on the page.
pub const MAX_README_BYTES: usize = 64 << 10;

/// Threads that may wait for disks. Each waits for one call. One address has a third of them, and one connection a sixth. In one directory
/// for readers half of them may wait, so that a dead file system beneath it leaves the others enough; the same holds for jobs.
pub const DISK_THREADS: usize = 96;

/// Directories of lines that are opened at once. One line has one such thread at most, also if its file system never answers.
pub const SHELF_THREADS: usize = 64;

/// A request waits this long for its place and its path: 503 above that.
pub const OPEN_DEADLINE: Duration = Duration::from_secs(10);

/// Pages that are made at once: each takes a processor.
pub const LISTINGS_AT_ONCE: usize = 2;

/// Files that are hashed at once for digests and manifests: each takes a processor and a disk.
pub const HASHING_AT_ONCE: usize = 2;

/// Who hashes lets others have their turn after so many bytes: a quarter of a second.
pub const HASHING_TURN_BYTES: u64 = 256 << 20;

/// Digests and manifests that were begun, or wait for their turn: each has a thread, and a manifest up to 320 KiB of text. One address has
/// a quarter of them.
pub const HASH_JOBS: usize = 32;

/// Threads of those pools that a file system may keep from their work.
pub const STUCK_THREADS: usize = 32;

/// A job of which nothing was heard for so long has no place any more.
pub const JOB_SILENT: Duration = Duration::from_secs(10);

/// A digest in the background makes way for that of another file when nobody has asked for it for so long.
pub const BACKGROUND_WANTED: Duration = Duration::from_secs(60);

/// What one address may hold of what all share: a quarter. Three more can do the same before others notice.
pub const SOURCES_SHARE: usize = 4;

/// Requests that wait for one of the shared things. Each takes about 200 bytes.
pub const MAX_WAITING: usize = 4_096;

/// Bodies that wait: each of all streams. A stream has some kilobytes anyway, and one that has begun is not refused.
pub const MAX_WAITING_BODIES: usize = 16_384 * MAX_STREAMS as usize;

/// A reader that has taken nothing for so long stands still. Where others wait for what it holds, its connection ends.
pub const STANDS_STILL: Duration = Duration::from_secs(2);

/// Bytes of the log that one address can cause in a minute: some 400 requests. It is as much as a key can at haul's port.
pub const LOGGED_BYTES_PER_SOURCE_AND_MINUTE: usize = 64 << 10;

/// Those of all strangers together: 1.5 GB in a day.
pub const LOGGED_BYTES_PER_MINUTE: usize = 1 << 20;

/// Those of the holder of a line, from all of its addresses.
pub const LOGGED_BYTES_PER_HOLDER_AND_MINUTE: usize = 256 << 10;

/// Threads for connections. Two move 10 Gbit/s on a small host, and more than eight would fight for memory bandwidth.
pub const ASYNC_THREADS_MAX: usize = 8;

/// A file is moved in windows of this size: each is in the page cache before the kernel is asked to send it, so no
/// thread of connections waits for a disk.
pub const WINDOW_BYTES: u64 = 4 << 20;

/// The same where a network class has a rate: as much as haul's own port pays for at once, so that readers of both share it evenly.
pub const RATED_WINDOW_BYTES: u64 = 256 << 10;

/// A file or a range of at most this size is read, and leaves with its header in one write. Copying 4 KiB costs less
/// than a further system call.
pub const INLINE_BYTES: u64 = 4 << 10;

/// The same where the bytes pass through this process anyway, or the kernel does not tell this user what it has in
/// memory: then sendfile might wait for a disk.
pub const INLINE_BYTES_MAX: u64 = 32 << 10;

/// One read of a body that is encrypted or goes over HTTP/2.
pub const BLOCK_BYTES: usize = 128 << 10;

/// The first piece of a file over HTTP/2. A stream whose reader opens no window holds it: 19,000 of them 19 MiB, of 128 that one address
/// may have.
pub const FIRST_PIECE_BYTES: usize = 1 << 10;

/// Streams at once in one connection of HTTP/2.
pub const MAX_STREAMS: u32 = 100;

/// A connection of HTTP/2 that takes fewer bytes in the time of an idle one is ended. Its windows are the reader's to
/// open, so a stream can stand still while pings are answered. An answer to a ping has 17 bytes: 3,855 of them would do.
pub const MIN_STREAM_BYTES: u64 = 64 << 10;

/// Streams that the peer reset and that were not yet answered (CVE-2023-44487, rapid reset): then the connection ends.
pub const MAX_RESET_STREAMS: usize = 20;

/// An HTTP/2 stream may have this much queued here.
pub const STREAM_SEND_BYTES: usize = 256 << 10;

/// Memory for blocks of files that wait for their readers, over TLS and HTTP/2. One address has a quarter. A block has its share while it is
/// read and sent, so a stream that its reader stopped holds one block.
pub const BODY_MEMORY_BYTES: usize = 512 << 20;

/// Of one connection: 32 blocks. When less than half of that is left, its blocks are small, so that each of its streams has one.
pub const BODY_MEMORY_OF_CONNECTION_BYTES: usize = 32 * BLOCK_BYTES;
const _: () = assert!(MAX_STREAMS as usize * SCARCE_BLOCK_BYTES <= BODY_MEMORY_OF_CONNECTION_BYTES / 2 - BLOCK_BYTES);

/// Memory for pages of directories, from before they are made until they were sent.
pub const PAGE_MEMORY_BYTES: usize = 256 << 20;

/// Of one connection: eight listings.
pub const PAGE_MEMORY_OF_CONNECTION_BYTES: usize = 8 * LISTING_BYTES;

/// A request waits this long for its page: 503 above that.
pub const PAGE_DEADLINE: Duration = Duration::from_secs(10);

/// When less than half of that memory is free, blocks are small, so that there is a share for each of 16,384 connections: 16 KiB of each
/// are 256 MiB. Readers that take nothing make others slower then, and keep nobody out.
pub const SCARCE_BLOCK_BYTES: usize = 8 << 10;
const _: () = assert!(16_384 * 2 * SCARCE_BLOCK_BYTES <= BODY_MEMORY_BYTES / 2);

/// A digest of at most so many bytes is computed while the reader waits: a quarter of a second. That of a larger file
/// is computed behind, for the next request.
pub const DIGEST_AT_ONCE_BYTES: u64 = 256 << 20;

/// Digests that are kept: 65,536 x about 200 bytes are 13 MB. Their file has at most twice as many records of 128 bytes:
/// 17 MB.
pub const MAX_DIGESTS_KEPT: usize = 65_536;

/// Files from this size on are in that file. A shorter one is read in a millisecond.
pub const DIGEST_FILE_BYTES_MIN: u64 = 1 << 20;

/// Blocks of text of a manifest that wait for its reader: four times about 64 KiB.
pub const MANIFEST_BLOCKS: usize = 4;
/// Bytes of text that are sent together.
pub const MANIFEST_BLOCK_BYTES: usize = 64 << 10;

/// Directories that are packed at once, each in a thread of its own with 0.5 MiB of blocks.
pub const TARS_AT_ONCE: usize = 32;

/// Directories inside directories of a manifest, as deep as a walk goes.
pub const MAX_MANIFEST_DEPTH: usize = 1024;

/// Names of one directory of a manifest.
pub const MAX_MANIFEST_NAMES: usize = 4_000_000;

/// Another file of the same name is looked at again after this long.
pub const SHELF_KEPT: Duration = Duration::from_secs(1);

/// Until then the directory that was opened before is shown while it is looked at again.
pub const SHELF_AGED: Duration = Duration::from_secs(30);

/// An entity tag is strong when the file last changed this long ago: the clock of file systems ticks every 10 ms or
/// faster (CONFIG_HZ 100), so two changes within a tick may look alike.
pub const FRESH: Duration = Duration::from_millis(100);

/// The watchdog looks at all connections this often at least: 16,384 of them take it less than a millisecond.
pub const WATCH_EVERY_MAX: Duration = Duration::from_secs(1);

/// How often connections are looked at whose readers are silent. Between two looks some hundred new ones come at most, and each takes the
/// memory of one that has left.
pub const SILENT_LOOK_EVERY: Duration = Duration::from_millis(100);

/// A connection gives its task back when it was silent at so many looks: for 0.1 to 0.2 s.
pub const SILENT_LOOKS: u32 = 2;

/// The same of one that has asked more than once: 2 s. A program that pauses between its requests does so for less.
pub const SILENT_LOOKS_OF_BUSY: u32 = 20;

/// Readers without room that are told so at once; further ones are closed without a word.
pub const TURNED_AWAY_AT_ONCE: usize = 256;

/// Such a reader has this long to send its request and take the answer.
pub const TURNED_AWAY_DEADLINE: Duration = Duration::from_secs(1);

/// When it should come again, in seconds: an idle connection ends within 75.
pub const RETRY_AFTER_S: u32 = 10;

/// The log tells of them this often at most.
pub const TOLD_EVERY: Duration = Duration::from_secs(10);

/// A pause after accept has failed, for example without free descriptors.
pub const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// A clear connection shows by its first bytes whether it speaks HTTP/2.
pub const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
