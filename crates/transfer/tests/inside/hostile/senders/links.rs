//! Tests links that a sender brings, or that stand at the target.

use super::*;

#[test]
fn links_in_the_data_lead_nowhere() {
    let mut target = Target::open();
    symlink("../outside", target.to("planted")).unwrap();
    let link = |path: &str, to: &str| item(path, ItemKind::Symlink { target: to.as_bytes().to_vec() });
    target.announces(&[
        link("out", "../outside"),
        file("out/made", 4),
        file("planted/made", 4),
        item("planted", ItemKind::Directory),
        item("planted/dir", ItemKind::Directory),
        item("planted/dir", ItemKind::DirectoryEnd { complete: true }),
        item("planted", ItemKind::DirectoryEnd { complete: true }),
        hard_link("stolen", "out/secret"),
        hard_link("stolen-too", "planted/secret"),
        hard_link("out/made-too", "out"),
        link("out/link", "x"),
        file("out", 4),
    ]);
    target.peer.is_asked_for(11);
    for index in [1, 2, 11] {
        target.peer.sends(&unit(UnitKind::Whole, index, 0, 4, b"evil"));
    }
    let failed = |index| matches!(target.peer.outcome_of(index), OutcomeKind::Failed { .. });
    assert!(failed(7), "a link to what is outside");
    assert!(target.read("stolen").is_none() && target.read("stolen-too").is_none());
    assert!(matches!(target.peer.outcome_of(11), OutcomeKind::Copied { .. }));
    assert_eq!(target.read("out").unwrap(), b"evil", "the link gave way to the file");
    target.assert_outside_is_untouched();
    target.closes_in_peace();
}

/// A receiver with `--keep-dirlinks`.
fn following() -> Target {
    Target::of(|job| job.selection.keep_dirlinks = true)
}

fn link(name: &str, target: &std::path::Path) -> Item {
    item(name, ItemKind::Symlink { target: target.as_os_str().as_encoded_bytes().to_vec() })
}

fn failed(target: &Target, index: u64) -> String {
    match target.peer.outcome_of(index) {
        OutcomeKind::Failed { why, .. } => why,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_link_that_a_sender_brings_leads_it_nowhere() {
    let mut target = following();
    let outside = target.dir.path().join("outside");
    target.announces(&[
        link("way", &outside),
        item("way", ItemKind::Directory),
        file("way/planted", 6),
        item("way", ItemKind::DirectoryEnd { complete: true }),
    ]);
    assert!(failed(&target, 1).contains("this copy has brought"));
    failed(&target, 2);
    target.assert_outside_is_untouched();
}

/// Two names of one directory: a link comes by one, and is to be followed by the other.
#[test]
fn a_link_that_comes_through_another_link_leads_nowhere_either() {
    let mut target = following();
    std::fs::create_dir(target.to("real")).unwrap();
    symlink("real", target.to("alias")).unwrap();
    let outside = target.dir.path().join("outside");
    target.announces(&[
        item("alias", ItemKind::Directory),
        link("alias/way", &outside),
        item("alias", ItemKind::DirectoryEnd { complete: true }),
        item("real", ItemKind::Directory),
        item("real/way", ItemKind::Directory),
        file("real/way/planted", 6),
        item("real/way", ItemKind::DirectoryEnd { complete: true }),
        item("real", ItemKind::DirectoryEnd { complete: true }),
    ]);
    assert_eq!(target.peer.outcome_of(1), OutcomeKind::Made);
    assert!(failed(&target, 3).contains("another entry of this copy"), "real is alias");
    assert!(failed(&target, 4).contains("its directory could not be copied"));
    failed(&target, 5);
    target.assert_outside_is_untouched();
}
