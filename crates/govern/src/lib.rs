//! Bounds what a session may send: applies what `engine` decides to its lanes, their pace and their service class.
//!
//! ```text
//!   tuning      lanes sampled while they work -> how many, how fast
//!   service     the class of the session, and requests for priority       deadline   what is left until `--by`
//!   to_server   the same for connections to a server that is no haul
//!   thin_acks   a receiver's lanes, read seldom where the way back is narrow
//!   hooks       programs of the operator that ask a network for priority, and give it back
//! ```

#![forbid(unsafe_code)]

pub(crate) mod background;
pub mod black_hole;
pub mod deadline;
pub mod hooks;
pub mod lane;
pub mod marks_seen;
pub(crate) mod outlets;
pub mod report;
pub mod service;
pub mod subflows;
pub mod thin_acks;
pub mod to_server;
pub mod tuning;
pub mod work;
