//! Holds what a role of a session is connected to.

use std::sync::Arc;

use haul_job::Error;
use haul_wire::control::Control;

use crate::channel::{Channel, Events};
use crate::lane_threads::LaneKeeper;
use crate::reporter::Watch;

/// The connections of a role of a session.
pub struct RoleContext<'a> {
    /// Control messages and lanes, as they come.
    pub events: Events,
    /// The control channel.
    pub channel: &'a Channel,
    /// Receives the events.
    pub watch: &'a Arc<Watch>,
    /// Brings lanes back.
    pub keeper: &'a mut dyn LaneKeeper,
    /// Takes messages that are not the role's own.
    pub on_other_message: &'a mut dyn FnMut(Control) -> Result<(), Error>,
}
