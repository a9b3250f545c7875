//! The connection under hyper, and how a file's bytes get into it without passing through this process.
//!
//! ```text
//! body   puts a range of a file into the queue -> gives hyper a marker of the same length (`piece.rs`)
//! hyper  counts the marker against Content-Length, and hands it on as a slice
//! io     knows the slice by its address -> sendfile of what stands first in the queue (`io.rs`)
//! ```
//! The marker's [`bytes::Buf::chunk`] panics, which ends only that connection, so zeros cannot be sent in place of a file.

pub(crate) mod io;
pub(crate) mod line;
pub(crate) mod piece;
