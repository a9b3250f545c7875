//! Every limit of the daemon, with its arithmetic. The door has the limits before authentication: `haul_net::limits`.

use std::time::Duration;

use haul_wire::limits::MAX_LISTED_BYTES;

/// Sessions at once. The memory of one session is at most:
///
/// - 11 MiB for 8 lanes with two blocks of 256 KiB each, and for 16 Ki open items of about 400 bytes.
/// - 26 MiB because of a hostile client: 8 MiB of its messages wait here, and it leaves 18 MiB of ours unread.
/// - 64 MiB for names. A sender has 32 MiB of sources from wildcards, and with `-H` 26 MiB of incomplete hard links. A
///   receiver has 32 MiB of incomplete directories, and with `-H` 32 MiB of first names.
/// - 29 MiB for the manifest of hard links.
///
/// Four keys together can reach 64 x (11 + 26 + 64 + 29) MiB = 8.1 GiB. Three things come on top: the names of the
/// directory that each session lists, the lists of [`MAX_LISTED_BYTES_OF_ALL`], and 16 bytes for each byte of the
/// filter rules. The rules fit into a frame of 1 MiB.
pub const MAX_SESSIONS: usize = 64;

/// Sessions at once of one key whose line does not say otherwise: a quarter, so that no key can keep the others out.
pub const MAX_SESSIONS_PER_KEY: usize = 16;

/// Lists of files that all sessions together hold: four of the longest.
pub const MAX_LISTED_BYTES_OF_ALL: usize = 4 * MAX_LISTED_BYTES;

/// The same for all sessions of one key: one of the longest.
pub const MAX_LISTED_BYTES_PER_KEY: usize = MAX_LISTED_BYTES;

/// Directories of lines that the web keeps open between requests. Beyond this number, all are opened again.
pub const MAX_SHELVES_KEPT: usize = 1024;

/// The longest list of authorised keys: 4 MiB are about 30,000 lines.
pub const MAX_LIST_BYTES: u64 = 4 << 20;

/// Refused keys that are logged in one minute. Anybody can cause any number.
pub const REFUSALS_LOGGED_PER_MINUTE: u32 = 20;

/// Bytes of the log that one key can cause in one minute: two lines for each of some 250 sessions, or eight lines with
/// the longest paths. A key can fill at most 92 MB a day.
pub const LOGGED_BYTES_PER_KEY_AND_MINUTE: usize = 64 * 1024;

/// The same for lines about entries of its copies, which an operator asks for (`--log-files`): about 150,000 files. A key
/// can fill at most 46 GB a day. What is left out is counted at the end of the session.
pub const ENTRY_BYTES_PER_KEY_AND_MINUTE: usize = 32 << 20;

/// One line of the log: the longest path that the kernel takes, and the words around it. A peer may send longer paths.
pub const MAX_LINE_BYTES: usize = 8 * 1024;

/// Lines of the log that wait to be written together: some 600 requests of the web.
pub const MAX_SOON_BYTES: usize = 64 << 10;

/// Time after the order to stop, in which sessions tell their peers and end.
pub const ORDERLY_STOP: Duration = Duration::from_millis(3_500);

/// Time after they are cut, before they are left behind. Both times together stay below 5 s.
pub const FORCED_STOP: Duration = Duration::from_secs(1);

/// How often the daemon checks whether it should stop.
pub const STOP_POLL: Duration = Duration::from_millis(100);

/// How often the daemon checks the files of network classes and its host's own networks.
pub const NETWORKS_LOOK: Duration = Duration::from_secs(2);

/// How often the observations of ended connections are written. A killed daemon loses as much.
pub const OBSERVED_WRITE: Duration = Duration::from_secs(60);

/// The slowest rate of a key: 1 Mbit/s. A block of 256 KiB then takes 2 s, so no peer counts as silent.
pub const MIN_KEY_RATE_BYTES_PER_S: u64 = 125_000;

/// The time that a rate may catch up after a late timer.
pub const RATE_BURST: Duration = Duration::from_millis(50);

/// How often the bytes of keys are written down. A killed daemon forgets as much.
pub const DAYS_WRITTEN_EVERY: Duration = Duration::from_secs(5);
