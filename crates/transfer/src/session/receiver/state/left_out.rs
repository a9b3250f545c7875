//! What a receiver tells of an item besides its outcome, and what it does before the source may remove it.

use haul_store::StoreError;
use haul_wire::control::{Changes, LeftOut, OutcomeKind};
use haul_wire::manifest::Item;

use super::{Shared, parent};

impl Shared {
    /// In what an open item differs from what stands here.
    pub(in super::super) fn note_changes(&self, index: u64, changes: Changes) {
        if self.job.selection.itemise && !changes.is_empty() {
            self.lock().changes.insert(index, changes);
        }
    }

    /// A rule leaves an entry out, and with it its further names.
    pub(in super::super) fn leave_out(&self, index: u64, item: &Item, rule: LeftOut) {
        if let Some(first_names) = &mut self.lock().first_names {
            first_names.leave_out(item, rule);
        }
        self.settle(index, OutcomeKind::LeftOut { rule });
    }

    /// The source removes what it has our word for. So the name has to be on the medium before the word is given.
    pub(in super::super) fn flush_before_removal(&self, path: &[u8]) -> Result<(), StoreError> {
        let selection = &self.job.selection;
        if !selection.remove_source_files || !selection.flush || !self.makes_files() {
            return Ok(());
        }
        self.storage.during(|| self.tree().flush_dir(parent(path)))
    }
}
