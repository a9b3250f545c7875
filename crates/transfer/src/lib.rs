//! Carries a job out: `run(Job, observer) -> Result<Report, Error>`.
//!
//! ```text
//!   run       who is where, who sends, who receives
//!   place     questions about a tree, and their answers
//!   reach     the far side, and lanes to it
//!   session   the control channel, the lanes, the two roles
//!   files     hashes, manifests, verification
//!   kept      keys, known paths and routes, between runs
//! ```
//! Arrows run from each room to those below it.

#![forbid(unsafe_code)]

mod faults;
mod files;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
#[cfg(test)]
#[path = "../tests/inside/mod.rs"]
mod inside;
mod kept;
pub mod place;
mod reach;
mod run;
mod session;
mod sync;

pub use faults::advised;
pub use files::{bag, hash_list, manifest_file};
pub use haul_engine::plan::NEAR_RTT_US;
pub use haul_store::{TypedFile, drives_terminal, open_root};
pub use haul_sys::account::named as account_named;
pub use haul_sys::file::try_lock_surely;
pub use haul_sys::process::{ask_to_end, effective_user, is_root, kill_group, leave_terminal, raise_open_file_limit};
pub use haul_sys::{own, standard_streams, whole_file};
pub use haul_wire::PROTOCOL_VERSION;
pub use kept::surroundings::Surroundings;
pub use kept::{class_policy, network_classes, networks_observed, networks_shown, trusted_keys};
pub use place::{diff, verify};
pub use reach::desk::Desk;
pub use reach::over_ssh::log_in;
pub use reach::ssh::names as ssh_names;
pub use run::agent::{AgentOptions, agent};
pub use run::coordinate::run;
pub use run::hook_keeper::keep_hooks;
pub use run::probe;
pub use run::serving::{Ports, serve_control};
pub use run::session::{Session, open};
pub use session::farewell::{turn_away, turn_away_version};
pub use session::grant::{Grant, Visit};
pub use session::rights::{guard_process, hide_memory};
