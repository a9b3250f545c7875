//! GridFTP against a server that breaks its rules: no wrong file, and a clear word.

use std::net::IpAddr;
use std::sync::{Arc, Mutex};

use haul_ftp::{FtpServer, FtpSource, Grid, OpenOptions, Settings};
use haul_net::Way;
use haul_store::{DraftPlan, Metadata, SourceFile, SourceTree, SumCounts, SumKind, TargetTree, Time};

use crate::conformance::{Bench, Reading, conforms, source_conforms};
use crate::grid_server::{Fault, GridServer};

pub(crate) fn data(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 % 251) as u8).collect()
}

pub(crate) const LONG: usize = (3 << 20) + 17;

fn source(server: &GridServer, path: &str) -> Arc<dyn SourceTree> {
    FtpSource::open(server.settings(), &[path.as_bytes().to_vec()]).unwrap()
}

/// Reads from front to back.
pub(crate) fn whole(file: &SourceFile, size: usize) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; size];
    let mut at = 0;
    while at < size {
        let end = size.min(at + (256 << 10));
        match file.read_at(&mut content[at..end], at as u64)? {
            0 => break,
            count => at += count,
        }
    }
    content.truncate(at);
    Ok(content)
}

pub(crate) fn plan(size: usize) -> DraftPlan {
    DraftPlan {
        inplace: false,
        size: size as u64,
        chunk_bytes: 1 << 20,
        mtime: Time { s: 784_111_777, ns: 0 },
        mode: 0o644,
        uid: 0,
        gid: 0,
    }
}

/// Writes a file by four threads, the last chunk first.
fn put(server: &GridServer, path: &str, content: &[u8]) -> Result<(), String> {
    let (target, _) =
        FtpServer::new(server.settings()).open(b"/", OpenOptions::default()).map_err(|e| e.to_string())?;
    let draft = target.new_draft_of(path.as_bytes(), &plan(content.len())).map_err(|error| error.to_string())?;
    let written: Vec<_> = std::thread::scope(|scope| {
        let chunks: Vec<_> = content.chunks(300_000).zip(0_u64..).collect();
        let draft = &draft;
        let write = |mine: Vec<(&[u8], u64)>| {
            mine.into_iter().rev().try_for_each(|(bytes, number)| draft.write_at(bytes, number * 300_000))
        };
        let threads: Vec<_> = (0..4)
            .map(|lane| {
                let mine = chunks.iter().copied().filter(|(_, number)| number % 4 == lane).collect::<Vec<_>>();
                scope.spawn(move || write(mine))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let done = written.into_iter().collect::<Result<(), _>>().and_then(|()| draft.commit(&Metadata::default(), true));
    done.map_err(|error| error.to_string())
}

fn reading() -> Reading {
    let server = GridServer::start(&[("/empty", b""), ("/small", b"data"), ("/file", &[7; 900_000])], Fault::None);
    Reading { tree: source(&server, "/"), _held: Box::new(server) }
}

mod reads {
    use super::*;

    source_conforms! { reading }
}

fn bench() -> Bench {
    let server = Arc::new(GridServer::start(&[], Fault::None));
    let (target, _) = FtpServer::new(server.settings()).open(b"/", OpenOptions::default()).unwrap();
    let here = Arc::clone(&server);
    let source = move || source(&here, "/");
    Bench { target: Arc::new(target), source: Box::new(source), _held: Box::new(server) }
}

conforms! { writing, bench;
    a_committed_draft_replaces_what_stood_there
    a_discarded_draft_leaves_no_trace_and_gets_no_name
    a_new_draft_begins_empty_whatever_an_earlier_one_held
    what_was_written_is_read_back_from_the_draft
}

#[test]
fn a_file_is_read_in_blocks_by_several_over_connections_that_stay() {
    let server = GridServer::start(&[("/f", &data(LONG)), ("/g", b"short"), ("/e", b"")], Fault::None);
    let tree = source(&server, "/f");
    let file = &tree.open(0, b"f").unwrap();
    std::thread::scope(|scope| {
        for part in 0..3 {
            scope.spawn(move || {
                let (start, end) = (part << 20, if part == 2 { LONG } else { (part + 1) << 20 });
                file.reads_on(start as u64, end as u64);
                for at in (start..end).step_by(256 << 10) {
                    let mut block = vec![0; (256 << 10).min(end - at)];
                    assert_eq!(file.read_at(&mut block, at as u64).unwrap(), block.len());
                    assert!(block == data(LONG)[at..at + block.len()]);
                }
            });
        }
    });
    assert!(server.count("ERET") == 3 && server.count("REST") == 0, "{:?}", server.seen.lock().unwrap());
    let (before, tree) = (server.count("PORT"), source(&server, "/"));
    for _ in 0..10 {
        assert_eq!(whole(&tree.open(0, b"g").unwrap(), 5).unwrap(), b"short");
        assert_eq!(whole(&tree.open(0, b"e").unwrap(), 0).unwrap(), b"");
    }
    assert!(server.count("PORT") <= before + 1, "a connection carries one file after the other");
}

#[test]
fn blocks_that_break_the_rules_give_no_data() {
    for (fault, word) in [
        (Fault::TwoEnds, "twice"),
        (Fault::NoEnd, "closed the data connection"),
        (Fault::FarBehind, "out of its order"),
        (Fault::TooMuch, "more or less of it"),
        (Fault::HugeBlock, "closed the data connection"),
        (Fault::UnknownFlags, "unknown kind"),
        (Fault::Markers, "marks of its progress without an end"),
        (Fault::EndlessLine, "a line longer than 64 KiB"),
        (Fault::Forgets226, "closed the control connection"),
    ] {
        for size in [10, LONG] {
            let server = GridServer::start(&[("/f", &data(size))], fault);
            let tree = source(&server, "/f");
            let read = whole(&tree.open(0, b"f").unwrap(), size);
            match read {
                // As by FTP the same server sends what is right.
                Ok(content) => assert!(fault == Fault::FarBehind && content == data(size), "{fault:?} {size}"),
                Err(error) => assert!(error.to_string().contains(word), "{fault:?} {size}: {error}"),
            }
        }
    }
}

#[test]
fn a_server_that_sends_otherwise_than_it_was_asked_to_is_read_as_by_ftp() {
    for fault in [Fault::NoCount, Fault::TwoConnections, Fault::OutOfOrder, Fault::NoPort, Fault::Unreachable] {
        let server = GridServer::start(&[("/f", &data(LONG))], fault);
        let told = Arc::new(std::sync::Mutex::new(Vec::new()));
        let hears = Arc::clone(&told);
        let tell = Box::new(move |text| hears.lock().unwrap().push(text));
        let settings = haul_ftp::Settings { tell, ..server.settings() };
        let tree = FtpSource::open(settings, &[b"/f".to_vec()]).unwrap();
        let content = whole(&tree.open(0, b"f").unwrap(), LONG).unwrap();
        assert!(content == data(LONG), "{fault:?}");
        let told = told.lock().unwrap();
        assert!(told.len() == 1 && told[0].contains("as by FTP"), "{fault:?}: {told:?}");
    }
}

#[test]
fn a_connection_of_another_host_brings_no_data() {
    let server = GridServer::start(&[("/f", &data(LONG))], Fault::Stranger);
    let tree = source(&server, "/f");
    assert!(whole(&tree.open(0, b"f").unwrap(), LONG).unwrap() == data(LONG));
    assert_eq!(server.count("REST"), 0);
}

#[test]
fn files_go_up_in_blocks_of_any_order_and_get_their_names_at_the_end() {
    for fault in [Fault::None, Fault::ClosesKept, Fault::TellsOther] {
        let server = GridServer::start(&[("/f", b"old")], fault);
        for (path, size) in [("f", 0), ("f", 10), ("g", 1 << 20), ("long", LONG)] {
            put(&server, path, &data(size)).unwrap();
            assert!(server.content(&format!("/{path}")) == Some(data(size)), "{path} {size}");
        }
        assert_eq!(server.paths(), ["/f", "/g", "/long"]);
    }
}

#[test]
fn uploads_take_the_named_paths_in_turn_and_one_that_is_gone_is_left_out() {
    let server = GridServer::start(&[], Fault::None);
    // No host has the second address.
    let locals = [[127, 0, 0, 2], [192, 0, 2, 1], [127, 0, 0, 3]].map(IpAddr::from);
    let ways = locals.map(|local| Way { local: Some(local), ..Way::default() }).to_vec();
    let grid = Some(Grid { ways, ..Grid::default() });
    let to = FtpServer::new(Settings { grid, ..server.settings() });
    let (target, _) = to.open(b"/", OpenOptions::default()).unwrap();
    // A file that is not complete keeps its connection.
    let drafts = [b"f", b"g"].map(|path| target.new_draft_of(path, &plan(LONG)).unwrap());
    for draft in &drafts {
        draft.write_at(&data(LONG), 0).unwrap();
    }
    for draft in drafts {
        draft.commit(&Metadata::default(), true).unwrap();
    }
    assert_eq!(*server.came_from.lock().unwrap(), [locals[0], locals[2]].into());
    assert!(["/f", "/g"].iter().all(|path| server.content(path) == Some(data(LONG))));
}

#[test]
fn downloads_come_to_the_named_addresses_in_turn_and_one_that_is_gone_is_left_out_with_a_word() {
    let server = GridServer::start(&[("/f", &data(LONG))], Fault::None);
    // No host has the second address.
    let locals = [[127, 0, 0, 2], [192, 0, 2, 1], [127, 0, 0, 3]].map(IpAddr::from);
    let ways = locals.map(|local| Way { local: Some(local), ..Way::default() }).to_vec();
    let (told, grid) = (Arc::new(Mutex::new(Vec::new())), Some(Grid { ways, ..Grid::default() }));
    let hears = Arc::clone(&told);
    let tell = Box::new(move |text: String| hears.lock().unwrap().push(text));
    let tree = FtpSource::open(Settings { grid, tell, ..server.settings() }, &[b"/f".to_vec()]).unwrap();
    let file = &tree.open(0, b"f").unwrap();
    std::thread::scope(|scope| {
        for part in 0..3 {
            scope.spawn(move || {
                let (start, end) = (part << 20, (part + 1) << 20);
                file.reads_on(start as u64, end as u64);
                for at in (start..end).step_by(256 << 10) {
                    let mut block = vec![0; 256 << 10];
                    assert_eq!(file.read_at(&mut block, at as u64).unwrap(), block.len());
                    assert!(block == data(LONG)[at..at + block.len()]);
                }
            });
        }
    });
    assert!(["PORT 127,0,0,2,", "PORT 127,0,0,3,"].iter().all(|port| server.count(port) > 0));
    assert_eq!((server.count("PORT 192"), server.count("REST")), (0, 0));
    let told = told.lock().unwrap();
    assert!(told.len() == 1 && told[0].contains("at every address of --paths"), "{told:?}");
}

/// The first file of a target, alone: the questions that it costs.
fn put_alone(server: &GridServer, settings: Settings, content: &[u8]) {
    let to = FtpServer::new(settings);
    to.looks_first_at(b"/");
    let (target, _) = to.open(b"/", OpenOptions::default()).unwrap();
    let draft = target.new_draft_of(b"f", &plan(content.len())).unwrap();
    for (bytes, number) in content.chunks(300_000).zip(0_u64..) {
        draft.write_at(bytes, number * 300_000).unwrap();
        draft.flush().unwrap();
    }
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == content);
}

#[test]
fn a_file_is_looked_at_once_and_its_time_is_set_once() {
    for size in [5, LONG] {
        let server = GridServer::start(&[], Fault::None);
        put_alone(&server, server.settings(), &data(size));
        let asked = ["MFMT", "SIZE /.haul", "CKSM"].map(|verb| server.count(verb));
        assert_eq!(asked, [1; 3], "{size}: {:?}", server.seen.lock().unwrap());
    }
}

#[test]
fn a_long_file_has_one_transfer_for_each_writer_though_it_is_flushed_in_its_middle() {
    let server = GridServer::start(&[], Fault::None);
    put_alone(&server, server.settings(), &data(LONG));
    assert_eq!(server.count("ESTO"), 1, "{:?}", server.seen.lock().unwrap());
}

#[test]
fn a_server_that_refuses_questions_during_a_transfer_gets_its_files() {
    let server = GridServer::start(&[], Fault::RefusesMore);
    put_alone(&server, server.settings(), b"short");
    assert_eq!(server.count("STOR"), 2, "{:?}", server.seen.lock().unwrap());
}

#[test]
fn a_full_server_gets_a_short_file_once() {
    let server = GridServer::start(&[], Fault::Refuses);
    put(&server, "f", b"short").unwrap_err();
    assert_eq!(server.count("STOR"), 1, "{:?}", server.seen.lock().unwrap());
}

#[test]
fn connections_that_are_dialled_ahead_ask_for_their_port_with_the_login() {
    let server = GridServer::start(&[], Fault::None);
    let grid = Some(Grid { foreseen_bytes: 1 << 30, ..Grid::default() });
    put_alone(&server, Settings { grid, ..server.settings() }, &data(LONG));
    let log = server.seen.lock().unwrap().clone();
    let place = |verb: &str| log.iter().position(|line| line.starts_with(verb)).unwrap();
    assert!(place("EPSV") < place("FEAT") && server.count("EPSV") == 1, "{log:?}");
}

#[test]
fn what_a_server_proved_of_uploads_is_told() {
    let server = GridServer::start(&[], Fault::None);
    let told = Arc::new(Mutex::new(SumCounts::default()));
    let for_told = Arc::clone(&told);
    let tell_sums = Box::new(move |sums| *for_told.lock().unwrap() = sums);
    put_alone(&server, Settings { tell_sums, ..server.settings() }, &data(LONG));
    let told = *told.lock().unwrap();
    assert_eq!((told.compared().collect::<Vec<_>>(), told.without), (vec![(SumKind::Adler32, 1)], 0));
}

#[test]
fn an_upload_that_the_server_loses_or_refuses_gets_no_name() {
    for (fault, word) in [
        (Fault::Loses, "the server has "),
        (Fault::Garbles, "another adler32"),
        (Fault::Refuses, "no room left"),
        (Fault::Markers, "marks of its progress without an end"),
        (Fault::Forgets226, "closed the control connection"),
    ] {
        for size in [10, LONG] {
            let server = GridServer::start(&[("/f", b"old")], fault);
            let why = put(&server, "f", &data(size)).expect_err(&format!("{fault:?} {size}"));
            assert!(why.contains(word), "{fault:?} {size}: {why}");
            assert_eq!(server.content("/f").unwrap(), b"old", "{fault:?} {size}");
        }
    }
}

#[test]
fn a_name_that_would_lose_letters_on_its_way_is_refused() {
    let server = GridServer::start(&[("/2", b"two")], Fault::DropsBytes);
    let why = put(&server, "\u{e4}2", b"another").unwrap_err();
    assert!(why.contains("beyond ASCII"), "{why}");
    assert_eq!(server.content("/2").unwrap(), b"two");
    assert!(FtpSource::open(server.settings(), &["/\u{e4}2".into()]).is_err());
    put(&server, "3", b"three").unwrap();
    let keeps = GridServer::start(&[], Fault::None);
    put(&keeps, "\u{e4}2", b"another").unwrap();
    assert_eq!(keeps.content("/\u{e4}2").unwrap(), b"another");
}
