//! A copy's report: JSON, words for limits and classes, kept files.

pub mod class;
pub mod hosts;
pub mod json;
pub mod kept;
pub mod limit;
pub mod outages;
pub mod paths;
pub mod time;
