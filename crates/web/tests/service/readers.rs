//! Readers get what they ask for.

use std::fs::{self, File};
use std::io::{Read as _, Write as _};
use std::time::{Duration, SystemTime};

use haul_web::Limits;
use haul_web::token::{Condition, Token};

use crate::harness::{connect, get, secret, serve};

/// Sets the time an hour back: the state differs from the next.
fn old(path: &std::path::Path) {
    let hour = SystemTime::now() - Duration::from_secs(3_600);
    File::options().write(true).open(path).unwrap().set_modified(hour).unwrap();
}

#[test]
fn a_file_of_several_windows_arrives_whole_and_so_do_its_parts() {
    let served = serve(Limits::default());
    let bytes: Vec<u8> = (0..20_000_003_u32).map(|at| (at.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(served.top.join("large"), &bytes).unwrap();
    assert!(get(served.address, "/large", "").body == bytes);
    let part = get(served.address, "/large", "Range: bytes=3000000-12999999\r\n");
    assert_eq!((part.status, part.field("content-range")), (206, Some("bytes 3000000-12999999/20000003")));
    assert!(part.body == bytes[3_000_000..13_000_000]);
    let parts = get(served.address, "/large", "Range: bytes=0-0, 5000000-9999999\r\n");
    assert!(parts.field("content-type").unwrap().starts_with("multipart/byteranges; boundary="));
    let found = parts.body.windows(6).position(|six| six == &bytes[5_000_000..5_000_006]).unwrap();
    assert!(parts.body[found..].starts_with(&bytes[5_000_000..10_000_000]));
}

#[test]
fn a_file_that_shrinks_while_it_is_sent_ends_the_connection_early() {
    let served = serve(Limits::default());
    let path = served.top.join("shrinks");
    File::create(&path).unwrap().set_len(200_000_000).unwrap();
    let mut stream = connect(served.address);
    stream.write_all(b"GET /shrinks HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = [0; 100];
    stream.read_exact(&mut first).unwrap();
    File::options().write(true).open(&path).unwrap().set_len(10).unwrap();
    let mut rest = Vec::new();
    let _ = stream.read_to_end(&mut rest);
    assert!(rest.len() < 200_000_000, "{} bytes", rest.len());
}

#[test]
fn a_tag_from_one_answer_serves_in_the_next_request() {
    let served = serve(Limits::default());
    let again =
        |tag: &str, field: &str| get(served.address, "/ten", &format!("{field}: {tag}\r\nRange: bytes=0-4\r\n")).status;
    // A file that has just changed has a weak tag; wait until it is old enough.
    let strong = (0..100).find_map(|_| {
        let tag = get(served.address, "/ten", "").field("etag").unwrap().to_owned();
        std::thread::park_timeout(Duration::from_millis(20));
        tag.starts_with('"').then_some(tag)
    });
    let tag = strong.expect("the tag becomes strong");
    assert_eq!((again(&tag, "If-None-Match"), again(&tag, "If-Match"), again(&tag, "If-Range")), (304, 206, 206));
    fs::write(served.top.join("ten"), b"9876543210").unwrap();
    assert_eq!((again(&tag, "If-None-Match"), again(&tag, "If-Match"), again(&tag, "If-Range")), (206, 412, 200));
}

#[test]
fn a_compressed_neighbour_goes_to_who_takes_it() {
    let served = serve(Limits::default());
    fs::write(served.top.join("ten.gz"), b"as if compressed").unwrap();
    let plain = get(served.address, "/ten", "");
    let packed = get(served.address, "/ten", "Accept-Encoding: br, gzip\r\n");
    assert_eq!((plain.body.as_slice(), plain.field("content-encoding")), (&b"0123456789"[..], None));
    assert_eq!((packed.body.as_slice(), packed.field("content-encoding")), (&b"as if compressed"[..], Some("gzip")));
    assert_ne!(plain.field("etag"), packed.field("etag"));
    assert!(plain.field("vary").is_some_and(|vary| vary.contains("Accept-Encoding")));
    old(&served.top.join("ten.gz"));
    assert_eq!(get(served.address, "/ten", "Accept-Encoding: gzip\r\n").body, b"0123456789");
}

#[test]
fn digests_and_a_manifest_are_those_of_the_bytes() {
    let served = serve(Limits::default());
    let wanted = |target: &str| {
        (0..100).find_map(|_| {
            let answer = get(served.address, target, "Want-Repr-Digest: sha-256=1\r\n");
            std::thread::park_timeout(Duration::from_millis(20));
            answer.field("repr-digest").map(str::to_owned)
        })
    };
    // printf 0123456789 | openssl dgst -sha256 -binary | base64
    assert_eq!(wanted("/ten").as_deref(), Some("sha-256=:hNiYd/DUBB77a/kaFvAkjy/Vc+avBcGflr7bn4gveII=:"));
    let manifest = get(served.address, "/?manifest", "");
    let text = String::from_utf8(manifest.body).unwrap();
    let line = format!("{} 10 ten", blake3::hash(b"0123456789"));
    assert!(text.contains(&line) && text.contains("end") && !text.contains("link"), "{text}");
    let page = String::from_utf8(get(served.address, "/", "").body).unwrap();
    assert!(page.contains("<code>sha256 "), "a digest that is known stands on the page");
}

/// docs/proof/faults.md A20: nobody reads in the directory of another.
#[test]
fn a_token_for_a_path_opens_no_neighbour_of_it() {
    let served = serve(Limits::default());
    for name in ["x", "x.gz", "x.zst"] {
        fs::write(served.top.join("../private").join(name), name).unwrap();
    }
    fs::create_dir(served.top.join("../private/d")).unwrap();
    for name in ["d/y", "d/y.gz"] {
        fs::write(served.top.join("../private").join(name), name).unwrap();
    }
    let wide = secret().issue("token:lab", [1; 16]).unwrap();
    let ask = |target: &str, path: &str| {
        let token = wide.clone().narrowed(Condition::path(path.as_bytes())).unwrap();
        let fields = format!("Accept-Encoding: zstd, gzip\r\nAuthorization: Bearer {}\r\n", *token.to_text());
        get(served.address, target, &fields).body
    };
    assert_eq!(ask("/x", "/x"), b"x");
    assert_eq!(ask("/x", ""), b"x.zst", "a token for all opens it");
    assert_eq!(ask("/d/y", "/d"), b"d/y.gz", "and so does one for the directory of both");
    assert_eq!(ask("/d/y", "/d/y"), b"d/y");
}

#[test]
fn what_a_browser_could_run_is_in_a_sandbox() {
    let served = serve(Limits::default());
    for (name, policy) in [
        ("a.html", Some("sandbox")),
        ("a.svg", Some("sandbox")),
        ("a.xml", Some("sandbox")),
        ("a.txt", None),
        ("a.pdf", None),
    ] {
        fs::write(served.top.join(name), "<script>alert(1)</script>").unwrap();
        for field in ["", "Range: bytes=0-3\r\n"] {
            let answer = get(served.address, &format!("/{name}"), field);
            assert_eq!(answer.field("content-security-policy"), policy, "{name}");
            assert_eq!(answer.field("x-content-type-options"), Some("nosniff"), "{name}");
        }
    }
    assert!(
        get(served.address, "/", "").field("content-security-policy").is_some_and(|policy| !policy.contains("sandbox"))
    );
}

#[test]
fn a_token_opens_its_path_and_stands_in_no_log() {
    let served = serve(Limits::default());
    let wide = secret().issue("token:lab", [1; 16]).unwrap();
    let narrow = wide.clone().narrowed(Condition::path(b"runs")).unwrap();
    let over = wide.clone().narrowed(Condition::Until(1)).unwrap();
    let other = secret().issue("token:other", [1; 16]).unwrap();
    let ask = |target: &str, token: &Token| {
        get(served.address, target, &format!("Authorization: Bearer {}\r\n", *token.to_text()))
    };
    assert_eq!(ask("/runs/secret", &wide).body, b"secret");
    assert_eq!(ask("/runs/secret", &narrow).field("cache-control"), Some("private"));
    let statuses = [
        ask("/", &narrow).status,
        ask("/runs", &over).status,
        ask("/runs", &other).status,
        ask("/ten", &wide).status,
        get(served.address, "/runs/secret", "").status,
        get(served.address, "/ten", "Authorization: Basic eDp5\r\n").status,
        get(served.address, "/ten", "Authorization: Bearer haul1.00\r\n").status,
        get(served.address, "/ten", "Authorization: Bearer a\r\nAuthorization: Bearer b\r\n").status,
    ];
    assert_eq!(statuses, [401, 401, 403, 404, 404, 401, 401, 400]);
    let later = wide.clone().narrowed(Condition::From(u64::MAX)).unwrap();
    for (token, why) in
        [(&narrow, "it is for another path"), (&over, "it has expired"), (&later, "it is not yet valid")]
    {
        let refused = ask("/none", token);
        assert_eq!(refused.body, format!("401 unauthorized because of the token: {why}\n").as_bytes());
        assert!(refused.field("www-authenticate").is_some_and(|field| field.contains(why)), "{}", refused.head);
    }
    let mut forged = over.to_text().to_string();
    forged.truncate(forged.len() - 1);
    for text in [format!("{forged}0"), format!("{forged}1"), forged] {
        let refused = get(served.address, "/none", &format!("Authorization: Bearer {text}\r\n"));
        if refused.body != b"401 unauthorized because of the token: it has expired\n" {
            assert_eq!(refused.body, b"401 unauthorized\n");
            assert_eq!(refused.field("www-authenticate"), Some("Bearer error=\"invalid_token\""));
        }
    }
    let log = served.log.lock().unwrap().join("\n");
    assert!(log.contains("private (127.0.0.1") && !log.contains("haul1"), "{log}");
    assert!(log.contains(", token 0101010101010101) GET /runs/secret 200"), "{log}");
    assert!(log.contains(", the token was refused: it has expired"), "{log}");
}

#[test]
fn a_page_is_sorted_as_asked_and_json_has_the_same() {
    let served = serve(Limits::default());
    fs::write(served.top.join("<b>&.txt"), b"xyz").unwrap();
    let page = |target: &str| String::from_utf8(get(served.address, target, "").body).unwrap();
    let order = |page: &str| {
        let at = |name: &str| page.find(&format!("\">{name}<")).unwrap_or_else(|| panic!("{name}: {page}"));
        [at("empty"), at("ten"), at("sub/")].is_sorted_by(|a, b| a < b)
    };
    assert!(!order(&page("/")), "directories come first");
    assert!(page("/?sort=size").find(">empty<") < page("/?sort=size").find(">ten<"));
    assert!(page("/?sort=-size").find(">ten<") < page("/?sort=-size").find(">empty<"));
    assert!(page("/").contains("<a href=\"%3Cb%3E%26.txt\">&lt;b&gt;&amp;.txt</a>"));
    assert!(!page("/").contains("<b>&"));
    let json = get(served.address, "/", "Accept: application/json\r\n");
    assert_eq!(json.field("content-type"), Some("application/json"));
    assert!(String::from_utf8(json.body).unwrap().contains("\"name\":\"a b\""));
}

#[test]
fn a_request_in_progress_ends_well_when_the_service_is_stopped() {
    let mut served = serve(Limits::default());
    File::create(served.top.join("large")).unwrap().set_len(30_000_000).unwrap();
    let mut stream = connect(served.address);
    stream.write_all(b"GET /large HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut first = [0; 100];
    stream.read_exact(&mut first).unwrap();
    let service = served.service.take().unwrap();
    let stopping = std::thread::spawn(move || service.stop());
    let mut rest = Vec::new();
    stream.read_to_end(&mut rest).unwrap();
    assert!(rest.len() > 30_000_000 - 100);
    stopping.join().unwrap();
    assert!(std::net::TcpStream::connect(served.address).is_err(), "nobody listens any more");
}

/// The first part comes with the request before; then the connection rests.
#[test]
fn a_reader_that_rests_between_requests_or_within_one_is_answered_when_it_goes_on() {
    let served = serve(Limits::default());
    let mut stream = connect(served.address);
    let (first, second) = ("GET /ten HTTP/1.1\r\nHost: h\r\n\r\n", "GET /a%20b HTTP/1.1\r\nHost: h\r\n\r\n");
    let answer = |stream: &mut std::net::TcpStream, body: &str| {
        let (mut said, mut byte) = (Vec::new(), [0]);
        while !said.ends_with(format!("\r\n\r\n{body}").as_bytes()) {
            stream.read_exact(&mut byte).unwrap_or_else(|error| panic!("{error} after {}", said.escape_ascii()));
            said.extend(byte);
        }
        assert!(said.starts_with(b"HTTP/1.1 200 OK\r\n"), "{}", said.escape_ascii());
    };
    for cut in 0..=second.len() {
        stream.write_all([first, &second[..cut]].concat().as_bytes()).unwrap();
        answer(&mut stream, "0123456789");
        stream.write_all(&second.as_bytes()[cut..]).unwrap();
        answer(&mut stream, "space");
    }
    stream.write_all(b"GET /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n").unwrap();
    answer(&mut stream, "0123456789");
    let mut more = Vec::new();
    stream.read_to_end(&mut more).unwrap();
    assert!(more.is_empty(), "{}", more.escape_ascii());
}

/// More than the buffers on the way hold.
#[test]
fn hundreds_of_requests_at_once_are_answered_in_their_order() {
    let served = serve(Limits::default());
    let mut stream = connect(served.address);
    let many = 500;
    let names = ["ten", "a%20b"];
    let mut asked: String =
        (0..many).map(|at| format!("GET /{} HTTP/1.1\r\nHost: h\r\n\r\n", names[at % names.len()])).collect();
    asked += "HEAD /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";
    let writing = stream.try_clone().unwrap();
    let writes = std::thread::spawn(move || (&writing).write_all(asked.as_bytes()).unwrap());
    let mut said = Vec::new();
    stream.read_to_end(&mut said).unwrap();
    writes.join().unwrap();
    let text = String::from_utf8(said).unwrap();
    let bodies: Vec<_> = text.split("HTTP/1.1 200 OK\r\n").skip(1).map(|one| one.split("\r\n\r\n").nth(1)).collect();
    assert_eq!(bodies.len(), many + 1);
    let expected = |at: usize| if at == many { "" } else { ["0123456789", "space"][at % 2] };
    assert!((0..=many).all(|at| bodies[at] == Some(expected(at))));
}
