//! The trees that a far side keeps its rights for.

use haul_store::LocalTree;
use haul_sys::rights::Access;
use haul_wire::control::Notice;

use crate::session::rights;

use super::Shared;

impl Shared {
    /// Keeps a far side within its tree. What to tell of it.
    pub(in super::super) fn give_up_rights(&self) -> Option<Notice> {
        let tree = self.tree.local();
        let roots = [LocalTree::root_directory, LocalTree::backup_directory, LocalTree::draft_directory];
        let roots = roots.map(|root| tree.and_then(root));
        // A hard link needs the rights of its new place at the old one, too.
        let roots = roots.into_iter().flatten().chain(self.references.roots());
        let trees: Vec<_> = roots.map(|root| (root, Access::Write)).collect();
        self.job.far.then(|| rights::stay_within(&trees, self.job.selection.xattrs, self.job.selection.entries.devices))
    }
}
