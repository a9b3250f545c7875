//! Uploads that nobody has ended.

use std::ops::ControlFlow;
use std::path::Path;
use std::time::Duration;

use haul_foreign::{PlaceSettings, S3Place, TargetSettings};
use haul_store::{Draft, DraftPlan, PlaceTree as _};

use crate::server::{Server, open_bucket, settings};
use crate::target::Silent;

const PART: usize = 64 << 10;

/// Begins a draft of two parts, and sends one.
fn begun(server: &Server, journals: &Path, key: &str) -> Draft {
    let target =
        TargetSettings { sums: true, journals: Some(journals.to_owned()), single_file: true, ..Default::default() };
    let told = Box::new(Silent::default());
    let opened = open_bucket("bucket", key.as_bytes(), target, told, &server.environment(), settings);
    let (tree, name) = opened.unwrap();
    let plan = DraftPlan { size: 2 * PART as u64, chunk_bytes: PART as u64, ..DraftPlan::default() };
    let draft = tree.new_draft_of(&name.unwrap(), &plan).unwrap();
    draft.write_at(&[1; PART], 0).unwrap();
    draft
}

fn left(server: &Server, directory: &str, remove: bool, place: PlaceSettings) -> Vec<(String, u64)> {
    let place = S3Place::open("bucket", place, &server.environment(), settings).unwrap();
    let mut found = Vec::new();
    let flow = place.leftovers(directory.as_bytes(), remove, &mut |path, bytes| {
        found.push((String::from_utf8(path.to_vec()).unwrap(), bytes.unwrap()));
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    found
}

#[test]
fn only_uploads_of_dead_copies_of_this_user_are_shown_and_ended() {
    let server = Server::honest();
    let (ours, theirs) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let place = |after: Option<u64>| PlaceSettings {
        journals: Some(ours.path().to_owned()),
        others_after: after.map(Duration::from_secs),
    };
    drop(begun(&server, ours.path(), "d/dead"));
    drop(begun(&server, ours.path(), "dd/dead"));
    let living = begun(&server, ours.path(), "d/living");
    drop(begun(&server, theirs.path(), "d/theirs"));
    let part = PART as u64;
    assert_eq!(left(&server, "d", false, place(None)), [("dead".to_owned(), part)]);
    assert_eq!(left(&server, "d/dead", false, place(None)), [(String::new(), part)]);
    assert_eq!(server.state.lock().unwrap().uploads(), 4, "nothing was asked to go");
    assert_eq!(left(&server, "d/", true, place(None)), [("dead".to_owned(), part)]);
    assert_eq!(left(&server, "d", false, place(None)), []);
    assert_eq!(server.state.lock().unwrap().uploads(), 3);
    // The uploads are of 2020.
    const HUNDRED_YEARS_S: u64 = 100 * 366 * 24 * 60 * 60;
    assert_eq!(left(&server, "d", true, place(Some(HUNDRED_YEARS_S))), []);
    assert_eq!(left(&server, "d", true, place(Some(24 * 60 * 60))), [("theirs".to_owned(), part)]);
    living.write_at(&[2; PART], part).unwrap();
    living.commit(&haul_store::Metadata::default(), true).unwrap();
    assert_eq!(left(&server, "", true, place(None)), [("dd/dead".to_owned(), part)]);
    assert_eq!(server.state.lock().unwrap().uploads(), 0);
    assert_eq!(std::fs::read_dir(ours.path()).unwrap().count(), 0, "their journals went with them");
}

#[test]
fn a_second_copy_to_one_object_leaves_the_upload_of_the_first_alone() {
    let server = Server::honest();
    let journals = tempfile::tempdir().unwrap();
    let first = begun(&server, journals.path(), "d/f");
    let target = TargetSettings { sums: true, journals: Some(journals.path().to_owned()), ..Default::default() };
    let told = Box::new(Silent::default());
    let (tree, _) = open_bucket("bucket", b"d/", target, told, &server.environment(), settings).unwrap();
    let plan = DraftPlan { size: 2 * PART as u64, chunk_bytes: PART as u64, ..DraftPlan::default() };
    let error = tree.new_draft_of(b"f", &plan).unwrap_err();
    assert!(error.to_string().contains("another haul"), "{error}");
    first.write_at(&[2; PART], PART as u64).unwrap();
    first.commit(&haul_store::Metadata::default(), true).unwrap();
    assert_eq!(server.object("d/f").unwrap().data.len(), 2 * PART);
}
