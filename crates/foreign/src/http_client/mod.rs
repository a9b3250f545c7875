//! Requests to foreign HTTP servers: connections, TLS, redirects, credentials, further tries.

pub(crate) mod client;
pub(crate) mod connection;
pub(crate) mod credentials;
pub(crate) mod fields;
pub(crate) mod gathering;
pub(crate) mod limits;
pub(crate) mod outgoing;
pub(crate) mod pool;
pub(crate) mod reach;
pub(crate) mod trust;
pub(crate) mod url;
