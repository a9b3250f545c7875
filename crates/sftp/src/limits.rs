//! Every limit of this crate, with its arithmetic.

use std::time::Duration;

/// The largest packet of a server: OpenSSH sends at most 256 KiB (`SFTP_MAX_MSG_LENGTH`). Others send less.
pub const MAX_PACKET_BYTES: usize = 256 << 10;

/// The longest reply without data or names: a status with its text, a handle, attributes.
pub const MAX_SHORT_REPLY_BYTES: usize = 64 << 10;

/// A handle (draft-ietf-secsh-filexfer-02, 6.2).
pub const MAX_HANDLE_BYTES: usize = 256;

/// A path: four times as long as Linux takes in one call.
pub const MAX_PATH_BYTES: usize = 16 << 10;

/// The text of a status that is kept for a message.
pub const MAX_STATUS_TEXT_BYTES: usize = 500;

/// Extensions that a server may offer; OpenSSH 9.2 offers eleven.
pub const MAX_EXTENSIONS: usize = 256;

/// Bytes that every server takes in a READ or WRITE (draft, 3: "all servers SHOULD support packets of at least 34000 bytes").
pub const USUAL_TRANSFER_BYTES: usize = 32 << 10;

/// One READ or WRITE. OpenSSH takes 261,120 bytes, and 128 KiB divide the blocks of a lane, which have 256 KiB.
pub const MAX_TRANSFER_BYTES: usize = 128 << 10;

/// Requests without an answer on one connection.
pub const MAX_REQUESTS: usize = 1024;

/// Bytes of requests and awaited answers on one connection. A path of 1 Gbit/s and 128 ms holds 16 MB.
pub const MAX_BYTES_IN_FLIGHT: usize = 16 << 20;

/// Bytes that are asked for before a reader wants them, for each reader that goes through a file.
pub const READ_AHEAD_BYTES: u64 = 4 << 20;

/// Bytes that all files of a server hold ahead, and each of them: eight readers. Beyond it a reader asks only for what it wants.
pub const MAX_AHEAD_BYTES: usize = 32 << 20;

/// A READDIR that is asked for before the last one is answered: OpenSSH tells a hundred names at a time.
pub const READDIRS_AHEAD: usize = 4;

/// Names of one directory with their attributes, as long as `store` allows for a disk of this host.
pub const MAX_LISTING_BYTES: usize = 1 << 30;

/// Sources of a job, wildcards expanded: about half a kilobyte each.
pub const MAX_SOURCES: usize = 1_000_000;

/// Names that the wildcards of one source are compared with, as in `store`: two directories of the largest size.
pub const MAX_NAMES_LISTED: usize = 8_000_000;

/// Directories inside directories, as in `store`.
pub const MAX_DEPTH: usize = 4096;

/// Directories of the target that are known to be no links: 64 Ki paths of 100 bytes take 10 MB. The set begins anew when
/// it is full.
pub const MAX_KNOWN_DIRECTORIES: usize = 64 << 10;

/// A journal that is read back, as in `store`.
pub const MAX_JOURNAL_BYTES: u64 = 64 << 20;

/// Somebody else may take the name of a draft between two of our calls. After so many times it counts as an attack.
pub const MAX_DRAFT_ATTEMPTS: u32 = 8;

/// Removals that are waited for later: of journals of large files, which come seldom.
pub const MAX_REMOVALS: usize = 64;

/// A draft that nobody wrote for so long is of a dead copy. One that lives ends after a minute of silence; the rest is for clocks that differ, for
/// copies with a longer `--timeout`, and for machines that sleep over night.
pub const LEFT_AFTER: Duration = Duration::from_secs(24 * 3600);

/// A copy from another host that wrote its draft so long ago counts as dead: one that lives ends after a minute of silence (`--timeout`).
/// Should it live all the same, both write the same bytes, since a journal is of one version of the source.
pub const ALIVE_FOR: Duration = Duration::from_secs(120);

/// Drafts of one directory that are looked at, as in `store`: a copy has as many as lanes and threads, and rarely dies.
pub const MAX_OURS: usize = 64 << 10;

/// Names of directories that are still to be looked through for drafts, as in `store` (`SiteBounds`).
pub const MAX_LEFT_DIRECTORIES_BYTES: usize = 64 << 20;

/// Connections to one server over a long path, made unasked, as to a web server. Each has 2 MiB under way, the window of a channel of
/// OpenSSH: fifteen hold 1 Gbit/s at 250 ms, and one is left for questions.
pub const MAX_CONNECTIONS: usize = 16;

/// Most connections that a user may ask for.
pub const MAX_ASKED_CONNECTIONS: usize = 64;

/// Beside so many others, the first connection carries no data of large files: a question behind a full window waits for a round trip more.
pub const QUIET_BESIDE_CONNECTIONS: usize = 4;

/// Connections over a path where one window holds a round trip.
pub const MAX_NEAR_CONNECTIONS: usize = 4;

/// From here on a path is long: the window of a channel carries 420 Mbit/s at 40 ms.
pub const LONG_PATH: Duration = Duration::from_millis(40);

/// Logins that are not over yet, beside the first. sshd drops some from ten on (`MaxStartups` 10:30:100).
pub const MAX_DIALS_AT_ONCE: usize = 8;

/// A login takes nine round trips: one that is not over by then crosses a path of 40 ms, or the host is slow.
pub const LOGIN_OF_LONG_PATH: Duration = Duration::from_millis(300);

/// Another connection is worth its login for so many bytes: at 1 Gbit/s they take 60 ms.
pub const WORTH_ANOTHER_BYTES: u64 = 8 << 20;

/// Another connection is worth its login after so many opened files.
pub const WORTH_ANOTHER_FILES: u64 = 100;

/// A flush of a large file may keep a server silent for so long: 10 GB at 20 MB/s.
pub const FLUSH_PATIENCE: Duration = Duration::from_secs(500);

/// The reader of a connection looks so often whether its server is silent for too long.
pub const LOOK_EVERY: Duration = Duration::from_millis(200);

/// What a login shell may print before the server speaks.
pub const MAX_NOISE_BYTES: usize = 4 << 10;
