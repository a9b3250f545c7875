//! Several hosts as one end: what the host that leads hands to the others, and what it takes from them.
//!
//! ```text
//!                      a leader keeps                               a mover keeps
//!   the end that sends    lending: chunks that others read             portions: what it was given, what it asks for
//!   the end that writes   written: what others say that they wrote     shared_drafts: what it has open and not flushed
//!
//!   movers   the session that reached them, and what each is told
//!   token    a mover finds it in the tree of its leader: both see the same files
//!   proofs   hashes of the leader, against which data of a mover is compared
//! ```
//! A leader keeps each promise about data: it compares, proves, names and journals. So a mover can fail, hang or lie, and costs the
//! job nothing but itself. The parts here know no role: `copy` tells them what happened, and sends what they return.

#![forbid(unsafe_code)]

pub mod lending;
pub mod movers;
pub mod portions;
pub mod proofs;
pub mod shared_drafts;
pub mod token;
pub mod written;
