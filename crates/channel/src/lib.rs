//! Holds the control channel of a session, its lanes as threads, and the reporter of its events.
//!
//! ```text
//!   channel       the control channel         inbox          the one queue of events of each session
//!   outbox        messages that wait          links, frames  over which link, and which messages may be missing
//!   lane_threads  the lanes of one side       clock, stalls  what happens at every turn
//!   convert       job <-> wire                reporter       what happens -> events, report
//! ```

#![forbid(unsafe_code)]

pub mod channel;
pub mod clock;
pub mod convert;
pub mod disk_watch;
pub mod failure;
pub mod farewell;
pub mod foreseen;
pub(crate) mod frames;
pub mod grant;
pub mod host_facts;
pub mod id;
pub(crate) mod inbox;
pub mod lane_addresses;
pub mod lane_role;
mod lane_silence;
pub mod lane_threads;
pub(crate) mod limit_log;
pub mod links;
pub mod message_memory;
pub mod outbox;
pub(crate) mod path_log;
mod proved;
pub mod rate_limit;
pub mod reporter;
pub mod role_context;
pub mod stalls;
pub mod stopwatch;
pub mod teller;
mod told;
pub(crate) mod way_times;
mod withheld;
