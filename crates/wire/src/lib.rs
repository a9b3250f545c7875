//! The words between two hauls: control messages, manifest items, lane frames, versions and limits.
//!
//! Here bytes of a peer become types that cannot be wrong ([`path::RelPath`], bounded collections). No I/O, no clock,
//! no threads.
//!
//! ```text
//!   control channel   banner line, then frames: u32 length | postcard(Control)      (ssh stdin/stdout, or TLS)
//!   further link      hello, then frames, each behind its number: u64               (TLS over TCP)
//!   lane              hello, then frames: header | blocks | trailer                  (TLS over TCP, pipes, socket pair)
//! ```

#![no_std]
#![forbid(unsafe_code)]

extern crate alloc;

mod abort;
mod address;
pub mod banner;
mod bounded;
mod chunk_range;
pub mod codec;
pub mod control;
mod cut;
mod fault;
mod filter_rule;
pub mod hashed;
pub mod lane;
pub mod limits;
pub mod manifest;
mod mode_change;
mod movers;
mod outcome;
pub mod path;
pub mod place;
mod probe;
mod role;
mod rsync_rules;
mod selection;
pub mod service;
pub mod standing;
pub mod summary;

pub use control::Control;
pub use manifest::{Item, ItemKind};
pub use path::{PathFault, RelPath};

/// The protocol version, the same at both ends: our own program is copied to a far side with another one.
pub const PROTOCOL_VERSION: u32 = 21;
