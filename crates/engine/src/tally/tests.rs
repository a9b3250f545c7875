//! Totals of streams, honest and not.

use alloc::string::ToString;
use alloc::vec::Vec;

use haul_wire::manifest::{Attributes, Identity};

use super::*;

fn file(path: &str, size: u64) -> Item {
    let identity = Identity { size, mtime: Time::default(), ctime: Time::default(), inode: 0 };
    Item {
        path: RelPath::new(path.as_bytes().to_vec()).unwrap(),
        kind: ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 },
        attributes: Attributes::default(),
    }
}

#[test]
fn hashes_are_told_in_manifest_order_whatever_order_files_finish_in() {
    let mut tally = Tally::default();
    for path in ["a", "b", "c"] {
        tally.on_item(&file(path, 10)).unwrap();
    }
    let mut order = Vec::new();
    for index in [2, 0, 1] {
        tally.on_receipt(&Receipt { index, chunk: 0, data_bytes: 10, matched_bytes: 0 }).unwrap();
        let copied = OutcomeKind::Copied { blake3: [index as u8; 32] };
        tally
            .on_outcome(&Outcome::of(index, copied), &mut |told| {
                if let Told::Hashed { blake3, .. } = told {
                    order.push(blake3[0]);
                }
            })
            .unwrap();
    }
    assert_eq!(order, [0, 1, 2]);
    assert!(tally.all_settled());
    assert_eq!((tally.totals().files_moved, tally.totals().bytes_moved), (3, 30));
}

#[test]
fn a_resumed_file_counts_what_moved_and_what_was_kept() {
    let mut tally = Tally::default();
    tally.on_item(&file("big", 100)).unwrap();
    tally.on_receipt(&Receipt { index: 0, chunk: 3, data_bytes: 30, matched_bytes: 0 }).unwrap();
    tally.on_outcome(&Outcome::of(0, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
    assert_eq!((tally.totals().bytes_moved, tally.totals().bytes_kept), (30, 70));
}

#[test]
fn what_stood_at_the_target_in_a_file_that_differs_is_kept_from_its_receipt_on() {
    let mut tally = Tally::default();
    tally.on_item(&file("big", 100)).unwrap();
    tally.on_answer(0, &Wanted::All);
    tally.on_receipt(&Receipt { index: 0, chunk: 0, data_bytes: 10, matched_bytes: 50 }).unwrap();
    let figures = |tally: &Tally| {
        let totals = tally.totals();
        (totals.bytes_moved, totals.bytes_kept, totals.bytes_matched, tally.left().bytes_left)
    };
    assert_eq!(figures(&tally), (10, 50, 50, 40));
    // A target cannot have more of a file than there is.
    tally.on_receipt(&Receipt { index: 0, chunk: 1, data_bytes: 0, matched_bytes: u64::MAX }).unwrap();
    assert_eq!(figures(&tally), (10, 90, 90, 0));
    tally.on_outcome(&Outcome::of(0, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
    assert_eq!(figures(&tally), (10, 90, 90, 0));
}

fn with_holes(path: &str, size: u64, holes: u64) -> Item {
    let mut item = file(path, size);
    if let ItemKind::File { hole_bytes, .. } = &mut item.kind {
        *hole_bytes = holes;
    }
    item
}

#[test]
fn holes_are_neither_to_come_nor_kept_and_a_compressed_file_has_none() {
    let mut tally = Tally::default();
    tally.on_item(&with_holes("image", 1_000, 900)).unwrap();
    tally.on_item(&with_holes("compressed", 1_000, 600)).unwrap();
    tally.on_end_of_manifest();
    assert_eq!((tally.left().bytes, tally.left().bytes_left), (500, 500));
    tally.on_receipt(&Receipt { index: 0, chunk: 0, data_bytes: 100, matched_bytes: 0 }).unwrap();
    tally.on_receipt(&Receipt { index: 1, chunk: 0, data_bytes: 1_000, matched_bytes: 0 }).unwrap();
    for index in 0..2 {
        tally.on_outcome(&Outcome::of(index, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
    }
    let totals = tally.totals();
    assert_eq!((totals.bytes_moved, totals.bytes_kept, totals.bytes_holes), (1_100, 0, 900));
    assert_eq!((tally.left().bytes_left, tally.left().files_left), (0, 0));
}

#[test]
fn what_an_earlier_run_left_is_known_from_the_answer_and_counted_once() {
    const MIB: u64 = 1 << 20;
    let mut tally = Tally::default();
    tally.on_item(&file("large", 10 * MIB)).unwrap();
    tally.on_end_of_manifest();
    let wanted = Wanted::Chunks(alloc::vec![ChunkRange { first: 7, count: 3 }]);
    tally.on_answer(0, &wanted);
    tally.on_answer(0, &wanted);
    assert_eq!(
        (tally.totals().bytes_kept, tally.left().bytes_left, tally.resumed_bytes()),
        (7 * MIB, 3 * MIB, 7 * MIB)
    );
    tally.on_receipt(&Receipt { index: 0, chunk: 7, data_bytes: 3 * MIB, matched_bytes: 0 }).unwrap();
    // One chunk was wrong, and came again.
    tally.on_receipt(&Receipt { index: 0, chunk: 0, data_bytes: MIB, matched_bytes: 0 }).unwrap();
    tally.on_outcome(&Outcome::of(0, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
    assert_eq!((tally.totals().bytes_kept, tally.left().bytes_left), (6 * MIB, 0));
    tally.on_answer(0, &wanted);
    tally.on_answer(9, &wanted);
    assert_eq!(tally.totals().bytes_kept, 6 * MIB);
}

#[test]
fn what_was_counted_ahead_of_the_listing_is_to_come_and_a_part_tells_of_the_whole() {
    let mut tally = Tally::default();
    tally.on_item(&file("a", 100)).unwrap();
    assert!(tally.left().is_rough);
    tally.on_counted(Counted { files: 30, data_bytes: 3_000, share_ppm: 250_000 });
    let part = tally.left();
    assert_eq!((part.files_left, part.bytes_left, part.is_rough), (120, 12_000, true));
    tally.on_counted(Counted { files: 130, data_bytes: 13_000, share_ppm: Counted::WHOLE_PPM });
    let whole = tally.left();
    assert_eq!((whole.files_left, whole.bytes_left, whole.is_rough), (130, 13_000, false));
    // The listing counts in the end; failures are not to come.
    let failed = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Vanished };
    tally.on_outcome(&Outcome::of(0, failed), &mut |_| {}).unwrap();
    tally.on_end_of_manifest();
    assert_eq!(tally.left(), ToCome { files: 1, bytes: 100, ..ToCome::default() });
}

#[test]
fn a_peer_cannot_settle_twice_or_what_is_not_open() {
    let mut tally = Tally::default();
    tally.on_item(&file("a", 1)).unwrap();
    tally.on_item(&file("b", 1)).unwrap();
    let kept = OutcomeKind::Kept { blake3: None };
    tally.on_outcome(&Outcome::of(1, kept.clone()), &mut |_| {}).unwrap();
    assert_eq!(tally.on_outcome(&Outcome::of(1, kept.clone()), &mut |_| {}), Err(TallyFault::Twice));
    assert_eq!(tally.on_outcome(&Outcome::of(7, kept.clone()), &mut |_| {}), Err(TallyFault::NotOpen));
}

#[test]
fn whatever_a_peer_says_another_item_stands_for_nothing_overflows() {
    let mut tally = Tally::default();
    tally.on_item(&Item { kind: ItemKind::Directory, ..file("d", 0) }).unwrap();
    for _ in 0..2 {
        tally.on_item(&file("file", u64::MAX)).unwrap();
    }
    for index in 0..3 {
        tally.on_outcome(&Outcome::of(index, OutcomeKind::Superseded), &mut |_| {}).unwrap();
    }
    assert_eq!((tally.totals().files_found, tally.totals().bytes_found), (0, 0));
}

fn linked(path: &str, further_names: u32) -> Item {
    let mut item = file(path, 10);
    if let ItemKind::File { further_names: names, .. } = &mut item.kind {
        *names = further_names;
    }
    item
}

fn link(path: &str, first: &str) -> Item {
    Item { kind: ItemKind::HardLink { first: file(first, 0).path }, ..file(path, 0) }
}

fn listed(tally: &mut Tally, outcomes: &[(u64, OutcomeKind)]) -> Vec<(String, u8)> {
    let mut listed = Vec::new();
    for (index, result) in outcomes {
        let mut tell = |told| {
            if let Told::Hashed { path, size: 10, blake3, .. } = told {
                listed.push((String::from_utf8(path.as_bytes().to_vec()).unwrap(), blake3[0]));
            }
        };
        tally.on_outcome(&Outcome::of(*index, result.clone()), &mut tell).unwrap();
    }
    listed
}

#[test]
fn further_names_are_told_with_the_hash_of_their_file_where_they_are_made_or_there() {
    let mut tally = Tally::default();
    for item in [linked("a", 3), link("b", "a"), link("c", "a"), file("d", 10), link("e", "a")] {
        tally.on_item(&item).unwrap();
    }
    let copied = |fill| OutcomeKind::Copied { blake3: [fill; 32] };
    let outcomes = [
        (3, copied(4)),
        (0, copied(1)),
        (1, OutcomeKind::Made),
        // Another file stays under this name.
        (2, OutcomeKind::LeftOut { rule: LeftOut::Exists }),
        (4, OutcomeKind::Nothing),
    ];
    let expected = [("a", 1), ("b", 1), ("d", 4), ("e", 1)].map(|(name, fill)| (name.to_string(), fill));
    assert_eq!(listed(&mut tally, &outcomes), expected);
    assert!(tally.first_names.is_empty(), "nobody needs it any more");
    assert_eq!((tally.totals().files_moved, tally.totals().files_kept, tally.totals().others_made), (2, 0, 1));
}

#[test]
fn a_further_name_counts_as_a_file_only_where_it_is_sent_or_kept_for_itself() {
    let further = |path: &str| {
        let ItemKind::File { identity, hole_bytes, blake3, .. } = file(path, 10).kind else { unreachable!() };
        let kind = ItemKind::FurtherName { first: file("a", 0).path, identity, hole_bytes, blake3 };
        Item { kind, ..file(path, 0) }
    };
    let mut tally = Tally::default();
    for item in [linked("a", 3), further("b"), further("c"), further("d")] {
        tally.on_item(&item).unwrap();
    }
    assert_eq!((tally.totals().files_found, tally.totals().bytes_found), (1, 10));
    tally.on_answer(1, &Wanted::All);
    tally.on_receipt(&Receipt { index: 1, chunk: 0, data_bytes: 10, matched_bytes: 0 }).unwrap();
    let outcomes = [
        (0, OutcomeKind::LeftOut { rule: LeftOut::Newer }),
        (1, OutcomeKind::Copied { blake3: [2; 32] }),
        (2, OutcomeKind::Made),
        (3, OutcomeKind::Kept { blake3: None }),
    ];
    assert_eq!(listed(&mut tally, &outcomes), [("b".to_string(), 2)]);
    let totals = tally.totals();
    assert_eq!((totals.files_found, totals.bytes_found), (3, 30));
    assert_eq!((totals.files_moved, totals.files_kept, totals.others_made), (1, 1, 1));
}

/// A file that changed while it was read is announced anew, behind its other names.
#[test]
fn a_further_name_of_a_file_that_was_sent_again_has_the_hash_of_what_it_is_now() {
    let mut tally = Tally::default();
    for item in [linked("a", 1), link("b", "a"), linked("a", 1)] {
        tally.on_item(&item).unwrap();
    }
    let outcomes = [(0, OutcomeKind::Superseded), (2, OutcomeKind::Copied { blake3: [2; 32] }), (1, OutcomeKind::Made)];
    assert_eq!(listed(&mut tally, &outcomes), [("b".to_string(), 2), ("a".to_string(), 2)]);
}

#[test]
fn of_a_file_that_failed_or_that_nobody_read_no_name_is_told() {
    let failed = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Io };
    for first in [failed, OutcomeKind::Kept { blake3: None }, OutcomeKind::WouldCopy] {
        let mut tally = Tally::default();
        tally.on_item(&linked("a", 1)).unwrap();
        tally.on_item(&link("b", "a")).unwrap();
        assert_eq!(listed(&mut tally, &[(0, first), (1, OutcomeKind::Nothing)]), []);
    }
}

#[test]
fn a_peer_that_promises_further_names_without_end_fills_no_memory() {
    let mut tally = Tally::default();
    for number in 0..MAX_FIRST_NAMES as u64 + 10 {
        tally.on_item(&linked(&number.to_string(), u32::MAX)).unwrap();
        tally.on_outcome(&Outcome::of(number, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
    }
    assert_eq!(tally.first_names.len(), MAX_FIRST_NAMES);
    tally.on_item(&link("name", "0")).unwrap();
    let last = MAX_FIRST_NAMES as u64 + 10;
    assert_eq!(listed(&mut tally, &[(last, OutcomeKind::Made)]), [("name".to_string(), 0)]);
}

#[test]
fn failures_are_counted_by_kind() {
    let mut tally = Tally::default();
    tally.on_item(&file("a", 1)).unwrap();
    let vanished = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Vanished };
    tally.on_outcome(&Outcome::of(0, vanished.clone()), &mut |_| {}).unwrap();
    assert_eq!((tally.totals().failed, tally.totals().vanished), (1, 1));
}

#[test]
fn what_is_verified_waits_for_its_flush_until_its_file_has_an_outcome() {
    let mut tally = Tally::default();
    for path in ["a", "b", "c"] {
        tally.on_item(&file(path, 10)).unwrap();
    }
    for (index, data_bytes) in [(0, 10), (1, 10), (2, 4)] {
        tally.on_receipt(&Receipt { index, chunk: 0, data_bytes, matched_bytes: 0 }).unwrap();
    }
    assert_eq!(tally.totals().bytes_unsettled, 24);
    let copied = OutcomeKind::Copied { blake3: [1; 32] };
    tally.on_outcome(&Outcome::of(1, copied.clone()), &mut |_| ()).unwrap();
    assert_eq!(tally.totals().bytes_unsettled, 14);
    let why = OutcomeKind::Failed { why: "no space".into(), kind: FailureKind::Space };
    tally.on_outcome(&Outcome::of(2, why), &mut |_| ()).unwrap();
    assert_eq!(tally.totals().bytes_unsettled, 10);
    tally.on_outcome(&Outcome::of(0, copied), &mut |_| ()).unwrap();
    assert_eq!(tally.totals().bytes_unsettled, 0);
    let linked = OutcomeKind::Brought { how: Brought::Linked, blake3: None };
    tally.on_item(&file("d", 10)).unwrap();
    tally.on_outcome(&Outcome::of(3, linked), &mut |_| ()).unwrap();
    let totals = tally.totals();
    assert_eq!((totals.files_kept, totals.files_linked, totals.files_copied_there, totals.bytes_moved), (1, 1, 0, 24));
    let by_server = OutcomeKind::Brought { how: Brought::ByServer, blake3: None };
    tally.on_item(&file("e", 10)).unwrap();
    tally.on_outcome(&Outcome::of(4, by_server), &mut |_| ()).unwrap();
    let totals = tally.totals();
    assert_eq!((totals.files_kept, totals.files_between_servers, totals.bytes_moved), (1, 1, 34), "it has moved");
}
