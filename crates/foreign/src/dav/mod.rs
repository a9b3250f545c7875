//! WebDAV (RFC 4918): properties of a server's resources, and a tree as a target.

pub(crate) mod href;
pub(crate) mod limits;
pub(crate) mod multistatus;
pub(crate) mod propfind;
pub(crate) mod target;
