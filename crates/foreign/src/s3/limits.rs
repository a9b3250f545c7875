//! The limits of a store's answers, and of what is sent to it.

use std::time::Duration;

/// 1000 escaped keys of 1024 bytes, with 500 bytes beside each, have 3.6 MB.
pub(super) const MAX_PAGE_BYTES: usize = 8 << 20;

/// Any other answer in XML.
pub(super) const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Stores give at most this many keys a page.
pub(super) const PAGE_KEYS: usize = 1000;

/// Pages in a row without a key; deleted keys may leave some.
pub(super) const MAX_EMPTY_PAGES: u32 = 100;

/// Amazon S3 User Guide, "Naming objects".
pub(super) const MAX_KEY_BYTES: usize = 1024;

/// Linux's longest name of a file.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Nested directories. Each keeps a page of at most 1 MB meanwhile.
pub(super) const MAX_DEPTH: usize = 128;

/// Entries held back until none can come in front of them.
pub(super) const LOOKAHEAD: usize = 2 * PAGE_KEYS;

/// Each look is a request on its own connection: at 30 ms about 500 a second.
pub(super) const LOOKS_AT_ONCE: usize = 16;

/// Objects looked at ahead of the one handed out.
pub(super) const LOOKS_AHEAD: usize = 128;

/// An object up to this size may come with its metadata, in one answer. For a larger one the request that this saves weighs less
/// than its content, which several lanes may read.
pub(super) const SMALL_OBJECT_BYTES: u64 = 256 << 10;

/// Contents that came with their metadata and wait for a lane: as many of the largest as are looked at ahead. Beyond, an object
/// is asked for its metadata alone.
pub(super) const CONTENTS_AHEAD_BYTES: u64 = LOOKS_AHEAD as u64 * SMALL_OBJECT_BYTES;

/// A link's text is a path.
pub(super) const MAX_LINK_BYTES: u64 = 4096;

/// A settings or credentials file of Amazon's tools.
pub(super) const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// The metadata service of a virtual machine is near, or absent.
pub(super) const METADATA_SERVICE_PATIENCE: Duration = Duration::from_secs(1);

/// An error passes on so much of what a service says. A proxy may have answered with a page.
pub(super) const MAX_SAID_CHARS: usize = 500;

/// Roles in a row, each a request. Amazon's own limit is an hour a session, not a number.
pub(super) const MAX_ROLES: usize = 8;

/// The longest answer of a service of credentials.
pub(super) const MAX_CREDENTIALS_BYTES: usize = 256 << 10;

/// The least part but the last.
pub(super) const LEAST_PART_BYTES: u64 = 5 << 20;

/// Most parts of an object.
pub(super) const MAX_PARTS: u32 = 10_000;

/// A part up to this size is held until the store has it, one for each lane. With 10,000 parts an object has 640 GiB; larger parts
/// go to the store while they are written.
pub(super) const HELD_PART_BYTES: u64 = 64 << 20;

/// All held parts together: 16 of the largest. A part beyond goes to the store while it is written.
pub(super) const ALL_HELD_BYTES: u64 = 1 << 30;

/// Requests under way are refused within a round trip or two: one answer to them is enough.
pub(super) const SLOWER_AFTER: Duration = Duration::from_secs(1);

/// As for bodies that a server refused.
pub(super) const ONE_MORE_AFTER: Duration = crate::web::limits::ONE_MORE_AFTER;

/// Stores take parts of 5 GiB; ours are powers of two.
pub(super) const MAX_PART_BYTES: u64 = 4 << 30;

/// 39 TiB. Amazon takes 50 TB; other stores tell their own limit.
pub(super) const MAX_OBJECT_BYTES: u64 = MAX_PARTS as u64 * MAX_PART_BYTES;

/// Every store takes this much: Amazon's took 5 TiB for fifteen years.
pub(super) const SURE_OBJECT_BYTES: u64 = 5 << 40;

/// The largest object that one request copies.
pub(super) const MAX_COPIED_BYTES: u64 = 5 << 30;

/// 5 TiB have 10,000 parts of 525 MiB; smaller parts are copied sooner, several at once.
pub(super) const COPIED_PART_BYTES: u64 = 512 << 20;

/// The store does the work: a request waits for seconds.
pub(super) const PARTS_COPIED_AT_ONCE: usize = 8;

/// Each move takes three requests, one after the other.
pub(super) const MOVES_AT_ONCE: usize = 16;
