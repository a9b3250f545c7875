//! Holds what a role of a session is connected to.

use std::sync::Arc;

use haul_job::Error;
use haul_wire::control::Control;

use crate::channel::{Channel, Events};
use crate::lane_threads::LaneKeeper;
use crate::reporter::Watch;

/// The connections of a role.
pub struct RoleContext<'a> {
    /// Messages and lanes.
    pub events: Events,
    /// The control channel.
    pub channel: &'a Channel,
    /// Receives the events.
    pub watch: &'a Arc<Watch>,
    /// Keeper of lanes.
    pub keeper: &'a mut dyn LaneKeeper,
    /// Takes messages of other roles.
    pub on_other_message: &'a mut dyn FnMut(Control) -> Result<(), Error>,
}
