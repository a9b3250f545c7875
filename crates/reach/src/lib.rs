//! Reaches the far side of a job, and brings the lanes of its session.
//!
//! ```text
//!   connect      a place -> a control channel: over ssh, or to a daemon
//!   lane_plan    direct, reversed, inside ssh sessions: the first way that works
//!   dialler      dials lanes             redial   dials lost lanes again      early_lanes   before the daemon has spoken
//! ```

#![forbid(unsafe_code)]

pub mod attach;
pub mod connect;
pub mod daemon;
pub mod dial_threads;
pub mod dialler;
pub(crate) mod early_lanes;
pub mod far_end;
pub mod lane_door;
pub mod lane_plan;
pub mod lane_rendezvous;
pub mod lane_terms;
pub mod over_ssh;
pub mod paths;
pub mod redial;
pub mod remote;
pub mod ssh;
