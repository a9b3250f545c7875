//! Copies from servers that cut, lie, change and stall.

mod dav;
mod dav_server;
mod digests;
mod lists;
mod server;

use std::io::ErrorKind;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use haul_foreign::{Credentials, Lists, Login, open};
use haul_store::{Access, Found, SourceFile, SourceTree, StoreError, WalkOptions};
use server::{Reply, Request, Server, file, page, settings, status};

fn data(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at * 7 % 251) as u8).collect()
}

fn tree(server: &Server, path: &str) -> Result<Arc<dyn SourceTree>, StoreError> {
    tree_as(server, path, Credentials::default())
}

fn tree_as(server: &Server, path: &str, credentials: Credentials) -> Result<Arc<dyn SourceTree>, StoreError> {
    open(&[server.url(path)], settings(credentials), Lists::Pages).map(|opened| opened.tree)
}

fn opened(tree: &Arc<dyn SourceTree>) -> SourceFile {
    tree.open(0, tree.name_of_single_file()).unwrap()
}

fn read_all(file: &SourceFile, block: usize) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; block]);
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn why(result: Result<impl Sized, impl ToString>) -> String {
    result.err().expect("it fails").to_string()
}

#[test]
fn a_file_is_read_whole_wherever_the_first_answer_is_cut() {
    let content = data(90);
    for cut in 0..90 {
        let sent = content.clone();
        let server = Server::start(move |request| {
            let is_first = request.number == 1;
            Reply { cut: is_first.then_some(cut), ..file(request, &sent, "\"a\"") }
        });
        let file = opened(&tree(&server, "/f").unwrap());
        assert!(read_all(&file, 32).unwrap() == content, "{cut}");
        let last = server.seen().into_iter().rfind(|seen| !seen.is_head()).unwrap();
        let from = if cut == 0 { None } else { Some(format!("bytes={cut}-89")) };
        assert_eq!((last.field("range"), last.field("if-match")), (from.as_deref(), Some("\"a\"")), "{cut}");
    }
}

#[test]
fn a_server_that_cuts_every_answer_is_given_up() {
    let server = Server::start(|request| Reply { cut: Some(0), ..file(request, &data(90), "\"a\"") });
    // A file's head has no body, so the cut comes behind it.
    let file = opened(&tree(&server, "/f").unwrap());
    assert_eq!(read_all(&file, 32).unwrap_err().kind(), ErrorKind::UnexpectedEof);
    assert!(server.seen().len() < 20, "{}", server.seen().len());
}

#[test]
fn reads_that_go_on_are_one_request_and_a_jump_is_another() {
    let server = Server::start(|request| file(request, &data(1000), "\"a\""));
    let file = opened(&tree(&server, "/f").unwrap());
    let content = data(1000);
    let mut buffer = [0; 100];
    for offset in [0, 100, 200, 700, 800, 900, 0] {
        assert_eq!(file.read_at(&mut buffer, offset).unwrap(), 100);
        assert!(buffer[..] == content[offset as usize..][..100], "{offset}");
    }
    assert_eq!((file.read_at(&mut buffer, 950).unwrap(), file.read_at(&mut buffer, 1000).unwrap()), (50, 0));
    let ranges: Vec<_> = server.seen().iter().map(|seen| seen.field("range").map(str::to_owned)).collect();
    let range = |text: &str| Some(text.to_owned());
    assert_eq!(ranges, [None, None, range("bytes=700-999"), None, range("bytes=950-999")]);
}

#[test]
fn a_server_that_compares_parts_of_a_second_with_its_own_date_is_read_all_the_same() {
    let is_new = Arc::new(AtomicBool::new(false));
    let changed = Arc::clone(&is_new);
    let server = Server::start(move |request| {
        let date = if changed.load(Ordering::Relaxed) {
            "Mon, 07 Nov 1994 08:49:37 GMT"
        } else {
            "Sun, 06 Nov 1994 08:49:37 GMT"
        };
        match request.field("if-unmodified-since") {
            Some(_) => status("412 Precondition Failed", &[]),
            None => {
                let whole = file(request, &data(1000), "");
                Reply {
                    head: whole.head.replace("ETag: \r\n", "").replace("Sun, 06 Nov 1994 08:49:37 GMT", date),
                    ..whole
                }
            }
        }
    });
    let file = opened(&tree(&server, "/f").unwrap());
    let mut buffer = [0; 100];
    for offset in [0, 500, 100] {
        assert_eq!(file.read_at(&mut buffer, offset).unwrap(), 100);
        assert!(buffer[..] == data(1000)[offset as usize..][..100], "{offset}");
    }
    let refused = server.seen().iter().filter(|seen| seen.field("if-unmodified-since").is_some()).count();
    assert_eq!(refused, 1, "it is found once");
    is_new.store(true, Ordering::Relaxed);
    assert_eq!(file.read_at(&mut buffer, 700).unwrap_err().kind(), ErrorKind::StaleNetworkFileHandle);
}

#[test]
fn a_run_is_one_request_that_names_its_end_and_its_connection_carries_the_next_one() {
    let data = data(1 << 20);
    let expected = data.clone();
    let server = Server::start(move |request| file(request, &data, "\"v\""));
    let tree = tree(&server, "/f").unwrap();
    let file = opened(&tree);
    let mut block = vec![0; 1 << 10];
    for (start, end) in [(0, 300_000), (500_000, 500_001), (600_000, 1 << 20)] {
        file.reads_on(start, end);
        let mut at = start;
        while at < end {
            let most = block.len().min((end - at) as usize);
            let read = file.read_at(&mut block[..most], at).unwrap();
            assert_eq!(block[..read], expected[at as usize..at as usize + read]);
            at += read as u64;
        }
    }
    let ranges: Vec<_> = server.seen().iter().filter_map(|request| request.field("range").map(str::to_owned)).collect();
    assert_eq!(ranges, ["bytes=0-299999", "bytes=500000-500000", "bytes=600000-1048575"]);
    assert_eq!(server.connections(), 1);
}

#[test]
fn connections_are_counted_and_what_the_server_refuses_is_told() {
    let data = data(1 << 20);
    let busy = Arc::new(AtomicBool::new(false));
    let is_busy = Arc::clone(&busy);
    let server = Server::start(move |request| match is_busy.load(Ordering::Relaxed) {
        true => status("503 Service Unavailable", &[]),
        false => file(request, &data, "\"v\""),
    });
    let tree = tree(&server, "/f").unwrap();
    let connections = tree.connections().unwrap();
    connections.allow(3);
    let file = opened(&tree);
    file.read_at(&mut [0; 1000], 0).unwrap();
    let now = connections.now();
    assert_eq!((now.open.len(), now.server_allows, now.refusals), (1, 3, 0), "{now:?}");
    assert!(now.moved_bytes > 1000 && now.rtt_min_us > 0, "{now:?}");
    assert_eq!((now.open[0].peer.port(), connections.foreseen_bytes()), (server.port, Some(1 << 20)));
    busy.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let _ = file.read_at(&mut [0; 1000], 500_000);
        });
    });
    let now = connections.now();
    assert!(now.server_allows == 1 && now.refusals > 0, "the body at the start is the one that is left: {now:?}");
}

#[test]
fn a_server_without_ranges_is_read_from_front_to_back_and_skipped_where_it_must_be() {
    const SIZE: usize = 3 << 20;
    let server = Server::start(|request| {
        let whole = Request { fields: Default::default(), ..request.clone() };
        let reply = file(&whole, &data(SIZE), "\"a\"");
        Reply { head: reply.head.replace("Accept-Ranges: bytes\r\n", ""), ..reply }
    });
    let opened_tree = open(&[server.url("/f")], settings(Credentials::default()), Lists::Pages).unwrap();
    assert!(opened_tree.warning.unwrap().contains("no parts"));
    assert_eq!(opened_tree.tree.access(), Access::Sequential);
    let file = opened(&opened_tree.tree);
    let mut buffer = [0; 10];
    assert_eq!(file.read_at(&mut buffer, 2 << 20).unwrap(), 10);
    assert!(buffer[..] == data(SIZE)[2 << 20..][..10]);
    assert!(read_all(&file, 256 << 10).unwrap() == data(SIZE));
}

#[test]
fn a_part_that_is_not_the_one_asked_for_is_never_taken() {
    for (part, expected) in [
        ("bytes 0-499/1000", "another part"),
        ("bytes 501-999/1000", "another part"),
        ("bytes 500-998/1000", "contradict"),
        ("bytes 500-999/1001", "changed"),
        ("bytes 500-/1000", "does not say which"),
        ("", "does not say which"),
    ] {
        let server = Server::start(move |request| {
            let reply = file(request, &data(1000), "\"a\"");
            let field = if part.is_empty() { String::new() } else { format!("Content-Range: {part}\r\n") };
            Reply { head: reply.head.replace("Content-Range: bytes 500-999/1000\r\n", &field), ..reply }
        });
        let file = opened(&tree(&server, "/f").unwrap());
        file.read_at(&mut [0; 10], 0).unwrap();
        let why = why(file.read_at(&mut [0; 10], 500));
        assert!(why.contains(expected), "{part}: {why}");
    }
}

#[test]
fn a_file_that_is_replaced_while_it_is_read_gives_no_bytes_of_the_other_version() {
    let (one, other) = (data(1000), vec![9; 1000]);
    let honest = |request: &Request, data: &[u8], tag: &str| file(request, data, tag);
    // A server without conditions sends the other version with its own tag.
    let careless = |request: &Request, data: &[u8], tag: &str| {
        let mut request = request.clone();
        request.fields.remove("if-match");
        file(&request, data, tag)
    };
    let shorter = |request: &Request, data: &[u8], tag: &str| careless_of(request, &data[..400], tag);
    for (number, answer) in [honest, careless, shorter].into_iter().enumerate() {
        let (one, other) = (one.clone(), other.clone());
        let server = Server::start(move |request| match request.number {
            0 | 1 => file(request, &one, "\"a\""),
            _ => answer(request, &other, "\"b\""),
        });
        let file = opened(&tree(&server, "/f").unwrap());
        file.read_at(&mut [0; 10], 0).unwrap();
        let error = file.read_at(&mut [0; 10], 500).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::StaleNetworkFileHandle, "{number}: {error}");
    }
}

fn careless_of(request: &Request, data: &[u8], tag: &str) -> Reply {
    let mut request = request.clone();
    request.fields.remove("if-match");
    file(&request, data, tag)
}

#[test]
fn a_coding_is_taken_as_it_is_or_not_at_all() {
    let coded =
        |reply: Reply| Reply { head: reply.head.replacen("\r\n", "\r\nContent-Encoding: gzip\r\n", 1), ..reply };
    let always = Server::start(move |request| coded(file(request, &data(50), "\"a\"")));
    assert!(read_all(&opened(&tree(&always, "/f").unwrap()), 20).unwrap() == data(50));
    assert_eq!(always.seen()[0].field("accept-encoding"), Some("identity"));
    let sometimes = Server::start(move |request| match request.is_head() {
        true => file(request, &data(50), "\"a\""),
        false => coded(file(request, &data(30), "\"a\"")),
    });
    let file = opened(&tree(&sometimes, "/f").unwrap());
    // The first answer pins the version; the walk listed another.
    read_all(&file, 20).unwrap();
    assert_ne!(file.stat().unwrap().size, 50);
}

#[test]
fn a_busy_server_is_waited_for() {
    let server = Server::start(|request| match request.number {
        1 | 2 => status("503 Service Unavailable", &[("Retry-After", "0")]),
        3 => status("429 Too Many Requests", &[]),
        4 => status("502 Bad Gateway", &[]),
        _ => file(request, &data(50), "\"a\""),
    });
    assert!(read_all(&opened(&tree(&server, "/f").unwrap()), 20).unwrap() == data(50));
    assert_eq!(server.seen().len(), 7, "the last one asks for a sum");
}

#[test]
fn a_server_that_allows_two_connections_is_read_over_two() {
    static OPEN: AtomicUsize = AtomicUsize::new(0);
    let content = data(40_000);
    let sent = content.clone();
    let server = Server::start(move |request| {
        if request.is_head() || OPEN.fetch_add(1, Ordering::SeqCst) < 2 {
            return file(request, &sent, "\"a\"");
        }
        OPEN.fetch_sub(1, Ordering::SeqCst);
        status("503 Service Unavailable", &[])
    });
    let file = Arc::new(opened(&tree(&server, "/f").unwrap()));
    let mut quarter = vec![0; 10_000];
    let mut half = vec![0; 1000];
    assert_eq!(file.read_at(&mut half, 0).unwrap(), 1000);
    let other = Arc::clone(&file);
    let second = std::thread::spawn(move || {
        let mut bytes = vec![0; 10_000];
        other.read_at(&mut bytes, 10_000).map(|count| (count, bytes))
    });
    assert!(second.join().unwrap().unwrap().1 == content[10_000..20_000]);
    // The third is refused until a body rests, whose connection is closed.
    let other = Arc::clone(&file);
    let third = std::thread::spawn(move || {
        let mut bytes = vec![0; 10_000];
        other.read_at(&mut bytes, 25_000).map(|count| (count, bytes))
    });
    while server.seen().len() < 4 {
        std::thread::yield_now();
    }
    OPEN.store(1, Ordering::SeqCst);
    assert!(third.join().unwrap().unwrap().1 == content[25_000..35_000]);
    OPEN.store(0, Ordering::SeqCst);
    assert_eq!(file.read_at(&mut quarter, 22_000).unwrap(), 10_000);
}

#[test]
fn a_server_that_cuts_or_ignores_a_second_connection_is_read_over_one() {
    let cut = || Reply { cut: Some(0), ..Reply::default() };
    let ignored = || Reply { is_silent: true, ..Reply::default() };
    for refuse in [cut as fn() -> Reply, ignored] {
        let content = data(40_000);
        let (sent, is_full) = (content.clone(), Arc::new(AtomicBool::new(false)));
        let refuses = Arc::clone(&is_full);
        let server = Server::start(move |request| match refuses.load(Ordering::SeqCst) {
            true => refuse(),
            false => file(request, &sent, "\"a\""),
        });
        let tree = tree(&server, "/f").unwrap();
        let file = opened(&tree);
        let read = |at: usize, bytes: usize| {
            let mut read = vec![0; bytes];
            assert_eq!(file.read_at(&mut read, at as u64).unwrap(), bytes);
            assert!(read == content[at..at + bytes], "from {at}");
        };
        read(0, 10);
        is_full.store(true, Ordering::SeqCst);
        std::thread::scope(|scope| {
            let other = scope.spawn(|| read(20_000, 10_000));
            // The first body goes on, then rests, and gives its connection to the other.
            let mut at = 10;
            while !other.is_finished() {
                if at < 10_000 {
                    read(at, 10);
                    at += 10;
                }
                if tree.connections().unwrap().now().refusals > 0 {
                    is_full.store(false, Ordering::SeqCst);
                }
                std::thread::yield_now();
            }
            other.join().unwrap();
        });
    }
}

#[test]
fn redirects_lead_to_a_file_and_never_in_a_circle() {
    let content = data(50);
    let server = Server::start(move |request| match request.target.as_str() {
        "/f" => status("302 Found", &[("Location", "/g?sig=1")]),
        "/g?sig=1" => file(request, &data(50), "\"a\""),
        "/circle" => status("301 Moved Permanently", &[("Location", "/circle2")]),
        "/circle2" => status("307 Temporary Redirect", &[("Location", "circle")]),
        "/nowhere" => status("302 Found", &[]),
        other => {
            let next: usize = other[1..].parse::<usize>().unwrap() + 1;
            status("308 Permanent Redirect", &[("Location", &format!("/{next}"))])
        }
    });
    let found = tree(&server, "/f").unwrap();
    assert_eq!(found.name_of_single_file(), b"f");
    assert!(read_all(&opened(&found), 20).unwrap() == content);
    for (path, expected) in [("/circle", "circle"), ("/0", "more than 10 times"), ("/nowhere", "leads nowhere")] {
        let why = why(tree(&server, path));
        assert!(why.contains(expected), "{path}: {why}");
    }
}

#[test]
fn credentials_go_to_the_server_that_was_named_and_not_where_it_leads() {
    let elsewhere = Server::start(|request| file(request, &data(5), "\"a\""));
    let target = format!("http://127.0.0.1:{}/f", elsewhere.port);
    let server = Server::start(move |request| match request.field("authorization") {
        Some("Basic bWU6cHc=") => status("302 Found", &[("Location", &target)]),
        _ => status("401 Unauthorized", &[("WWW-Authenticate", "Basic")]),
    });
    let login = Login { user: "me".to_owned(), password: "pw".to_owned().into() };
    let found = tree_as(&server, "/f", Credentials { login: Some(login), ..Credentials::default() }).unwrap();
    assert!(read_all(&opened(&found), 20).unwrap() == data(5));
    assert!(elsewhere.seen().iter().all(|seen| seen.field("authorization").is_none()));
    assert!(why(tree(&server, "/f")).contains("401"));
    // A netrc is read once the server asks. A line is for each port of its host, as with curl.
    let netrc = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(netrc.path(), "machine 127.0.0.1 login me password pw").unwrap();
    let of_netrc = Credentials { netrc: Some(netrc.path().to_owned()), ..Credentials::default() };
    tree_as(&server, "/f", of_netrc).unwrap();
    // A token needs TLS.
    let token = Credentials { token: Some("t".to_owned().into()), ..Credentials::default() };
    assert!(why(tree_as(&server, "/f", token)).contains("401"));
    assert!(server.seen().iter().all(|seen| seen.field("authorization").is_none_or(|value| !value.contains("Bearer"))));
}

#[test]
fn a_server_that_refuses_heads_or_tells_no_length_is_asked_for_a_byte() {
    for line in ["405 Method Not Allowed", "403 Forbidden", "200 OK"] {
        for size in [0, 50] {
            let server = Server::start(move |request| match request.is_head() {
                true if line == "200 OK" => {
                    Reply { head: "HTTP/1.1 200 OK\r\nETag: \"a\"\r\n\r\n".to_owned(), ..Reply::default() }
                }
                true => status(line, &[]),
                false => file(request, &data(size), "\"a\""),
            });
            let file = opened(&tree(&server, "/f").unwrap());
            assert!(read_all(&file, 20).unwrap() == data(size), "{line} {size}");
        }
    }
    let endless = Server::start(|_| Reply {
        head: "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned(),
        body: b"5\r\nhello\r\n0\r\n\r\n".to_vec(),
        ..Reply::default()
    });
    assert!(why(tree(&endless, "/f")).contains("haul cp -"));
}

#[test]
fn a_body_in_chunks_ends_where_the_head_said_and_nowhere_else() {
    let chunked = |bytes: &[u8]| {
        let mut body = format!("{:x}\r\n", bytes.len()).into_bytes();
        body.extend_from_slice(bytes);
        body.extend_from_slice(b"\r\n0\r\n\r\n");
        let head = "HTTP/1.1 200 OK\r\nETag: \"a\"\r\nTransfer-Encoding: chunked\r\n\r\n".to_owned();
        Reply { head, body, ..Reply::default() }
    };
    let sends = |size: usize| {
        let server = Server::start(move |request| match request.is_head() {
            true => file(request, &data(50), "\"a\""),
            false => chunked(&data(size)),
        });
        let file = opened(&tree(&server, "/f").unwrap());
        // The head pins the version.
        file.stat().unwrap();
        read_all(&file, 20)
    };
    assert!(sends(50).unwrap() == data(50));
    assert_eq!(sends(51).unwrap_err().kind(), ErrorKind::StaleNetworkFileHandle);
    assert_eq!(sends(49).unwrap_err().kind(), ErrorKind::UnexpectedEof);
}

#[test]
fn a_silent_server_is_given_up_and_what_is_no_http_at_once() {
    let silent = Server::start(|request| match request.is_head() {
        true => file(request, &data(50), "\"a\""),
        false => Reply { is_silent: true, ..Reply::default() },
    });
    let file = opened(&tree(&silent, "/f").unwrap());
    assert_eq!(file.read_at(&mut [0; 10], 0).unwrap_err().kind(), ErrorKind::TimedOut);
    let other = Server::start(|_| Reply { head: "220 ftp ready\r\n".to_owned(), ..Reply::default() });
    assert!(why(tree(&other, "/f")).contains("no HTTP"));
    assert_eq!(other.seen().len(), 1);
}

fn walked(tree: Arc<dyn SourceTree>) -> Vec<String> {
    let one = |found| match found {
        Found::Entry(entry) => format!("{} {}", haul_store::printable(&entry.path), entry.stat.size),
        Found::DirEnd { path, complete } => format!("end of {} {complete}", haul_store::printable(&path)),
        Found::Skipped { path, why } => format!("skipped {} {why}", haul_store::printable(&path)),
        Found::Failed { path, error, .. } => {
            let text = error.to_string();
            let why = text.split_once(": ").map_or(text.as_str(), |(_, why)| why);
            format!("failed {}: {why}", haul_store::printable(&path))
        }
    };
    tree.items(WalkOptions::default()).map(one).collect()
}

#[test]
fn a_tree_is_walked_in_order_and_what_fails_of_it_is_named() {
    let html = |text: &str| page("text/html", text);
    let server = Server::start(move |request| match request.target.as_str() {
        "/d/" => html(
            "<a href='../'>up</a><a href='z'>z</a><a href='sub/'>s</a><a href='a%20b'>a b</a><a href='gone'>x</a>\
             <a href='%2e%2e%2fx'>bad</a><a href='bare'>a directory without a slash</a><a href='broken/'>b</a>",
        ),
        "/d/bare" => status("301 Moved Permanently", &[("Location", "/d/bare/")]),
        "/d/bare/" => html(""),
        "/d/sub/" => html("<a href='one'>1</a>"),
        "/d/broken/" if request.is_head() => html(""),
        "/d/broken/" => status("403 Forbidden", &[]),
        "/d/gone" => status("404 Not Found", &[]),
        _ => file(request, &data(50), "\"a\""),
    });
    let tree = tree(&server, "/d/").unwrap();
    let expected = [
        ". 0",
        "failed ../x: its name has a slash in it",
        "a b 50",
        "bare 0",
        "end of bare true",
        "broken 0",
        "failed broken: the server does not let us read it (403 Forbidden)",
        "end of broken false",
        "failed gone: the server has no such file (404 Not Found)",
        "sub 0",
        "sub/one 50",
        "end of sub true",
        "z 50",
        "end of . false",
    ];
    let found: Vec<String> = walked(tree.clone()).iter().map(|line| line.replace("end of  ", "end of . ")).collect();
    let found: Vec<String> = found.into_iter().map(|line| if line == " 0" { ". 0".to_owned() } else { line }).collect();
    assert_eq!(found, expected);
    let file = tree.open(0, b"/d/sub/one").unwrap();
    assert!(read_all(&file, 20).unwrap() == data(50));
}

#[test]
fn a_directory_within_itself_ends() {
    let server = Server::start(|_| page("text/html", "<a href='again/'>again/</a>"));
    let found = walked(tree(&server, "/d/").unwrap());
    assert!(found.iter().any(|line| line.contains("64 directories deep")), "{found:?}");
    assert!(found.len() < 200);
}

#[test]
fn what_is_no_index_page_is_no_directory() {
    let server = Server::start(|request| match request.target.as_str() {
        "/json/" => page("application/json", "{\"error\": 1}"),
        "/text/" => page("text/plain", "a\nb"),
        _ => status("404 Not Found", &[]),
    });
    for (path, expected) in [("/json/", "none that haul knows"), ("/text/", "text/plain")] {
        let found = walked(tree(&server, path).unwrap());
        assert!(found.iter().any(|line| line.contains(expected)), "{path}: {found:?}");
    }
    assert!(why(tree(&server, "/none/")).contains("404"));
}
