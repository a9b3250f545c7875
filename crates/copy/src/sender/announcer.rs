//! Adds the names of owners to an item, and mends a time of change that tells nothing.

use std::borrow::Cow;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_job::Subject;
use haul_wire::control::Selection;
use haul_wire::limits::MIN_CHUNK_BYTES;
use haul_wire::manifest::{Attributes, Item, ItemKind, Time};

use haul_channel::convert;
use haul_channel::teller::Teller;
use haul_kept::sync::lock;

use super::owners::Owners;
use super::source_item::Origin;

pub(super) struct Announcer {
    owners: Mutex<Owners>,
    /// The clock of this host gives it.
    began: Time,
    told_of_changes: AtomicBool,
    teller: Teller,
}

impl Announcer {
    pub(super) fn new(selection: &Selection, teller: Teller) -> Self {
        let (owners, began) = (Mutex::new(Owners::new(selection)), convert::now());
        Self { owners, began, told_of_changes: AtomicBool::new(false), teller }
    }

    /// A file that may have changed unseen is told as changed now, so no later run goes on with a part of mixed versions.
    pub(super) fn as_told<'a>(&self, item: &'a Item, origin: &Origin) -> Cow<'a, Item> {
        if origin.tells_changes || !matches!(item.kind, ItemKind::File { .. } | ItemKind::FurtherName { .. }) {
            return Cow::Borrowed(item);
        }
        let mut told = item.clone();
        if let ItemKind::File { identity, .. } | ItemKind::FurtherName { identity, .. } = &mut told.kind {
            identity.ctime = self.began;
            if identity.size > MIN_CHUNK_BYTES && !self.told_of_changes.swap(true, Ordering::Relaxed) {
                let (what, choice) = (Subject::Resume, "from the beginning of a file".to_owned());
                let reason = "the file system of the source may not tell when a file changed".to_owned();
                self.teller.notice(convert::chose(what, choice, reason));
            }
        }
        Cow::Owned(told)
    }

    /// Adds the wanted names of owner and group. `once`: only for their first entry of the walk.
    pub(super) fn name_owners(&self, attributes: &mut Attributes, once: bool) {
        lock(&self.owners).name(attributes, once);
    }
}
