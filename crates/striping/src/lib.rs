//! Several hosts as one end: what the leader hands to the others, and what it takes from them.
//!
//! ```text
//!                      a leader keeps                               a mover keeps
//!   the end that sends    lending: chunks that others read             portions: what it was given, what it asks for
//!   the end that writes   written: what others say that they wrote     shared_drafts: what it has open and not flushed
//! ```
//! A leader compares, proves, names and journals. So a mover that fails, hangs or lies costs the job only itself.

#![forbid(unsafe_code)]

pub mod lending;
pub mod movers;
pub mod portions;
pub mod proofs;
pub mod shared_drafts;
pub mod token;
pub mod written;
