//! Moves the bytes of a file across this host: from the page cache into a connection, and out of a connection into a file.
//!
//! ```text
//! route     the ways there are; one that the kernel refuses is dropped once, for all lanes
//! send      a range of a file -> connection     splice, sendfile, io_uring, mmap, copy
//! receive   connection -> a range of a file     splice, direct, copy; or nowhere: discard, null, copy
//! ```
//! The kernel can move the pages itself if the connection is clear, or if the kernel seals its records (kernel TLS); over TLS
//! in user space only `copy` can. A tap shows each block to a caller that hashes.

#![forbid(unsafe_code)]

mod receive;
mod route;
#[cfg(test)]
#[path = "../tests/inside/scenarios.rs"]
mod scenarios;
mod send;
mod tap;

pub use receive::{ReceiveError, ReceivePump, Target};
pub use route::{Dropped, ReceiveRoute, Routes, SendRoute};
pub use send::{SendError, SendFailed, SendPump};
pub use tap::Tap;
