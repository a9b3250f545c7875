//! Small objects as a source: content and metadata in one answer.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use haul_foreign::{OpenedObjects, open_objects};
use haul_store::{EntryKind, Found, FoundEntry, SourceFile, SurelyWanted, WalkOptions};

use crate::server::{Object, Reply, Server, get, settings};

fn open(server: &Server) -> OpenedObjects {
    open_objects("bucket", &[b"d/".to_vec()], true, &server.environment(), settings).unwrap()
}

/// The entries but the directory itself.
fn walked(opened: &OpenedObjects, is_wanted: bool) -> Vec<FoundEntry> {
    let surely_wanted = Some(SurelyWanted::by(move |_| is_wanted));
    let found = Arc::clone(&opened.tree).items(WalkOptions { surely_wanted, ..WalkOptions::default() });
    let entry = |found| match found {
        Found::Entry(entry) => Some(entry),
        Found::Failed { error, .. } => panic!("{error}"),
        _ => None,
    };
    found.filter_map(entry).skip(1).collect()
}

fn file(opened: &OpenedObjects, entry: &FoundEntry) -> SourceFile {
    opened.tree.open(entry.source, &entry.source_path).unwrap()
}

fn read(file: &SourceFile) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

/// The requests for objects, not for lists.
fn asked(server: &Server) -> Vec<String> {
    server.seen().iter().filter(|request| !request.key.is_empty()).map(|request| request.method.clone()).collect()
}

fn put_with(server: &Server, key: &[u8], data: &[u8], fields: &[(&str, &str)]) {
    let mut state = server.state.lock().unwrap();
    state.put(key, data);
    let fields = fields.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
    state.objects.get_mut(key).unwrap().fields = fields;
}

#[test]
fn a_small_object_that_is_surely_wanted_costs_one_request_and_keeps_its_metadata() {
    let server = Server::honest();
    let fields = [
        ("x-amz-meta-mtime", "1000000000.5"),
        ("x-amz-meta-mode", "33261"),
        ("x-amz-meta-uid", "7"),
        ("x-amz-meta-gid", "8"),
    ];
    for number in 0..200_u32 {
        put_with(&server, format!("d/{number:03}").as_bytes(), &number.to_be_bytes(), &fields);
    }
    let opened = open(&server);
    let entries = walked(&opened, true);
    assert_eq!(entries.len(), 200);
    for (number, entry) in (0..200_u32).zip(&entries) {
        let stat = &entry.stat;
        assert_eq!((stat.size, stat.mode, stat.uid, stat.gid), (4, 0o755, 7, 8));
        assert_eq!((stat.mtime.s, stat.mtime.ns), (1_000_000_000, 500_000_000));
        let file = file(&opened, entry);
        assert_eq!(read(&file).unwrap(), number.to_be_bytes());
        assert_eq!(file.stat().unwrap().version, stat.version);
    }
    assert_eq!(asked(&server), vec!["GET"; 200]);
    assert_eq!(opened.uncompared.load(Ordering::Relaxed), 0);
}

#[test]
fn an_object_that_may_be_there_already_moves_no_content() {
    let server = Server::honest();
    put_with(&server, b"d/f", b"data", &[]);
    assert_eq!(walked(&open(&server), false).len(), 1);
    assert_eq!(asked(&server), ["HEAD"]);
}

#[test]
fn a_link_comes_with_its_text_in_one_answer() {
    let server = Server::honest();
    put_with(&server, b"d/by-name.rclonelink", b"to/there", &[]);
    put_with(&server, b"d/by-mode", b"to/there", &[("x-amz-meta-mode", "41471")]);
    let is_link = |entry: &FoundEntry| matches!(&entry.kind, EntryKind::Symlink { target } if target == b"to/there");
    for (is_wanted, expected) in [(true, &["GET"; 2][..]), (false, &["GET", "GET", "HEAD"])] {
        let before = asked(&server).len();
        let entries = walked(&open(&server), is_wanted);
        assert!(entries.len() == 2 && entries.iter().all(is_link), "{entries:?}");
        let mut asked = asked(&server).split_off(before);
        asked.sort();
        assert_eq!(asked, expected);
    }
}

#[test]
fn an_object_that_is_replaced_after_the_walk_arrives_as_it_was_described() {
    let server = Server::honest();
    put_with(&server, b"d/f", b"first", &[]);
    let opened = open(&server);
    let entries = walked(&opened, true);
    put_with(&server, b"d/f", b"other", &[]);
    assert_eq!(read(&file(&opened, &entries[0])).unwrap(), b"first");
    // Without content from the walk, the other version is refused.
    let entries = walked(&opened, false);
    put_with(&server, b"d/f", b"third", &[]);
    let error = read(&file(&opened, &entries[0])).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle);
}

#[test]
fn an_object_that_grew_since_it_was_listed_is_described_and_read_as_it_is() {
    let has_grown = AtomicBool::new(false);
    let server = Server::start(move |request, state| {
        if request.key == b"d/f" && !has_grown.swap(true, Ordering::Relaxed) {
            state
                .objects
                .insert(b"d/f".to_vec(), Object { data: vec![7; 300_000], tag: "\"t\"".into(), ..Object::default() });
        }
        None
    });
    put_with(&server, b"d/f", b"short", &[]);
    let opened = open(&server);
    let entries = walked(&opened, true);
    assert_eq!(entries[0].stat.size, 300_000);
    assert!(read(&file(&opened, &entries[0])).unwrap() == [7; 300_000]);
    assert_eq!(asked(&server), ["GET"; 2]);
}

#[test]
fn contents_that_nobody_has_read_have_a_bound() {
    let server = Server::honest();
    for number in 0..130 {
        put_with(&server, format!("d/{number:03}").as_bytes(), &vec![7; 256 << 10], &[]);
    }
    put_with(&server, b"d/large", &vec![7; (256 << 10) + 1], &[]);
    let opened = open(&server);
    let entries = walked(&opened, true);
    let count = |method: &str| asked(&server).iter().filter(|asked| *asked == method).count();
    assert_eq!((count("GET"), count("HEAD")), (128, 3));
    for entry in &entries {
        assert_eq!(read(&file(&opened, entry)).unwrap().len() as u64, entry.stat.size);
    }
    assert_eq!((count("GET"), count("HEAD")), (131, 3));
    // What was read has left its room.
    walked(&opened, true);
    assert_eq!((count("GET"), count("HEAD")), (259, 6));
}

#[test]
fn content_that_comes_cut_or_not_at_all_is_read_by_a_lane() {
    // The list is the request before.
    let cutting = Server::start(|request, state| {
        (request.number == 2).then(|| Reply { body: b"da".to_vec(), ..get(request, state) })
    });
    let refusing = Server::start(|request, _| (request.number == 2).then(|| Reply::error(403, "AccessDenied")));
    for (server, expected) in [(cutting, &["GET", "GET"][..]), (refusing, &["GET", "HEAD", "GET"])] {
        put_with(&server, b"d/f", b"data", &[]);
        let opened = open(&server);
        let entries = walked(&opened, true);
        assert_eq!(read(&file(&opened, &entries[0])).unwrap(), b"data");
        assert_eq!(asked(&server), expected);
    }
}

#[test]
fn content_with_another_sum_than_the_store_keeps_is_refused() {
    let server = Server::start(|request, state| {
        let is_body = request.method == "GET" && !request.key.is_empty();
        is_body.then(|| Reply { body: b"dota".to_vec(), ..get(request, state) })
    });
    put_with(&server, b"d/f", b"data", &[]);
    let opened = open(&server);
    let entries = walked(&opened, true);
    let error = read(&file(&opened, &entries[0])).unwrap_err();
    assert!(error.to_string().contains("CRC64NVME"), "{error}");
}
