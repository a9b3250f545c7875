//! What a role of a session is connected to.

use std::sync::Arc;

use haul_job::Error;
use haul_wire::control::Control;

use crate::session::channel::{Channel, Events};
use crate::session::lane_threads::LaneKeeper;
use crate::session::reporter::Watch;

/// What a role of a session hears, what it speaks to, and who brings its lanes.
pub(crate) struct Wiring<'a> {
    /// Control messages and lanes, as they come.
    pub(crate) events: Events,
    pub(crate) channel: &'a Channel,
    pub(crate) watch: &'a Arc<Watch>,
    pub(crate) keeper: &'a mut dyn LaneKeeper,
    /// Gets messages that are not the role's own.
    pub(crate) aside: &'a mut dyn FnMut(Control) -> Result<(), Error>,
}
