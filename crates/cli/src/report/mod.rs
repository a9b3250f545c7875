//! The report of a copy: as JSON, its words for limits and classes, and the files that keep it.

pub mod class;
pub mod hosts;
pub mod json;
pub mod kept;
pub mod limit;
pub mod outages;
pub mod paths;
pub mod time;
