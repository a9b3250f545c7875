//! Files, lists of their hashes and manifests, apart from any session.

pub mod bag;
pub(crate) mod digest;
pub(crate) mod hash;
pub mod hash_list;
pub mod manifest_file;
pub(crate) mod sparse;
pub(crate) mod zeros;
