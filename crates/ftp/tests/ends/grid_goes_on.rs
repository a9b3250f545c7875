//! Uploads to GridFTP that broke off, and the copies behind them: what the server still has as it was sent is not sent again.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use haul_ftp::{FtpServer, FtpTarget, OpenOptions, Settings};
use haul_store::{Draft, Metadata, StoreError, SumCounts, SumKind, TargetTree as _};

use crate::grid::{LONG, data, plan};
use crate::grid_server::{Fault, GridServer};

const MIB: usize = 1 << 20;

fn target_with(settings: Settings, journals: &Path) -> FtpTarget {
    let settings = Settings { journals: Some(journals.to_owned()), ..settings };
    FtpServer::new(settings).open(b"/", OpenOptions::default()).unwrap().0
}

fn target(server: &GridServer, journals: &Path) -> FtpTarget {
    target_with(server.settings(), journals)
}

/// Sends chunks of the file.
fn send(draft: &Draft, chunks: std::ops::Range<usize>) -> Result<(), StoreError> {
    for at in chunks {
        let end = LONG.min((at + 1) * MIB);
        draft.write_at(&data(LONG)[at * MIB..end], (at * MIB) as u64)?;
    }
    Ok(())
}

/// Half of a file goes up, and the run dies. Returns the path of what it leaves.
fn broken_off(server: &GridServer, journals: &Path) -> String {
    let target = target(server, journals);
    let draft = target.new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..1).unwrap();
    draft.journal_start(b"header").unwrap();
    send(&draft, 1..2).unwrap();
    draft.write_at(&data(LONG)[2 * MIB..5 * MIB / 2], 2 * MIB as u64).unwrap();
    draft.journal_append(b" record").unwrap();
    drop(draft);
    // A server may still take in what was sent.
    let begin = Instant::now();
    loop {
        let left = server.paths().into_iter().find(|path| path.starts_with("/.haul-"));
        if let Some(left) = left.filter(|left| server.content(left).is_some_and(|has| has.len() == 5 * MIB / 2)) {
            return left;
        }
        assert!(begin.elapsed() < Duration::from_secs(5), "the server has what was sent");
        std::thread::yield_now();
    }
}

fn stand(draft: &Draft) -> [Option<bool>; 3] {
    [0, 1, 2].map(|chunk| draft.proves((chunk * MIB) as u64, MIB as u64))
}

fn is_gone_on_with(target: &FtpTarget) -> bool {
    target.resume_draft(b"f", false).unwrap().is_some()
}

fn put_whole(target: &FtpTarget) {
    let draft = target.new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..4).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
}

#[test]
fn only_what_the_server_lacks_is_sent_again_and_the_whole_is_compared() {
    let server = GridServer::start(&[("/f", b"old")], Fault::None);
    let journals = tempfile::tempdir().unwrap();
    broken_off(&server, journals.path());
    let told = Arc::new(Mutex::new(SumCounts::default()));
    let for_told = Arc::clone(&told);
    let tell_sums = Box::new(move |sums| *for_told.lock().unwrap() = sums);
    let target = target_with(Settings { tell_sums, ..server.settings() }, journals.path());
    let (draft, journal) = target.resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!((&journal[..], draft.size().unwrap()), (&b"header record"[..], 2 * MIB as u64));
    assert_eq!(stand(&draft), [Some(true), Some(true), Some(false)], "the third chunk is not complete");
    assert_eq!(draft.proves(0, MIB as u64 - 1), Some(false), "it is no chunk");
    draft.journal_keep(b"header record".len() as u64).unwrap();
    let before = server.taken.load(Ordering::Relaxed);
    send(&draft, 2..4).unwrap();
    draft.journal_append(b" more").unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG) && server.paths() == ["/f"]);
    assert_eq!(server.taken.load(Ordering::Relaxed) - before, LONG - 2 * MIB);
    assert_eq!(told.lock().unwrap().compared().collect::<Vec<_>>(), [(SumKind::Adler32, 1)]);
    assert_eq!(std::fs::read_dir(journals.path()).unwrap().count(), 0);
}

#[test]
fn an_upload_that_the_server_cuts_is_gone_on_with() {
    let server = GridServer::start(&[], Fault::Cuts);
    let journals = tempfile::tempdir().unwrap();
    let first = target(&server, journals.path());
    let draft = first.new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..1).unwrap();
    draft.journal_start(b"header").unwrap();
    let cut = send(&draft, 1..4).and_then(|()| draft.commit(&Metadata::default(), true));
    assert!(cut.is_err() && draft.journal_append(b" record").is_ok());
    drop(draft);
    server.misbehave(Fault::None);
    let second = target(&server, journals.path());
    let (draft, _) = second.resume_draft(b"f", false).unwrap().unwrap();
    let missing = stand(&draft).iter().position(|stands| *stands != Some(true)).unwrap_or(3);
    assert!(missing >= 1, "the first chunk stands");
    send(&draft, missing..4).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG));
}

#[test]
fn what_somebody_else_has_changed_is_sent_again() {
    let server = GridServer::start(&[], Fault::None);
    let journals = tempfile::tempdir().unwrap();
    let left = broken_off(&server, journals.path());
    server.files.lock().unwrap().get_mut(&left).unwrap()[7] ^= 1;
    let (draft, _) = target(&server, journals.path()).resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!(stand(&draft), [Some(false), Some(true), Some(false)]);
    drop(draft);
    for other in [vec![1; LONG], data(LONG + 1), Vec::new()] {
        server.files.lock().unwrap().insert(left.clone(), other);
        assert!(!is_gone_on_with(&target(&server, journals.path())));
    }
    put_whole(&target(&server, journals.path()));
    assert!(server.content("/f").unwrap() == data(LONG) && server.paths() == ["/f"]);
}

#[test]
fn a_server_that_proves_nothing_gets_the_file_from_its_beginning() {
    for fault in [Fault::Empties, Fault::SumsWhole, Fault::SumsNoParts, Fault::Refuses] {
        let server = GridServer::start(&[], Fault::None);
        let journals = tempfile::tempdir().unwrap();
        broken_off(&server, journals.path());
        server.misbehave(fault);
        let resumed = target(&server, journals.path()).resume_draft(b"f", false);
        match fault {
            Fault::Refuses => assert!(resumed.unwrap_err().to_string().contains("no room left"), "it stays"),
            _ => assert!(resumed.unwrap().is_none(), "{fault:?}"),
        }
        server.misbehave(Fault::None);
        put_whole(&target(&server, journals.path()));
        assert!(server.content("/f").unwrap() == data(LONG) && server.paths() == ["/f"], "{fault:?}");
    }
}

#[test]
fn a_second_copy_to_a_file_that_goes_up_in_blocks_fails_and_leaves_it() {
    let server = GridServer::start(&[], Fault::None);
    let journals = tempfile::tempdir().unwrap();
    let first = target(&server, journals.path());
    let draft = first.new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..4).unwrap();
    draft.journal_start(b"header").unwrap();
    let second = target(&server, journals.path());
    assert!(second.new_draft_of(b"f", &plan(LONG)).is_err() && second.resume_draft(b"f", false).is_err());
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG));
}

#[test]
fn a_draft_without_its_journal_is_not_gone_on_with() {
    let server = GridServer::start(&[], Fault::None);
    let journals = tempfile::tempdir().unwrap();
    broken_off(&server, journals.path());
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(!is_gone_on_with(&target(&server, elsewhere.path())));
    // An earlier journal tells nothing of what was sent after it.
    let draft = target(&server, journals.path()).new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..4).unwrap();
    drop(draft);
    assert!(!is_gone_on_with(&target(&server, journals.path())));
    assert!(server.paths().is_empty(), "without a journal nothing stays");
}

#[test]
fn a_file_that_arrives_otherwise_than_it_was_sent_is_not_gone_on_with() {
    let server = GridServer::start(&[], Fault::Garbles);
    let journals = tempfile::tempdir().unwrap();
    let draft = target(&server, journals.path()).new_draft_of(b"f", &plan(LONG)).unwrap();
    send(&draft, 0..4).unwrap();
    draft.journal_start(b"header").unwrap();
    assert!(draft.commit(&Metadata::default(), true).unwrap_err().to_string().contains("another adler32"));
    drop(draft);
    assert!(!is_gone_on_with(&target(&server, journals.path())) && server.paths().is_empty());
}
