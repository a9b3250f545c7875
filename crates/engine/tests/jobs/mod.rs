//! Whole jobs in virtual time: two sides, a network, a disk, and everything that can happen to them.
//!
//! ```text
//!   source     files, and what they were       \
//!   sender     engine::sending, tally           |-> run: one queue of events in virtual time, faults, the next run,
//!   receiver   engine::receiving, arriving ...  |        and what must hold at each step and at the end
//!   disk       what is seen, what is on it     /
//! ```
//! Decided by the engine that users run: what is open, wanted, taken, verified, at risk, in the journal, whose turn it is, what a file at
//! the target is worth, the order of a checkpoint, the totals. Modelled after `transfer` and `store`, whose threads and system calls know
//! no virtual time: the dispatch of messages, the lanes' reading and writing, claims on chunks, batches of small files, the part and its
//! commit. Not here: bytes on a wire, TLS, time limits, holes, links, attributes, `--inplace`, `--delete`.
//! The same seed gives the same run.

mod chance;
mod disk;
mod incoming;
mod receiver;
pub mod run;
mod sender;
mod source;
