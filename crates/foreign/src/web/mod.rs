//! Files and directories of a web server: as a source, and to look at.

pub(crate) mod bodies;
pub(crate) mod connections;
pub(crate) mod file;
mod index_page;
mod limits;
mod look;
pub(crate) mod place;
pub(crate) mod served;
pub(crate) mod tree;
pub(crate) mod version;
mod walk;
