//! The ends that a command line names, and how the far side is reached.

pub mod endpoint;
pub mod flags;
mod meant_places;
pub mod options;
pub mod person;
pub mod web_url;
