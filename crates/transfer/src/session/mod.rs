//! One session: a control channel, its lanes, and the two roles.
//!
//! ```text
//!   channel      the control channel         inbox          the one queue of events of each session
//!   outbox       messages that wait          links, frames  over which link, and which messages may be missing
//!   lane_threads the lanes of one side       clock, stalls  what happens at every turn
//!   sender       walk, read, hash, send      receiver       decide, verify, write, settle
//!   tuning       lanes sampled while they work -> how many, how fast
//!   hooks        programs of the operator that ask a network for priority, and give it back
//!   rights       what a far side gives up before it works for a peer
//!   path_log     which paths come and go, for the log of a daemon
//!   reporter     what happens -> events, report
//! ```

pub(crate) mod asked_for;
pub(crate) mod channel;
pub(crate) mod clock;
pub(crate) mod convert;
pub(crate) mod disk_watch;
pub(crate) mod failure;
pub(crate) mod farewell;
mod filter_rules;
pub(crate) mod foreseen;
pub(crate) mod frames;
pub(crate) mod grant;
pub(crate) mod hooks;
pub(crate) mod host_facts;
pub(crate) mod id;
pub(crate) mod inbox;
pub(crate) mod lane_addresses;
pub(crate) mod lane_threads;
pub(crate) mod links;
pub(crate) mod marks_seen;
pub(crate) mod movers;
pub(crate) mod outbox;
pub(crate) mod path_log;
pub(crate) mod receiver;
pub(crate) mod reporter;
pub(crate) mod rights;
pub(crate) mod sender;
pub(crate) mod stalls;
pub(crate) mod stopwatch;
pub(crate) mod tuning;
pub(crate) mod weight;
pub(crate) mod wiring;
