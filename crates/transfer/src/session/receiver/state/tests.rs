//! A receiver's state without its threads, for the tests of its parts.

use haul_store::LocalTree;
use haul_wire::RelPath;
use haul_wire::control::{Carriage, Selection};
use haul_wire::manifest::{Attributes, Identity, ItemKind};

use super::super::Bounds;
use super::*;
use crate::kept::surroundings::Surroundings;
use crate::session::receiver::Target;

/// The job of a receiver into this directory.
pub(crate) fn job_into(directory: &std::path::Path) -> ReceiverJob {
    ReceiverJob {
        target: Target::Path(directory.as_os_str().as_encoded_bytes().to_vec()),
        confine: None,
        asked_for: None,
        far: false,
        selection: Selection::default(),
        carriage: Carriage::default(),
        bounds: Bounds { checkpoint_bytes: 1, ..Bounds::default() },
        movers: Default::default(),
        surroundings: Surroundings::default(),
    }
}

/// What a receiver into this directory shares; nobody hears its events.
pub(crate) fn over(directory: &std::path::Path) -> Shared {
    let target = directory.as_os_str().as_encoded_bytes();
    let (tree, _) = LocalTree::open(target, &haul_store::TargetOptions::default()).unwrap();
    let job = job_into(directory);
    let events = crate::session::channel::Events::new().sender();
    Shared::new(Arc::new(tree), None, job, Arc::default(), Arc::new(Watch::silent()), events).unwrap()
}

#[test]
fn a_receipt_that_comes_after_its_file_failed_on_another_lane_is_not_told() {
    let dir = tempfile::tempdir().unwrap();
    let shared = over(dir.path());
    let outbox = Arc::clone(&shared.outbox);
    let identity = Identity { size: 3 << 20, mtime: Default::default(), ctime: Default::default(), inode: 1 };
    let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
    let path = RelPath::new(b"file".to_vec()).unwrap();
    let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
    let index = shared.open_item(&item).unwrap();
    let incoming = Arc::new(Incoming::new(index, item, b"file".to_vec(), identity, false));
    shared.expect(Arc::clone(&incoming));
    shared.receipt(Receipt { index, chunk: 0, data_bytes: 1 });
    shared.fail(&incoming, &StoreError::new("write", b"file", std::io::ErrorKind::Other));
    shared.receipt(Receipt { index, chunk: 1, data_bytes: 1 });
    // The sender would take it for one about an item that is not open, and end the session.
    let said = outbox.take_all();
    let [Control::Receipts(receipts), Control::Outcomes(_)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(receipts.len(), 1);
}
