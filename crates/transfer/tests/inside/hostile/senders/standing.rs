//! Tests a real receiver whose sender takes runs from files that stand there.

use haul_wire::summary::KnownPath;

use super::*;

const PRECIOUS: &[u8] = b"precious";

fn target(change: impl FnOnce(&mut ReceiverJob)) -> Target {
    let mut target = Target::before_the_beginning(change);
    std::fs::write(target.to("large"), [PRECIOUS, &vec![3; 1 << 20]].concat()).unwrap();
    target.peer.says(&Control::Begin { single_file: false });
    target.announces(&[file("small", 100), file("large", MIN_CHUNK_BYTES + 8)]);
    target
}

fn run_at(at: u64) -> Vec<u8> {
    let header = UnitHeader { kind: UnitKind::Chunk, index: 1, chunk: 1 };
    unit_of(header, &[(Encoding::Standing, &at.to_le_bytes())], Trailer::Complete([7; 32]))
}

#[test]
fn a_run_is_within_the_file_that_stands_there() {
    let of_small = unit_of(
        UnitHeader { kind: UnitKind::Whole, index: 0, chunk: 0 },
        &[(Encoding::Standing, &[0; 8])],
        Trailer::Complete([7; 32]),
    );
    let cases = [
        ("of a file that does not stand there", of_small),
        ("beyond the end", run_at((1 << 20) + 1)),
        ("far beyond the end", run_at(u64::MAX)),
    ];
    for (what, bytes) in cases {
        let mut target = target(|_| ());
        target.peer.is_asked_for(1);
        target.peer.sends(&bytes);
        target.peer.loses_its_lane();
        assert!(target.read("large").unwrap().starts_with(PRECIOUS), "{what}");
        target.assert_outside_is_untouched();
        target.peer.leaves();
    }
}

/// Data there may be overwritten by then.
#[test]
fn in_place_a_run_stays_where_it_is() {
    let mut target = target(|job| job.selection.inplace = true);
    target.peer.is_asked_for(1);
    target.peer.sends(&run_at(0));
    target.peer.loses_its_lane();
    assert!(target.read("large").unwrap().starts_with(PRECIOUS));
    target.peer.leaves();
}

#[test]
fn a_run_that_is_not_what_the_sender_says_is_asked_for_again() {
    let mut target = target(|_| ());
    target.peer.is_asked_for(1);
    target.peer.sends(&run_at(0));
    target.peer.hears(|message| matches!(message, Control::Again { index: 1, chunk: 1 }).then_some(()));
    assert!(target.read("large").unwrap().starts_with(PRECIOUS));
    target.peer.leaves();
}

/// The disks are the limit there.
#[test]
fn a_target_does_not_look_when_the_path_is_known_to_be_quick() {
    let looks = |capacity_bytes_per_s| {
        let known = KnownPath { capacity_bytes_per_s, ..KnownPath::default() };
        let target = target(|job| job.carriage.path = Some(known));
        let looks = target.peer.hears(|message| match message {
            Control::Standing(_) => Some(true),
            Control::Answers(answers) if answers.iter().any(|answer| answer.index == 1) => Some(false),
            _ => None,
        });
        target.peer.leaves();
        looks
    };
    assert!(looks(125_000_000) && !looks(1_250_000_000));
}
