//! Servers that break the protocol, die, or can less than OpenSSH's.

#[path = "servers/faulty.rs"]
mod faulty;
mod servers;

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use faulty::{Faults, Tree, start, status};
use haul_sftp::{ConnectError, Dials, OpenOptions, Pool, Refused, Server, SftpPlace, SftpSource, SftpTarget};
use haul_store::place::{Elsewhere, Grounds, Line, ListOptions, Removal, SiteBounds};
use haul_store::{Found, FoundEntry, Metadata, SourceTree, StoreError, TargetTree, Time, WalkOptions};

const PATIENCE: Duration = Duration::from_secs(20);

fn meet(tree: &Tree, faults: Faults) -> Result<Arc<Server>, ConnectError> {
    Server::meet(start(tree, faults).0, PATIENCE)
}

fn pool(tree: &Tree, faults: Faults) -> Arc<Pool> {
    Pool::new(meet(tree, faults).unwrap(), None)
}

fn source(tree: &Tree, faults: Faults) -> Arc<SftpSource> {
    Arc::new(SftpSource::find(pool(tree, faults), &[b"./".to_vec()]).unwrap().0)
}

fn scripted(script: impl FnMut(&faulty::Asked) -> Option<Vec<u8>> + Send + 'static) -> Faults {
    Faults { script: Box::new(script), ..Faults::default() }
}

fn read(source: &SftpSource, path: &str, size: usize) -> std::io::Result<Vec<u8>> {
    let file = source.open(0, path.as_bytes()).map_err(|error| error.source)?;
    let mut data = vec![0; size];
    let read = file.read_at(&mut data, 0)?;
    data.truncate(read);
    Ok(data)
}

fn entries(source: &Arc<SftpSource>) -> (Vec<String>, Vec<String>) {
    let tree: Arc<dyn SourceTree> = Arc::clone(source) as _;
    let (mut paths, mut failures) = (Vec::new(), Vec::new());
    for found in tree.items(WalkOptions::default()) {
        match found {
            Found::Entry(FoundEntry { path, .. }) => paths.push(String::from_utf8(path).unwrap()),
            Found::Failed { error, .. } => failures.push(error.to_string()),
            Found::DirEnd { .. } | Found::Skipped { .. } => {}
        }
    }
    (paths, failures)
}

/// What the target tells, and the target.
fn target(tree: &Tree, faults: Faults) -> (SftpTarget, Arc<Mutex<Vec<String>>>) {
    let told = Arc::new(Mutex::new(Vec::new()));
    let for_target = Arc::clone(&told);
    let tell = Box::new(move |text| for_target.lock().unwrap().push(text));
    let (target, _) = SftpTarget::open(pool(tree, faults), b".", OpenOptions::default(), tell).unwrap();
    (target, told)
}

fn put(target: &SftpTarget, path: &str, data: &[u8]) -> Result<(), StoreError> {
    let draft = target.new_draft(path.as_bytes(), false)?;
    draft.write_at(data, 0)?;
    let mtime = Some(Time { s: 7, ns: 0 });
    draft.commit(&Metadata { mode: Some(0o644), mtime, ..Metadata::default() }, true)
}

fn pattern(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| (at / 7 % 251) as u8).collect()
}

#[test]
fn answers_in_any_order_belong_to_their_requests() {
    let data = pattern(600_000);
    let tree = Tree::with(&[("file", &data)]);
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&asked);
    let mut held: Vec<Vec<u8>> = Vec::new();
    let for_script = tree.clone();
    // Data leaves four packets at a time, the last one first.
    let script = move |asked: &faulty::Asked| {
        if asked.kind != faulty::READ {
            return None;
        }
        counted.fetch_add(1, Ordering::Relaxed);
        let behind = asked.behind_string();
        let offset = u64::from_be_bytes(behind[..8].try_into().unwrap()) as usize;
        let most = u32::from_be_bytes(behind[8..12].try_into().unwrap()) as usize;
        let data = for_script.data("file").unwrap();
        let piece = &data[offset.min(data.len())..(offset + most).min(data.len())];
        held.push(match piece {
            [] => status(asked.id, 1),
            piece => faulty::packet(103, asked.id, &faulty::string(piece)),
        });
        let is_last = offset + most >= data.len();
        let leaves = held.len() == 4 || is_last;
        Some(if leaves { std::mem::take(&mut held).into_iter().rev().flatten().collect() } else { Vec::new() })
    };
    assert_eq!(read(&source(&tree, scripted(script)), "file", data.len()).unwrap(), data);
    assert!(asked.load(Ordering::Relaxed) >= data.len() / (32 << 10), "a server without limits gets 32 KiB at a time");
}

#[test]
fn short_reads_are_continued_and_an_early_end_is_never_a_longer_file() {
    let data = pattern(100_000);
    let tree = Tree::with(&[("file", &data)]);
    let for_script = tree.clone();
    let short = move |asked: &faulty::Asked| {
        let offset = u64::from_be_bytes(asked.behind_string().get(..8)?.try_into().unwrap()) as usize;
        let data = (asked.kind == faulty::READ).then(|| for_script.data("file").unwrap())?;
        let most = u32::from_be_bytes(asked.behind_string()[8..12].try_into().unwrap()).min(1000) as usize;
        let piece = data.get(offset..(offset + most).min(data.len())).filter(|piece| !piece.is_empty())?;
        Some(faulty::packet(103, asked.id, &faulty::string(piece)))
    };
    assert_eq!(read(&source(&tree, scripted(short)), "file", data.len()).unwrap(), data);
    let ends_early = |asked: &faulty::Asked| {
        let offset = asked.behind_string().get(..8).map(|offset| u64::from_be_bytes(offset.try_into().unwrap()))?;
        (asked.kind == faulty::READ && offset >= 65_536).then(|| status(asked.id, 1))
    };
    let source = source(&tree, scripted(ends_early));
    assert_eq!(read(&source, "file", data.len()).unwrap(), data[..65_536], "the reader sees that bytes are missing");
}

#[test]
fn a_server_that_is_cut_at_any_byte_is_an_error_and_no_hang() {
    let tree = Tree::with(&[("file", b"0123456789")]);
    let (mut errors, mut whole) = (0, 0);
    for cut_after in 0..400 {
        let faults = Faults { cut_after: Some(cut_after), ..Faults::default() };
        let copied = meet(&tree, faults).map_err(|error| error.to_string()).and_then(|server| {
            let pool = Pool::new(server, None);
            let (source, _) = SftpSource::find(pool, &[b"./".to_vec()]).map_err(|error| error.to_string())?;
            let source = Arc::new(source);
            let (_, failures) = entries(&source);
            failures.into_iter().next().map_or(Ok(()), Err)?;
            read(&source, "file", 10).map_err(|error| error.to_string())
        });
        match copied {
            Ok(data) => whole += usize::from(data == b"0123456789"),
            Err(_) => errors += 1,
        }
    }
    assert!(errors > 200 && whole > 0 && errors + whole == 400, "{errors} errors, {whole} whole copies");
}

#[test]
fn an_answer_that_nobody_asked_for_or_that_comes_twice_ends_the_connection_with_its_reason() {
    let tree = Tree::with(&[("file", b"data")]);
    let refused = |answer: fn(&faulty::Asked) -> Vec<u8>, why: &str| {
        let script = move |asked: &faulty::Asked| (asked.kind == faulty::READ).then(|| answer(asked));
        let source = source(&tree, scripted(script));
        // What comes twice is found with the next answer.
        let errors = [read(&source, "file", 4), read(&source, "file", 4)];
        let told = errors.into_iter().find_map(Result::err).expect("an error").to_string();
        assert!(told.contains(why), "{told}");
    };
    refused(|asked| status(asked.id.wrapping_add(1000), 0), "which nobody made");
    refused(|asked| [status(asked.id, 1), status(asked.id, 1)].concat(), "which nobody made");
    refused(|asked| faulty::packet(103, asked.id, &faulty::string(&[0; 200_000])), "at most");
    refused(|asked| faulty::packet(103, asked.id, &[0xff; 4]), "longer than its packet");
    refused(|asked| faulty::packet(103, asked.id, &[0; 4]), "no bytes, and no end");
    refused(
        |asked| [&0x4000_0000_u32.to_be_bytes()[..], &asked.id.to_be_bytes()].concat(),
        "a packet of 1073741824 bytes",
    );
    refused(|_| vec![0, 0, 0, 1, 101], "a packet of 1 bytes");
    refused(|asked| faulty::packet(102, asked.id, &faulty::string(b"h")), "something else than data");
    refused(|asked| faulty::packet(77, asked.id, b""), "a kind that no server sends");
}

#[test]
fn who_is_no_server_or_of_another_version_is_told_so() {
    let tree = Tree::with(&[]);
    let refused = |faults: Faults| meet(&tree, faults).unwrap_err().to_string();
    let greeting = 4_u32.to_be_bytes().to_vec();
    assert!(refused(Faults { greeting, ..Faults::default() }).contains("version 4"));
    assert!(refused(Faults { cut_after: Some(3), ..Faults::default() }).contains("ended before"));
    assert!(refused(Faults { greeting: vec![0; 300_000], ..Faults::default() }).contains("no SFTP server"));
}

#[test]
fn a_server_that_never_answers_is_given_up() {
    let tree = Tree::with(&[("file", b"data")]);
    let patience = Duration::from_millis(300);
    let silent = scripted(|asked| (asked.kind == faulty::READ).then(Vec::new));
    let server = Server::meet(start(&tree, silent).0, patience).unwrap();
    let source = SftpSource::find(Pool::new(server, None), &[b"./".to_vec()]).unwrap().0;
    let begun = Instant::now();
    let error = read(&source, "file", 4).unwrap_err().to_string();
    assert!(error.contains("silent"), "{error}");
    assert!(begun.elapsed() >= patience);
}

#[test]
fn names_that_lead_out_of_a_directory_are_refused_by_name() {
    let tree = Tree::with(&[("good", b"data")]);
    let mut listed = false;
    let script = move |asked: &faulty::Asked| {
        (asked.kind == faulty::READDIR && !std::mem::replace(&mut listed, true)).then(|| {
            let mode = faulty::FILE;
            let all: &[(&[u8], u32)] = &[
                (b".", faulty::DIRECTORY),
                (b"..", faulty::DIRECTORY),
                (b"../out", mode),
                (b"a/b", mode),
                (b"/etc", mode),
                (b"", mode),
                (b"nul\0", mode),
                (b"good", mode),
                (b"good", mode),
            ];
            faulty::names(asked.id, all)
        })
    };
    let (paths, failures) = entries(&source(&tree, scripted(script)));
    assert_eq!(paths, ["", "good"]);
    assert_eq!(failures.len(), 5, "{failures:?}");
    assert!(failures.iter().all(|failure| failure.contains("no file can have")), "{failures:?}");
}

#[test]
fn a_server_that_sets_no_attributes_gets_its_files_all_the_same_and_this_is_told_once() {
    let tree = Tree::with(&[]);
    let script =
        |asked: &faulty::Asked| matches!(asked.kind, faulty::SETSTAT | faulty::FSETSTAT).then(|| status(asked.id, 3));
    let (target, told) = target(&tree, scripted(script));
    put(&target, "one", b"data").unwrap();
    put(&target, "two", b"data").unwrap();
    assert_eq!(
        (tree.data("one").unwrap(), tree.paths()),
        (b"data".to_vec(), vec![".".into(), "one".into(), "two".into()])
    );
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.contains("does not set modes")).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|text| text.contains("does not set times")).count(), 1, "{told:?}");
}

#[test]
fn without_posix_rename_a_file_is_removed_and_renamed_and_this_is_told_once() {
    let tree = Tree::with(&[("file", b"old and longer"), ("other", b"old")]);
    let (target, told) = target(&tree, Faults::default());
    put(&target, "file", b"new").unwrap();
    put(&target, "other", b"new").unwrap();
    assert_eq!((tree.data("file").unwrap(), tree.data("other").unwrap()), (b"new".to_vec(), b"new".to_vec()));
    assert_eq!(tree.paths(), [".", "file", "other"]);
    let told = told.lock().unwrap();
    assert_eq!(told.iter().filter(|text| text.contains("missing for a moment")).count(), 1, "{told:?}");
    assert_eq!(told.iter().filter(|text| text.contains("no flush")).count(), 1, "{told:?}");
}

#[test]
fn a_write_that_the_server_refuses_fails_the_file_however_many_follow_it() {
    let tree = Tree::with(&[("file", b"old")]);
    let mut writes = 0;
    let script = move |asked: &faulty::Asked| {
        writes += usize::from(asked.kind == faulty::WRITE);
        (asked.kind == faulty::WRITE && writes == 3).then(|| status(asked.id, 4))
    };
    let (target, _) = target(&tree, scripted(script));
    let data = pattern(1 << 20);
    let error = put(&target, "file", &data).unwrap_err();
    assert!(error.to_string().contains("so it is"), "{error}");
    assert_eq!(tree.data("file").unwrap(), b"old");
    put(&target, "other", &data).unwrap();
    assert_eq!(tree.data("other").unwrap(), data);
}

#[test]
fn a_server_that_loses_bytes_it_has_confirmed_gives_no_name() {
    let tree = Tree::with(&[]);
    let script = |asked: &faulty::Asked| (asked.kind == faulty::WRITE).then(|| status(asked.id, 0));
    let (target, _) = target(&tree, scripted(script));
    let error = put(&target, "file", b"data").unwrap_err();
    assert!(error.to_string().contains("another size"), "{error}");
    assert!(tree.data("file").is_none());
}

#[test]
fn a_link_that_stands_where_a_directory_should_be_is_not_followed() {
    let dir = tempfile::tempdir().unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), dir.path().join("link")).unwrap();
    let open = OpenOptions::default();
    let (target, _) = SftpTarget::open(servers::pool(dir.path(), None), b".", open, Box::new(drop)).unwrap();
    for error in [
        target.new_draft(b"link/file", false).unwrap_err(),
        target.make_dir(b"link/sub").unwrap_err(),
        target.open_file(b"link/file").unwrap_err(),
        target.make_symlink(b"link/l", b"x", &Metadata::default()).unwrap_err(),
    ] {
        assert!(error.to_string().contains("link"), "{error}");
    }
    assert!(target.make_dir(b"link").is_err());
    let spare = |_: &[u8], _: bool| false;
    assert!(
        target.delete_extraneous(b"link", &haul_store::SourceNames::default(), &spare, false, &mut |_, _| ()).len()
            == 1
    );
    assert_eq!(std::fs::read_dir(outside.path()).unwrap().count(), 0);
}

#[test]
fn a_draft_of_somebody_else_is_not_gone_on_with() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        || SftpTarget::open(servers::pool(dir.path(), None), b".", OpenOptions::default(), Box::new(drop)).unwrap().0;
    let draft = open().new_draft(b"file", false).unwrap();
    draft.write_at(b"data", 0).unwrap();
    draft.flush().unwrap();
    draft.journal_start(b"header").unwrap();
    let id = draft.id();
    drop(draft);
    let part = dir.path().join(String::from_utf8(haul_store::part_name(b"file")).unwrap());
    let (resumed, journal) = open().resume_draft(b"file", false).unwrap().unwrap();
    assert_eq!((resumed.id(), &journal[..]), (id, &b"header"[..]));
    drop(resumed);
    std::fs::set_permissions(&part, std::os::unix::fs::PermissionsExt::from_mode(0o666)).unwrap();
    assert!(open().resume_draft(b"file", false).unwrap().is_none(), "others could have written into it");
    std::fs::remove_file(&part).unwrap();
    std::os::unix::fs::symlink("elsewhere", &part).unwrap();
    assert!(open().resume_draft(b"file", false).unwrap().is_none());
    let draft = open().new_draft(b"file", false).unwrap();
    draft.commit(&Metadata::default(), false).unwrap();
    assert!(
        !dir.path().join("elsewhere").exists() && std::fs::symlink_metadata(dir.path().join("file")).unwrap().is_file()
    );
}

/// A journal says which process writes its draft: the bytes behind the number of the draft.
#[test]
fn a_draft_that_a_living_process_writes_is_neither_gone_on_with_nor_replaced() {
    use haul_sys::process_identity::ProcessIdentity;
    let dir = tempfile::tempdir().unwrap();
    let open =
        || SftpTarget::open(servers::pool(dir.path(), None), b".", OpenOptions::default(), Box::new(drop)).unwrap().0;
    let draft = open().new_draft(b"file", false).unwrap();
    draft.write_at(b"data", 0).unwrap();
    draft.flush().unwrap();
    draft.journal_start(b"header").unwrap();
    drop(draft);
    let path = |name: fn(&[u8]) -> Vec<u8>| dir.path().join(String::from_utf8(name(b"file")).unwrap());
    let (part, journal) = (path(haul_store::part_name), path(haul_store::journal_name));
    let own = ProcessIdentity::own().unwrap().to_bytes();
    let is_of = |writer: &[u8]| std::fs::read(&journal).unwrap()[16..52] == *writer;
    assert!(is_of(&own));
    let set_writer = |writer: &[u8]| {
        let mut bytes = std::fs::read(&journal).unwrap();
        bytes[16..52].copy_from_slice(writer);
        std::fs::write(&journal, bytes).unwrap();
    };
    let refused = |words: &str| {
        for error in [open().resume_draft(b"file", false).unwrap_err(), open().new_draft(b"file", false).unwrap_err()] {
            assert!(error.to_string().contains(words), "{error}");
        }
        assert_eq!(std::fs::read(&part).unwrap(), b"data");
    };
    let goes_on = || {
        let (_, records) = open().resume_draft(b"file", false).unwrap().unwrap();
        assert!(records == b"header" && is_of(&own), "whoever goes on writes it from then on");
    };

    let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
    let stat = std::fs::read_to_string(format!("/proc/{}/stat", child.id())).unwrap();
    let started: u64 = stat.rsplit(')').next().unwrap().split_whitespace().nth(19).unwrap().parse().unwrap();
    let mut writer = own;
    writer[24..28].copy_from_slice(&child.id().to_le_bytes());
    writer[28..].copy_from_slice(&started.to_le_bytes());
    set_writer(&writer);
    refused(&format!("another haul (process {}) is writing this file", child.id()));
    child.kill().unwrap();
    child.wait().unwrap();
    goes_on();

    // A process of another host cannot be looked for: what it wrote lately is left alone.
    writer = own;
    writer[0] ^= 1;
    set_writer(&writer);
    refused("a haul of another host wrote this file");
    let long_ago = std::time::SystemTime::now() - Duration::from_secs(121);
    for file in [&part, &journal] {
        std::fs::File::options().write(true).open(file).unwrap().set_modified(long_ago).unwrap();
    }
    goes_on();

    // A run that ended between its two renames left the draft under another name.
    let number = u128::from_le_bytes(std::fs::read(&journal).unwrap()[..16].try_into().unwrap());
    let halves = [(number as u64).to_be_bytes(), ((number >> 64) as u64).to_be_bytes()].concat();
    let taken = dir.path().join(String::from_utf8(haul_store::part_name(&halves)).unwrap());
    std::fs::rename(&part, &taken).unwrap();
    goes_on();
    let names: Vec<_> = std::fs::read_dir(dir.path()).unwrap().map(|entry| entry.unwrap().path()).collect();
    assert!(names.len() == 2 && part.exists(), "{names:?}");
}

#[test]
fn a_draft_that_another_copy_has_replaced_is_never_named_for_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let open =
        || SftpTarget::open(servers::pool(dir.path(), None), b".", OpenOptions::default(), Box::new(drop)).unwrap().0;
    let (one, other) = (open(), open());
    let first = one.new_draft(b"file", false).unwrap();
    first.write_at(b"first", 0).unwrap();
    let second = other.new_draft(b"file", false).unwrap();
    second.write_at(b"sec", 0).unwrap();
    let error = first.commit(&Metadata::default(), true).unwrap_err();
    assert!(error.to_string().contains("somebody else"), "{error}");
    assert!(!dir.path().join("file").exists(), "half a file has no name");
    second.write_at(b"ond", 3).unwrap();
    second.commit(&Metadata::default(), true).unwrap();
    assert_eq!(std::fs::read(dir.path().join("file")).unwrap(), b"second");
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1);
}

#[test]
fn a_draft_whose_name_was_taken_gets_no_final_name() {
    let dir = tempfile::tempdir().unwrap();
    let (target, _) =
        SftpTarget::open(servers::pool(dir.path(), None), b".", OpenOptions::default(), Box::new(drop)).unwrap();
    let part = dir.path().join(String::from_utf8(haul_store::part_name(b"file")).unwrap());
    let draft = target.new_draft(b"file", false).unwrap();
    draft.write_at(b"data", 0).unwrap();
    draft.prepare(&Metadata { mtime: Some(Time { s: 7, ns: 0 }), ..Metadata::default() }, true).unwrap();
    std::fs::remove_file(&part).unwrap();
    assert!(draft.give_name().unwrap_err().to_string().contains("is gone"));
    std::fs::write(&part, b"DATA").unwrap();
    assert!(draft.give_name().unwrap_err().to_string().contains("another file"));
    assert!(!dir.path().join("file").exists());
}

#[test]
fn further_connections_come_when_there_is_work_and_one_that_is_refused_is_the_last() {
    let dir = tempfile::tempdir().unwrap();
    let data = pattern(30 << 20);
    std::fs::write(dir.path().join("file"), &data).unwrap();
    let (path, dials) = (dir.path().to_owned(), Arc::new(AtomicUsize::new(0)));
    let (for_dial, (refused, was_refused)) = (Arc::clone(&dials), std::sync::mpsc::channel());
    let dial = move || {
        if for_dial.fetch_add(1, Ordering::SeqCst) > 0 {
            let _ = refused.send(());
            return Err(Refused::ForGood);
        }
        let mut command = servers::sftp_server();
        command.arg("-d").arg(&path);
        Ok(haul_sftp::Pipe::to_program(command).unwrap())
    };
    let further = Dials::new(Box::new(dial), Box::new(|| None), 3, true, PATIENCE);
    let pool = servers::pool(dir.path(), Some(further));
    let source = SftpSource::find(Arc::clone(&pool), &[b"./".to_vec()]).unwrap().0;
    // Each copy counts, so the third connection is asked for by the second one at the latest.
    assert!(read(&source, "file", data.len()).unwrap() == data);
    let is_refused = || was_refused.try_recv().is_ok();
    let begun = Instant::now();
    while !is_refused() {
        assert!(begun.elapsed() < PATIENCE, "nobody asked for a third connection");
        assert!(read(&source, "file", data.len()).unwrap() == data);
    }
    assert!(read(&source, "file", data.len()).unwrap() == data, "two connections serve it");
    assert_eq!((pool.servers().len(), dials.load(Ordering::SeqCst)), (2, 2));
}

#[test]
fn what_a_lost_connection_fails_is_told_as_lost() {
    let tree = Tree::with(&[("file", b"data")]);
    let cut = scripted(|asked| (asked.kind == faulty::READ).then(|| vec![0xff; 64]));
    let source = source(&tree, cut);
    assert!(read(&source, "file", 4).is_err());
    assert!(source.open(0, b"file").unwrap_err().is_lost());
}

#[test]
fn wildcards_are_expanded_at_the_server_and_sources_do_not_meet() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.dat", "b.dat", "c.txt", ".hidden.dat", "odd*.dat", "d1/a.dat", "d1/x", "d2/y"] {
        let path = dir.path().join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, "data").unwrap();
    }
    let find = |typed: &[&str]| {
        let typed: Vec<Vec<u8>> = typed.iter().map(|path| path.as_bytes().to_vec()).collect();
        let (source, errors) =
            SftpSource::find(servers::pool(dir.path(), None), &typed).map_err(|error| error.to_string())?;
        let errors: Vec<String> = errors.iter().map(ToString::to_string).collect();
        Ok::<_, String>((entries(&Arc::new(source)).0, errors))
    };
    let none: Vec<String> = Vec::new();
    let names = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(find(&["*.dat"]), Ok((names(&["a.dat", "b.dat", "odd*.dat"]), none.clone())));
    assert_eq!(find(&["d?/[xy]"]), Ok((names(&["x", "y"]), none.clone())));
    assert_eq!(find(&["odd*.dat", "a.dat", "a.dat"]), Ok((names(&["odd*.dat", "a.dat"]), none.clone())));
    assert_eq!(find(&["d*"]), Ok((names(&["d1", "d1/a.dat", "d1/x", "d2", "d2/y"]), none)));
    let (found, errors) = find(&["a.dat", "d1/a.dat", "none", "d2/"]).unwrap();
    assert_eq!((found, errors.len()), (names(&["a.dat"]), 3), "{errors:?}");
    assert!(find(&["*.none"]).unwrap_err().contains("nothing matches"));
}

fn lying(script: impl FnMut(&faulty::Asked) -> Option<Vec<u8>> + Send + 'static) -> Elsewhere {
    let pool = pool(&Tree::with(&[("file", b"data")]), scripted(script));
    Elsewhere::new(Arc::new(SftpPlace::new(pool, Box::new(drop))), SiteBounds::default())
}

fn lines(work: impl FnOnce(&mut dyn FnMut(Line) -> ControlFlow<()>)) -> (Vec<String>, Vec<String>) {
    let (mut paths, mut failures) = (Vec::new(), Vec::new());
    work(&mut |line| {
        match line {
            Line::Entry(path, _) | Line::Removed(path) => paths.push(String::from_utf8(path).unwrap()),
            Line::Failed(error) => failures.push(error.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    (paths, failures)
}

/// A listing of one directory that has names which lead out of it, and then its end.
fn evil_names() -> impl FnMut(&faulty::Asked) -> Option<Vec<u8>> + Send + 'static {
    let mut answered = 0;
    move |asked| {
        (asked.kind == faulty::READDIR).then(|| {
            answered += 1;
            let evil: [(&[u8], u32); 6] = [
                (b"../up", faulty::FILE),
                (b"/etc/passwd", faulty::FILE),
                (b"", faulty::DIRECTORY),
                (b"a\0b", faulty::FILE),
                (b"file", faulty::FILE),
                (b"file", faulty::FILE),
            ];
            if answered == 1 { faulty::names(asked.id, &evil) } else { status(asked.id, 1) }
        })
    }
}

#[test]
fn a_name_that_no_file_can_have_is_a_failure_and_never_a_path() {
    let elsewhere = lying(evil_names());
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let root = grounds.operands(b".").unwrap().remove(0);
    let all = ListOptions { hidden: true, ..ListOptions::default() };
    let (paths, failures) = lines(|tell| assert!(grounds.list(&root, all, tell).unwrap().is_continue()));
    assert_eq!(paths, ["file"], "what is listed twice is one entry");
    assert_eq!(failures.len(), 4, "{failures:?}");
    assert!(
        failures.iter().all(|text| text.contains("a name that no file can have") && !text.contains("/etc")),
        "{failures:?}"
    );
}

#[test]
fn a_tree_is_removed_by_its_plain_names_alone() {
    let removed = Arc::new(std::sync::Mutex::new(Vec::new()));
    let (for_script, mut listing) = (Arc::clone(&removed), evil_names());
    let elsewhere = lying(move |asked| {
        match asked.kind {
            // REMOVE, RMDIR
            13 | 15 => {
                for_script.lock().unwrap().push(String::from_utf8(asked.string()).unwrap());
                Some(status(asked.id, 0))
            }
            // LSTAT: all that is no file is a directory.
            7 if asked.string() != b"d/file" => {
                Some(faulty::packet(105, asked.id, &faulty::attributes(faulty::DIRECTORY, 0)))
            }
            11 => Some(faulty::packet(102, asked.id, &faulty::string(b"h"))),
            _ => listing(asked),
        }
    });
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let operand = grounds.operands(b"d").unwrap().remove(0);
    let removal = Removal { trees: true, ..Removal::default() };
    let (_, failures) = lines(|tell| assert!(grounds.remove(&operand, removal, tell).unwrap().is_continue()));
    assert_eq!((removed.lock().unwrap().clone(), failures.len()), (vec!["d/file".to_owned(), "d".to_owned()], 4));
}

#[test]
fn a_connection_that_is_lost_ends_all_with_one_error() {
    let mut asked = 0;
    let elsewhere = lying(move |request| {
        asked += u32::from(request.kind == faulty::READDIR);
        // A reply that is none ends the connection.
        (asked > 0).then(|| vec![0, 0, 0, 1, 99])
    });
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let root = grounds.operands(b".").unwrap().remove(0);
    let (paths, failures) =
        lines(|tell| assert!(grounds.list(&root, ListOptions::default(), tell).unwrap().is_break()));
    assert_eq!((paths, failures), (Vec::new(), Vec::new()));
    assert!(elsewhere.is_lost() && elsewhere.take_lost().unwrap().to_string().contains("lost"));
}
