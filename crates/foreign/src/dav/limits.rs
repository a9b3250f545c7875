//! The limits of answers in XML.

/// Bytes of one answer. An entry has 1 KB of XML with most servers, so this is a directory of some million names.
pub(crate) const MAX_ANSWER_BYTES: u64 = 4 << 30;

/// Elements within elements. A multistatus with its properties has eight.
pub(crate) const MAX_DEPTH: usize = 32;

/// The text of one property. A path of 4 KiB is three times as long when it is escaped, and lists of sums have 300 bytes.
pub(crate) const MAX_TEXT_BYTES: usize = 16 << 10;

/// Bytes between two marks of the XML, as the reader keeps them: attributes of an element, or a text.
pub(crate) const MAX_EVENT_BYTES: usize = 64 << 10;

/// Sums of one resource. Servers give one to three.
pub(crate) const MAX_DIGESTS: usize = 8;
