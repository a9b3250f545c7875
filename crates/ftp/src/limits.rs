//! Every limit of this crate, with its reason.

use std::time::Duration;

/// A line of a reply or a list. The longest honest ones hold a path and its facts, and no path has more than 4 KiB.
pub const MAX_LINE_BYTES: usize = 64 << 10;

/// A reply with all its lines. A banner or a list of features has a few KiB.
pub const MAX_REPLY_BYTES: usize = 1 << 20;

/// A command. vsftpd and proftpd take 4,096 bytes.
pub(crate) const MAX_COMMAND_BYTES: usize = 4096;

/// The part of a reply that a message shows.
pub(crate) const MAX_SHOWN_BYTES: usize = 200;

/// Bytes that are read of a control connection at once.
pub(crate) const READ_BYTES: usize = 4 << 10;

/// Questions under way on one control connection. With 16, a directory of vsftpd on a path of 228 ms told 70 times a second.
pub(crate) const QUESTIONS_AT_ONCE: usize = 128;

/// Bytes of those questions. They, and their replies, fit into the buffers of any two hosts, so that both never wait for each other.
pub(crate) const QUESTION_BYTES_AT_ONCE: usize = 32 << 10;

/// A port that was asked for ahead is used within this time: pyftpdlib waits 30 s at it.
pub(crate) const PORT_KEPT: Duration = Duration::from_secs(20);

/// Names of one directory with their facts, as in `sftp` and in `store` for a disk of this host.
pub(crate) const MAX_LISTING_BYTES: usize = 1 << 30;

/// Names of one directory that are sorted in memory: 60,000 of them. More go to a file without a name, in sorted runs.
pub(crate) const RUN_BYTES: usize = 8 << 20;

/// Bytes of a run that are read at once. A directory of [`MAX_LISTING_BYTES`] has 128 runs.
pub(crate) const RUN_READ_BYTES: usize = 64 << 10;

/// Directories within directories. No path of a peer has more components, and a link at the server that leads upwards ends here.
pub(crate) const MAX_DEPTH: usize = 64;

/// Times that are asked for ahead of the entry that is handed out, over one connection.
pub(crate) const LOOKS_AHEAD: usize = 256;

/// A file of which the walk, or the last question, told size and time within this time is not asked for again.
pub(crate) const CONFIRM_AFTER: Duration = Duration::from_secs(5);

/// Idle control connections are kept for so long: a login takes four round trips. vsftpd and proftpd close them after 300 s and more,
/// pure-ftpd after 15 minutes.
pub(crate) const IDLE_KEPT: Duration = Duration::from_secs(60);

/// Tries for one read of a file, or for one connection, that fail without progress. With the pauses below that is 15 s of a server that does
/// not answer.
pub(crate) const MAX_TRIES: u32 = 6;

/// The pause before the second try. Each further pause is twice as long.
pub const FIRST_PAUSE: Duration = Duration::from_millis(500);

/// Whoever waits with a connection in hand looks so often whether the server allows another one.
pub(crate) const LIMITS_LOOKED_AT: Duration = Duration::from_millis(250);

/// A read that nobody goes on with for this time gives its connection to another one, where the server allows no more connections.
pub(crate) const READING_RESTS: Duration = Duration::from_secs(1);

/// Whoever waits for a connection waits as long as others bring something within this time.
pub(crate) const TURN_PATIENCE: Duration = Duration::from_secs(40);

/// One more connection is tried this long after the server refused one: servers count a connection for a moment after its end.
pub(crate) const ONE_MORE_AFTER: Duration = Duration::from_secs(3);

/// Most transfers of a tree at once, unasked. vsftpd lets 50 connections of one address in; one is for lists and one is left.
pub const CONNECTIONS_MAX: u16 = 48;

/// Most control connections that are dialled before it is known how large the file is, the first one with them. Of an upload in blocks the
/// size is known, and all that one file uses are dialled.
pub(crate) const DIALLED_AHEAD: usize = 16;

/// Connections that are dialled ahead beside those of transfers: for questions about a file that is read, and for the transfer behind the one
/// that was just given up. A login on the way costs three round trips.
pub(crate) const SPARE: usize = 2;

/// On a shorter path, a port that is asked for ahead saves nothing that anybody would notice, and a server may have few ports.
pub const FAR_FROM_US: u32 = 20_000;

/// On a shorter path, the windows that a round trip holds are too small for their bursts to matter (as for the web).
pub(crate) const SPREAD_FROM_US: u32 = 20_000;

/// A chunk of this size is the least that travels alone (`MIN_CHUNK_BYTES` of the protocol).
pub(crate) const WORTH_PARTS_BYTES: u64 = 1 << 20;

/// A jump ends one transfer and begins another: EPSV, a connection and RETR are three round trips, and the new connection starts slowly.
/// That is four times what it costs at a web server, where it is a round trip.
pub(crate) const JUMP_BYTES_PER_US: u64 = 72;

/// A server is asked for the sum of a file of at most this size: it reads it at 200 MB/s within 40 s, and answers nothing meanwhile.
pub(crate) const MAX_SUMMED_BYTES: u64 = 8 << 30;

/// Chunks of an upload that broke off whose sum is asked for in one question: where it differs, each of them is asked for alone. A file of
/// 10 GB has 10,000 chunks, and 150 questions.
pub(crate) const MAX_PROVED_CHUNKS: usize = 64;

/// Bytes of such a question: a second or two of a server's disk.
pub(crate) const MAX_PROVED_BYTES: u64 = 256 << 20;

/// Bytes of the questions that one connection asks in one round trip. Between them it is looked whether time is up.
pub(crate) const PROVED_AT_ONCE_BYTES: u64 = 512 << 20;

/// The wait for all such questions about one file: nothing is decided about other files meanwhile. Within it four connections prove 200 GB;
/// what is left goes up again.
pub(crate) const PROVING_PATIENCE: Duration = Duration::from_secs(60);

/// Connections that ask at once: a processor of a server sums 1 GB/s.
pub(crate) const PROVING_CONNECTIONS: usize = 4;

/// The wait for such a sum.
pub(crate) const SUM_PATIENCE: Duration = Duration::from_secs(45);

/// Directories of the target whose lists are kept. A session has entries of few directories open at a time.
pub(crate) const MAX_KEPT_LISTINGS: usize = 8;

/// Entries of a directory that is kept, at most: about 20 MB. Names of a larger one are asked for one by one.
pub(crate) const MAX_KEPT_ENTRIES: usize = 100_000;

/// A file of at most this size is gathered before it goes up, and goes up again if the server has closed a connection that rested.
pub(crate) const GATHERED_BYTES: u64 = 1 << 20;

/// Blocks of a long file come in their order, but a lane may take over where another one still writes.
pub(crate) const ORDER_PATIENCE: Duration = Duration::from_secs(60);

/// Zeros that are written at once.
pub(crate) const ZEROS_BYTES: usize = 64 << 10;

/// A draft that nobody has written for so long is of a dead copy, as in `sftp`.
pub(crate) const LEFT_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// The pause between two looks at such a draft. A living copy gives it its name within a few round trips after it has set its time.
pub(crate) const LEFT_LOOKED_AGAIN: Duration = Duration::from_secs(3);

/// Drafts of one directory that are looked at, as in `sftp`.
pub(crate) const MAX_OURS: usize = 64 << 10;

/// Names of directories that are still to be looked through, as in `sftp`.
pub(crate) const MAX_LEFT_DIRECTORIES_BYTES: usize = 64 << 20;

/// Paths that the wildcards of one command stand for, as in `sftp`: about half a kilobyte each.
pub(crate) const MAX_SOURCES: usize = 100_000;

/// Names that the wildcards of one path are compared with, as in `sftp`.
pub(crate) const MAX_NAMES_COMPARED: usize = 8_000_000;

/// The wait for a connection of a server that sends: its way here may be barred. 10 s are two tries of its kernel more than it needs.
pub(crate) const LISTEN_PATIENCE: Duration = Duration::from_secs(10);

/// Connections of other hosts to the port of one transfer.
pub(crate) const MAX_STRANGERS: u32 = 16;

/// Marks of progress of one transfer: servers send two in 5 s, and some at its beginning and end.
pub(crate) const MARKERS_AT_ONCE: u64 = 64;

/// See above.
pub(crate) const MARKERS_PER_S: u64 = 10;

/// A shorter path is filled by one upload: the window of a usual host, 4 MB, is 2 GB/s over 2 ms.
pub const RANGES_FROM_US: u32 = 2_000;

/// A part of a file that is worth a connection of its own, however near the server is.
pub(crate) const WORTH_RANGES_BYTES: u64 = 8 << 20;

/// A file with which ranges are tried: two pages.
pub(crate) const TRIED_BYTES: usize = 8192;

/// A byte is written behind the end of one such file. A hole of a page is the least that a disk can leave out.
pub(crate) const TRIED_BEHIND: u64 = 12_288;

/// A byte is written inside the other one, which must stay as long.
pub(crate) const TRIED_WITHIN: u64 = 4096;

/// The wait for a server's processes at such a trial, beside the round trips: within it a busy one answers, too.
pub const RANGE_TRIAL_GRACE: Duration = Duration::from_millis(500);

/// Connections of one file that are cut and begun anew. Each may cost a chunk that is read back.
pub(crate) const MAX_CUTS: u32 = 16;

/// Bytes at the beginning of a range that are read back before the file gets its name.
pub(crate) const SEAM_BYTES: usize = 64;

/// Ranges of one file that are looked at so. A copy over 48 connections has about as many, and some more as lanes end.
pub(crate) const MAX_SEAMS: usize = 256;

/// Connections that read back at once: as many as a far path begins with.
pub(crate) const READ_BACK_AT_ONCE: usize = 16;

/// An upload waits for its turn as long as this, where all connections of the server are taken.
pub(crate) const UPLOAD_PATIENCE: Duration = Duration::from_secs(60);

/// How long one server may take to end a transfer that the other one has ended. Mostly it takes a round trip.
pub(crate) const OTHER_END_PATIENCE: Duration = Duration::from_secs(5);

/// Files that go between two servers at once: each takes a login at either of them, and a short one six round trips.
pub(crate) const BETWEEN_AT_ONCE: usize = 8;

/// Connections of one file between two servers, one for each [`STREAM_BYTES`]. `globus-url-copy -p` has mostly 4 to 8.
pub(crate) const STREAMS_MAX: u16 = 8;

/// See above: a shorter share is over before its connection has become fast.
pub(crate) const STREAM_BYTES: u64 = 4 << 20;

/// Bytes of a file between two servers whose sums are compared at once. Of a transfer that was cut so much goes again for each gap.
pub(crate) const COMPARED_BYTES: u64 = 16 << 20;

/// Gaps of such a file that are kept apart: what lies between further ones goes again with them.
pub(crate) const MAX_GAPS: usize = 1024;

/// Tries of a file between two servers. Each begins with what has come, and then it goes through this host.
pub(crate) const BETWEEN_TRIES: u32 = 3;

/// Data nodes of a striped server: each upload has a connection to each of them. With more, each transfer goes over one.
pub(crate) const MAX_STRIPES: usize = 16;

/// What one data node sends before the next one goes on: a block of globus-gridftp-server. So all of them fill the first window of a
/// connection, 64 kB and more, while one is read.
pub(crate) const STRIPE_BLOCK_BYTES: u64 = 256 << 10;

/// A file that is worth the ports and connections of all data nodes. A shorter one comes from one node, over a connection that stays.
pub(crate) const WORTH_STRIPES_BYTES: u64 = 8 << 20;

/// A file of so many bytes waits a round trip for that trial: one stream of 4 MB a round trip brings it in 25.
pub(crate) const WORTH_ROUND_TRIP_BYTES: u64 = 100_000_000;

/// A file of so many bytes waits a microsecond for the server's processes at that trial: a fortieth of its time at 1 Gbit/s.
pub(crate) const WORTH_MICROSECOND_BYTES: u64 = 5_000;

/// A file waits at least so long for them. A busier server gets files in one stream.
pub const RANGE_FILE_GRACE: Duration = Duration::from_millis(2);
