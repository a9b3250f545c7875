//! What a person sees while a job runs: the bar, the time left, names, a line each second.

mod failures;
pub mod fields;
pub mod itemise;
pub mod live;
pub mod outlook;
pub mod screen;
