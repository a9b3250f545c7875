//! Tests of parts of a receiver use its state without its threads.

use std::io::Write as _;

use haul_store::LocalTree;
use haul_wire::RelPath;
use haul_wire::control::{Carriage, Listed, Selection};
use haul_wire::lane::{UnitHeader, UnitKind};
use haul_wire::manifest::{Attributes, Identity, ItemKind};

use super::super::job::Bounds;
use super::*;
use crate::receiver::{Target, lane};
use haul_kept::surroundings::Surroundings;

pub(crate) fn job_into(directory: &std::path::Path) -> ReceiverJob {
    ReceiverJob {
        hand_over: None,
        sums: None,
        target: Target::Path(directory.as_os_str().as_encoded_bytes().to_vec()),
        confine: None,
        asked_for: None,
        far: false,
        selection: Selection { sparse: false, flush: false, make_target: false, ..Selection::default() },
        listed: Listed::Nothing,
        hash_kept: false,
        carriage: Carriage::default(),
        bounds: Bounds { checkpoint_bytes: 1, ..Bounds::default() },
        movers: Default::default(),
        surroundings: Surroundings::default(),
    }
}

pub fn over(directory: &std::path::Path) -> Shared {
    let target = directory.as_os_str().as_encoded_bytes();
    let (tree, _) = LocalTree::open(target, &haul_store::TargetOptions::default()).unwrap();
    let job = job_into(directory);
    let events = haul_channel::channel::Events::new().sender();
    let to = Destination::new(Arc::new(tree), None, Vec::new(), &job.selection);
    Shared::new(to, job, Arc::default(), Arc::new(Watch::silent()), events).unwrap()
}

/// Runs a lane on which these ends arrive, in the second job of a session.
fn ends_of_lane(ends: &[(UnitKind, u64)]) -> std::io::Result<bool> {
    let dir = tempfile::tempdir().unwrap();
    let shared = Arc::new(over(dir.path()));
    let (near, mut far) = haul_net::Stream::plain_pair().unwrap();
    for (kind, index) in ends {
        far.write_all(&UnitHeader { kind: *kind, index: *index, chunk: 0 }.encode()).unwrap();
    }
    far.flush().unwrap();
    let arriving = lane::Arriving { job: Some(2), ..lane::Arriving::new(near) };
    lane::carry(arriving, 0, &shared).map(|back| back.is_some())
}

#[test]
fn a_lane_that_came_too_late_for_the_job_before_carries_this_one() {
    assert!(ends_of_lane(&[(UnitKind::JobEnd, 1), (UnitKind::JobEnd, 2)]).unwrap(), "it comes back for the third job");
    assert!(
        !ends_of_lane(&[(UnitKind::JobEnd, 1), (UnitKind::End, 0)]).unwrap(),
        "the end of the first job is none here"
    );
    assert!(ends_of_lane(&[(UnitKind::JobEnd, 3)]).is_err(), "there is no third job yet");
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
    shared.receipt(Receipt { index, chunk: 0, data_bytes: 1, matched_bytes: 0 });
    shared.fail(&incoming, &StoreError::new("write", b"file", std::io::ErrorKind::Other));
    shared.receipt(Receipt { index, chunk: 1, data_bytes: 1, matched_bytes: 0 });
    // The sender would take it for an item that is not open, and end the session.
    let said = outbox.take_all();
    let [Control::Receipts(receipts), Control::Outcomes(_)] = &said[..] else { panic!("{said:?}") };
    assert_eq!(receipts.len(), 1);
}
