//! `haul ls`, `du`, `df`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`: a tree here, at a host or at a daemon, by hand.
//!
//! Each command has its flags, its text and its JSON in one file. `question.rs` asks the places.

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
