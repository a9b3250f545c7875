//! Scenarios of a tree to write.

use super::Bench;
use crate::{Abilities, Kind, Metadata, SourceNames, Time};

const OLD: Time = Time { s: 1_000_000_000, ns: 123_456_789 };

pub(crate) fn a_draft_shows_under_no_name_until_it_is_committed(bench: &Bench) {
    let draft = bench.written("file", b"half");
    draft.flush().unwrap();
    assert!(!bench.exists("file") && bench.target.open_file(b"file").is_err());
    draft.write_at(b"whole", 0).unwrap();
    draft.prepare(&Metadata::default(), true).unwrap();
    assert!(!bench.exists("file"), "all but the name is there");
    draft.give_name().unwrap();
    bench.target.flush_dir(b"").unwrap();
    assert_eq!((bench.content("file"), bench.paths()), (b"whole".to_vec(), vec!["file".to_owned()]));
    assert_eq!(bench.target.stat(b"file").unwrap().unwrap().kind, Kind::File);
}

pub(crate) fn a_committed_draft_replaces_what_stood_there(bench: &Bench) {
    bench.file("file", b"first, and longer");
    let draft = bench.written("file", b"second");
    assert_eq!(bench.content("file"), b"first, and longer");
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!((bench.content("file"), bench.paths()), (b"second".to_vec(), vec!["file".to_owned()]));
}

pub(crate) fn a_discarded_draft_leaves_no_trace_and_gets_no_name(bench: &Bench) {
    bench.file("file", b"stays");
    let draft = bench.written("file", b"given up");
    draft.journal_start(b"header").unwrap();
    draft.discard().unwrap();
    let error = draft.give_name().unwrap_err();
    assert_eq!(error.path, b"file");
    assert!(draft.journal_start(b"header").is_err(), "it would belong to another draft");
    assert_eq!((bench.content("file"), bench.paths()), (b"stays".to_vec(), vec!["file".to_owned()]));
    assert!(bench.target.resume_draft(b"file", false).unwrap().is_none());
}

pub(crate) fn a_new_draft_begins_empty_whatever_an_earlier_one_held(bench: &Bench) {
    let draft = bench.written("file", b"of an earlier run");
    draft.journal_start(b"header").unwrap();
    drop(draft);
    let draft = bench.written("file", b"new");
    assert_eq!(draft.size().unwrap(), 3);
    drop(draft);
    assert!(bench.target.resume_draft(b"file", false).unwrap().is_none(), "the journal is of other data");
}

pub(crate) fn pieces_come_in_any_order_from_several_threads(bench: &Bench) {
    if !bench.target.abilities().random_writes {
        return;
    }
    const PIECE_BYTES: usize = 10_000;
    let draft = &bench.draft("file");
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in (0..32).rev().filter(|number| number % 4 == thread) {
                    draft.write_at(&[number; PIECE_BYTES], u64::from(number) * PIECE_BYTES as u64).unwrap();
                }
            });
        }
    });
    draft.commit(&Metadata::default(), true).unwrap();
    let expected: Vec<u8> = (0..32).flat_map(|number| [number; PIECE_BYTES]).collect();
    assert!(bench.content("file") == expected);
}

pub(crate) fn what_was_written_is_read_back_from_the_draft(bench: &Bench) {
    let draft = bench.written("file", b"0123456789");
    let mut buffer = [0; 8];
    assert_eq!((draft.read_at(&mut buffer, 1).unwrap(), &buffer), (8, b"12345678"));
    assert_eq!((draft.read_at(&mut buffer, 7).unwrap(), &buffer[..3]), (3, &b"789"[..]));
    assert_eq!(draft.read_at(&mut buffer, 10).unwrap(), 0);
    assert_eq!((draft.size().unwrap(), draft.path()), (10, &b"file"[..]));
    assert_ne!(draft.id(), bench.draft("other").id());
}

pub(crate) fn a_size_that_is_set_cuts_and_extends_by_zeros(bench: &Bench) {
    let draft = bench.written("other", b"0123456789");
    draft.set_size(4).unwrap();
    draft.extend(3).unwrap();
    assert_eq!(draft.size().unwrap(), 4, "it had that much already");
    let draft = bench.written("file", b"0123456789");
    draft.set_size(4).unwrap();
    draft.extend(7).unwrap();
    draft.write_at(b"end", 9).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!(bench.content("file"), b"0123\0\0\0\0\0end");
}

pub(crate) fn a_range_that_is_punched_reads_as_zeros(bench: &Bench) {
    const BYTES: usize = 128 << 10;
    let draft = bench.written("file", &[7; BYTES]);
    let grain = draft.hole_bytes() as u64;
    assert!(grain.is_power_of_two() && grain <= 4096);
    draft.punch(8192, 65_536).unwrap();
    draft.punch(BYTES as u64, 4096).unwrap();
    assert_eq!(draft.size().unwrap(), BYTES as u64, "beyond the end there is nothing to do");
    let mut expected = vec![7; BYTES];
    expected[8192..8192 + 65_536].fill(0);
    let data_bytes = draft.data_bytes(0, BYTES as u64).unwrap();
    assert!((BYTES as u64 - 65_536..=BYTES as u64).contains(&data_bytes), "{data_bytes}");
    if !bench.target.abilities().holes {
        assert_eq!(data_bytes, BYTES as u64);
    }
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(bench.content("file") == expected);
}

pub(crate) fn metadata_is_kept_as_far_as_the_end_can(bench: &Bench) {
    let meta = Metadata { mode: Some(0o640), mtime: Some(OLD), ..Metadata::default() };
    bench.written("file", b"data").commit(&meta, true).unwrap();
    bench.target.make_dir(b"directory").unwrap();
    if bench.target.abilities().directories {
        bench.target.set_metadata(b"directory", &meta).unwrap();
    }
    let newer = Time { s: OLD.s + 1, ns: 5 };
    bench.target.flush_file(b"file").unwrap();
    for (path, mtime) in [("file", OLD), ("directory", OLD), ("file", newer), ("", OLD)] {
        if path != "file" && !bench.target.abilities().directories {
            continue;
        }
        bench.target.set_metadata(path.as_bytes(), &Metadata { mtime: Some(mtime), ..Metadata::default() }).unwrap();
        let stat = bench.target.stat(path.as_bytes()).unwrap().unwrap();
        let Abilities { times, time_step_ns, .. } = bench.target.abilities();
        if times {
            let kept = Time { ns: mtime.ns - mtime.ns % time_step_ns, ..mtime };
            assert_eq!(stat.mtime, kept, "{path}");
        }
    }
    assert_eq!(bench.target.stat(b"file").unwrap().unwrap().size, 4);
    let error = bench.target.set_metadata(b"missing", &meta).unwrap_err();
    assert!(error.is_vanished(), "{error}");
}

pub(crate) fn the_version_of_a_file_changes_with_its_contents(bench: &Bench) {
    if !bench.target.abilities().tells_files {
        return;
    }
    let meta = Metadata { mtime: Some(OLD), ..Metadata::default() };
    bench.written("file", b"data").commit(&meta, true).unwrap();
    let before = bench.target.stat(b"file").unwrap().unwrap();
    let held = bench.target.open_file(b"file").unwrap();
    bench.written("file", b"DATA").commit(&meta, true).unwrap();
    let after = bench.target.stat(b"file").unwrap().unwrap();
    assert_eq!(before.size, after.size);
    assert_ne!(before.version, after.version, "of the same size and time");
    assert_eq!(bench.target.open_file(b"file").unwrap().stat().unwrap().version, after.version);
    drop(held);
}

pub(crate) fn a_directory_is_made_once_and_a_file_needs_its_directory(bench: &Bench) {
    let target = &bench.target;
    assert!(target.new_draft(b"a/file", false).is_err());
    assert!(target.make_dir(b"a/b").is_err());
    assert_eq!((target.make_dir(b"a").unwrap(), target.make_dir(b"a").unwrap()), (true, false));
    assert!(!target.make_dir(b"").unwrap(), "the tree itself is there");
    assert_eq!(target.stat(b"").unwrap().unwrap().kind, Kind::Directory);
    bench.file("a/file", b"");
    assert!(target.make_dir(b"a/file").is_err(), "only a deletion replaces a file by a directory");
    let draft = bench.written("a", b"data");
    assert!(draft.commit(&Metadata::default(), true).is_err(), "nor the other way round");
    draft.discard().unwrap();
    target.flush_dir(b"a").unwrap();
    assert_eq!(target.stat(b"a").unwrap().unwrap().kind, Kind::Directory);
    assert_eq!(bench.paths().into_iter().filter(|path| path.starts_with('a')).collect::<Vec<_>>(), ["a", "a/file"]);
}

pub(crate) fn links_are_made_or_refused(bench: &Bench) {
    let (target, can) = (&bench.target, bench.target.abilities());
    bench.file("file", b"data");
    let linked = target.make_symlink(b"link", b"file", &Metadata::default());
    assert_eq!(linked.is_ok(), can.symbolic_links, "{linked:?}");
    if can.symbolic_links {
        assert!(linked.unwrap() && !target.make_symlink(b"link", b"file", &Metadata::default()).unwrap());
        assert!(target.make_symlink(b"link", b"elsewhere", &Metadata::default()).unwrap());
        let kind = target.stat(b"link").unwrap().unwrap().kind;
        assert_eq!(kind, Kind::Symlink { target: b"elsewhere".to_vec() });
        assert!(target.open_file(b"link").is_err(), "links are not followed");
    }
    let linked = target.make_hard_link(b"second", b"file");
    assert_eq!(linked.is_ok(), can.hard_links, "{linked:?}");
    if can.hard_links {
        assert!(linked.unwrap() && !target.make_hard_link(b"second", b"file").unwrap());
        let stat = |path| target.stat(path).unwrap().unwrap();
        if can.tells_files {
            assert!(stat(b"second").is_same_inode(&stat(b"file")) && stat(b"file").nlink == 2);
        }
        assert_eq!(bench.content("second"), b"data");
        assert!(target.make_hard_link(b"third", b"missing").is_err());
    }
}

pub(crate) fn no_path_leads_out_of_the_tree(bench: &Bench) {
    for path in [&b"../out"[..], b"a/../../out", b"/out", b"a//b", b"./a", b"", b"nul\0"] {
        assert!(bench.target.new_draft(path, false).is_err(), "{path:?}");
        assert!(path.is_empty() || bench.target.make_dir(path).is_err(), "{path:?}");
    }
}

pub(crate) fn what_is_not_there_is_missing_or_an_error_that_names_it(bench: &Bench) {
    let target = &bench.target;
    assert_eq!(target.stat(b"missing").unwrap(), None);
    assert_eq!(target.stat(b"missing/file").unwrap(), None);
    assert!(target.resume_draft(b"missing", false).unwrap().is_none());
    let errors = [
        target.open_file(b"missing").unwrap_err(),
        target.flush_file(b"missing").unwrap_err(),
        target.flush_dir(b"missing").unwrap_err(),
    ];
    for error in errors {
        assert!(error.is_vanished() && error.path == b"missing", "{error}");
    }
    bench.target.make_dir(b"directory").unwrap();
    assert!(target.open_file(b"directory").is_err());
}

pub(crate) fn a_draft_with_a_journal_is_found_again_with_all_that_was_flushed(bench: &Bench) {
    let draft = bench.written("file", b"0123456789");
    draft.flush().unwrap();
    draft.journal_start(b"header").unwrap();
    draft.journal_append(b" one").unwrap();
    draft.journal_append(b" torn").unwrap();
    let id = draft.id();
    drop(draft);
    let (draft, journal) = bench.target.resume_draft(b"file", false).unwrap().unwrap();
    assert_eq!((&journal[..], draft.id()), (&b"header one torn"[..], id));
    assert_eq!(draft.size().unwrap(), 10);
    draft.journal_keep(10).unwrap();
    draft.journal_append(b" two").unwrap();
    drop(draft);
    let (draft, journal) = bench.target.resume_draft(b"file", false).unwrap().unwrap();
    assert_eq!(journal, b"header one two");
    draft.journal_start(b"new").unwrap();
    drop(draft);
    let (draft, journal) = bench.target.resume_draft(b"file", false).unwrap().unwrap();
    assert_eq!(journal, b"new");
    let mut buffer = [0; 10];
    assert_eq!((draft.read_at(&mut buffer, 0).unwrap(), &buffer), (10, b"0123456789"));
    assert!(!bench.exists("file"));
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!((bench.content("file"), bench.paths()), (b"0123456789".to_vec(), vec!["file".to_owned()]));
}

pub(crate) fn a_journal_ends_with_its_draft(bench: &Bench) {
    let draft = bench.written("file", b"data");
    assert!(draft.journal_append(b"record").is_err(), "no journal was begun");
    draft.journal_start(b"header").unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(bench.target.resume_draft(b"file", false).unwrap().is_none());
    // A draft without a journal says nothing of its content.
    drop(bench.written("other", b"data"));
    assert!(bench.target.resume_draft(b"other", false).unwrap().is_none());
    bench.target.sweep_drafts(b"");
    bench.target.remove_left_journal(b"file");
    assert_eq!(bench.paths(), ["file"]);
}

pub(crate) fn deletion_keeps_what_is_to_stay_and_tells_the_rest(bench: &Bench) {
    let target = &bench.target;
    for directory in ["a", "a/b", "c"] {
        target.make_dir(directory.as_bytes()).unwrap();
    }
    for file in ["a/b/1", "a/2", "c/spared", "kept", "old"] {
        bench.file(file, b"data");
    }
    let before = bench.paths();
    let delete = |dry_run| {
        let mut told = Vec::new();
        let has = SourceNames::from_iter([&b"absent"[..], b"kept"]);
        let spare = |path: &[u8], is_dir: bool| {
            assert_eq!(is_dir, path.len() == 1 || path == b"a/b", "{path:?}");
            path == b"c/spared"
        };
        let mut deleted = |path: Vec<u8>, is_dir| {
            let slash = if is_dir { "/" } else { "" };
            told.push(String::from_utf8(path).unwrap() + slash);
        };
        let errors = target.delete_extraneous(b"", &has, &spare, dry_run, &mut deleted);
        assert!(errors.is_empty(), "{errors:?}");
        let at = |path: &str| told.iter().position(|other| other == path).unwrap();
        assert!(at("a/b/1") < at("a/b/") && at("a/b/") < at("a/") && at("a/2") < at("a/"), "{told:?}");
        told.sort();
        assert_eq!(told, ["a/", "a/2", "a/b/", "a/b/1", "old"]);
    };
    delete(true);
    assert_eq!(bench.paths(), before, "a dry run deletes nothing");
    delete(false);
    assert_eq!(bench.paths(), ["c", "c/spared", "kept"]);
    let errors = target.delete_extraneous(b"missing", &SourceNames::default(), &|_, _| false, false, &mut |_, _| ());
    assert!(errors.is_empty(), "{errors:?}");
    let mut told = Vec::new();
    let errors = target.delete_entry(b"c", &|_, _| false, false, &mut |path, _| told.push(path));
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!((told, bench.paths()), (vec![b"c/spared".to_vec(), b"c".to_vec()], vec!["kept".to_owned()]));
}

pub(crate) fn a_file_that_is_written_in_place_is_marked_or_refused(bench: &Bench) {
    let target = &bench.target;
    bench.file("file", b"0123456789");
    let id = std::cell::Cell::new(None);
    let header = |standing| {
        id.set(standing);
        b"mark".to_vec()
    };
    if let Err(error) = target.mark_unfinished(b"file", &header, true) {
        assert_eq!(error.source.kind(), std::io::ErrorKind::Unsupported, "{error}");
        assert!(target.new_draft(b"file", true).is_err());
        return;
    }
    assert_eq!(target.journal_of_file(b"file", 3).unwrap(), b"mar");
    let draft = target.new_draft(b"file", true).unwrap();
    assert_eq!(Some(draft.id()), id.get());
    draft.write_at(b"abc", 4).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!((bench.content("file"), bench.paths()), (b"0123abc789".to_vec(), vec!["file".to_owned()]));
    assert_eq!(target.journal_of_file(b"file", 3), None);
}
