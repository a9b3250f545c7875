//! Tests items that are taken back while their data is on its way.

use haul_wire::control::Withdraw;
use haul_wire::manifest::Time;

use super::*;

impl Target {
    fn retries(&mut self, index: u64, now: &Item) {
        let (why, kind, retry) =
            ("it changed while it was read".to_owned(), FailureKind::Changed, self.packer.pack(now));
        self.peer.says(&Control::Withdraw(Withdraw { index, why, kind, retry: Some(retry) }));
    }
}

fn told_of_another_version() -> Target {
    let mut target = Target::of(|job| job.selection.hard_links = true);
    std::fs::write(target.to("first"), "older").unwrap();
    std::fs::hard_link(target.to("first"), target.to("second")).unwrap();
    target.announces(&[file("first", 6), hard_link("second", "first")]);
    target.peer.is_asked_for(0);
    target
}

#[test]
fn a_hard_link_waits_for_the_version_that_took_the_place_of_one_that_changed() {
    let mut target = told_of_another_version();
    target.retries(0, &file("first", 7));
    target.peer.is_asked_for(2);
    target.peer.sends(&unit(UnitKind::Whole, 2, 0, 7, b"newest!"));
    assert_eq!(target.peer.outcome_of(1), OutcomeKind::Made);
    assert_eq!(target.read("second").unwrap(), b"newest!");
    target.closes_in_peace();
}

#[test]
fn a_directory_gets_its_time_after_the_version_that_took_the_place_of_one_that_changed() {
    const SIZE: u64 = MIN_CHUNK_BYTES + 10;
    let mut target = Target::open();
    let mut directory = item("d", ItemKind::Directory);
    directory.attributes.mode = 0o755;
    directory.attributes.mtime = Time { s: 1_000_000_000, ns: 7 };
    target.announces(&[directory, file("d/file", 6), item("d", ItemKind::DirectoryEnd { complete: true })]);
    target.peer.is_asked_for(1);
    // A part of this size has a name, which changes the directory, too.
    target.retries(1, &file("d/file", SIZE));
    target.peer.is_asked_for(3);
    for (chunk, bytes) in [(0, MIN_CHUNK_BYTES), (1, SIZE - MIN_CHUNK_BYTES)] {
        target.peer.sends(&unit(UnitKind::Chunk, 3, chunk, SIZE, &vec![1; bytes as usize]));
    }
    assert!(matches!(target.peer.outcome_of(3), OutcomeKind::Copied { .. }));
    assert_eq!(target.peer.outcome_of(2), OutcomeKind::Nothing);
    let found = std::fs::metadata(target.to("d")).unwrap();
    assert_eq!((found.mtime(), found.mtime_nsec()), (1_000_000_000, 7));
    target.closes_in_peace();
}

#[test]
fn only_the_file_that_changed_takes_its_own_place() {
    let others = [file("other", 6), item("file", ItemKind::Symlink { target: b"/etc".to_vec() })];
    for (other, why) in others.iter().zip(["another file in the place", "something else than a file"]) {
        let mut target = Target::open();
        target.announces(&[file("file", 6)]);
        target.peer.is_asked_for(0);
        target.retries(0, other);
        target.peer.broke_the_protocol(why);
    }
}

fn gets_no_second_name(target: Target) {
    let OutcomeKind::Failed { why, .. } = target.peer.outcome_of(1) else {
        panic!("it has other data under that name")
    };
    let barred = "cannot make hard link second: first, the first name of its file, could not be copied, or is another file by now";
    assert_eq!(why, barred);
    assert_eq!(target.read("second").unwrap(), b"older");
    target.closes_in_peace();
}

#[test]
fn a_file_that_was_replaced_has_no_second_name_any_more() {
    let mut target = told_of_another_version();
    let mut replaced = file("first", 7);
    if let ItemKind::File { identity, .. } = &mut replaced.kind {
        identity.inode += 1;
    }
    target.retries(0, &replaced);
    target.peer.is_asked_for(2);
    target.peer.sends(&unit(UnitKind::Whole, 2, 0, 7, b"another"));
    gets_no_second_name(target);
}

#[test]
fn a_file_that_failed_gets_no_second_name() {
    let mut target = told_of_another_version();
    let why = "its medium is broken".to_owned();
    target.peer.says(&Control::Withdraw(Withdraw { index: 0, why, kind: FailureKind::Io, retry: None }));
    gets_no_second_name(target);
}

#[test]
fn withdrawals_of_anything_do_no_harm() {
    let mut target = Target::open();
    target.announces(&[file("honest", 6), item("made", ItemKind::Symlink { target: b"x".to_vec() })]);
    target.peer.is_asked_for(0);
    for index in [1, 7, u64::MAX] {
        let why = "because".to_owned();
        target.peer.says(&Control::Withdraw(Withdraw { index, why, kind: FailureKind::Io, retry: None }));
    }
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 6, b"honest"));
    assert!(matches!(target.peer.outcome_of(0), OutcomeKind::Copied { .. }));
    target.closes_in_peace();
}

#[test]
fn a_file_that_changed_when_it_was_complete_stays_as_it_was_announced() {
    let mut target = Target::open();
    target.announces(&[file("file", 3)]);
    target.peer.is_asked_for(0);
    target.peer.sends(&unit(UnitKind::Whole, 0, 0, 3, b"old"));
    target.peer.says(&Control::EndOfManifest);
    target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
    // The sender finds the file changed before it hears of the outcome.
    target.retries(0, &file("file", 5));
    assert_eq!(target.peer.outcome_of(1), OutcomeKind::Superseded);
    assert_eq!(target.read("file").unwrap(), b"old");
    target.peer.hears(|message| matches!(message, Control::Summary(_)).then_some(()));
    target.peer.sends(&UnitHeader { kind: UnitKind::End, index: 0, chunk: 0 }.encode());
    target.peer.says(&Control::Bye(SenderSummary::default()));
    target.peer.ended().unwrap();
}
