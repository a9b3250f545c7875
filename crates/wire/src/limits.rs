//! Every limit of the protocol, with its arithmetic. Both ends enforce them.

/// Fits an entry with the largest extended attributes (256 KiB) and the longest path.
pub const MAX_CONTROL_FRAME_BYTES: usize = 1 << 20;

/// A batch goes at this size, or when nothing else waits.
pub const BATCH_BYTES: usize = 32 << 10;

/// Items with extended attributes, answers or outcomes in a frame. The least item takes 10 bytes on the wire and 176 in memory,
/// the least outcome 2 and 48: 1 MiB becomes at most 3 MiB, not 18 or 24.
pub const MAX_BATCH_ITEMS: usize = 16 << 10;

/// Linux bounds a path in a system call (4096), not a tree's depth.
pub const MAX_PATH_BYTES: usize = 32 << 10;

/// Linux file systems stop at 255.
pub const MAX_NAME_BYTES: usize = 255;

/// PATH_MAX.
pub const MAX_LINK_TARGET_BYTES: usize = 4096;

/// A peer's longest reason, warning or error.
pub const MAX_TEXT_BYTES: usize = 4096;

/// Unresolved items. A path of 10 Gbit/s and 100 ms carries 7,600 files of 16 KiB; 16 Ki items of 400 bytes are 6.5 MiB on each
/// side.
pub const MAX_OPEN_ITEMS: usize = 16 << 10;

/// All open items' paths, link targets and attributes: 250 bytes each.
pub const MAX_OPEN_ITEM_BYTES: usize = 4 << 20;

/// Unfinished directories: 900 levels of 35 bytes, the longest path, are 14 MiB.
pub const MAX_NESTING_BYTES: usize = 32 << 20;

/// A lane holds two. With 64 KiB, 2 GB over loopback took 6 % longer, in more system calls.
pub const BLOCK_BYTES: usize = 256 << 10;

/// A power of two, for subtrees of the BLAKE3 tree. With 32 lanes on 1 Gbit/s, 4 MiB would take a lane a second, and most lanes
/// would wait at the end.
pub const MIN_CHUNK_BYTES: u64 = 1 << 20;

/// A ledger of 65,536 takes 2 MiB. 8 EiB / 64 Ki = 128 TiB chunks at worst.
pub const MAX_CHUNKS_PER_FILE: u32 = 64 << 10;

/// Missing ranges in an answer, then rounded up.
pub const MAX_RANGES: usize = 4096;

/// Lanes of a session.
pub const MAX_LANES: u16 = 256;

/// Every host takes such segments over IPv4 unasked (RFC 9293, section 3.7.1): no smaller one is announced.
pub const MIN_SEGMENT_BYTES: u16 = 536;

/// Two hosts with eight ports each. A lane's number holds its path: 8 x 256.
pub const MAX_PATHS: u16 = 8;

/// Hosts of an end besides its leader, on paths from the last down; the leader keeps four.
pub const MAX_MOVERS: u16 = 4;

/// Linux lists 64 KiB of an entry's names (XATTR_LIST_MAX), none shorter than `user.x` and its zero byte.
pub const MAX_XATTRS: usize = (64 << 10) / 7;

/// An entry's names and values.
pub const MAX_XATTR_BYTES: usize = 256 << 10;

/// A user or group (LOGIN_NAME_MAX).
pub const MAX_ACCOUNT_NAME_BYTES: usize = 256;

/// Named users and groups; others keep their numbers. A receiver keeps two of each: 64 KiB.
pub const MAX_NAMED_ACCOUNTS: usize = 4096;

/// The kernel allows 8 additional subflows of a connection.
pub const MAX_SUBFLOWS: usize = 32;

/// Each tree is searched for each missing file, as in rsync.
pub const MAX_REFERENCES: usize = 20;

/// Each rule is tried for each owner.
pub const MAX_ACCOUNT_RULES: usize = 1024;

/// Source paths and filter rules in a frame.
pub const MAX_SPEC_ITEMS: usize = 64 << 10;

/// A far sender's `--files-from`: three million paths of 80 bytes.
pub const MAX_LISTED_BYTES: usize = 256 << 20;

/// Linux has some twenty.
pub const MAX_CONGESTION_CONTROLS: usize = 64;

/// TCP_CA_NAME_MAX of 16, less its zero byte.
pub const MAX_CONGESTION_CONTROL_BYTES: usize = 15;

/// Addresses of one side.
pub const MAX_CANDIDATES: usize = 64;

/// A login shell's noise before our banner.
pub const MAX_BANNER_NOISE_BYTES: usize = 64 << 10;

/// Ten times what a path of 300 ms needs to grow to speed. Both ways take two minutes, and 75 GB each at 10 Gbit/s.
pub const MAX_PROBE_MS: u32 = 60_000;
