//! Moves the bytes of a file across this host: from the page cache into a connection, and out of a connection into a
//! file.
//!
//! ```text
//! route     the ways there are, and what is left of them: one that the kernel refuses is dropped once, for all lanes
//! send      a range of a file -> connection     splice, sendfile, io_uring, mmap, copy
//! receive   connection -> a range of a file     splice, direct, copy; or nowhere: discard, null, copy
//! ```
//! The kernel can move the pages itself if the connection is clear, or if the kernel seals its records (kernel TLS);
//! over TLS in user space only `copy` can. A caller that wants to see the bytes, to hash them, gives a tap: it is shown
//! each block, in pieces that stay in the processor's cache between the two looks.

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
