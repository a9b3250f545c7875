//! The hash of a chunk or of a file.

/// A BLAKE3 hash or chaining value.
pub type Hash = [u8; 32];
