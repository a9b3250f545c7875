//! Every limit of the protocol, with its arithmetic. Both ends enforce them.

/// Longest control frame. Batches are far smaller ([`BATCH_BYTES`]); one entry with the largest extended attributes
/// (256 KiB) and the longest path still fits.
pub const MAX_CONTROL_FRAME_BYTES: usize = 1 << 20;

/// A batch of manifest items, answers or outcomes is sent at this size, or when nothing else waits.
pub const BATCH_BYTES: usize = 32 << 10;

/// Items with their extended attributes, answers or outcomes in one control frame. The least item takes 10 bytes on the
/// wire and 176 in memory, the least outcome 2 and 48: a frame of 1 MiB becomes at most 3 MiB, and without this bound
/// 18 or 24.
pub const MAX_BATCH_ITEMS: usize = 16 << 10;

/// Longest path relative to the tree. Linux bounds a path in one system call (4096), not the depth of a tree.
pub const MAX_PATH_BYTES: usize = 32 << 10;

/// Longest name of one directory entry; Linux file systems stop at 255.
pub const MAX_NAME_BYTES: usize = 255;

/// Longest symbolic link target (PATH_MAX).
pub const MAX_LINK_TARGET_BYTES: usize = 4096;

/// Longest text of a reason, warning or error that a peer may send.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Manifest items sent but not yet resolved. A path of 10 Gbit/s and 100 ms carries 7,600 files of 16 KiB at once;
/// 16 Ki items of about 400 bytes are 6.5 MiB on each side.
pub const MAX_OPEN_ITEMS: usize = 16 << 10;

/// Paths, link targets and attributes of all open items together: many long ones cannot multiply with the limit above.
/// At 250 bytes each, all items fit.
pub const MAX_OPEN_ITEM_BYTES: usize = 4 << 20;

/// Directories whose listing is not complete, with their paths: 900 levels of 35 bytes, as deep as the longest path,
/// are 14 MiB.
pub const MAX_NESTING_BYTES: usize = 32 << 20;

/// Largest block of payload; a lane holds two. With 64 KiB, 2 GB over loopback took 6 % longer: more system calls for
/// the same bytes.
pub const BLOCK_BYTES: usize = 256 << 10;

/// Smallest chunk. A power of two, so that chunks are whole subtrees of the file's BLAKE3 tree. With 32 lanes on a path
/// of 1 Gbit/s a chunk of 4 MiB would take a lane a whole second, and at the end most lanes would wait for the last
/// ones.
pub const MIN_CHUNK_BYTES: u64 = 1 << 20;

/// Most chunks of one file: a ledger of 65,536 chunks takes 2 MiB. 8 EiB / 64 Ki = 128 TiB chunks at worst.
pub const MAX_CHUNKS_PER_FILE: u32 = 64 << 10;

/// Ranges of missing chunks in one answer; an answer with more rounds up to whole stretches.
pub const MAX_RANGES: usize = 4096;

/// Most lanes of one session, over all its paths.
pub const MAX_LANES: u16 = 256;

/// The largest segment that every host takes over IPv4 without a word (RFC 9293, section 3.7.1). No smaller one is announced.
pub const MIN_SEGMENT_BYTES: u16 = 536;

/// Most paths of one session: two hosts with eight ports each. A lane's number holds its path, so that 8 x 256 numbers are in use.
pub const MAX_PATHS: u16 = 8;

/// Most hosts of one end besides its leader. Each has one of the paths, counted from the last one down; the leader keeps at least four.
pub const MAX_MOVERS: u16 = 4;

/// Extended attributes of one entry. Linux lists at most 64 KiB of names (XATTR_LIST_MAX), of which none is shorter than `user.x` and
/// its zero byte.
pub const MAX_XATTRS: usize = (64 << 10) / 7;

/// Names and values of these attributes together.
pub const MAX_XATTR_BYTES: usize = 256 << 10;

/// Longest name of a user or group that travels beside its number (LOGIN_NAME_MAX).
pub const MAX_ACCOUNT_NAME_BYTES: usize = 256;

/// Users and groups of one session whose names are sent or believed; further ones keep their numbers. A receiver keeps
/// two numbers of each: 64 KiB.
pub const MAX_NAMED_ACCOUNTS: usize = 4096;

/// Most pairs of addresses of one path whose subflows are told: the kernel allows 8 additional subflows of a connection.
pub const MAX_SUBFLOWS: usize = 32;

/// Reference trees of one job, as in rsync. Each is searched for each missing file.
pub const MAX_REFERENCES: usize = 20;

/// Rules of one job for users, and as many for groups. Each is tried for each owner.
pub const MAX_ACCOUNT_RULES: usize = 1024;

/// Source paths and filter rules of one job; they travel in one frame.
pub const MAX_SPEC_ITEMS: usize = 64 << 10;

/// The bytes that the paths of `--files-from` may take at a far side that sends: three million paths of 80 bytes.
pub const MAX_LISTED_BYTES: usize = 256 << 20;

/// Congestion controls a host may tell; Linux has some twenty.
pub const MAX_CONGESTION_CONTROLS: usize = 64;

/// Longest name of a congestion control: the kernel's TCP_CA_NAME_MAX of 16, less its zero byte.
pub const MAX_CONGESTION_CONTROL_BYTES: usize = 15;

/// Addresses that one side offers.
pub const MAX_CANDIDATES: usize = 64;

/// Bytes that a login shell may print before the banner of our agent.
pub const MAX_BANNER_NOISE_BYTES: usize = 64 << 10;

/// Longest time that a probe sends one way: ten times what a path of 300 ms needs to grow to speed. Both ways occupy a
/// far side for two minutes, and 10 Gbit/s for 75 GB each way.
pub const MAX_PROBE_MS: u32 = 60_000;
