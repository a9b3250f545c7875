//! What a person sees of a running job.

mod failures;
pub mod fields;
pub mod itemise;
pub mod live;
pub mod outlook;
pub mod screen;
