//! Removes at the source what the target has.

use haul_wire::control::{Notice, Outcome};

use crate::session::convert;

use super::Shared;

impl Shared {
    /// Removes what the target has. What cannot be removed, or has changed, counts as failed.
    pub(in super::super) fn remove_source(&self, outcome: &Outcome) {
        let Some(origin) = self.removals.take(outcome) else { return };
        match self.sources.remove(origin.source, &origin.path, &origin.copied) {
            Ok(true) => self.removals.count(),
            Ok(false) => {}
            Err(error) => self.notice(Notice::Failed { path: origin.path, why: convert::bounded(error) }),
        }
    }
}
