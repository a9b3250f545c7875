//! The data connections of GridFTP: extended block mode (MODE E of GFD.20), in which each block says where in the file it belongs.
//!
//! ```text
//! server -> Header -> Account (may this come now?) -> Incoming: the bytes of one transfer, and its end
//! Outgoing: blocks at any place of a file -> end -> server
//! ```
//! A transfer here has one data connection, which later transfers of the same control connection use again. Several transfers at once carry
//! one file: each is confirmed by itself, and one that is cut takes nothing of the others with it. A striped server sends a long file by one
//! transfer from all of its hosts, each to a port of its own (`StripeAccount`).

#![forbid(unsafe_code)]

mod account;
mod header;
mod incoming;
mod outgoing;
mod stripe;

pub use account::{Account, Broken, Next};
pub use header::{HEADER_BYTES, Header};
pub use incoming::Incoming;
pub use outgoing::{write_block, write_end};
pub use stripe::{Entered, StripeAccount};
