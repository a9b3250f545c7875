//! Objects of S3 stores as files.
//!
//! ```text
//! s3://BUCKET/KEY -> access: endpoint, region -> store: signed requests
//!   source: listing -> names in order -> a look at each object (HEAD) -> ranges of it (GET, with the version that it has to be)
//!   target: small files by one PUT; larger ones in parts, with a journal on this host, until Complete shows the object
//! ```

mod access;
mod at_once;
mod copying;
mod credentials;
pub(crate) mod environment;
mod kept;
mod limits;
mod listing;
pub(crate) mod place;
mod removal;
mod reqsign_io;
mod role;
pub(crate) mod source;
mod store;
mod sts;
mod sums;
pub(crate) mod target;
mod uploads;
mod xml;
