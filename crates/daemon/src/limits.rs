//! Every limit of the daemon, with its arithmetic. Those before authentication are the door's: `haul_net::limits`.

use std::time::Duration;

use haul_wire::limits::MAX_LISTED_BYTES;

/// Sessions at once. One with 8 lanes holds up to 8 x 2 blocks of 256 KiB and 16 Ki open items of about 400 bytes, that is about 11 MiB, and of a
/// hostile client 8 MiB of messages that wait here and 18 MiB that it does not read. One that sends has 32 MiB of sources, as many wildcards
/// bring, and with `-H` 26 MiB of hard links that are not complete; one that receives has 32 MiB of directories that are not complete, and with
/// `-H` 32 MiB of first names; either has 29 MiB for the manifest of hard links. So 64 x (11 + 8 + 18 + 64 + 29) MiB = 8.1 GiB when all are at their
/// fullest, which takes four keys; the names of the directory that each lists, the lists of [`MAX_LISTED_BYTES_OF_ALL`], and 16 bytes for each byte
/// of their filter rules, which fit into a frame of 1 MiB.
pub const MAX_SESSIONS: usize = 64;

/// Sessions at once of one key: a quarter, so that nobody can keep the others out.
pub const MAX_SESSIONS_PER_KEY: usize = 16;

/// Lists of files that all sessions together hold: four of the longest.
pub const MAX_LISTED_BYTES_OF_ALL: usize = 4 * MAX_LISTED_BYTES;

/// Those of one key's sessions together: one of the longest.
pub const MAX_LISTED_BYTES_PER_KEY: usize = MAX_LISTED_BYTES;

/// Longest list of authorised keys: 4 MiB are about 30,000 lines.
pub const MAX_LIST_BYTES: u64 = 4 << 20;

/// Refused keys that are logged in one minute; anybody can cause any number of them.
pub const REFUSALS_LOGGED_PER_MINUTE: u32 = 20;

/// What one key can have logged in one minute: the two lines each of some 250 sessions, or eight lines that name the longest paths. It is at
/// most 92 MB a day for each key.
pub const LOGGED_BYTES_PER_KEY_AND_MINUTE: usize = 64 * 1024;

/// What is logged at once: a path as long as the kernel takes, and what is said of it. A peer may name longer ones as often as it likes.
pub const MAX_LINE_BYTES: usize = 8 * 1024;

/// From the order to stop: sessions tell their peers and end within this time ...
pub const ORDERLY_STOP: Duration = Duration::from_millis(3_500);

/// ... and are cut then, and left behind after this much more. Both together stay below 5 s.
pub const FORCED_STOP: Duration = Duration::from_secs(1);

/// How often the daemon looks whether it shall stop.
pub const STOP_POLL: Duration = Duration::from_millis(100);
