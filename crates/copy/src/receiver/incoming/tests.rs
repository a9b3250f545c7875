//! Tests how an arriving file ends.

use haul_engine::integrity::{self, UnitHasher};
use haul_store::{LocalTree, TargetOptions};
use haul_sys::intercept::{Call, Stopped, Verdict, under};
use haul_wire::RelPath;
use haul_wire::manifest::Attributes;

use super::*;

fn complete() -> (tempfile::TempDir, LocalTree, Incoming, Exposure) {
    let dir = tempfile::tempdir().unwrap();
    let root = dir.path().as_os_str().as_encoded_bytes();
    let (tree, _) = LocalTree::open(root, &TargetOptions::default()).unwrap();
    let data = vec![7; 3 << 20];
    let identity = Identity { size: data.len() as u64, mtime: Default::default(), ctime: Default::default(), inode: 1 };
    let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
    let path = RelPath::new(b"file".to_vec()).unwrap();
    let item = Arc::new(Item { path, kind, attributes: Attributes::default() });
    let incoming = Incoming::new(0, item, b"file".to_vec(), identity, false);
    let exposure = Exposure::new(u64::MAX);
    let part = incoming.part(&tree).unwrap().unwrap();
    part.write_at(&data, 0).unwrap();
    for chunk in 0..incoming.layout.count() {
        let (start, length) = incoming.layout.range(chunk).unwrap();
        let mut hasher = UnitHasher::new(&incoming.layout, chunk);
        hasher.update(&data[start as usize..][..length as usize]);
        let hash = hasher.finish();
        incoming.record(integrity::verify(chunk, hash, hash).unwrap(), length, &exposure, || ());
    }
    (dir, tree, incoming, exposure)
}

fn names(dir: &tempfile::TempDir) -> Vec<std::ffi::OsString> {
    let mut names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    names.sort();
    names
}

#[test]
fn a_checkpoint_that_comes_after_the_end_begins_no_journal() {
    let (dir, _, incoming, exposure) = complete();
    let published = incoming.publish(&Metadata::default(), false, &exposure).unwrap();
    assert!(matches!(published, Published::Named(_)));
    // This checkpoint's lane was slower than the last chunk's.
    incoming.checkpoint(&exposure).unwrap();
    assert_eq!(names(&dir), ["file"]);
}

#[test]
fn a_complete_file_whose_checkpoint_failed_gets_no_name_and_keeps_its_part() {
    let (dir, tree, incoming, exposure) = complete();
    incoming.checkpoint(&exposure).unwrap();
    let before = names(&dir);
    assert_eq!(before.len(), 2, "a part and its journal");
    incoming.abandon(true, &exposure);
    let published = incoming.publish(&Metadata::default(), false, &exposure).unwrap();
    assert!(matches!(published, Published::NotNow));
    assert!(incoming.part(&tree).unwrap().is_none());
    assert_eq!(names(&dir), before);
    let sizes: Vec<u64> = before.iter().map(|name| dir.path().join(name).metadata().unwrap().len()).collect();
    assert!(sizes.contains(&(3 << 20)), "{sizes:?}");
}

#[test]
fn a_file_that_is_withdrawn_during_its_first_checkpoint_leaves_no_journal_and_its_checkpoint_has_not_failed() {
    let (dir, _, incoming, exposure) = complete();
    let (incoming, exposure) = (Arc::new(incoming), Arc::new(exposure));
    let root = dir.path().to_owned();
    let mut withdrawn = false;
    let withdraw = {
        let (incoming, exposure) = (Arc::clone(&incoming), Arc::clone(&exposure));
        move |_, stopped: &Stopped| {
            if !std::mem::replace(&mut withdrawn, true) {
                assert!(stopped.file().starts_with(&root), "{stopped:?}");
                incoming.abandon(false, &exposure);
            }
            Verdict::Proceed
        }
    };
    let checkpoint = move || incoming.checkpoint(&exposure).map(drop);
    let Some((made, flushes)) = under(&[Call::Flush], withdraw, checkpoint) else { return };
    made.unwrap();
    assert_eq!((names(&dir), flushes), (Vec::new(), 1));
}
