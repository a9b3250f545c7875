//! The limits of the HTTP client and of walks over index pages.

use std::time::Duration;

/// The longest wait for a connection with its TLS handshake: curl's usual limit for a connect is 300 s, a browser's about 30 s.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// Most redirects that lead to one answer. Browsers follow 20, curl 50, wget 20: real chains have two or three.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// Tries for one request, or for one read of a file, that fail without progress. With the pauses below that is 15 s of a server that
/// does not answer.
pub(crate) const MAX_TRIES: u32 = 6;

/// The pause before the second try. Each further pause is twice as long.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// A server that is busy may ask for a pause of at most this length; a longer one is cut to it.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// No try begins later than so many times the limit of silence after the first one: with the usual limit that is after 40 s. A copy in
/// which nothing moves ends after 60 s, and the file shall have failed in its own words before.
pub(crate) const PATIENCE: u32 = 2;

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

/// Idle connections are closed after this time. nginx closes them after 75 s, Apache after 5 s, and a request into a connection that is
/// being closed costs another try.
pub(crate) const IDLE_KEPT: Duration = Duration::from_secs(20);

/// Bytes of the names of one directory and of its index page. A page of 64 MiB has about 400,000 names.
pub(crate) const MAX_PAGE_BYTES: usize = 64 << 20;

/// Directories within directories. No path of a peer has more components; a link on the server that leads upwards ends here.
pub(crate) const MAX_DEPTH: usize = 64;

/// Files of one directory that are looked at at once, each by one request on a connection of its own.
pub(crate) const LOOKS_AT_ONCE: usize = 8;

/// Files that are looked at ahead of the one that is handed out. Each takes about 300 bytes.
pub(crate) const LOOKS_AHEAD: usize = 64;

/// The longest URL. Servers refuse from 8 KiB on (RFC 9110, section 4.1, recommends at least 8,000 bytes).
pub(crate) const MAX_URL_BYTES: usize = 16 << 10;

/// A file of credentials or a token. A token has a few KiB at most.
pub(crate) const MAX_SECRET_BYTES: u64 = 1 << 20;

/// A body that is not wanted is read to its end if it has at most this much left: a new connection costs more.
pub(crate) const WORTH_DRAINING_BYTES: u64 = 64 << 10;
