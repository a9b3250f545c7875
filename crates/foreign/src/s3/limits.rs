//! The limits of the store's answers, and of what is sent to it.

use std::time::Duration;

/// A page of a listing: 1000 keys of 1024 bytes, each byte escaped, with about 500 bytes beside each, are 3.6 MB.
pub(super) const MAX_PAGE_BYTES: usize = 8 << 20;

/// Any other answer in XML.
pub(super) const MAX_ANSWER_BYTES: usize = 1 << 20;

/// Keys of one page. Stores give at most this many.
pub(super) const PAGE_KEYS: usize = 1000;

/// Pages one after the other without a key, of a listing that goes on. Deleted keys may leave some.
pub(super) const MAX_EMPTY_PAGES: u32 = 100;

/// The longest key (Amazon S3 User Guide, "Naming objects").
pub(super) const MAX_KEY_BYTES: usize = 1024;

/// The longest name of a file on Linux.
pub(super) const MAX_NAME_BYTES: usize = 255;

/// Directories within directories. Each keeps a page of at most 1 MB while those beneath it are walked.
pub(super) const MAX_DEPTH: usize = 128;

/// Entries of one directory that are held back until nothing can come in front of them.
pub(super) const LOOKAHEAD: usize = 2 * PAGE_KEYS;

/// Objects whose metadata is asked for at once, each by one request on a connection of its own: at 30 ms about 500 each second.
pub(super) const LOOKS_AT_ONCE: usize = 16;

/// Objects that are looked at ahead of the one that is handed out.
pub(super) const LOOKS_AHEAD: usize = 128;

/// The text of a link is a path.
pub(super) const MAX_LINK_BYTES: u64 = 4096;

/// A file of settings or credentials of Amazon's tools.
pub(super) const MAX_SETTINGS_BYTES: u64 = 1 << 20;

/// The metadata service of a virtual machine is near, or not there at all.
pub(super) const METADATA_SERVICE_PATIENCE: Duration = Duration::from_secs(1);

/// The longest answer of a service of credentials.
pub(super) const MAX_CREDENTIALS_BYTES: usize = 256 << 10;

/// The smallest part that a store takes, but for the last one.
pub(super) const LEAST_PART_BYTES: u64 = 5 << 20;

/// Most parts of an object.
pub(super) const MAX_PARTS: u32 = 10_000;

/// A part of this size is held in memory until the store has it, one for each lane: 16 lanes of a far store hold 1 GiB at most. With 10,000 parts an
/// object then has 640 GiB. Larger parts go to the store while they are written.
pub(super) const HELD_PART_BYTES: u64 = 64 << 20;

/// The largest part: stores take 5 GiB, and parts are powers of two.
pub(super) const MAX_PART_BYTES: u64 = 4 << 30;

/// The largest object: 39 TiB. Amazon's store takes 50 TB; what another one takes it says itself.
pub(super) const MAX_OBJECT_BYTES: u64 = MAX_PARTS as u64 * MAX_PART_BYTES;

/// The largest object that every store takes: Amazon's took 5 TiB for fifteen years.
pub(super) const SURE_OBJECT_BYTES: u64 = 5 << 40;

/// The largest object that one request copies.
pub(super) const MAX_COPIED_BYTES: u64 = 5 << 30;

/// A part of a larger one. 5 TiB have 10,000 parts of 525 MiB; smaller ones are copied sooner, several at once.
pub(super) const COPIED_PART_BYTES: u64 = 512 << 20;

/// Parts that the store copies at once. It does the work: a request waits for some seconds.
pub(super) const PARTS_COPIED_AT_ONCE: usize = 8;

/// Objects that the store moves at once. Each takes three requests, one after the other.
pub(super) const MOVES_AT_ONCE: usize = 16;
