//! Requests with bodies, to a server that a test scripts.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::AtomicU32;
use std::thread::JoinHandle;

use bytes::Bytes;

use super::*;
use crate::http_client::outgoing::stream;

struct Peer(BufReader<TcpStream>);

impl Peer {
    fn head(&mut self) -> String {
        let mut head = String::new();
        while !head.ends_with("\r\n\r\n") && self.0.read_line(&mut head).unwrap() > 0 {}
        head.to_ascii_lowercase()
    }

    fn body(&mut self, length: usize) -> Vec<u8> {
        let mut body = vec![0; length];
        self.0.read_exact(&mut body).unwrap();
        body
    }

    fn chunks(&mut self) -> Option<Vec<u8>> {
        let mut body = Vec::new();
        loop {
            let mut line = String::new();
            self.0.read_line(&mut line).unwrap();
            let length = usize::from_str_radix(line.trim(), 16).ok()?;
            body.extend(self.body(length));
            self.body(2);
            if length == 0 {
                return Some(body);
            }
        }
    }

    fn says(&mut self, lines: &str) {
        self.0.get_mut().write_all(lines.as_bytes()).unwrap();
    }
}

fn with<T: Send + 'static>(
    serve: impl FnOnce(&mut dyn FnMut() -> Peer, Peer) -> T + Send + 'static,
) -> (Client, Url, JoinHandle<T>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    let mut accept = move || Peer(BufReader::new(listener.accept().unwrap().0));
    let server = std::thread::spawn(move || {
        let mut first = accept();
        first.head();
        first.says("HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        serve(&mut accept, first)
    });
    let origin = Origin { is_tls: false, host: "127.0.0.1".to_owned(), port };
    let settings = Settings {
        silence: Duration::from_millis(500),
        first_pause: Duration::from_millis(1),
        ..Settings::usual(4, Credentials::default())
    };
    let client = Client::new(origin.clone(), settings);
    let url = Url::new(origin, b"/f").unwrap();
    let answer = client.ask(&Ask::new(Method::HEAD, &url)).unwrap();
    client.give_back(url.origin(), answer.body);
    (client, url, server)
}

#[derive(Debug, Default)]
struct Counting(AtomicU32);

impl Sign for Counting {
    fn sign(&self, _url: &Url, head: &mut request::Parts, whole: Option<&[u8]>) -> io::Result<()> {
        let number = self.0.fetch_add(1, Ordering::Relaxed);
        let value = format!("{number} of {}", whole.map_or(0, <[u8]>::len));
        head.headers.insert("x-signed", HeaderValue::from_str(&value).unwrap());
        Ok(())
    }
}

const OK: &str = "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n";

#[test]
fn a_whole_body_is_sent_again_with_a_new_signature_where_a_connection_is_cut_or_the_server_is_busy() {
    let (client, url, server) = with(|accept, mut first| {
        first.head();
        first.body(100_000);
        drop(first);
        let mut second = accept();
        second.head();
        second.body(300_000);
        second.says("HTTP/1.1 503 Slow Down\r\nRetry-After: 0\r\nContent-Length: 0\r\n\r\n");
        let mut third = accept();
        let (head, body) = (third.head(), third.body(300_000));
        third.says(OK);
        (head, body)
    });
    let client = client.signed_by(Arc::new(Counting::default()));
    let data = Bytes::from(vec![7; 300_000]);
    let fields = vec![(HeaderName::from_static("x-own"), HeaderValue::from_static("1"))];
    let ask = Ask { content: Content::Whole(data.clone()), fields, ..Ask::new(Method::PUT, &url) };
    assert_eq!(client.ask(&ask).unwrap().head.status, StatusCode::CREATED);
    let (head, body) = server.join().unwrap();
    assert!(head.contains("x-signed: 2 of 300000") && head.contains("x-own: 1"), "{head}");
    assert!(body == data);
}

#[test]
fn what_would_do_its_work_twice_is_sent_once() {
    let (client, url, server) = with(|_, mut first| first.head());
    let ask = Ask { content: Content::Whole(Bytes::from_static(b"x")), ..Ask::new(Method::POST, &url) };
    assert_eq!(client.ask(&ask).err().unwrap().kind(), ErrorKind::UnexpectedEof);
    assert!(server.join().unwrap().starts_with("post"));
}

#[test]
fn a_stream_comes_as_it_is_fed_and_one_that_is_broken_off_never_looks_whole() {
    for is_whole in [true, false] {
        let (client, url, server) = with(|_, mut first| {
            let head = first.head();
            let chunks = first.chunks();
            if chunks.is_some() {
                first.says(OK);
            }
            (head, chunks)
        });
        let (feed, content) = stream(None);
        let feeding = std::thread::spawn(move || {
            for number in 0..100 {
                feed.send(Bytes::from(vec![number; 10_000])).unwrap();
            }
            // The source takes longer than a server may be silent.
            drop(Condvar::new().wait_timeout(Mutex::new(()).lock().unwrap(), Duration::from_millis(700)));
            if is_whole {
                feed.finish();
            }
        });
        let answer = client.ask(&Ask { content, ..Ask::new(Method::PUT, &url) });
        feeding.join().unwrap();
        let (head, chunks) = server.join().unwrap();
        assert!(head.contains("transfer-encoding: chunked"), "{head}");
        assert_eq!(answer.is_ok(), is_whole);
        assert_eq!(chunks.map(|body| body.len()), is_whole.then_some(1_000_000));
    }
}

#[test]
fn a_body_that_is_held_back_is_not_sent_to_a_server_that_refuses_the_head() {
    let (client, url, server) = with(|_, mut first| {
        let head = first.head();
        first.says("HTTP/1.1 412 Precondition Failed\r\nContent-Length: 0\r\n\r\n");
        let mut rest = Vec::new();
        first.0.read_to_end(&mut rest).unwrap();
        (head, rest)
    });
    let content = Content::Whole(Bytes::from_static(b"never seen"));
    let answer = client.ask(&Ask { content, expects: true, ..Ask::new(Method::PUT, &url) }).unwrap();
    assert_eq!(answer.head.status, StatusCode::PRECONDITION_FAILED);
    client.give_back(url.origin(), answer.body);
    let (head, rest) = server.join().unwrap();
    assert!(head.contains("expect: 100-continue") && rest.is_empty(), "{head}{rest:?}");
}

#[test]
fn a_body_that_is_held_back_goes_when_the_server_wants_it_or_knows_no_expectations() {
    let (client, url, server) = with(|_, mut first| {
        first.head();
        first.says("HTTP/1.1 417 Expectation Failed\r\nContent-Length: 0\r\n\r\n");
        drop(first);
    });
    let refused = client.ask(&Ask { content: stream(None).1, expects: true, ..Ask::new(Method::PUT, &url) }).unwrap();
    assert_eq!(refused.head.status, StatusCode::EXPECTATION_FAILED, "a stream goes once");
    server.join().unwrap();

    let (client, url, server) = with(|_, mut first| {
        first.head();
        first.says("HTTP/1.1 100 Continue\r\n\r\n");
        let body = first.body(4);
        first.says(OK);
        body
    });
    let content = Content::Whole(Bytes::from_static(b"data"));
    let answer = client.ask(&Ask { content, expects: true, ..Ask::new(Method::PUT, &url) }).unwrap();
    assert_eq!((answer.head.status, server.join().unwrap()), (StatusCode::CREATED, b"data".to_vec()));
}

#[test]
fn a_server_asks_for_a_pause_in_seconds_or_until_a_date() {
    let now = httpdate::parse_http_date("Sun, 06 Nov 1994 08:49:37 GMT").unwrap();
    assert_eq!(pause_in("7", now), Some(Duration::from_secs(7)));
    assert_eq!(pause_in("Sun, 06 Nov 1994 08:50:37 GMT", now), Some(Duration::from_secs(60)));
    assert_eq!(pause_in("Sun, 06 Nov 1994 08:40:37 GMT", now), Some(Duration::ZERO));
    assert_eq!(pause_in("soon", now), None);
}
