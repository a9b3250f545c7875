//! Reaches the far side of a job, and brings the lanes of its session.
//!
//! ```text
//!   connect      a place -> a control channel: over ssh, or to a daemon
//!   lane_plan    direct, reversed, inside ssh sessions: the first way that works
//!   dialler      dials lanes             redial   dials lost lanes again      early_lanes   before the daemon has spoken
//!   paths        further paths beside the first, and those that were lost
//!   movers       further hosts of the far end
//!   attach       further links of the control channel
//!   desk         where lanes wait for their session             lane_door   where they arrive
//! ```

pub(crate) mod attach;
pub(crate) mod connect;
pub(crate) mod crew;
pub(crate) mod daemon;
pub(crate) mod desk;
pub(crate) mod dialler;
pub(crate) mod early_lanes;
pub(crate) mod far_end;
pub(crate) mod lane_door;
pub(crate) mod lane_plan;
pub(crate) mod lane_terms;
pub(crate) mod movers;
pub(crate) mod over_ssh;
pub(crate) mod paths;
pub(crate) mod redial;
pub(crate) mod remote;
pub(crate) mod ssh;
