//! Ends that foreign servers serve: files of a web server, as a source; a WebDAV tree and objects of an S3 store, as source and
//! target.
//!
//! ```text
//! URLs -> open: a look at each -> WebTree
//!   items  -> Walk: index pages, a look at each file          (HEAD)
//!   open   -> RemoteFile: bodies that are read onward         (GET, with the version that it has to be)
//! a path -> WebPlace: a look, a page of names, or a RemoteFile
//! URL -> DavServer -> DavTarget
//!   new_draft_of -> DavDraft: one upload in order              (PUT, PROPFIND, MOVE)
//! s3://BUCKET/KEY -> open_objects, Bucket, S3Place: see `s3`
//! ```
//! Callers are plain threads and block. hyper speaks HTTP/1.1 in a runtime for each connection; there is no HTTP/2, because
//! several connections are the point.
//!
//! A server is trusted with nothing: each length, range, version, name and link is checked, and `limits.rs` bounds all that it
//! may make us keep, follow or repeat.

#![forbid(unsafe_code)]

mod dav;
mod digest;
mod http_client;
mod s3;
mod web;

pub use dav::target::open::OpenOptions;
pub use dav::target::tree::Tell;
pub use dav::target::{DavServer, DavTarget};
pub use digest::Digest;
pub use digest::adler32_parts::Adler32Parts;
pub use digest::fields::of_hex as digest_of_hex;
pub use digest::hasher::Hasher;
pub use http_client::client::Settings;
pub use http_client::credentials::{Credentials, Login};
pub use http_client::pool::BeginsWith;
pub use http_client::reach::{Counted, Reach, Sockets};
pub use http_client::trust::trusting;
pub use http_client::url::{Origin, Url};
pub use s3::environment::Environment as StoreEnvironment;
pub use s3::place::{PlaceSettings, S3Place};
pub use s3::source::{OpenedObjects, open_objects};
pub use s3::target::{Bucket, OpenedBucket, TargetSettings, Told};
pub use web::file_sum::{FileSum, Sums};
pub use web::place::WebPlace;
pub use web::tree::{Lists, Opened, open};
