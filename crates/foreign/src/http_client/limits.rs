//! The limits of the HTTP client.

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

/// Idle connections are closed after this time. nginx closes them after 75 s, Apache after 5 s, and a request into a connection that is
/// being closed costs another try.
pub(crate) const IDLE_KEPT: Duration = Duration::from_secs(20);

/// The longest URL. Servers refuse from 8 KiB on (RFC 9110, section 4.1, recommends at least 8,000 bytes).
pub(crate) const MAX_URL_BYTES: usize = 16 << 10;

/// A file of credentials or a token. A token has a few KiB at most.
pub(crate) const MAX_SECRET_BYTES: u64 = 1 << 20;

/// A body that is not wanted is read to its end if it has at most this much left: a new connection costs more.
pub(crate) const WORTH_DRAINING_BYTES: u64 = 64 << 10;

/// Most connections that are dialled before it is known how large the file is, the first one with them. That many begin on a long path;
/// those of them that a small file does not need are closed unused.
pub(crate) const DIALLED_AHEAD: usize = 16;

/// On a shorter path, the windows that a round trip holds are too small for their bursts to matter.
pub(crate) const SPREAD_FROM_US: u32 = 20_000;

/// The blocks in which a body is given to its connection: each is a step of progress. 128 KiB are 1 s at 1 Mbit/s.
pub(crate) const OUTGOING_BLOCK_BYTES: usize = 128 << 10;

/// Blocks of a stream that wait for the connection. The thread that fills it waits beyond them.
pub(crate) const FEED_BLOCKS: usize = 4;

/// A server that was asked for `100 Continue` and says nothing gets the body after this time, as with curl.
pub(crate) const CONTINUE_AFTER: Duration = Duration::from_secs(1);
