//! Leaves entries out, and flushes a name before the source may remove its file.

use haul_store::StoreError;
use haul_wire::control::{LeftOut, OutcomeKind};
use haul_wire::manifest::Item;

use super::Shared;
use crate::receiver::destination::parent;

impl Shared {
    pub(in super::super) fn leave_out(&self, index: u64, item: &Item, rule: LeftOut) {
        self.first_names.leave_out(item, rule);
        self.settle(index, OutcomeKind::LeftOut { rule });
    }

    /// The name has to be on the medium before our word lets the source remove its file.
    pub(in super::super) fn flush_before_removal(&self, path: &[u8]) -> Result<(), StoreError> {
        if !self.job.selection.remove_source_files || !self.to.flushes_names() || !self.to.makes_files() {
            return Ok(());
        }
        self.disk.storage.during(|| self.to.tree().flush_dir(parent(path)))
    }
}
