//! Trees at a host that speaks SFTP, version 3, where no haul can run: to read, and to write.
//!
//! ```text
//!   codec        packets and their fields                 draft-ietf-secsh-filexfer-02; OpenSSH, PROTOCOL, section 4
//!   connection   many requests under way, answers in any order           pipe   ssh, or a program of this host
//!   server       operations that wait for their answer                   pool   several connections          dials   makes them
//!   source       SourceTree: a walk, files read ahead
//!   target       TargetTree: drafts, journals, names                     place  PlaceTree: one path at a time
//! ```
//! A server is distrusted: every length, count and name is checked, every wait ends, and memory has bounds in `limits.rs`.
//! No other sum of the content exists in version 3: what was written is proved by what is read back, or not at all.

#![forbid(unsafe_code)]

pub mod codec;
mod connection;
mod dials;
mod entry;
mod leftovers;
mod limits;
mod listing;
mod paths;
mod pipe;
mod place;
mod place_in_line;
mod pool;
mod server;
mod source;
mod spread;
mod target;
mod turns;

pub use connection::ConnectError;
pub use dials::{Ahead, Beside, Dial, Dials, Refused};
pub use limits::{MAX_ASKED_CONNECTIONS, MAX_CONNECTIONS};
pub use pipe::Pipe;
pub use place::SftpPlace;
pub use pool::Pool;
pub use server::{Features, Handle, Server};
pub use source::SftpSource;
pub use target::{OpenOptions, SftpTarget, Tell};
