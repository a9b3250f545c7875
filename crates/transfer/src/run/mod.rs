//! Carries jobs out: who is where, who sends, who receives.
//!
//! ```text
//!   coordinate   a job from this host: push, pull, or both ends here
//!   session      several jobs between the same two ends
//!   joined       a session with one remote
//!   here         both ends on this host
//!   relay        a job between two other hosts
//!   serving      the far side of a session       agent   the far side over standard input and output
//!   far_jobs     its jobs, one after the other   far_role   one of them   far_dialler   who dials from there
//!   hook_keeper  runs the hooks of a session, and outlives it
//!   probe        what a path carries, both ways; without files
//! ```

pub(crate) mod agent;
pub(crate) mod coordinate;
pub(crate) mod ends;
pub(crate) mod far_dialler;
pub(crate) mod far_jobs;
pub(crate) mod far_limits;
pub(crate) mod far_role;
pub(crate) mod here;
pub(crate) mod hook_keeper;
pub(crate) mod joined;
pub(crate) mod order;
pub mod probe;
pub(crate) mod relay;
pub(crate) mod serving;
pub(crate) mod session;
