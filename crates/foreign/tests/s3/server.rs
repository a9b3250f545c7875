//! An S3 store in memory, as far as haul needs it; a test's faults come first.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

use crc_fast::{CrcAlgorithm, checksum};
use haul_foreign::{Bucket, Credentials, OpenedBucket, Settings, StoreEnvironment, TargetSettings, Told};
use haul_store::StoreError;

#[derive(Clone, Debug)]
pub struct Request {
    /// Earlier requests of all connections.
    pub number: usize,
    pub method: String,
    /// The unescaped key without the bucket.
    pub key: Vec<u8>,
    pub query: BTreeMap<String, String>,
    pub fields: BTreeMap<String, String>,
    pub body: Vec<u8>,
}

impl Request {
    pub fn field(&self, name: &str) -> Option<&str> {
        self.fields.get(name).map(String::as_str)
    }

    pub fn asks(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub fn line(&self) -> String {
        let key = String::from_utf8_lossy(&self.key);
        let query: Vec<&str> = self.query.keys().map(String::as_str).collect();
        format!("{} {key}{}{}", self.method, if query.is_empty() { "" } else { "?" }, query.join("&"))
    }
}

#[derive(Clone, Default)]
pub struct Reply {
    pub status: u16,
    pub fields: Vec<(String, String)>,
    pub body: Vec<u8>,
    /// A length beside the body's, for HEAD.
    pub length: Option<usize>,
    pub is_cut: bool,
}

impl Reply {
    pub fn status(status: u16) -> Reply {
        Reply { status, ..Reply::default() }
    }

    pub fn cut() -> Reply {
        Reply { is_cut: true, ..Reply::default() }
    }

    pub fn xml(status: u16, text: &str) -> Reply {
        Reply { body: text.as_bytes().to_vec(), ..Reply::status(status) }
    }

    pub fn error(status: u16, code: &str) -> Reply {
        Reply::xml(status, &format!("<Error><Code>{code}</Code><Message>as the test says</Message></Error>"))
    }

    pub fn with(mut self, name: &str, value: &str) -> Reply {
        self.fields.push((name.to_owned(), value.to_owned()));
        self
    }
}

#[derive(Clone, Debug, Default)]
pub struct Object {
    pub data: Vec<u8>,
    /// The client's fields.
    pub fields: BTreeMap<String, String>,
    pub tag: String,
}

#[derive(Clone, Debug, Default)]
struct Upload {
    key: Vec<u8>,
    fields: BTreeMap<String, String>,
    parts: BTreeMap<u32, Vec<u8>>,
}

#[derive(Default)]
pub struct State {
    pub objects: BTreeMap<Vec<u8>, Object>,
    uploads: BTreeMap<String, Upload>,
    made: u64,
    /// Answers to held-back bodies, instead of `100 Continue`.
    pub early: Vec<Reply>,
}

impl State {
    pub fn uploads(&self) -> usize {
        self.uploads.len()
    }

    pub fn put(&mut self, key: &[u8], data: &[u8]) {
        self.keep(key, data.to_vec(), BTreeMap::new());
    }

    fn keep(&mut self, key: &[u8], data: Vec<u8>, fields: BTreeMap<String, String>) -> String {
        self.made += 1;
        let tag = format!("\"tag-{}\"", self.made);
        self.objects.insert(key.to_vec(), Object { data, fields, tag: tag.clone() });
        tag
    }
}

pub fn crc64(data: &[u8]) -> String {
    haul_net::base64_text(&checksum(CrcAlgorithm::Crc64Nvme, data).to_be_bytes())
}

type Fault = dyn Fn(&Request, &mut State) -> Option<Reply> + Send + Sync;

pub struct Server {
    pub port: u16,
    pub state: Arc<Mutex<State>>,
    seen: Arc<Mutex<Vec<Request>>>,
}

impl Server {
    pub fn honest() -> Server {
        Server::start(|_, _| None)
    }

    pub fn start(fault: impl Fn(&Request, &mut State) -> Option<Reply> + Send + Sync + 'static) -> Server {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let (fault, state): (Arc<Fault>, Arc<Mutex<State>>) = (Arc::new(fault), Arc::default());
        let seen = Arc::new(Mutex::new(Vec::new()));
        let server = Server { port, state: Arc::clone(&state), seen: Arc::clone(&seen) };
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                let (fault, state, seen) = (Arc::clone(&fault), Arc::clone(&state), Arc::clone(&seen));
                std::thread::spawn(move || serve(stream, &*fault, &state, &seen));
            }
        });
        server
    }

    pub fn seen(&self) -> Vec<Request> {
        self.seen.lock().unwrap().clone()
    }

    pub fn lines(&self) -> Vec<String> {
        self.seen().iter().map(Request::line).collect()
    }

    pub fn environment(&self) -> StoreEnvironment {
        environment(&[("AWS_ENDPOINT_URL", &format!("http://127.0.0.1:{}", self.port))])
    }

    pub fn object(&self, key: &str) -> Option<Object> {
        self.state.lock().unwrap().objects.get(key.as_bytes()).cloned()
    }
}

pub fn environment(more: &[(&str, &str)]) -> StoreEnvironment {
    let usual = [("AWS_ACCESS_KEY_ID", "key"), ("AWS_SECRET_ACCESS_KEY", "secret")];
    let variables = usual.iter().chain(more).map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    StoreEnvironment { variables: variables.collect(), home: None }
}

pub fn open_bucket(
    bucket: &str,
    key: &[u8],
    target: TargetSettings,
    told: Box<dyn Told>,
    environment: &StoreEnvironment,
    settings: impl Fn() -> Settings,
) -> Result<OpenedBucket, StoreError> {
    let reached = Bucket::reach(bucket, environment, settings);
    reached.map_err(|error| StoreError::new("reach", bucket.as_bytes(), error))?.open(key, target, told)
}

pub fn settings() -> Settings {
    let milliseconds = std::time::Duration::from_millis;
    let usual = Settings::usual(4, Credentials::default());
    Settings { silence: milliseconds(1000), first_pause: milliseconds(1), ..usual }
}

fn serve(stream: TcpStream, fault: &Fault, state: &Mutex<State>, seen: &Mutex<Vec<Request>>) {
    let mut reader = BufReader::new(stream.try_clone().unwrap());
    let mut stream = stream;
    while let Some(request) = read_request(&mut reader, seen, state) {
        let request = match request {
            Ok(request) => request,
            Err(early) => {
                let head = format!("HTTP/1.1 {} As-Said\r\nContent-Length: {}\r\n\r\n", early.status, early.body.len());
                let _ = stream.write_all(&[head.as_bytes(), &early.body].concat());
                return;
            }
        };
        let reply = {
            let mut state = state.lock().unwrap();
            fault(&request, &mut state).unwrap_or_else(|| answer(&request, &mut state))
        };
        if reply.is_cut {
            return;
        }
        let mut head = format!("HTTP/1.1 {} As-Said\r\n", reply.status);
        for (name, value) in &reply.fields {
            let _ = write!(head, "{name}: {value}\r\n");
        }
        let length = reply.length.unwrap_or(reply.body.len());
        if reply.status != 204 {
            let _ = write!(head, "Content-Length: {length}\r\n");
        }
        head.push_str("\r\n");
        let body = if request.method == "HEAD" { &[][..] } else { &reply.body[..] };
        if stream.write_all(&[head.as_bytes(), body].concat()).is_err() {
            return;
        }
    }
}

fn read_request(
    reader: &mut BufReader<TcpStream>,
    seen: &Mutex<Vec<Request>>,
    state: &Mutex<State>,
) -> Option<Result<Request, Reply>> {
    let mut lines = Vec::new();
    loop {
        let mut line = String::new();
        if reader.read_line(&mut line).ok()? == 0 {
            return None;
        }
        if line.trim_end().is_empty() {
            break;
        }
        lines.push(line.trim_end().to_owned());
    }
    let mut words = lines.first()?.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?.to_owned());
    let mut fields: BTreeMap<String, String> = lines[1..]
        .iter()
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_ascii_lowercase(), value.to_owned()))
        .collect();
    let mut body = vec![0; fields.get("content-length").and_then(|length| length.parse().ok()).unwrap_or(0)];
    if fields.contains_key("expect") {
        if let Some(early) = state.lock().unwrap().early.pop() {
            return Some(Err(early));
        }
        reader.get_mut().write_all(b"HTTP/1.1 100 Continue\r\n\r\n").ok()?;
    }
    reader.read_exact(&mut body).ok()?;
    if fields.get("content-encoding").is_some_and(|coding| coding == "aws-chunked") {
        body = undone(&body, &mut fields);
    }
    let (path, query) = target.split_once('?').unwrap_or((&target, ""));
    let decoded = |text: &str| percent_encoding::percent_decode_str(text).collect::<Vec<u8>>();
    let text = |text: &str| String::from_utf8(decoded(text)).unwrap();
    let query = query.split('&').filter(|pair| !pair.is_empty());
    let query =
        query.map(|pair| pair.split_once('=').unwrap_or((pair, ""))).map(|(name, value)| (text(name), text(value)));
    let key = decoded(path.strip_prefix("/bucket/")?);
    let mut seen = seen.lock().unwrap();
    let request = Request { number: seen.len(), method, key, query: query.collect(), fields, body };
    seen.push(request.clone());
    Some(Ok(request))
}

/// Decodes aws-chunked. Trailers join the fields.
fn undone(mut body: &[u8], fields: &mut BTreeMap<String, String>) -> Vec<u8> {
    let mut content = Vec::new();
    let line = |body: &mut &[u8]| {
        let end = body.windows(2).position(|pair| pair == b"\r\n").unwrap();
        let line = String::from_utf8(body[..end].to_vec()).unwrap();
        *body = &body[end + 2..];
        line
    };
    loop {
        let length = usize::from_str_radix(&line(&mut body), 16).unwrap();
        if length == 0 {
            break;
        }
        content.extend_from_slice(&body[..length]);
        body = &body[length + 2..];
    }
    let trailer = line(&mut body);
    assert_eq!(line(&mut body), "");
    let (name, value) = trailer.split_once(':').unwrap();
    assert_eq!(fields["x-amz-trailer"], name);
    assert_eq!(fields["x-amz-decoded-content-length"], content.len().to_string());
    fields.insert(name.to_owned(), value.to_owned());
    content
}

pub fn answer(request: &Request, state: &mut State) -> Reply {
    if request.field("authorization").is_none_or(|text| !text.starts_with("AWS4-HMAC-SHA256 Credential=")) {
        return Reply::error(403, "AccessDenied");
    }
    if matches!(request.method.as_str(), "PUT" | "POST") && request.field("content-length").is_none() {
        return Reply::error(411, "MissingContentLength");
    }
    match (request.method.as_str(), request.asks("uploadId")) {
        ("GET", None) if request.asks("uploads").is_some() => list_uploads(request, state),
        ("GET", None) if request.key.is_empty() => list(request, state),
        ("POST", None) if request.asks("delete").is_some() => delete(request, state),
        ("GET" | "HEAD", None) => get(request, state),
        ("PUT", None) => put(request, state),
        ("DELETE", None) => {
            let tag = state.objects.get(&request.key).map(|object| object.tag.clone());
            if request.field("if-match").is_some_and(|wanted| tag.as_deref() != Some(wanted)) {
                return Reply::error(412, "PreconditionFailed");
            }
            state.objects.remove(&request.key);
            Reply::status(204)
        }
        ("POST", None) => {
            state.made += 1;
            let id = format!("upload-{}", state.made);
            let (key, fields) = (request.key.clone(), request.fields.clone());
            state.uploads.insert(id.clone(), Upload { key, fields, parts: BTreeMap::new() });
            Reply::xml(
                200,
                &format!("<InitiateMultipartUploadResult><UploadId>{id}</UploadId></InitiateMultipartUploadResult>"),
            )
        }
        (method, Some(id)) => match state.uploads.get(id).filter(|upload| upload.key == request.key).cloned() {
            None => Reply::error(404, "NoSuchUpload"),
            Some(upload) => of_upload(method, id, request, upload, state),
        },
        _ => Reply::error(405, "MethodNotAllowed"),
    }
}

fn of_upload(method: &str, id: &str, request: &Request, upload: Upload, state: &mut State) -> Reply {
    let tag = |data: &[u8]| format!("\"part-{}\"", crc64(data));
    match method {
        "PUT" if request.field("x-amz-copy-source").is_some() => {
            let Some(object) = copied(request, state) else { return Reply::error(404, "NoSuchKey") };
            if request.field("x-amz-copy-source-if-match").is_some_and(|wanted| wanted != object.tag) {
                return Reply::error(412, "PreconditionFailed");
            }
            let range = request.field("x-amz-copy-source-range").and_then(|range| range.strip_prefix("bytes="));
            let (start, last) = range.unwrap().split_once('-').unwrap();
            let data = object.data[start.parse().unwrap()..=last.parse().unwrap()].to_vec();
            let text = format!("<CopyPartResult><ETag>{}</ETag></CopyPartResult>", tag(&data).replace('"', "&quot;"));
            let number = request.asks("partNumber").unwrap().parse().unwrap();
            state.uploads.get_mut(id).unwrap().parts.insert(number, data);
            Reply::xml(200, &text)
        }
        "PUT" => {
            if request.field("x-amz-checksum-crc64nvme").is_some_and(|sum| sum != crc64(&request.body)) {
                return Reply::error(400, "BadDigest");
            }
            let number = request.asks("partNumber").unwrap().parse().unwrap();
            state.uploads.get_mut(id).unwrap().parts.insert(number, request.body.clone());
            Reply::status(200).with("ETag", &tag(&request.body))
        }
        "GET" => {
            let mut text = String::from("<ListPartsResult><IsTruncated>false</IsTruncated>");
            for (number, data) in &upload.parts {
                let _ = write!(
                    text,
                    "<Part><PartNumber>{number}</PartNumber><ETag>{}</ETag><Size>{}</Size></Part>",
                    tag(data).replace('"', "&quot;"),
                    data.len()
                );
            }
            Reply::xml(200, &(text + "</ListPartsResult>"))
        }
        "DELETE" => {
            state.uploads.remove(id);
            Reply::status(204)
        }
        _ => {
            let body = String::from_utf8(request.body.clone()).unwrap().replace("&quot;", "\"");
            let is_named = |(number, data): (&u32, &Vec<u8>)| {
                body.contains(&format!("<PartNumber>{number}</PartNumber><ETag>{}</ETag>", tag(data)))
            };
            if !upload.parts.iter().all(is_named) {
                return Reply::error(400, "InvalidPart");
            }
            if !holds(request, state) {
                return Reply::error(412, "PreconditionFailed");
            }
            let data: Vec<u8> = upload.parts.into_values().flatten().collect();
            if request.field("x-amz-checksum-crc64nvme").is_some_and(|sum| sum != crc64(&data)) {
                return Reply::error(400, "BadDigest");
            }
            let sum = crc64(&data);
            state.uploads.remove(id);
            state.keep(&request.key, data, upload.fields);
            Reply::xml(
                200,
                &format!(
                    "  \n<CompleteMultipartUploadResult><ChecksumCRC64NVME>{sum}</ChecksumCRC64NVME></CompleteMultipartUploadResult>"
                ),
            )
        }
    }
}

fn copied(request: &Request, state: &State) -> Option<Object> {
    let source = request.field("x-amz-copy-source")?.strip_prefix("/bucket/")?;
    let key: Vec<u8> = percent_encoding::percent_decode_str(source).collect();
    state.objects.get(&key).cloned()
}

fn elements(xml: &str, name: &str) -> Vec<String> {
    let (begin, end) = (format!("<{name}>"), format!("</{name}>"));
    let texts = xml.split(&begin).skip(1).filter_map(|rest| Some(rest.split_once(&end)?.0));
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&apos;", "'"), ("&amp;", "&")];
    texts.map(|text| entities.iter().fold(text.to_owned(), |text, (from, to)| text.replace(from, to))).collect()
}

fn delete(request: &Request, state: &mut State) -> Reply {
    assert!(request.field("content-md5").is_some(), "S3 refuses it without a sum");
    let body = String::from_utf8(request.body.clone()).unwrap();
    for key in elements(&body, "Key") {
        state.objects.remove(key.as_bytes());
    }
    Reply::xml(200, "<DeleteResult></DeleteResult>")
}

fn list_uploads(request: &Request, state: &State) -> Reply {
    let prefix = request.asks("prefix").unwrap_or_default().as_bytes();
    let after = request.asks("upload-id-marker").unwrap_or_default();
    let all = state.uploads.iter().filter(|(_, upload)| upload.key.starts_with(prefix));
    let mut left: Vec<_> = all.filter(|(id, _)| id.as_str() > after).collect();
    let is_truncated = left.len() > 2;
    left.truncate(2);
    let mut text = String::new();
    for (id, upload) in &left {
        let key = percent_encoding::percent_encode(&upload.key, percent_encoding::NON_ALPHANUMERIC);
        let begun = upload.fields.get("test-begun").map_or("2020-01-01T00:00:00.000Z", String::as_str);
        let _ =
            write!(text, "<Upload><Key>{key}</Key><UploadId>{id}</UploadId><Initiated>{begun}</Initiated></Upload>");
    }
    if let Some((id, _)) = left.last().filter(|_| is_truncated) {
        let _ = write!(text, "<NextKeyMarker>k</NextKeyMarker><NextUploadIdMarker>{id}</NextUploadIdMarker>");
    }
    Reply::xml(
        200,
        &format!(
            "<ListMultipartUploadsResult><EncodingType>url</EncodingType><IsTruncated>{is_truncated}</IsTruncated>{text}</ListMultipartUploadsResult>"
        ),
    )
}

fn holds(request: &Request, state: &State) -> bool {
    let standing = state.objects.get(&request.key).map(|object| object.tag.as_str());
    let is_new = request.field("if-none-match").is_none_or(|_| standing.is_none());
    is_new && request.field("if-match").is_none_or(|tag| standing == Some(tag))
}

fn put(request: &Request, state: &mut State) -> Reply {
    if !holds(request, state) {
        return Reply::error(412, "PreconditionFailed");
    }
    if request.field("x-amz-copy-source").is_some() {
        let Some(object) = copied(request, state) else { return Reply::error(404, "NoSuchKey") };
        if request.field("x-amz-copy-source-if-match").is_some_and(|wanted| wanted != object.tag) {
            return Reply::error(412, "PreconditionFailed");
        }
        let is_replaced = request.field("x-amz-metadata-directive") == Some("REPLACE");
        let fields = if is_replaced { request.fields.clone() } else { object.fields };
        state.keep(&request.key, object.data, fields);
        return Reply::xml(200, "  <CopyObjectResult></CopyObjectResult>");
    }
    if request.field("x-amz-checksum-crc64nvme").is_some_and(|sum| sum != crc64(&request.body)) {
        return Reply::error(400, "BadDigest");
    }
    let tag = state.keep(&request.key, request.body.clone(), request.fields.clone());
    Reply::status(200).with("ETag", &tag)
}

pub fn get(request: &Request, state: &State) -> Reply {
    let Some(object) = state.objects.get(&request.key) else { return Reply::error(404, "NoSuchKey") };
    if request.field("if-match").is_some_and(|wanted| wanted != object.tag) {
        return Reply::error(412, "PreconditionFailed");
    }
    let size = object.data.len();
    let range = request.field("range").and_then(|range| range.strip_prefix("bytes=")?.split_once('-'));
    let (status, start, end) = match range {
        Some((start, last)) => {
            let end = last.parse::<usize>().map_or(size, |last| (last + 1).min(size));
            (206, start.parse::<usize>().unwrap(), end)
        }
        None => (200, 0, size),
    };
    let mut reply =
        Reply { body: object.data[start..end].to_vec(), length: Some(end - start), ..Reply::status(status) };
    if status == 206 {
        reply = reply.with("Content-Range", &format!("bytes {start}-{}/{size}", end - 1));
    }
    reply = reply.with("ETag", &object.tag).with("Last-Modified", "Sun, 06 Nov 1994 08:49:37 GMT");
    if request.field("x-amz-checksum-mode").is_some() {
        reply = reply.with("x-amz-checksum-crc64nvme", &crc64(&object.data));
    }
    for (name, value) in object.fields.iter().filter(|(name, _)| name.starts_with("x-amz-meta-")) {
        reply = reply.with(name, value);
    }
    reply
}

fn list(request: &Request, state: &State) -> Reply {
    let prefix = request.asks("prefix").unwrap_or_default().as_bytes();
    let most: usize = request.asks("max-keys").unwrap().parse().unwrap();
    let after = request.asks("continuation-token").map(|token| token.as_bytes().to_vec()).unwrap_or_default();
    let escaped = |key: &[u8]| percent_encoding::percent_encode(key, percent_encoding::NON_ALPHANUMERIC).to_string();
    let (mut text, mut count, mut last, mut is_truncated) = (String::new(), 0, Vec::new(), false);
    let mut before: Vec<u8> = Vec::new();
    for (key, object) in state.objects.range(prefix.to_vec()..).take_while(|(key, _)| key.starts_with(prefix)) {
        let slash = request.asks("delimiter").and_then(|_| key[prefix.len()..].iter().position(|byte| *byte == b'/'));
        let (entry, is_prefix) = match slash {
            Some(at) => (key[..=prefix.len() + at].to_vec(), true),
            None => (key.clone(), false),
        };
        if entry <= after || (is_prefix && entry == before) {
            continue;
        }
        if count == most {
            is_truncated = true;
            break;
        }
        count += 1;
        let name = escaped(&entry);
        let _ = match is_prefix {
            true => write!(text, "<CommonPrefixes><Prefix>{name}</Prefix></CommonPrefixes>"),
            false => write!(text, "<Contents><Key>{name}</Key><Size>{}</Size></Contents>", object.data.len()),
        };
        (before, last) = (entry.clone(), entry);
    }
    let token = String::from_utf8(last).unwrap_or_default();
    let next =
        if is_truncated { format!("<NextContinuationToken>{token}</NextContinuationToken>") } else { String::new() };
    Reply::xml(
        200,
        &format!(
            "<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>{is_truncated}</IsTruncated>{next}{text}</ListBucketResult>"
        ),
    )
}
