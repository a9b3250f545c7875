//! Files and directories of a web server, as a source.

mod bodies;
mod connections;
mod file;
mod index_page;
mod limits;
mod look;
mod served;
pub(crate) mod tree;
mod version;
mod walk;
