//! Files and directories of a web server: as a source, and to look at.

pub(crate) mod bodies;
mod collection;
pub(crate) mod connections;
pub(crate) mod file;
pub(crate) mod file_sum;
pub(crate) mod index_page;
pub(crate) mod limits;
mod look;
pub(crate) mod notes;
pub(crate) mod place;
pub(crate) mod served;
pub(crate) mod tree;
pub(crate) mod version;
mod walk;
