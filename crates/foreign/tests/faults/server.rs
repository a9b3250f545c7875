//! A web server that does what a test says, also what no server should.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use haul_foreign::{Credentials, Origin, Settings, Url};

#[derive(Clone, Debug)]
pub struct Request {
    /// Earlier requests of all connections.
    pub number: usize,
    pub method: String,
    pub target: String,
    pub fields: BTreeMap<String, String>,
    /// `None`: the request waits until the server wants it.
    pub body: Option<Vec<u8>>,
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub fn is_head(&self) -> bool {
        self.method == "HEAD"
    }

    /// The first byte and the one behind the last.
    pub fn range(&self, size: usize) -> Option<(usize, usize)> {
        let (start, last) = self.field("range")?.strip_prefix("bytes=")?.split_once('-')?;
        let end = if last.is_empty() { size } else { last.parse::<usize>().ok()? + 1 };
        Some((start.parse().ok()?, end.min(size)))
    }
}

#[derive(Clone, Default)]
pub struct Reply {
    pub head: String,
    pub body: Vec<u8>,
    /// The connection is cut behind so many bytes of the body.
    pub cut: Option<usize>,
    pub is_silent: bool,
}

pub fn status(line: &str, fields: &[(&str, &str)]) -> Reply {
    let fields: String = fields.iter().map(|(name, value)| format!("{name}: {value}\r\n")).collect();
    let length = if fields.contains("Content-Length") { "" } else { "Content-Length: 0\r\n" };
    Reply { head: format!("HTTP/1.1 {line}\r\n{fields}{length}\r\n"), ..Reply::default() }
}

pub fn page(kind: &str, text: &str) -> Reply {
    let (kind, length) = (("Content-Type", kind), ("Content-Length", text.len().to_string()));
    Reply { body: text.as_bytes().to_vec(), ..status("200 OK", &[kind, (length.0, &length.1)]) }
}

pub fn file(request: &Request, data: &[u8], tag: &str) -> Reply {
    if request.field("if-match").is_some_and(|wanted| wanted != tag) {
        return status("412 Precondition Failed", &[]);
    }
    let date = ("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    let (line, start, end) = match request.range(data.len()) {
        Some((start, end)) if start < end => ("206 Partial Content", start, end),
        Some(_) => {
            return status("416 Range Not Satisfiable", &[("Content-Range", &format!("bytes */{}", data.len()))]);
        }
        None => ("200 OK", 0, data.len()),
    };
    let (length, part) = ((end - start).to_string(), format!("bytes {start}-{}/{}", end.saturating_sub(1), data.len()));
    let mut fields = vec![("ETag", tag), date, ("Content-Length", &length), ("Accept-Ranges", "bytes")];
    if line.starts_with("206") {
        fields.push(("Content-Range", &part));
    }
    Reply { body: data[start..end].to_vec(), ..status(line, &fields) }
}

pub struct Server {
    pub port: u16,
    seen: Arc<Mutex<Vec<Request>>>,
    connections: Arc<AtomicUsize>,
}

type Handler = dyn Fn(&Request) -> Reply + Send + Sync;

impl Server {
    pub fn start(answer: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (answer, seen): (Arc<Handler>, _) = (Arc::new(answer), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let connections = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&connections);
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let (answer, log) = (Arc::clone(&answer), Arc::clone(&log));
                std::thread::spawn(move || serve(stream, &*answer, &log));
            }
        });
        Server { port, seen, connections }
    }

    pub fn url(&self, path: &str) -> Url {
        let origin = Origin { is_tls: false, host: "127.0.0.1".to_owned(), port: self.port };
        Url::new(origin, path.as_bytes()).unwrap()
    }

    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }
}

fn serve(stream: TcpStream, answer: &Handler, log: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(mut request) = read_request(&mut reader, log) {
        let mut reply = answer(&request);
        if request.body.is_none() && reply.head.is_empty() && !reply.is_silent {
            if stream.write_all(b"HTTP/1.1 100 Continue\r\n\r\n").is_err() {
                return;
            }
            request.body = read_body(&mut reader, &request);
            if request.body.is_none() {
                return;
            }
            reply = answer(&request);
        }
        let Reply { head, body, cut, is_silent } = reply;
        if is_silent {
            continue;
        }
        let body = if request.is_head() { &[][..] } else { &body[..cut.unwrap_or(body.len()).min(body.len())] };
        if stream.write_all(&[head.as_bytes(), body].concat()).is_err() || cut.is_some() {
            return;
        }
    }
}

fn read_request(reader: &mut impl std::io::BufRead, log: &Mutex<Vec<Request>>) -> Option<Request> {
    let mut lines = reader.lines().map_while(Result::ok);
    let first = lines.next()?;
    let mut words = first.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let fields = lines.take_while(|line| !line.is_empty()).filter_map(|line| {
        let (name, value) = line.split_once(": ")?;
        Some((name.to_ascii_lowercase(), value.to_owned()))
    });
    let fields = fields.collect();
    let mut request = Request { number: 0, method, target, fields, body: None };
    if request.field("expect").is_none() {
        request.body = Some(read_body(reader, &request)?);
    }
    let mut log = log.lock().unwrap();
    request.number = log.len();
    log.push(request.clone());
    Some(request)
}

/// `None`: the client left early.
fn read_body(reader: &mut impl std::io::BufRead, request: &Request) -> Option<Vec<u8>> {
    let mut body = vec![0; request.field("content-length").map_or(0, |length| length.parse().unwrap())];
    reader.read_exact(&mut body).ok()?;
    Some(body)
}

pub fn settings(credentials: Credentials) -> Settings {
    let milliseconds = std::time::Duration::from_millis;
    Settings { silence: milliseconds(500), first_pause: milliseconds(1), ..Settings::usual(4, credentials) }
}
