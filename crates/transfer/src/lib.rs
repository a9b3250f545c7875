//! Carries a job out: `run(Job, observer) -> Result<Report, Error>` is the one door for front ends.
//!
//! ```text
//!   coordinate   a job from this host: push, pull, or both ends here
//!   session      several jobs between the same two ends
//!   joined       a session with one remote       far_movers  further hosts of the far end
//!   here         both ends on this host           sftp_ends   ends at hosts where only sftp runs
//!   web          ends on web servers              ftp_ends    ends at servers of FTP
//!   relay        a job between two other hosts
//!   serving      the far side of a session       agent   the far side over standard input and output
//!   far_jobs     its jobs, one after the other   far_role   one of them   far_dialler   who dials from there
//! ```

#![forbid(unsafe_code)]

mod agent;
pub mod coordinate;
mod dav_ends;
mod ends;
mod far_dialler;
mod far_jobs;
mod far_limits;
mod far_movers;
mod far_role;
mod foreseen;
mod ftp_ends;
#[cfg(feature = "fuzzing")]
pub mod fuzzing;
mod grid_ends;
pub mod here;
mod hook_keeper;
mod into_itself;
pub mod joined;
mod named_ends;
pub mod order;
mod permitted;
mod place_ends;
pub mod probe;
mod relay;
mod s3_ends;
mod server_terms;
pub mod serving;
mod session;
mod sftp_ends;
mod web;

pub use agent::{AgentOptions, agent};
pub use coordinate::run;
pub use haul_channel::farewell::{turn_away, turn_away_version};
pub use haul_channel::grant::{Grant, Visit};
pub use haul_copy::rights::{guard_process, hide_memory};
pub use haul_engine::plan::NEAR_RTT_US;
pub use haul_kept::faults::advised;
pub use haul_kept::files::{bag, hash_list, manifest_file};
pub use haul_kept::surroundings::Surroundings;
pub use haul_kept::{class_policy, network_classes, networks_observed, networks_shown, trusted_keys};
pub use haul_net::Family as IpFamily;
pub use haul_places as place;
pub use haul_places::{diff, verify};
pub use haul_reach::lane_rendezvous::LaneRendezvous;
pub use haul_reach::over_ssh::log_in;
pub use haul_reach::ssh::{Dialled, names as ssh_names, question};
pub use haul_store::{TypedFile, drives_terminal, open_root};
pub use haul_sys::account::named as account_named;
pub use haul_sys::file::try_lock_surely;
pub use haul_sys::process::{ask_to_end, effective_user, is_root, kill_group, leave_terminal, raise_open_file_limit};
pub use haul_sys::{own, standard_streams, terminal, whole_file};
pub use haul_wire::PROTOCOL_VERSION;
pub use hook_keeper::keep_hooks;
pub use place_ends::ways;
pub use serving::{Ports, serve_control};
pub use session::{Session, open};
