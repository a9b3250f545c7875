//! Trees at servers of FTP, in clear and over TLS: to copy from, to copy to, and to look at.
//!
//! ```text
//! Settings -> Server: a pool of control connections          (USER, PASS, EPSV)
//!   FtpSource: items -> lists                                 (MLSD, or LIST and MDTM)
//!              open  -> files, each read by several transfers (REST, RETR)
//!   FtpTarget: drafts, each one upload in order               (STOR, then RNFR and RNTO)
//!              or the server of the source sends it               (PASV there, PORT here: GridFTP's third party)
//!   FtpPlace:  one path at a time, for people
//! ```
//! Callers are plain threads and block. Every connection is dialled as those to web servers are: with its network class, from the address
//! that was asked for, and counted.
//!
//! A server is trusted with nothing: each line, size, name and end is checked, and all that it may make us keep or repeat has its limit in
//! `limits.rs`. An end without the server's word for it (226), or with TLS without `close_notify`, is a cut.

#![forbid(unsafe_code)]

mod account;
mod block_habits;
pub mod codec;
mod control;
mod entry;
mod leftovers;
mod limits;
mod markers;
mod paths;
mod pipe;
mod place;
mod pool;
mod range_habits;
mod refusal;
mod server;
mod source;
mod stripes;
mod target;
mod transfer;
mod wildcards;
mod wire;

pub use account::{Security, Settings, Tell, TellSums};
pub use block_habits::Grid;
pub use limits::{CONNECTIONS_MAX, FAR_FROM_US, FIRST_PAUSE, RANGE_FILE_GRACE, RANGE_TRIAL_GRACE, RANGES_FROM_US};
pub use pipe::{MakePipe, Pipe};
pub use place::FtpPlace;
pub use range_habits::RangeUploads;
pub use source::FtpSource;
pub use target::open::OpenOptions;
pub use target::{FtpServer, FtpTarget};
