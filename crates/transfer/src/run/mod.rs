//! Carries jobs out: who is where, who sends, who receives.
//!
//! ```text
//!   coordinate   a job from this host: push, pull, or both ends here
//!   here         both ends on this host
//!   relay        a job between two other hosts
//!   serving      the far side of a session       agent   the far side over standard input and output
//!   hook_keeper  runs the hooks of a session, and outlives it
//!   probe        what a path carries, both ways; without files
//! ```

pub(crate) mod agent;
pub(crate) mod coordinate;
pub(crate) mod ends;
pub(crate) mod here;
pub(crate) mod hook_keeper;
pub(crate) mod order;
pub mod probe;
pub(crate) mod relay;
pub(crate) mod serving;
