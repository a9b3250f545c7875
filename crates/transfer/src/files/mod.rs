//! Files and manifests, apart from any session.

pub(crate) mod hash;
pub mod manifest_file;
pub(crate) mod sparse;
pub mod verify;
pub(crate) mod zeros;
