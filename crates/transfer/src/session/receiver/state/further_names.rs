//! What a further name of a file is at the target.

use haul_wire::manifest::{Item, ItemKind};

use super::Shared;

impl Shared {
    /// Makes of a further name what it is here: a link to the first name, or a file of its own.
    pub(in super::super) fn resolve_further_name(&self, item: &mut Item) {
        let ItemKind::FurtherName { first, .. } = &item.kind else { return };
        let link = match &mut self.lock().first_names {
            Some(first_names) => first_names.link_instead(first, &item.path),
            None => Some(first.clone()),
        };
        match (link, item.kind.as_file()) {
            (None, Some(file)) => item.kind = file,
            (link, _) => item.kind = ItemKind::HardLink { first: link.unwrap_or_else(|| first.clone()) },
        }
    }
}
