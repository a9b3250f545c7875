//! A far side keeps its rights for these trees only.

use haul_store::LocalTree;
use haul_sys::rights::Access;
use haul_wire::control::Notice;

use crate::rights;

use super::Shared;

impl Shared {
    pub(in super::super) fn give_up_rights(&self) -> Option<Notice> {
        let (tree, selection) = (self.to.tree().local(), &self.job.selection);
        if selection.keep_dirlinks && self.job.confine.is_none() {
            // Where links lead is known only when they are found.
            return self.job.far.then(|| rights::follow_links(selection.xattrs, selection.entries.devices));
        }
        let roots = [LocalTree::root_directory, LocalTree::backup_directory, LocalTree::draft_directory];
        let roots = roots.map(|root| tree.and_then(root));
        // A hard link needs the rights of its new place at the old one, too.
        let roots = roots.into_iter().flatten().chain(self.comparison.references.roots());
        let trees: Vec<_> = roots.map(|root| (root, Access::Write)).collect();
        self.job.far.then(|| rights::stay_within(&trees, selection.xattrs, selection.entries.devices))
    }
}
