//! Copies from and to servers of FTP that cut, lie and lead elsewhere.

use std::io::ErrorKind;
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_foreign::{Credentials, Login};
use haul_ftp::{FtpPlace, FtpServer, FtpSource, FtpTarget, OpenOptions, Settings};
use haul_store::{
    Access, Draft, DraftPlan, EntryKind, Found, Metadata, PlaceTree, SourceFile, SourceTree, StoreError, TargetTree,
    Time, WalkOptions,
};

use crate::server::{Faults, OLD, Server};

fn data(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 % 251) as u8).collect()
}

const LONG: usize = 3 << 20;

fn opened(server: &Server, path: &str) -> Result<Arc<dyn SourceTree>, StoreError> {
    FtpSource::open(server.settings(), &[path.into()])
}

fn source(server: &Server, path: &str) -> Arc<dyn SourceTree> {
    opened(server, path).unwrap()
}

fn target(server: &Server) -> FtpTarget {
    FtpServer::new(server.settings()).open(b"", OpenOptions::default()).unwrap().0
}

fn found(tree: &Arc<dyn SourceTree>) -> Vec<String> {
    let of = |found| match found {
        Found::Entry(entry) => {
            let kind = match entry.kind {
                EntryKind::Directory => "/".to_owned(),
                EntryKind::Symlink { target } => format!(" -> {}", haul_store::printable(&target)),
                _ => format!(" {} {}", entry.stat.size, entry.stat.mtime.s),
            };
            format!("{}{kind}", haul_store::printable(&entry.path))
        }
        Found::Failed { path, error, .. } => format!("{}: {error}", haul_store::printable(&path)),
        Found::DirEnd { path, complete } => format!("end {} {complete}", haul_store::printable(&path)),
        Found::Skipped { path, why } => format!("{} {why}", haul_store::printable(&path)),
    };
    Arc::clone(tree).items(WalkOptions::default()).map(of).collect()
}

fn whole(file: &SourceFile, size: usize, block: usize) -> std::io::Result<Vec<u8>> {
    let mut content = vec![0; size];
    for start in (0..size).step_by(block) {
        let end = (start + block).min(size);
        let read = file.read_at(&mut content[start..end], start as u64)?;
        assert_eq!(read, end - start);
    }
    Ok(content)
}

fn why<T>(result: std::io::Result<T>) -> String {
    result.map(drop).unwrap_err().to_string()
}

fn plan(size: usize) -> DraftPlan {
    DraftPlan { size: size as u64, mtime: Time { s: 784_111_777, ns: 5 }, ..DraftPlan::default() }
}

fn written(target: &dyn TargetTree, path: &str, content: &[u8]) -> Result<Draft, StoreError> {
    let draft = target.new_draft_of(path.as_bytes(), &plan(content.len()))?;
    for (at, piece) in content.chunks(200_000).enumerate() {
        draft.write_at(piece, (at * 200_000) as u64)?;
    }
    Ok(draft)
}

fn put(target: &dyn TargetTree, path: &str, content: &[u8]) -> Result<(), StoreError> {
    written(target, path, content)?.commit(&Metadata::default(), true)
}

#[test]
fn a_server_that_does_not_say_that_a_download_was_cut_is_not_waited_for() {
    let content = data(32 << 20);
    let faults = Faults { says_150_of_a_cut: true, ..Faults::default() };
    let server = Server::start(&[("/large", &content), ("/short", b"short")], faults);
    let tree =
        FtpSource::open(Settings { silence: Duration::from_secs(3), ..server.settings() }, &[b"/".into()]).unwrap();
    let mut begin = [0; 10];
    tree.open(0, b"large").unwrap().read_at(&mut begin, 0).unwrap();
    assert_eq!(whole(&tree.open(0, b"short").unwrap(), 5, 5).unwrap(), b"short");
    let seen = server.seen.lock().unwrap().clone();
    assert_eq!(seen.iter().filter(|line| line.starts_with("USER")).count(), 1, "{seen:?}");
}

#[test]
fn a_tree_is_found_whatever_form_its_lists_have() {
    let entries: &[(&str, &[u8])] = &[("/d/", b""), ("/d/a b", b"12"), ("/d/sub/", b""), ("/d/sub/x", b"3")];
    for faults in [
        Faults::default(),
        Faults { lists_only: true, ..Faults::default() },
        Faults { lists_only: true, lists_dos: true, ..Faults::default() },
        Faults { lists_only: true, drops_what_came_early: true, ..Faults::default() },
    ] {
        let server = Server::start(entries, faults.clone());
        let settings = Settings { silence: Duration::from_millis(300), ..server.settings() };
        let tree = FtpSource::open(settings, &[b"d".to_vec()]).unwrap();
        assert_eq!(
            found(&tree),
            ["d/", "d/a b 2 784111777", "d/sub/", "d/sub/x 1 784111777", "end d/sub true", "end d true"],
            "{faults:?}"
        );
        let file = tree.open(0, b"d/sub/x").unwrap();
        assert_eq!((whole(&file, 1, 9).unwrap(), file.stat().unwrap().size), (b"3".to_vec(), 1));
    }
}

#[test]
fn names_that_no_file_can_have_fail_for_themselves_and_nothing_is_deleted_by_their_list() {
    let lines = [
        "type=file;size=1;modify=19941106084937; good",
        "type=file;size=1;modify=19941106084937; ../passwd",
        "type=file;size=1;modify=19941106084937; a\0b",
        "type=dir;modify=19941106084937; ..",
        "type=OS.unix=slink:/etc;modify=19941106084937; link",
        "type=OS.unix=chr-1/3;modify=19941106084937; null",
    ];
    let lines = lines.map(str::to_owned).to_vec();
    let server = Server::start(&[("/d/", b"")], Faults { lines, ..Faults::default() });
    let all = found(&source(&server, "d/"));
    assert!(all.contains(&"good 1 784111777".to_owned()) && all.contains(&"link -> /etc".to_owned()), "{all:?}");
    assert!(all.iter().any(|line| line.contains("a name that no file can have")), "{all:?}");
    assert!(!all.iter().any(|line| line.starts_with("../passwd ")), "{all:?}");
    assert_eq!(all.last().unwrap(), "end  false");
}

#[test]
fn a_list_in_an_unknown_form_hides_nothing() {
    let lines = vec!["what a fine day".to_owned()];
    let server = Server::start(&[("/d/", b"")], Faults { lists_only: true, lines, ..Faults::default() });
    let all = found(&source(&server, "d/"));
    assert!(all.iter().any(|line| line.contains("in a form that haul does not know: what a fine day")), "{all:?}");
    assert_eq!(all.last().unwrap(), "end  false");
}

#[test]
fn a_file_is_read_at_any_place_by_several_at_once() {
    let server = Server::start(&[("/f", &data(LONG))], Faults::default());
    let tree = source(&server, "f");
    assert!(matches!(tree.access(), Access::Runs { .. }) && tree.is_single_file());
    let file = &tree.open(0, b"f").unwrap();
    std::thread::scope(|scope| {
        for part in 0..3 {
            scope.spawn(move || {
                for start in (part << 20..(part + 1) << 20).step_by(256 << 10) {
                    let mut block = vec![0; 256 << 10];
                    assert_eq!(file.read_at(&mut block, start as u64).unwrap(), block.len());
                    assert!(block == data(LONG)[start..start + block.len()]);
                }
            });
        }
    });
    assert_eq!(file.stat().unwrap().size, LONG as u64);
    assert!(server.most_open.load(std::sync::atomic::Ordering::SeqCst) >= 2);
    assert!(server.commands("RETR").len() <= 5, "each reader goes on: {:?}", server.commands("RETR"));
}

#[test]
fn a_cut_is_gone_on_behind_and_an_end_without_226_is_a_cut() {
    for faults in
        [Faults { cuts: 2, cuts_after: 300_000, ..Faults::default() }, Faults { forgets_226: 2, ..Faults::default() }]
    {
        // The first transfer finds out whether the server sends parts.
        let server = Server::start(&[("/f", &data(LONG))], Faults::default());
        let tree = source(&server, "f");
        let file = tree.open(0, b"f").unwrap();
        server.misbehave(faults.clone());
        assert!(whole(&file, LONG, 256 << 10).unwrap() == data(LONG), "{faults:?}");
        server.misbehave(Faults { forgets_226: 1000, ..Faults::default() });
        let text = why(tree.open(0, b"f").unwrap().read_at(&mut vec![0; LONG], 0));
        // What was asked ahead may be lost with the connection.
        assert!(text.contains("it was cut"), "{text}");
    }
}

#[test]
fn a_file_that_is_shorter_or_longer_than_its_size_fails() {
    for faults in [
        Faults { short_by: 1, ..Faults::default() },
        Faults { size_off_by: 1, ..Faults::default() },
        Faults { size_off_by: -1, ..Faults::default() },
    ] {
        for size in [10, LONG] {
            let server = Server::start(&[("/d/", b""), ("/d/f", &data(size))], Faults::default());
            let tree = source(&server, "d/");
            server.misbehave(faults.clone());
            let all = found(&tree);
            let told = (size as i64 + faults.size_off_by) as usize;
            let file = tree.open(0, b"f").unwrap();
            let read = file.read_at(&mut vec![0; told], 0);
            let error = read.unwrap_err();
            assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{faults:?} {size} {all:?} {error}");
        }
    }
}

#[test]
fn a_server_that_does_not_begin_where_it_is_asked_to_is_read_from_front_to_back() {
    for faults in [
        Faults { ignores_rest: true, ..Faults::default() },
        Faults { has_no_rest: true, ..Faults::default() },
        Faults { ignores_rest: true, promises_rest: true, ..Faults::default() },
    ] {
        let server = Server::start(&[("/f", &data(LONG))], faults.clone());
        let (tells, told) = std::sync::mpsc::channel();
        let tell = Box::new(move |text| tells.send(text).unwrap());
        let tree = FtpSource::open(Settings { tell, ..server.settings() }, &[b"f".to_vec()]).unwrap();
        let file = tree.open(0, b"f").unwrap();
        let mut block = vec![0; 1000];
        file.read_at(&mut block, 2 << 20).unwrap();
        assert!(block == data(LONG)[2 << 20..(2 << 20) + 1000], "what stands before is read and left");
        assert!(told.recv().unwrap().contains("REST") && tree.access() == Access::Sequential, "{faults:?}");
        assert!(whole(&file, LONG, 256 << 10).unwrap() == data(LONG), "{faults:?}");
    }
}

#[test]
fn data_of_two_versions_is_not_taken_for_one() {
    let server = Server::start(&[("/f", &data(LONG))], Faults::default());
    let tree = source(&server, "f");
    let all = found(&tree);
    assert_eq!(all, [format!("f {LONG} 784111777")]);
    let file = tree.open(0, b"f").unwrap();
    server.misbehave(Faults { replaces: Some(vec![9; LONG]), ..Faults::default() });
    file.read_at(&mut vec![0; 1000], 0).unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| file.read_at(&mut vec![0; 1000], 2 << 20).unwrap());
    });
    let now = file.stat().unwrap();
    assert_eq!(now.mtime.s, 1_577_836_800, "another time than that of the walk: the session takes it for changed");
}

#[test]
fn a_port_that_is_not_had_ahead_is_asked_for_again() {
    let entries: &[(&str, &[u8])] = &[("/d/", b""), ("/d/a", b"one"), ("/d/b", b"two"), ("/d/c", b"three")];
    let server = Server::start(entries, Faults { has_no_port: 1, ..Faults::default() });
    let tree = source(&server, "d/");
    for (name, content) in [("a", &b"one"[..]), ("b", b"two"), ("c", b"three")] {
        let file = tree.open(0, name.as_bytes()).unwrap();
        assert_eq!(whole(&file, content.len(), 9).unwrap(), content);
    }
    let server = Server::start(entries, Faults::default());
    let tree = source(&server, "d/");
    for (name, bytes) in [("a", 3), ("b", 3), ("c", 5)] {
        whole(&tree.open(0, name.as_bytes()).unwrap(), bytes, 9).unwrap();
    }
    // The last one may be on its way.
    assert!(matches!(server.commands("EPSV").len(), 3 | 4), "one at the login, and one behind each transfer");
}

#[test]
fn the_first_data_connection_is_made_while_the_login_is_still_answered() {
    let faults = Faults { features_wait_for_data: true, ..Faults::default() };
    let server = Server::start(&[("/d/", b""), ("/d/a", b"one")], faults);
    assert_eq!(found(&source(&server, "d/")), ["/", "a 3 784111777", "end  true"]);
}

#[test]
fn the_passive_address_of_another_host_is_never_dialled() {
    let server = Server::start(&[("/f", b"content")], Faults { passive_elsewhere: true, ..Faults::default() });
    let tree = source(&server, "f");
    assert_eq!(whole(&tree.open(0, b"f").unwrap(), 7, 9).unwrap(), b"content");
    // Several connections were made at once, each with its question.
    assert!(server.commands("EPSV").len() <= 7, "it is not asked again: {:?}", server.commands("EPSV"));
}

#[test]
fn a_server_with_few_connections_is_read_over_those() {
    for (most, refuses_at_login, promises_rest) in
        [(2, false, false), (2, true, true), (1, false, false), (2, false, true), (1, false, true)]
    {
        let faults = Faults { most_connections: most, refuses_at_login, promises_rest, ..Faults::default() };
        let server = Server::start(&[("/f", &data(LONG))], faults);
        let tree = source(&server, "f");
        let file = &tree.open(0, b"f").unwrap();
        std::thread::scope(|scope| {
            for part in 0..3 {
                scope.spawn(move || {
                    let (start, mut block) = (part << 20, vec![0; 1 << 20]);
                    assert_eq!(file.read_at(&mut block, start as u64).unwrap(), block.len());
                    assert!(block == data(LONG)[start..start + block.len()]);
                });
            }
        });
        let now = tree.connections().unwrap().now();
        assert!(now.refusals >= 1 && usize::from(now.server_allows) <= most + 1, "{now:?}");
    }
}

#[test]
fn lines_and_replies_without_end_are_refused_in_bounded_memory() {
    for (faults, text) in [
        (Faults { endless_line: true, ..Faults::default() }, "a line longer than 64 KiB"),
        (Faults { endless_reply: true, ..Faults::default() }, "a reply longer than 1 MiB"),
    ] {
        let server = Server::start(&[], faults);
        let error = opened(&server, "").map(|_| ()).unwrap_err();
        assert!(error.to_string().contains(text), "{error}");
    }
}

#[test]
fn a_password_is_not_sent_in_clear_to_a_server_that_offers_tls() {
    let server = Server::start(&[("/f", b"x")], Faults { offers_tls: true, ..Faults::default() });
    let login = Login { user: "me".to_owned(), password: "secret".to_owned().into() };
    let credentials = || Credentials { login: Some(login.clone()), ..Credentials::default() };
    let settings = Settings { credentials: credentials(), ..server.settings() };
    assert!(FtpSource::open(settings, &[b"f".to_vec()]).is_err(), "the server speaks no TLS after all");
    assert!(server.commands("USER").is_empty() && server.commands("PASS").is_empty());
    let settings = Settings { credentials: credentials(), security: haul_ftp::Security::Clear, ..server.settings() };
    assert!(FtpSource::open(settings, &[b"f".to_vec()]).is_ok(), "it was asked for");
    assert_eq!(server.commands("PASS")[0], "PASS secret");
    let server = Server::start(&[("/f", b"x")], Faults::default());
    let settings = Settings { security: haul_ftp::Security::Explicit, ..server.settings() };
    let error = FtpSource::open(settings, &[b"f".to_vec()]).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("does not offer TLS") && server.commands("USER").is_empty(), "{error}");
}

#[test]
fn a_name_is_never_a_command() {
    let server = Server::start(&[("/victim", b"x")], Faults::default());
    for name in ["a\r\nDELE /victim", "a\nDELE /victim", "a\u{0}"] {
        assert!(opened(&server, name).is_err());
        let target = target(&server);
        assert!(written(&target, name, b"x").is_err() && target.make_dir(name.as_bytes()).is_err());
    }
    assert!(server.commands("DELE").is_empty() && server.content("/victim").is_some());
}

#[test]
fn a_sum_of_the_server_is_compared() {
    let content = data(1000);
    let right = "d9b5a7cd3a0de48c";
    let server = Server::start(&[("/f", &content)], Faults { sum: Some(right.repeat(4)), ..Faults::default() });
    let tree = source(&server, "f");
    let file = tree.open(0, b"f").unwrap();
    let read = whole(&file, 1000, 100);
    let sum = file.server_sum().unwrap();
    let compared = sum.compare(&mut |buffer, offset| {
        let rest = &content[(offset as usize).min(1000)..];
        let count = rest.len().min(buffer.len());
        buffer[..count].copy_from_slice(&rest[..count]);
        Ok(count)
    });
    assert!(read.is_err() || compared.unwrap().is_err(), "it is another one");
}

#[test]
fn files_go_up_under_another_name_and_get_theirs_at_the_end() {
    let server = Server::start(&[("/f", b"old")], Faults::default());
    let target = target(&server);
    for (path, size) in [("f", 0), ("f", 10), ("g", 1 << 20), ("long", LONG)] {
        let draft = written(&target, path, &data(size)).unwrap();
        draft.set_metadata(&Metadata::default(), true).unwrap();
        assert!(server.paths().iter().any(|path| path.starts_with("/.haul-")), "{path}");
        draft.give_name().unwrap();
        assert_eq!(server.content(&format!("/{path}")), Some(data(size)));
    }
    assert_eq!(server.paths(), ["/", "/f", "/g", "/long"]);
    assert_eq!(target.stat(b"long").unwrap().unwrap().mtime.s, 784_111_777);
    assert_eq!(server.nodes.lock().unwrap()["/long"].time, OLD);
}

#[test]
fn an_upload_of_which_the_server_has_less_or_says_nothing_gets_no_name() {
    for faults in [
        Faults { loses: 1, ..Faults::default() },
        Faults { forgets_226: 1000, ..Faults::default() },
        Faults { sum: Some("00".repeat(32)), ..Faults::default() },
    ] {
        for size in [10, LONG] {
            let server = Server::start(&[("/f", b"old")], Faults { sum: faults.sum.clone(), ..Faults::default() });
            let target = target(&server);
            server.misbehave(faults.clone());
            let error = put(&target, "f", &data(size)).unwrap_err();
            server.misbehave(Faults::default());
            assert_eq!(server.content("/f").unwrap(), b"old", "{faults:?} {error}");
        }
    }
}

#[test]
fn a_server_that_renames_onto_nothing_is_told_of_and_one_without_times_too() {
    let faults = Faults { refuses_to_replace: true, keeps_no_times: true, ..Faults::default() };
    let server = Server::start(&[("/f", b"old")], faults);
    let told = Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = Arc::clone(&told);
    let tell = Box::new(move |text| hears.lock().unwrap().push(text));
    let server_of_target = FtpServer::new(Settings { tell, ..server.settings() });
    let (target, _) = server_of_target.open(b"", OpenOptions::default()).unwrap();
    for content in [b"one", b"two"] {
        put(&target, "f", content).unwrap();
        assert_eq!(server.content("/f").unwrap(), content);
    }
    let told = told.lock().unwrap();
    assert_eq!(told.len(), 2, "{told:?}");
    assert!(!target.abilities().times);
}

/// A target whose journals are kept in a directory.
fn keeping_target(server: &Server, journals: &std::path::Path) -> FtpTarget {
    let settings = Settings { journals: Some(journals.to_owned()), ..server.settings() };
    FtpServer::new(settings).open(b"", OpenOptions::default()).unwrap().0
}

/// Half of a file goes up, and the run dies.
fn broken_off(server: &Server, journals: &std::path::Path) {
    let target = keeping_target(server, journals);
    let draft = target.new_draft_of(b"f", &plan(LONG)).unwrap();
    for at in 0..3 {
        draft.write_at(&data(LONG)[at << 19..(at + 1) << 19], (at as u64) << 19).unwrap();
    }
    draft.journal_start(b"header").unwrap();
    draft.journal_append(b" record").unwrap();
}

const PART: &str = "/.haul-";

fn part_of(server: &Server) -> Option<String> {
    // A server may still take in what was sent.
    let begin = Instant::now();
    loop {
        let found = server.paths().into_iter().find(|path| path.starts_with(PART));
        let found = found.filter(|path| server.content(path).is_some_and(|content| !content.is_empty()));
        if found.is_some() || begin.elapsed() > Duration::from_secs(5) {
            return found;
        }
        std::thread::yield_now();
    }
}

#[test]
fn an_upload_that_broke_off_is_gone_on_with_behind_what_the_server_has() {
    let server = Server::start(&[("/f", b"old")], Faults { promises_rest: true, ..Faults::default() });
    let journals = tempfile::tempdir().unwrap();
    broken_off(&server, journals.path());
    part_of(&server).unwrap();
    let target = keeping_target(&server, journals.path());
    let (draft, journal) = target.resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!((&journal[..], draft.size().unwrap()), (&b"header record"[..], 3 << 19));
    assert_eq!(draft.proves(0, 1 << 20), Some(true));
    assert_eq!(draft.proves(1 << 20, 1 << 20), Some(false), "the server has half of it");
    let mut block = vec![0; 1 << 20];
    assert_eq!(draft.read_at(&mut block, 0).unwrap(), block.len());
    assert!(draft.gives_back() && block == data(LONG)[..1 << 20], "it can be compared");
    for at in [1, 2] {
        draft.write_at(&data(LONG)[at << 20..(at + 1) << 20], (at as u64) << 20).unwrap();
    }
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG));
    assert_eq!(server.commands("REST").last().unwrap(), "REST 1048576");
    assert!(target.resume_draft(b"f", false).unwrap().is_none(), "the journal is gone");
    assert_eq!(std::fs::read_dir(journals.path()).unwrap().count(), 0);
}

#[test]
fn a_draft_that_has_its_name_is_not_swept_again() {
    let server = Server::start(&[], Faults { promises_rest: true, ..Faults::default() });
    let journals = tempfile::tempdir().unwrap();
    broken_off(&server, journals.path());
    let part = part_of(&server).unwrap();
    let target = keeping_target(&server, journals.path());
    let (draft, _) = target.resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!(draft.proves(0, 1 << 20), Some(true));
    draft.write_at(&data(LONG)[1 << 20..], 1 << 20).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    let of_another = server.nodes.lock().unwrap()["/f"].clone();
    server.nodes.lock().unwrap().insert(part.clone(), of_another);
    assert!(!target.sweep_draft_of(b"f") && server.content(&part).is_some(), "it is of a copy that has just begun");
}

#[test]
fn a_second_copy_to_a_file_that_goes_up_fails_and_leaves_it() {
    let server = Server::start(&[], Faults { promises_rest: true, ..Faults::default() });
    let journals = tempfile::tempdir().unwrap();
    let first = keeping_target(&server, journals.path());
    let draft = first.new_draft_of(b"f", &plan(LONG)).unwrap();
    draft.write_at(&data(LONG), 0).unwrap();
    draft.journal_start(b"header").unwrap();
    let second = keeping_target(&server, journals.path());
    assert!(second.new_draft_of(b"f", &plan(LONG)).is_err() && second.resume_draft(b"f", false).is_err());
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG));
}

#[test]
fn a_server_that_does_not_write_where_it_is_asked_to_gets_a_file_from_its_beginning() {
    for faults in [
        Faults { empties_after_rest: true, ..Faults::default() },
        Faults { refuses_to_go_on: true, ..Faults::default() },
        Faults { has_no_rest: true, ..Faults::default() },
    ] {
        let server = Server::start(&[], Faults { promises_rest: true, ..Faults::default() });
        let journals = tempfile::tempdir().unwrap();
        broken_off(&server, journals.path());
        part_of(&server).unwrap();
        server.misbehave(Faults { promises_rest: true, ..faults.clone() });
        let target = keeping_target(&server, journals.path());
        assert!(target.resume_draft(b"f", false).unwrap().is_none(), "{faults:?}");
        put(&target, "f", &data(LONG)).unwrap();
        assert!(server.content("/f").unwrap() == data(LONG) && server.paths() == ["/", "/f"], "{faults:?}");
    }
}

#[test]
fn a_longer_draft_and_one_without_its_journal_are_not_gone_on_with() {
    let server = Server::start(&[], Faults { promises_rest: true, ..Faults::default() });
    let journals = tempfile::tempdir().unwrap();
    broken_off(&server, journals.path());
    let part = part_of(&server).unwrap();
    server.nodes.lock().unwrap().get_mut(&part).unwrap().content = Some(data(LONG + 1));
    let target = keeping_target(&server, journals.path());
    assert!(target.resume_draft(b"f", false).unwrap().is_none(), "it is of something else");
    put(&target, "f", &data(LONG)).unwrap();
    assert!(server.content("/f").unwrap() == data(LONG));
    broken_off(&server, journals.path());
    part_of(&server).unwrap();
    let elsewhere = tempfile::tempdir().unwrap();
    assert!(keeping_target(&server, elsewhere.path()).resume_draft(b"f", false).unwrap().is_none());
    // An earlier journal tells nothing of what was sent after it.
    let draft = keeping_target(&server, journals.path()).new_draft_of(b"f", &plan(LONG)).unwrap();
    draft.write_at(&data(LONG), 0).unwrap();
    drop(draft);
    assert!(keeping_target(&server, journals.path()).resume_draft(b"f", false).unwrap().is_none());
}

#[test]
fn a_link_on_the_way_is_not_followed() {
    let lines = vec!["type=OS.unix=slink:/etc;modify=19941106084937; link".to_owned()];
    let server = Server::start(&[("/link/", b"")], Faults { lines, ..Faults::default() });
    let target = target(&server);
    assert!(target.make_dir(b"link/x").is_err() && written(&target, "link/x", b"x").is_err());
    assert!(server.commands("STOR").is_empty() && server.commands("MKD").is_empty());
}

#[test]
fn a_place_is_looked_at_and_changed() {
    let server = Server::start(&[("/d/", b""), ("/d/a", b"12")], Faults { lists_only: true, ..Faults::default() });
    let place = FtpPlace::new(server.settings());
    let mut names = Vec::new();
    let flow = place.list(b"d", true, true, &mut |name, listed| {
        names.push((String::from_utf8(name.to_vec()).unwrap(), listed.unwrap()));
        std::ops::ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue() && names.len() == 1 && names[0].0 == "a");
    assert_eq!(place.facts(b"d/a", false).unwrap().size, 2);
    place.make_directory(b"d/new").unwrap();
    assert!(place.make_directory(b"d/new").is_err());
    place.rename(b"d/a", b"d/new/b", true).unwrap();
    assert_eq!(server.content("/d/new/b").unwrap(), b"12");
    assert!(place.remove_files(&[b"d/new/b".to_vec()])[0].is_ok() && place.remove_directory(b"d/new").is_ok());
    assert!(place.facts(b"d/a", false).unwrap_err().raw_os_error().is_some());
}

#[test]
fn a_million_names_are_listed_within_bounds() {
    let line = |at: usize| format!("type=file;size=1;modify=19941106084937; {at:07}");
    let lines: Vec<String> = (0..200_000).map(line).collect();
    let server = Server::start(&[("/d/", b"")], Faults { lines, ..Faults::default() });
    let begin = Instant::now();
    let tree = source(&server, "d/");
    assert_eq!(Arc::clone(&tree).items(WalkOptions::default()).count(), 200_002);
    let place = FtpPlace::new(server.settings());
    let mut count = 0;
    let flow = place.list(b"d", true, true, &mut |_, _| {
        count += 1;
        if count == 10 { std::ops::ControlFlow::Break(()) } else { std::ops::ControlFlow::Continue(()) }
    });
    assert!(flow.unwrap().is_break() && count == 10, "nobody waits for the rest: {:?}", begin.elapsed());
}
