//! Removes at the source what the target has.

use haul_job::{Error, Fault};
use haul_wire::control::{Notice, Outcome, SharedRoot};

use haul_channel::convert;

use super::Shared;

impl Shared {
    pub(in super::super) fn is_shown_the_target(&self) -> bool {
        self.job.movers.count() > 0 || self.removals.await_the_target()
    }

    /// Takes the target's tree, before the first outcome.
    ///
    /// # Errors
    /// It is the tree of a source, and files of the source are to be removed.
    pub(in super::super) fn on_target(&self, root: SharedRoot) -> Result<(), Error> {
        // Without a path: a target of no disk, which is no tree of the source.
        if !root.path.is_empty()
            && let Some(source) = self.reading.sources.seen_at(&root.path)
            && self.removals.are_wanted()
        {
            let shown = haul_store::printable(&source);
            return Err(Error::new(Fault::Usage, format!("cannot move {shown} onto itself"))
                .because(
                    "source and target are the same directory: a file that was made in the target stands in the source",
                )
                .try_this("choose another target, or leave out --remove-source-files"));
        }
        if self.job.movers.count() > 0 && !root.path.is_empty() {
            self.job.movers.shows(root);
        }
        let state = self.lock();
        self.removals.target_is_known();
        drop(state);
        self.room.notify_all();
        Ok(())
    }

    /// Removes what the target has. A failure, or a change, counts as failed.
    pub(in super::super) fn remove_source(&self, outcome: &Outcome) {
        let Some(origin) = self.removals.take(outcome) else { return };
        match self.reading.sources.remove(origin.source, &origin.path, &origin.copied) {
            Ok(true) => self.removals.count(),
            Ok(false) => {}
            Err(error) => self.notice(Notice::Failed { path: origin.path, why: convert::bounded(error) }),
        }
    }
}
