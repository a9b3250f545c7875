//! Holds what stays between runs: keys, known paths and routes, network classes, policies, lists of hashes, manifests. Also
//! holds shared errors and locks.

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
