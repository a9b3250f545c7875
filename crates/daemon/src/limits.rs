//! Every limit of the daemon, with its arithmetic; those before authentication are in `haul_net::limits`.

use std::time::Duration;

use haul_wire::limits::MAX_LISTED_BYTES;

/// Sessions at once. One session needs at most:
///
/// - 11 MiB for 8 lanes with two blocks of 256 KiB each, and 16 Ki open items of about 400 bytes.
///
/// - 26 MiB for a hostile client: 8 MiB of its messages wait, and 18 MiB of ours stay unread.
///
/// - 64 MiB for names. A sender has 32 MiB of sources from wildcards, and with `-H` 26 MiB of incomplete hard links. A receiver
///   has 32 MiB of incomplete directories, and with `-H` 32 MiB of first names.
///
/// - 29 MiB for the manifest of hard links.
///
/// Four keys together can reach 64 x (11 + 26 + 64 + 29) MiB = 8.1 GiB. The names of listed directories come on top,
/// [`MAX_LISTED_BYTES_OF_ALL`], and 16 bytes for each byte of filter rules, which fit into a frame of 1 MiB.
pub const MAX_SESSIONS: usize = 64;

/// A quarter for a key whose line sets no limit, so no key keeps the others out.
pub const MAX_SESSIONS_PER_KEY: usize = 16;

/// Four of the longest lists, for all sessions together.
pub const MAX_LISTED_BYTES_OF_ALL: usize = 4 * MAX_LISTED_BYTES;

/// One of the longest lists, for all sessions of a key.
pub const MAX_LISTED_BYTES_PER_KEY: usize = MAX_LISTED_BYTES;

/// Directories that the web keeps open between requests. Beyond, all are opened again.
pub const MAX_SHELVES_KEPT: usize = 1024;

/// 4 MiB are a list of about 30,000 lines.
pub const MAX_LIST_BYTES: u64 = 4 << 20;

/// Anybody can cause any number of refusals.
pub const REFUSALS_LOGGED_PER_MINUTE: u32 = 20;

/// Bytes of log for one key: two lines for each of some 250 sessions, or eight with the longest paths. A key can fill 92 MB a
/// day.
pub const LOGGED_BYTES_PER_KEY_AND_MINUTE: usize = 64 * 1024;

/// The same for entries of its copies (`--log-files`): about 150,000 files, or 46 GB a day. The session's end counts lines left
/// out.
pub const ENTRY_BYTES_PER_KEY_AND_MINUTE: usize = 32 << 20;

/// The kernel's longest path and the words around it. A peer may send longer ones.
pub const MAX_LINE_BYTES: usize = 8 * 1024;

/// Lines to be written together: some 600 requests of the web.
pub const MAX_SOON_BYTES: usize = 64 << 10;

/// Time in which sessions tell their peers and end.
pub const ORDERLY_STOP: Duration = Duration::from_millis(3_500);

/// Time before cut sessions are left behind. Both together stay below 5 s.
pub const FORCED_STOP: Duration = Duration::from_secs(1);

/// The interval of looking for the order to stop.
pub const STOP_POLL: Duration = Duration::from_millis(100);

/// The interval of looks at networks and their classes.
pub const NETWORKS_LOOK: Duration = Duration::from_secs(2);

/// A killed daemon loses as much of its observations.
pub const OBSERVED_WRITE: Duration = Duration::from_secs(60);

/// The slowest rate: 1 Mbit/s. A block of 256 KiB then takes 2 s, so no peer counts as silent.
pub const MIN_KEY_RATE_BYTES_PER_S: u64 = 125_000;

/// A late timer may catch up on so much.
pub const RATE_BURST: Duration = Duration::from_millis(50);

/// A killed daemon forgets as much of its keys' bytes.
pub const DAYS_WRITTEN_EVERY: Duration = Duration::from_secs(5);
