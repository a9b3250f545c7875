//! How the bytes of a file cross this host: from the page cache into a connection, and out of a connection into a file.
//!
//! ```text
//! route     the ways there are, and what is left of them: one that the kernel refuses is dropped once, for all lanes
//! send      a range of a file -> connection     splice, sendfile, io_uring, mmap, copy
//! receive   connection -> a range of a file     splice, direct, copy; or nowhere: discard, null, copy
//! ```
//! The kernel can move the pages itself where the connection is clear, and where it seals the records (kernel TLS); over TLS in user space
//! only `copy` can. Whoever wants to see the bytes (to hash them) gives a tap: it is shown each block, from the page cache, in pieces that
//! stay in the processor's own cache between the two looks at them.

#![forbid(unsafe_code)]

mod receive;
mod route;
#[cfg(test)]
#[path = "../tests/inside/scenarios.rs"]
mod scenarios;
mod send;

pub use receive::{ReceiveError, ReceivePump, Target};
pub use route::{Dropped, ReceiveRoute, Routes, SendRoute};
pub use send::{SendError, SendFailed, SendPump};

/// Shown every byte that passes, in order.
pub type Tap<'a> = &'a mut dyn FnMut(&[u8]);

/// Read and hashed at a time: small enough that the block is still in the second-level cache (2 MiB here) when it is looked at again,
/// large enough that the system call is lost in it. Larger pieces hashed 5 to 10 % slower in the lanes' own measurements.
const TAP_BYTES: usize = 256 << 10;
