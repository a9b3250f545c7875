//! Holds what stays between runs: keys, known paths and routes, network classes, policies; lists of hashes and manifests; and the
//! errors and locks that every crate above shares.
//!
//! ```text
//!   own_files, surroundings   where they are, and whether they may be obeyed
//!   trusted_keys              who may come in                known_paths, known_routes   what earlier jobs found
//!   network_classes           near and far, by address       class_policy, hook_words    what an operator allows
//!   files                     hashes, manifests, verification, apart from any session
//! ```

#![forbid(unsafe_code)]

pub mod class_policy;
pub mod faults;
pub mod files;
pub mod hook_words;
pub mod known_paths;
pub mod known_routes;
pub mod network_classes;
pub mod networks_observed;
pub mod networks_shown;
pub mod own_files;
mod policy_file;
pub mod priority_time;
pub mod surroundings;
pub mod sync;
mod toml_words;
pub mod trusted_keys;
