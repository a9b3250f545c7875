//! Files, lists of their hashes, and manifests, apart from any session.

pub mod bag;
pub mod digest;
pub mod hash;
pub mod hash_list;
pub mod manifest_file;
pub mod sparse;
pub mod zeros;
