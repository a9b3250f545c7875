//! Scenarios of a journal, wherever it lives.

use crate::{Journal, JournalFile};

#[test]
fn a_journal_in_a_directory_of_this_host_is_resumed_cut_begun_anew_and_removed() {
    let dir = tempfile::tempdir().unwrap();
    let open = |draft: &[u8]| JournalFile::in_directory(dir.path(), draft).unwrap();
    let journal = open(b"end:a/file");
    assert_eq!(journal.resume().unwrap(), None);
    assert!(journal.append(b"record").is_err(), "no journal was begun");
    let mut exists = false;
    journal.begin(b"header", &mut || exists = std::fs::read_dir(dir.path()).unwrap().count() == 1).unwrap();
    assert!(exists);
    journal.append(b" one").unwrap();
    journal.append(b" torn").unwrap();
    drop(journal);
    let journal = open(b"end:a/file");
    assert_eq!(journal.resume().unwrap().unwrap(), b"header one torn");
    journal.keep(10).unwrap();
    journal.append(b" two").unwrap();
    let other = open(b"end:b/file");
    assert_eq!(other.resume().unwrap(), None, "another file of that end");
    other.begin(b"other", &mut || ()).unwrap();
    drop(journal);
    let journal = open(b"end:a/file");
    assert_eq!(journal.resume().unwrap().unwrap(), b"header one two");
    journal.begin(b"new", &mut || ()).unwrap();
    let meanwhile = open(b"end:a/file").resume_at_once().unwrap_err();
    assert_eq!(meanwhile.kind(), std::io::ErrorKind::WouldBlock, "a copy that lives has it");
    drop(journal);
    let journal = open(b"end:a/file");
    assert_eq!(journal.resume_at_once().unwrap().unwrap(), b"new");
    journal.remove().unwrap();
    journal.remove().unwrap();
    assert_eq!((journal.resume().unwrap(), other.resume().unwrap().unwrap()), (None, b"other".to_vec()));
}
