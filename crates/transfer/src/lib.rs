//! Carries a job out: `run(Job, observer) -> Result<Report, Error>`.
//!
//! ```text
//!   coordinate   job -> who is where, who sends, who receives        (this machine, push, pull, between two others)
//!   asked_for    what a sender on another host may bring
//!   remote       reach the far side: ssh and our own program there, or a daemon
//!   lanes        connect data connections: direct, reversed, inside ssh sessions
//!   tuning       lanes sampled while they work -> how many, how fast     known_paths   what earlier jobs found of a path
//!   sender       walk, read, hash, send              receiver   decide, verify, write, settle
//!   channel      the control channel and the one queue of events of each session
//!   probe        what the path carries, both ways; without files
//!   pump         how the bytes of a file cross this host: sendfile, splice, io_uring, direct, copy
//!   record       a stream that should not be held up, into a file
//!   bench        how fast each of those ways is, on this host alone
//!   tune         what this host should be set to for a path; apart from any job
//!   own_files    where keys and what is remembered are kept, and how
//!   watch        what happens -> events, report
//!   far          the far side of a session           agent      the far side over standard input and output
//!   rights       what a far side gives up before it works for a peer
//! ```

#![forbid(unsafe_code)]

mod agent;
mod asked_for;
#[cfg(test)]
mod attributes;
#[cfg(test)]
mod bad_disk;
#[cfg(test)]
mod bad_medium;
#[cfg(test)]
mod bad_source;
pub mod bench;
#[cfg(test)]
mod changing;
mod channel;
#[cfg(test)]
mod clear_lanes;
mod convert;
mod coordinate;
#[cfg(test)]
mod cut_short;
mod desk;
pub mod error;
pub mod event;
mod far;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod hash;
#[cfg(test)]
mod holes;
#[cfg(test)]
mod hostile;
mod inbox;
pub mod job;
#[cfg(test)]
mod kernel_scenarios;
#[cfg(test)]
mod kill_sweep;
pub mod known;
mod known_paths;
mod known_routes;
mod lanes;
#[cfg(test)]
mod large_files;
#[cfg(test)]
mod left_behind;
pub mod manifest_file;
#[cfg(test)]
mod manifests;
#[cfg(test)]
mod many;
mod own_files;
#[cfg(test)]
mod past_cache;
pub mod planted;
pub mod probe;
pub mod pump;
mod receiver;
pub mod record;
mod relay;
mod remote;
mod rights;
#[cfg(test)]
mod scenarios;
#[cfg(test)]
mod second_names;
mod sender;
mod session;
#[cfg(test)]
mod several_sources;
#[cfg(test)]
mod shared_flush;
#[cfg(test)]
mod slow_disk;
mod ssh;
mod stopwatch;
mod storage;
mod stripes;
pub mod tune;
mod tuning;
pub mod verify;
mod watch;
mod weight;
mod zeros;

pub use agent::{AgentOptions, agent};
pub use coordinate::run;
pub use error::{Error, Fault};
pub use event::{Change, Event, ManifestLine, Observer, PathNow, Progress, Report};
pub use far::{Desk, Grant, Ports, Visit, serve_control, turn_away, turn_away_version};
pub use haul_engine::attribute::{Cause, Limit, Shares};
pub use haul_engine::plan::NEAR_RTT_US;
pub use haul_engine::remedy::{Buffer, End, Host, Remedy};
pub use haul_store::{drives_terminal, open_root};
pub use haul_sys::account::named as account_named;
pub use haul_sys::process::{effective_user, is_root, raise_open_file_limit};
pub use haul_sys::whole_file;
pub use haul_wire::PROTOCOL_VERSION;
pub use haul_wire::summary::{HostLimits, PathSummary};
pub use job::{Carriage, Cipher, Endpoint, Family, FilterRule, Job, Place, Selection, SshOptions};
pub use own_files::state_directory;
pub use rights::{guard_process, hide_memory};
