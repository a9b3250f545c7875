//! Looks at and changes trees by hand, here, at a host or daemon: `haul ls`, `du`, `df` and their like.
//!
//! Each command's flags, text and JSON share a file; `question.rs` asks the places.

pub mod cat;
mod changes;
pub mod clean;
pub mod df;
pub mod du;
mod figures;
pub mod hash;
mod help;
pub mod ls;
mod manifest;
pub mod mkdir;
pub mod mv;
mod names;
pub mod paper;
pub mod question;
pub mod rm;
pub mod stat;
mod words;
