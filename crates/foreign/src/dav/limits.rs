//! The limits of answers in XML.

/// A directory of some million names, at 1 KB each.
pub(crate) const MAX_ANSWER_BYTES: u64 = 4 << 30;

/// A multistatus with its properties has eight.
pub(crate) const MAX_DEPTH: usize = 32;

/// An escaped path has three times 4 KiB, and lists of sums have 300 bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// Attributes of an element, or a text, that the reader keeps.
pub(crate) const MAX_EVENT_BYTES: usize = 64 << 10;

/// Sums of one resource. Servers give one to three.
pub(crate) const MAX_DIGESTS: usize = 8;
