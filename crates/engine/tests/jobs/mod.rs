//! Whole jobs in virtual time: two sides, a network, a disk, and everything that can happen to them.
//!
//! ```text
//!   source     files, and what they were       \
//!   sender     engine::sending, tally           |-> run: one queue of events in virtual time, faults, the next run,
//!   receiver   engine::receiving, arriving ...  |        and what must hold at each step and at the end
//!   disk       what is seen, what is on it     /
//! ```
//! The engine that users run decides; `transfer` and `store`, whose threads and system calls know no virtual time, are modelled.
//! Not here: bytes on a wire, TLS, time limits, holes, links, attributes, `--inplace`, `--delete`. The same seed gives the same
//! run.

mod chance;
mod disk;
mod incoming;
mod receiver;
pub mod run;
mod sender;
mod source;
