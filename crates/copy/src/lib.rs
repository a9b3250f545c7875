//! The copy itself: the two roles of a session.
//!
//! ```text
//!   sender     walk, read, hash, send        receiver   decide, verify, write, settle
//!   rights     what a far side gives up before it works for a peer
//!   hand_over  two roles in one process share a buffer
//!   sums       what the server of a source says of its files
//!   asked_for  a sender brings only what was asked for
//!   pieces     where a file is cut, to compare it with one that differs
//! ```

#![forbid(unsafe_code)]

pub mod asked_for;
pub mod hand_over;
pub mod pieces;
pub mod receiver;
pub mod rights;
pub mod sender;
pub mod sums;
