//! WebDAV (RFC 4918): properties of what a server has, and a tree at a server as a target.

pub(crate) mod href;
pub(crate) mod limits;
pub(crate) mod multistatus;
pub(crate) mod propfind;
pub(crate) mod target;
