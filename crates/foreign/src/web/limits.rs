//! The limits of reading files and of walks over index pages.

use std::time::Duration;

/// A version that was confirmed within this time is not asked for again while a file is read. A request in five seconds costs nothing
/// beside the data, also over 228 ms.
pub(crate) const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// A body that nobody reads for this time gives its connection to another place of a file, where the server allows no more
/// connections.
pub(crate) const BODY_RESTS: Duration = Duration::from_secs(1);

/// A read waits for its turn as long as other bodies bring something within this time.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(40);

/// One more body is tried this long after the server refused one: servers count a connection for a moment after its end, and other
/// readers leave.
pub(crate) const ONE_MORE_AFTER: Duration = Duration::from_secs(3);

/// Bytes of the names of one directory and of its index page. A page of 64 MiB has about 400,000 names.
pub(crate) const MAX_PAGE_BYTES: usize = 64 << 20;

/// Directories within directories. No path of a peer has more components; a link on the server that leads upwards ends here.
pub(crate) const MAX_DEPTH: usize = 64;

/// Files of one directory that are looked at at once, each by one request on a connection of its own.
pub(crate) const LOOKS_AT_ONCE: usize = 8;

/// Files that are looked at ahead of the one that is handed out. Each takes about 300 bytes.
pub(crate) const LOOKS_AHEAD: usize = 64;

/// A chunk of this size is the least that travels alone (`MIN_CHUNK_BYTES` of the protocol).
pub(crate) const WORTH_PARTS_BYTES: u64 = 1 << 20;

/// A server is asked for the sum of a file of at most this size by the request for the file itself: it has computed it within 100 ms.
/// For a larger file it is asked once all of it is there.
pub(crate) const SUMMED_AT_ONCE_BYTES: u64 = 16 << 20;
