//! The limits of the HTTP client.

use std::time::Duration;

/// Connecting, TLS included: curl's limit is 300 s, a browser's about 30 s.
pub(crate) const CONNECT_DEADLINE: Duration = Duration::from_secs(30);

/// Browsers and wget follow 20 redirects, curl 50; real chains have two or three.
pub(crate) const MAX_REDIRECTS: usize = 10;

/// Fruitless tries, with pauses 15 s of a server that does not answer.
pub(crate) const MAX_TRIES: u32 = 6;

/// The pause before the second try. Each further pause doubles.
pub(crate) const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Longer pauses that a server asks for are cut.
pub(crate) const MAX_RETRY_AFTER: Duration = Duration::from_secs(60);

/// The last try begins within this many limits of silence: 40 s as usual. A copy in which nothing moves ends after 60 s, and the
/// file's own error should come first.
pub(crate) const PATIENCE: u32 = 2;

/// nginx closes idle connections after 75 s, Apache after 5 s; a request into a closing one costs another try.
pub(crate) const IDLE_KEPT: Duration = Duration::from_secs(20);

/// Servers refuse from 8 KiB on (RFC 9110, section 4.1, recommends at least 8,000 bytes).
pub(crate) const MAX_URL_BYTES: usize = 16 << 10;

/// A token has a few KiB at most.
pub(crate) const MAX_SECRET_BYTES: u64 = 1 << 20;

/// A shorter rest of an unwanted body is read: a new connection costs more.
pub(crate) const WORTH_DRAINING_BYTES: u64 = 64 << 10;

/// Connections dialled before a file's size is known, as many as begin on a long path. Spare ones are closed unused.
pub(crate) const DIALLED_AHEAD: usize = 16;

/// On shorter paths the windows of a round trip are too small for bursts to matter.
pub(crate) const SPREAD_FROM_US: u32 = 20_000;

/// Each block is progress: 128 KiB are 1 s at 1 Mbit/s.
pub(crate) const OUTGOING_BLOCK_BYTES: usize = 128 << 10;

/// Blocks of a stream that wait for the connection.
pub(crate) const FEED_BLOCKS: usize = 4;

/// A server without `Expect` gets the body after this time, as with curl.
pub(crate) const CONTINUE_AFTER: Duration = Duration::from_secs(1);
