//! The error of a packet that breaks the format.

/// A packet that breaks the format; the text continues a sentence about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct Malformed(pub &'static str);
