//! The web's front door: files and directories to readers over HTTP/1.1 and HTTP/2, in clear or over TLS.
//!
//! ```text
//!   server      listen -> accept, tuned by the policy of the caller's network -> connection -> requests
//!   transport   the connection under hyper: a marker in its output becomes sendfile of a file's range
//!   request     what was asked: path, range, conditions, wishes
//!   access      who asks, and which directory that is
//!   answer      a file, a directory's page, or a short refusal
//! ```
//! HTTP itself is hyper's: parsing, chunking, HTTP/2. Async stays inside this crate. Only what the kernel has in memory
//! is read in an async thread; what may wait for a disk runs in the bounded pool of blocking threads.

#![forbid(unsafe_code)]

pub mod access;
mod answer;
pub mod limits;
mod request;
mod server;
mod transport;

pub use limits::Limits;
pub use server::{Options, Service, Tell};
