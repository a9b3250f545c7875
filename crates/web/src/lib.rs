//! The web's front door: files and directories over HTTP/1.1 and HTTP/2, in clear or over TLS.
//!
//! ```text
//!   server      listens and accepts, on a few threads
//!   connection  tuned by the policy of the caller's network, HTTP/1.1 or HTTP/2
//!   resting     connections without a request: a descriptor and a seat each
//!   respond     for each request: check -> who asks -> answer -> a line of the log
//!   transport   the connection under hyper: a marker in its output becomes sendfile of a file's range
//!   request     what was asked: path, range, conditions, wishes
//!   token       what a bearer shows; `tls`: certificates
//!   cors        which pages of other origins may read answers
//!   access      who asks, and which directory that is
//!   budget      memory and places, in turn; `pools`: threads for what may wait
//!   answer      a file, a directory's page, or a short refusal
//! ```
//! hyper does HTTP itself. Async stays inside this crate. An async thread reads only what the kernel has in memory; work that may
//! wait for a disk, or takes a processor for long, runs in the pools.

#![forbid(unsafe_code)]

pub mod access;
mod answer;
mod budget;
mod connection;
mod cors;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod house;
pub mod limits;
mod pools;
mod reader_log;
mod request;
mod respond;
mod resting;
mod server;
pub mod tls;
pub mod token;
mod transport;

pub use answer::manifest::{ManifestFile, ManifestFormat};
pub use cors::Cors;
pub use limits::Limits;
pub use reader_log::{Answered, Tell, Told};
pub use server::{Options, Service};
