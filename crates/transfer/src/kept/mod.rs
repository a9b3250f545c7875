//! What is kept between runs: keys, paths, routes; and where.

pub mod class_policy;
pub(crate) mod hook_words;
pub(crate) mod known_paths;
pub(crate) mod known_routes;
pub mod network_classes;
pub mod networks_observed;
pub mod networks_shown;
pub(crate) mod own_files;
mod policy_file;
pub(crate) mod priority_time;
pub(crate) mod surroundings;
pub mod trusted_keys;
