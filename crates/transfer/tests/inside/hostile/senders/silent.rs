//! Tests senders that are alive and do nothing.

use super::*;

#[test]
fn a_sender_that_only_lives_is_not_waited_for() {
    let mut target = Target::of(|job| job.carriage.timeout_ms = SHORT_MS);
    target.announces(&[file("file", BLOCK_BYTES as u64)]);
    target.peer.is_asked_for(0);
    let error = target.peer.only_lives(|_| ()).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
    assert!(error.hint.unwrap().contains("run the same command again"));

    let mut target = Target::of(|job| job.carriage.timeout_ms = SHORT_MS);
    target.announces(&[file("file", BLOCK_BYTES as u64)]);
    target.peer.is_asked_for(0);
    target.peer.sends(&UnitHeader { kind: UnitKind::Whole, index: 0, chunk: 0 }.encode());
    let dripped = |peer: &mut Peer| {
        peer.sends(&BlockHeader { bytes: 1, encoding: Encoding::Plain }.encode());
        peer.sends(b"x");
    };
    let error = target.peer.only_lives(dripped).unwrap_err();
    assert_eq!(error.fault, Fault::Timeout, "{error:?}");
}

#[test]
fn a_sender_that_searches_for_ever_is_not_waited_for() {
    let mut target = Target::of(|job| job.bounds.search = Duration::from_secs(1));
    target.announces(&[item("d", ItemKind::Directory)]);
    let error = target.peer.only_lives(|_| ()).unwrap_err();
    assert!(error.fault == Fault::Timeout && error.what.contains("found nothing"), "{error:?}");
}

#[test]
fn a_sender_that_never_says_good_bye_is_not_waited_for() {
    let mut target = Target::of(|job| job.carriage.timeout_ms = SHORT_MS);
    target.peer.says(&Control::EndOfManifest);
    target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
    target.peer.only_lives(|_| ()).unwrap();
}
