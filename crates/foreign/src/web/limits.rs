//! The limits of reading files and of walks over index pages.

use std::time::Duration;

/// A confirmed version is not asked for again: a request in five seconds costs nothing beside the data, even over 228 ms.
pub(crate) const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// A body unread for this time gives its connection away, where the server allows no more.
pub(crate) const BODY_RESTS: Duration = Duration::from_secs(1);

/// A read waits while other bodies bring something within this time.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(40);

/// Pause between a refusal and one more body: servers count a closed connection for a moment, and other readers leave.
pub(crate) const ONE_MORE_AFTER: Duration = Duration::from_secs(3);

/// A request waits at most this part of the time of silence (5 s as usual) while others bring data, at a slow server
/// [`STARVES_AFTER_QUICKEST`] times its quickest answer.
pub(crate) const STARVES_AFTER_PART_OF_SILENCE: u32 = 4;

/// Answers of a server that has a worker for each differ less.
pub(crate) const STARVES_AFTER_QUICKEST: u32 = 8;

/// An index page of 64 MiB has about 400,000 names.
pub(crate) const MAX_PAGE_BYTES: usize = 64 << 20;

/// A path of a peer has no more components. Links that lead upwards end here.
pub(crate) const MAX_DEPTH: usize = 64;

/// Looks at files, each a request on its own connection.
pub(crate) const LOOKS_AT_ONCE: usize = 8;

/// Files looked at ahead of the one handed out, at about 300 bytes.
pub(crate) const LOOKS_AHEAD: usize = 64;

/// The least chunk that travels alone (`MIN_CHUNK_BYTES` of the protocol).
pub(crate) const WORTH_PARTS_BYTES: u64 = 1 << 20;

/// The request for such a file asks for its sum, too: a server computes it within 100 ms. A larger file's sum is asked for at its
/// end.
pub(crate) const SUMMED_AT_ONCE_BYTES: u64 = 16 << 20;
