//! Ends that other people's servers serve: files and directories of a web server, to copy from.
//!
//! ```text
//! URLs -> open: a look at each -> WebTree
//!   items  -> Walk: index pages, a look at each file          (HEAD)
//!   open   -> RemoteFile: bodies that are read onward         (GET, with the version that it has to be)
//! ```
//! Callers are plain threads and block. hyper speaks HTTP/1.1 underneath, each connection with a runtime of its own: several
//! connections are the point, so there is no HTTP/2.
//!
//! A server is trusted with nothing: each length, range, version, name and link is checked, and all that it may make us keep, follow or
//! repeat has its limit in `limits.rs`.

#![forbid(unsafe_code)]

mod http_client;
mod web;

pub use http_client::client::Settings;
pub use http_client::credentials::{Credentials, Login};
pub use http_client::pool::BeginsWith;
pub use http_client::reach::Reach;
pub use http_client::url::{Origin, Url};
pub use web::tree::{Opened, open};
