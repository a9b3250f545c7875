//! RFC 9110 and 9112 as a table: bytes to the port, and the statuses that come back.
//!
//! One good request follows each row's bytes: it shows whether the connection went on. A smuggled request would add a status.

use haul_web::Limits;

use crate::harness::{answers, serve};

fn statuses(mut said: &[u8], is_head: bool) -> Vec<u16> {
    let mut found = Vec::new();
    while !said.is_empty() {
        let Some(end) = said.windows(4).position(|four| four == b"\r\n\r\n") else { panic!("{}", said.escape_ascii()) };
        let head = std::str::from_utf8(&said[..end]).unwrap().to_ascii_lowercase();
        let status: u16 = head.split(' ').nth(1).unwrap().parse().unwrap();
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        let length: usize = length.map_or(0, |length| length.parse().unwrap());
        let has_body = status >= 200 && status != 304 && !(is_head && found.is_empty());
        said = &said[end + 4 + if has_body { length } else { 0 }..];
        found.push(status);
    }
    found
}

const GOOD: &str = "GET /ten HTTP/1.1\r\nHost: h\r\nConnection: close\r\n\r\n";

#[test]
fn requests_are_read_as_the_standards_say_and_nothing_is_smuggled() {
    let served = serve(Limits::default());
    let mut wrong = Vec::new();
    for (request, expected) in rows() {
        let said = answers(served.address, format!("{request}{GOOD}").as_bytes());
        let found = statuses(&said, request.starts_with("HEAD"));
        if found != expected {
            wrong.push(format!("{request:?}: {found:?}, not {expected:?}"));
        }
    }
    assert!(!served.top.join("new").exists() && std::fs::read(served.top.join("ten")).unwrap() == b"0123456789", "H5");
    assert!(rows().len() >= 100, "{} rows", rows().len());
    assert!(wrong.is_empty(), "{} rows differ:\n{}", wrong.len(), wrong.join("\n"));
}

/// Pairs of bytes and statuses. If the connection goes on, the last is the good request's.
fn rows() -> Vec<(String, Vec<u16>)> {
    let mut rows: Vec<(String, Vec<u16>)> = Vec::new();
    let mut row = |request: &str, statuses: &[u16]| rows.push((request.to_owned(), statuses.to_vec()));
    request_lines(&mut row);
    bare_names_and_lines(&mut row);
    hosts(&mut row);
    targets(&mut row);
    fields(&mut row);
    bodies(&mut row);
    ranges_and_conditions(&mut row);
    rows
}

type Row<'a> = dyn FnMut(&str, &[u16]) + 'a;

fn request_lines(row: &mut Row<'_>) {
    let host = "Host: h\r\n\r\n";
    row("", &[200]);
    // RFC 9112, 2.2: a server ignores an empty line before a request.
    row("\r\n", &[200]);
    row("\r\n\r\n", &[200]);
    row(&format!("GET /ten HTTP/1.1\r\n{host}"), &[200, 200]);
    row(&format!("HEAD /ten HTTP/1.1\r\n{host}"), &[200, 200]);
    row(&format!("GET /ten HTTP/1.0\r\n{host}"), &[200]);
    row("GET /ten HTTP/1.0\r\n\r\n", &[200]);
    row("GET /ten HTTP/1.0\r\nConnection: keep-alive\r\n\r\n", &[200, 200]);
    row(&format!("POST /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("PUT /new HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("DELETE /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("TRACE /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("PROPFIND / HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("ODD-METHOD!x /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("OPTIONS /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("OPTIONS * HTTP/1.1\r\n{host}"), &[405, 200]);
    row(&format!("get /ten HTTP/1.1\r\n{host}"), &[405, 200]);
    for line in [
        "GET /ten HTTP/2.0",
        "GET /ten HTTP/1.2",
        "GET /ten HTTP/9.9",
        "GET /ten HTTP/1",
        "GET /ten http/1.1",
        "GET /ten HTTP/1.1 ",
        "GET /ten XTTP/1.1",
        "GET /ten",
        "GET",
        "/ten HTTP/1.1",
        "GET  /ten HTTP/1.1",
        "GET /ten  HTTP/1.1",
        "GET /t en HTTP/1.1",
        "GET\t/ten HTTP/1.1",
        " GET /ten HTTP/1.1",
        "G\u{1}T /ten HTTP/1.1",
        "G(T /ten HTTP/1.1",
        "GET /\u{1}ten HTTP/1.1",
        "GET /ten\u{7f} HTTP/1.1",
        "GET ?x HTTP/1.1",
    ] {
        row(&format!("{line}\r\n{host}"), &[400]);
    }
}

fn bare_names_and_lines(row: &mut Row<'_>) {
    // A name alone is a target for CONNECT only.
    row("GET ten HTTP/1.1\r\nHost: h\r\n\r\n", &[400, 200]);
    // RFC 9112, 2.2: a lone LF may end a line. hyper and nginx take it, but no CR elsewhere.
    row("GET /ten HTTP/1.1\nHost: h\n\n", &[200, 200]);
    row("GET /ten HTTP/1.1\r\nHost: h\n\r\n", &[200, 200]);
    row("GET /ten HTTP/1.1\rHost: h\r\r", &[400]);
    row("GET /ten HTTP/1.1\r\nHost: h\r\r\n", &[400]);
}

fn hosts(row: &mut Row<'_>) {
    let with = |fields: &str| format!("GET /ten HTTP/1.1\r\n{fields}\r\n");
    row(&with(""), &[400]);
    row(&with("Host: h\r\nHost: h\r\n"), &[400]);
    row(&with("Host: h\r\nHost: other\r\n"), &[400]);
    row(&with("Host: h, other\r\n"), &[400]);
    row(&with("Host: user@h\r\n"), &[400]);
    row(&with("Host: h/path\r\n"), &[400]);
    row(&with("Host: h other\r\n"), &[400]);
    row(&with("Host: h:port\r\n"), &[400]);
    row(&with("Host: [::1\r\n"), &[400]);
    row(&with("Host:\r\n"), &[200, 200]);
    row(&with("Host: h:80\r\n"), &[200, 200]);
    row(&with("Host: [::1]:8080\r\n"), &[200, 200]);
    row(&with("hOsT:h\r\n"), &[200, 200]);
    row("GET http://h/ten HTTP/1.1\r\nHost: h\r\n\r\n", &[200, 200]);
    // RFC 9112, 3.2.2: the absolute form counts, whatever Host says; without Host it is still wrong.
    row("GET http://other/ten HTTP/1.1\r\nHost: h\r\n\r\n", &[200, 200]);
    row("GET http://h/ten HTTP/1.1\r\n\r\n", &[400]);
    row("GET http://h HTTP/1.1\r\nHost: h\r\n\r\n", &[200, 200]);
    row("CONNECT h:80 HTTP/1.1\r\nHost: h\r\n\r\n", &[405, 200]);
}

/// docs/proof/faults.md H3 and A22.
fn targets(row: &mut Row<'_>) {
    let get = |target: &str| format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n");
    for (target, status) in [
        ("/", 200),
        ("//", 200),
        ("//ten", 200),
        ("/sub", 301),
        ("/sub/", 200),
        ("/ten/", 404),
        ("/ten/x", 404),
        ("/none", 404),
        ("/link", 403),
        ("/a%20b", 200),
        ("/%74en", 200),
        ("/ten?x", 200),
        ("/ten?", 200),
        ("/..", 400),
        ("/../ten", 400),
        ("/sub/../ten", 200),
        ("/sub/../../ten", 400),
        ("/sub/%2e%2E/ten", 200),
        ("/sub/.%2e/%2e./ten", 400),
        ("/./ten", 200),
        ("/%2e/ten", 200),
        ("/sub/.", 200),
        ("/sub/..", 200),
        ("/none/../ten", 200),
        ("/%2e%2e/ten", 400),
        ("/%2e%2e%2ften", 400),
        ("/sub%2f..%2f..%2fetc%2fpasswd", 400),
        ("/..%5c..%5cetc", 404),
        ("/..\\etc", 404),
        ("/%252e%252e/etc/passwd", 404),
        ("/%c0%ae%c0%ae/etc/passwd", 404),
        ("/%00", 400),
        ("/ten%00.txt", 400),
        ("/%", 400),
        ("/%2", 400),
        ("/%zz", 400),
        ("/sub;/../ten", 200),
        ("/sub;/../../ten", 400),
        // There is no page about the service itself (docs/proof/faults.md A22).
        ("/metrics", 404),
        ("/debug/pprof/", 404),
        ("/server-status", 404),
        ("/healthz", 404),
        ("/api/v1/jobs", 404),
        ("/~root", 404),
        ("/ten%0d%0aX:y", 404),
    ] {
        row(&get(target), &[status, 200]);
    }
    row(&get("/ten#part"), &[200, 200]);
    row(&get(&format!("/{}", "a".repeat(300))), &[404, 200]);
    row(&get(&format!("/{}", "a/".repeat(3_000))), &[404, 200]);
    row(&get(&format!("/{}", "a".repeat(20_000))), &[414, 200]);
    row(&get(&format!("/{}", "a".repeat(70_000))), &[431]);
}

fn fields(row: &mut Row<'_>) {
    let with = |fields: &str| format!("GET /ten HTTP/1.1\r\nHost: h\r\n{fields}\r\n");
    row(&with("X: y\r\n"), &[200, 200]);
    row(&with("X:y \t \r\n"), &[200, 200]);
    row(&with("X:\r\n"), &[200, 200]);
    row(&with("X: \u{e9}\r\n"), &[200, 200]);
    row(&with("Accept: a\r\nAccept: b\r\n"), &[200, 200]);
    row(&with("Connection: keep-alive\r\n"), &[200, 200]);
    row(&with("Connection: close\r\n"), &[200]);
    row(&with("Connection: CLOSE, x\r\n"), &[200]);
    row(&with("Upgrade: h2c\r\nConnection: Upgrade\r\n"), &[200, 200]);
    // RFC 9112, 5.1 and 5.2: no space before the colon, no folded lines.
    for field in [
        "X : y",
        "X\t: y",
        " X: y",
        "\tX: y",
        "X: y\r\n folded",
        "X: y\r\n\tfolded",
        "X",
        "X y",
        ": y",
        "X\u{1}: y",
        "X(: y",
        "X: a\u{0}b",
        "X: a\u{1}b",
        "X: a\u{7f}b",
        "X: a\rb",
    ] {
        row(&with(&format!("{field}\r\n")), &[400]);
    }
    row(&with(&"X: y\r\n".repeat(99)), &[200, 200]);
    row(&with(&"X: y\r\n".repeat(200)), &[431]);
    row(&with(&format!("X: {}\r\n", "y".repeat(20_000))), &[200, 200]);
    row(&with(&format!("X: {}\r\n", "y".repeat(70_000))), &[431]);
}

/// docs/proof/faults.md H1 and H5.
fn bodies(row: &mut Row<'_>) {
    // If the body's length were misread, its content would be a request.
    let inner = "GET /none HTTP/1.1\r\nHost: h\r\n\r\n";
    let length = inner.len();
    let get = |fields: &str, body: &str| format!("GET /ten HTTP/1.1\r\nHost: h\r\n{fields}\r\n{body}");
    row(&get("Content-Length: 0\r\n", ""), &[200, 200]);
    row(&get(&format!("Content-Length: {length}\r\n"), inner), &[400]);
    row(&get("Content-Length: 5\r\n", "abcde"), &[400]);
    row(&get("Transfer-Encoding: chunked\r\n", "0\r\n\r\n"), &[400]);
    row(&get("Transfer-Encoding: chunked\r\n", &format!("5\r\nabcde\r\n0\r\n\r\n{inner}")), &[400]);
    let chunked = "Transfer-Encoding: chunked\r\n";
    for fields in [
        format!("Content-Length: {length}\r\n{chunked}"),
        format!("{chunked}Content-Length: {length}\r\n"),
        format!("Content-Length: 0\r\n{chunked}"),
        format!("{chunked}Content-Length: 0\r\n"),
        "Content-Length: 0\r\nContent-Length: 5\r\n".to_owned(),
        "Content-Length: 5\r\nContent-Length: 0\r\n".to_owned(),
        "Content-Length: 0, 5\r\n".to_owned(),
        "Content-Length: 5\r\nContent-Length: 5\r\n".to_owned(),
        "Content-Length: +5\r\n".to_owned(),
        "Content-Length: -1\r\n".to_owned(),
        "Content-Length: 0x5\r\n".to_owned(),
        "Content-Length: 5 5\r\n".to_owned(),
        "Content-Length: five\r\n".to_owned(),
        "Content-Length:\r\n".to_owned(),
        "Content-Length: 99999999999999999999\r\n".to_owned(),
        "Content-Length : 0\r\n".to_owned(),
        "Transfer-Encoding: identity\r\n".to_owned(),
        "Transfer-Encoding: gzip\r\n".to_owned(),
        "Transfer-Encoding: gzip, chunked\r\n".to_owned(),
        "Transfer-Encoding: chunked, gzip\r\n".to_owned(),
        "Transfer-Encoding: chunked, chunked\r\n".to_owned(),
        "Transfer-Encoding: xchunked\r\n".to_owned(),
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: x\r\n".to_owned(),
        "Transfer-Encoding: \"chunked\"\r\n".to_owned(),
        "Transfer-Encoding:\u{b}chunked\r\n".to_owned(),
        "Transfer-Encoding : chunked\r\n".to_owned(),
        "Transfer-Encoding:\r\n chunked\r\n".to_owned(),
        " Transfer-Encoding: chunked\r\n".to_owned(),
    ] {
        row(&get(&fields, inner), &[400]);
    }
    for body in [
        format!("{length:x};a=b\r\n{inner}\r\n0\r\n\r\n"),
        format!("{length:x};\n{inner}\r\n0\r\n\r\n"),
        format!("{length:x}\n{inner}\n0\n\n"),
        format!("0x{length:x}\r\n{inner}\r\n0\r\n\r\n"),
        format!(" {length:x}\r\n{inner}\r\n0\r\n\r\n"),
        format!("fffffffffffffffff\r\n{inner}\r\n0\r\n\r\n"),
        format!("-1\r\n{inner}"),
        "0\r\nHost: other\r\n\r\n".to_owned(),
    ] {
        row(&get(chunked, &body), &[400]);
        row(&format!("POST /ten HTTP/1.1\r\nHost: h\r\n{chunked}\r\n{body}"), &[405]);
    }
    row(&format!("POST /ten HTTP/1.1\r\nHost: h\r\nContent-Length: {length}\r\n\r\n{inner}"), &[405]);
    row("POST /ten HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n", &[405]);
    row("PUT /new HTTP/1.1\r\nHost: h\r\nContent-Length: 5\r\nIf-None-Match: *\r\n\r\nab", &[405]);
    row("PUT /ten HTTP/1.1\r\nHost: h\r\nContent-Range: bytes 0-4/10\r\nContent-Length: 5\r\n\r\nabcde", &[405]);
}

/// docs/proof/faults.md H2.
fn ranges_and_conditions(row: &mut Row<'_>) {
    for (field, status) in [
        ("Range: bytes=0-4", 206),
        ("Range: bytes=-1", 206),
        ("Range: bytes=0-", 206),
        ("Range: bytes=0-0,5-5", 206),
        ("Range: bytes=10-", 416),
        ("Range: bytes=-0", 416),
        ("Range: bytes=5-1", 200),
        ("Range: items=0-1", 200),
        ("Range: bytes=x", 200),
        ("Range: bytes=0-0\r\nRange: bytes=1-1", 200),
        ("Range: bytes=0-0,1-1,2-2,3-3,4-4,5-5,6-6,7-7,8-8", 200),
        ("If-None-Match: *", 304),
        ("If-Match: *", 200),
        ("If-Match: \"x\"", 412),
        ("If-None-Match: \"x\"", 200),
        ("If-Modified-Since: Fri, 01 Jan 2100 00:00:00 GMT", 304),
        ("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT", 412),
        ("If-Modified-Since: nonsense", 200),
        ("Range: bytes=0-4\r\nIf-Range: \"x\"", 200),
        ("Range: bytes=99-\r\nIf-Range: \"x\"", 200),
        ("Range: bytes=0-4\r\nIf-Match: \"x\"", 412),
        ("Expect: 100-continue", 200),
    ] {
        row(&format!("GET /ten HTTP/1.1\r\nHost: h\r\n{field}\r\n\r\n"), &[status, 200]);
    }
    // CVE-2011-3192.
    let hundreds: Vec<String> = (0..1000).map(|_| "0-9".to_owned()).collect();
    row(&format!("GET /ten HTTP/1.1\r\nHost: h\r\nRange: bytes={}\r\n\r\n", hundreds.join(",")), &[200, 200]);
    row("GET /empty HTTP/1.1\r\nHost: h\r\nRange: bytes=0-\r\n\r\n", &[200, 200]);
    row("GET /empty HTTP/1.1\r\nHost: h\r\n\r\n", &[200, 200]);
    // RFC 9110, 14.2: a range is defined only for GET.
    row("HEAD /ten HTTP/1.1\r\nHost: h\r\nRange: bytes=0-4\r\n\r\n", &[200, 200]);
    row("HEAD /ten HTTP/1.1\r\nHost: h\r\nRange: bytes=99-\r\n\r\n", &[200, 200]);
}
