//! Requests to a bucket: an object's address, the meaning of errors, and which errors pass.

use std::fmt::Write as _;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::time::Instant;

use haul_store::LoginRefused;
use http::header::ETAG;
use http::{HeaderName, HeaderValue, Method, StatusCode, response};

use crate::http_client::client::{Answer, Ask, Client, Settings, invalid};
use crate::http_client::fields::text;
use crate::http_client::outgoing::Content;
use crate::http_client::url::Url;
use crate::s3::access::Access;
use crate::s3::credentials::Signer;
use crate::s3::environment::{Environment, is_region};
use crate::s3::limits::{MAX_ANSWER_BYTES, MAX_KEY_BYTES};
use crate::s3::xml;

#[derive(Debug)]
pub(super) struct Store {
    pub(super) client: Arc<Client>,
    pub(super) access: Access,
    signer: Arc<Signer>,
}

pub(super) struct Request<'a> {
    pub(super) method: Method,
    /// Empty for the bucket itself.
    pub(super) key: &'a [u8],
    pub(super) query: &'a [(&'a str, &'a str)],
    pub(super) fields: Vec<(HeaderName, HeaderValue)>,
    pub(super) content: Content,
    pub(super) repeats: bool,
    /// A large body, which waits for its turn ([`crate::http_client::pool::Pool::turn`]).
    pub(super) is_large: bool,
}

impl<'a> Request<'a> {
    pub(super) fn new(method: Method, key: &'a [u8]) -> Request<'a> {
        let repeats = method.is_idempotent();
        let (fields, content) = (Vec::new(), Content::Nothing);
        Request { method, key, query: &[], fields, content, repeats, is_large: false }
    }
}

#[derive(Debug, Default)]
pub(super) struct Refusal {
    pub(super) status: StatusCode,
    pub(super) code: String,
    message: String,
}

impl Refusal {
    pub(super) fn say_code(&mut self, text: &str) {
        self.code = shortened(text);
    }

    pub(super) fn say_message(&mut self, text: &str) {
        self.message = shortened(text);
    }

    fn is_of_expired(&self) -> bool {
        matches!(self.code.as_str(), "ExpiredToken" | "TokenRefreshRequired" | "InvalidToken")
    }

    /// Whether a condition of the request failed.
    pub(super) fn is_of_condition(&self) -> bool {
        self.status == StatusCode::PRECONDITION_FAILED
            || matches!(self.code.as_str(), "PreconditionFailed" | "ConditionalRequestConflict")
    }

    pub(super) fn is_of_unknown_field(&self) -> bool {
        match self.code.as_str() {
            "NotImplemented" | "InvalidRequest" | "InvalidArgument" | "XNotImplemented" | "MalformedXML" => true,
            _ => self.status == StatusCode::NOT_IMPLEMENTED,
        }
    }

    pub(super) fn as_io(&self) -> io::Error {
        let kind = match (self.code.as_str(), self.status) {
            ("PreconditionFailed" | "ConditionalRequestConflict", _) | (_, StatusCode::PRECONDITION_FAILED) => {
                ErrorKind::StaleNetworkFileHandle
            }
            (_, StatusCode::NOT_FOUND) => ErrorKind::NotFound,
            (_, StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => ErrorKind::PermissionDenied,
            ("EntityTooLarge", _) => ErrorKind::FileTooLarge,
            (_, StatusCode::SERVICE_UNAVAILABLE | StatusCode::TOO_MANY_REQUESTS) => ErrorKind::ResourceBusy,
            _ => ErrorKind::InvalidData,
        };
        let said = match (self.code.is_empty(), self.message.is_empty()) {
            (true, _) => format!("the store refuses it ({})", self.status),
            (false, true) => format!("the store refuses it: {} ({})", self.code, self.status),
            (false, false) => format!("the store refuses it: {}: {} ({})", self.code, self.message, self.status),
        };
        let hint = match self.code.as_str() {
            "RequestTimeTooSkewed" => "; set the clock of this host",
            "SignatureDoesNotMatch" | "InvalidAccessKeyId" => "; look at AWS_PROFILE and AWS_SECRET_ACCESS_KEY",
            "ExpiredToken" => "; log in again",
            _ => "",
        };
        match self.is_of_login() {
            true => LoginRefused::because(format!("{said}{hint}")),
            false => io::Error::new(kind, format!("{said}{hint}")),
        }
    }

    /// Whether the store does not accept the key and its secret. A key without the right to one object is accepted.
    fn is_of_login(&self) -> bool {
        self.is_of_expired()
            || self.status == StatusCode::UNAUTHORIZED
            || matches!(self.code.as_str(), "SignatureDoesNotMatch" | "InvalidAccessKeyId")
    }
}

/// Repeats of passing errors.
const MAX_REPEATS: u32 = 3;

impl Store {
    /// Reaches a bucket. Amazon tells where its bucket lies.
    pub(super) fn open(bucket: &str, environment: &Environment, settings: impl Fn() -> Settings) -> io::Result<Store> {
        let access = Access::find(bucket, environment)?;
        let is_amazon = access.is_amazon;
        let store = Store::at(access, environment, settings());
        if !is_amazon {
            return Ok(store);
        }
        let Answer { head, body, url } = store.once(&Request::new(Method::HEAD, b""), Instant::now())?;
        store.client.give_back(url.origin(), body);
        let region =
            text(&head.headers, &HeaderName::from_static("x-amz-bucket-region")).filter(|text| is_region(text));
        match region {
            Some(region) if region != store.access.region => {
                Ok(Store::at(Access::at_amazon(bucket, region), environment, settings()))
            }
            _ if head.status == StatusCode::NOT_FOUND => {
                Err(io::Error::new(ErrorKind::NotFound, "there is no such bucket"))
            }
            _ => Ok(store),
        }
    }

    fn at(access: Access, environment: &Environment, settings: Settings) -> Store {
        let signer = Arc::new(Signer::new(environment, access.origin.clone(), &access.region));
        let client = Client::new(access.origin.clone(), settings).signed_by(Arc::clone(&signer) as Arc<_>);
        Store { client: Arc::new(client), access, signer }
    }

    pub(super) fn url(&self, key: &[u8], query: &[(&str, &str)]) -> io::Result<Url> {
        let mut target = match key.is_empty() {
            true => self.access.prefix.clone(),
            false => format!("{}{}", self.access.prefix, escaped(key, true)),
        };
        for (at, (name, value)) in query.iter().enumerate() {
            let _ = write!(target, "{}{name}={}", if at == 0 { '?' } else { '&' }, escaped(value.as_bytes(), false));
        }
        let long = || io::Error::new(ErrorKind::InvalidFilename, format!("a key has at most {MAX_KEY_BYTES} bytes"));
        if key.len() > MAX_KEY_BYTES {
            return Err(long());
        }
        Url::new(self.access.origin.clone(), target.as_bytes()).ok_or_else(long)
    }

    /// Writes `ORIGIN/BUCKET/KEY` for journals.
    pub(super) fn object_name(&self, key: &[u8]) -> Vec<u8> {
        [format!("{}/{}/", self.access.origin, self.access.bucket).as_bytes(), key].concat()
    }

    fn once(&self, request: &Request<'_>, since: Instant) -> io::Result<Answer> {
        let url = self.url(request.key, request.query)?;
        let content = match &request.content {
            Content::Whole(bytes) => Content::Whole(bytes.clone()),
            Content::Nothing => Content::Nothing,
            Content::Stream(_) => return Err(io::Error::other("a store is sent whole bodies")),
        };
        self.client.ask(&Ask {
            fields: request.fields.clone(),
            content,
            repeats: request.repeats,
            is_for_body: request.is_large,
            redirects: false,
            since,
            ..Ask::new(request.method.clone(), &url)
        })
    }

    /// Sends a streamed body once, when the store wants it.
    pub(super) fn send(&self, request: Request<'_>) -> io::Result<Result<response::Parts, Refusal>> {
        let url = self.url(request.key, request.query)?;
        let Request { method, fields, content, .. } = request;
        let ask = Ask { fields, content, expects: true, repeats: false, redirects: false, ..Ask::new(method, &url) };
        let mut answer = self.client.ask(&ask)?;
        let said = answer.body.read_to_end(MAX_ANSWER_BYTES)?;
        self.client.give_back(answer.url.origin(), answer.body);
        Ok(if answer.head.status.is_success() { Ok(answer.head) } else { Err(refusal(&answer.head, &said)) })
    }

    /// Whether to try again. Expired credentials are found anew.
    pub(super) fn passes(&self, refusal: &Refusal) -> bool {
        if refusal.is_of_expired() {
            self.signer.forget();
            return true;
        }
        refusal.status.is_server_error() && refusal.status != StatusCode::NOT_IMPLEMENTED
            || refusal.status == StatusCode::TOO_MANY_REQUESTS
            || matches!(refusal.code.as_str(), "RequestTimeout" | "OperationAborted" | "SlowDown")
    }

    pub(super) fn ask(&self, request: &Request<'_>) -> io::Result<Result<Answer, Refusal>> {
        let (mut repeats, mut is_renewed) = (0, false);
        loop {
            let since = Instant::now();
            let mut answer = self.once(request, since)?;
            if answer.head.status.is_success() {
                return Ok(Ok(answer));
            }
            let said = answer.body.read_to_end(MAX_ANSWER_BYTES)?;
            self.client.give_back(answer.url.origin(), answer.body);
            let refusal = refusal(&answer.head, &said);
            // A head has no body with the reason.
            let is_expired = refusal.is_of_expired()
                || (request.method == Method::HEAD && refusal.status == StatusCode::BAD_REQUEST);
            if is_expired && !is_renewed {
                is_renewed = true;
                self.signer.forget();
                continue;
            }
            // The connection rested within the body, or two requests met.
            let is_passing = matches!(refusal.code.as_str(), "RequestTimeout" | "OperationAborted")
                || (refusal.code == "ConditionalRequestConflict" && request.method == Method::PUT);
            if !is_passing || repeats == MAX_REPEATS {
                return Ok(Err(refusal));
            }
            repeats += 1;
            self.client.pause(self.client.backoff(repeats));
        }
    }

    /// Like [`Store::ask`]; a refusal is an error.
    pub(super) fn need(&self, request: &Request<'_>) -> io::Result<Answer> {
        self.ask(request)?.map_err(|refusal| refusal.as_io())
    }

    pub(super) fn body_of(&self, mut answer: Answer, most_bytes: usize) -> io::Result<Vec<u8>> {
        let bytes = answer.body.read_to_end(most_bytes)?;
        self.client.give_back(answer.url.origin(), answer.body);
        Ok(bytes)
    }

    /// Asks for an object with its metadata. `None`: the store refuses; a HEAD tells whether there is one.
    pub(super) fn get(&self, key: &[u8]) -> io::Result<Option<Answer>> {
        let fields = vec![(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"))];
        Ok(self.ask(&Request { fields, ..Request::new(Method::GET, key) })?.ok())
    }

    /// `None`: there is no object.
    pub(super) fn head(&self, key: &[u8]) -> io::Result<Option<response::Parts>> {
        let fields = vec![(CHECKSUM_MODE, HeaderValue::from_static("ENABLED"))];
        match self.ask(&Request { fields, ..Request::new(Method::HEAD, key) })? {
            Ok(answer) => {
                self.client.give_back(answer.url.origin(), answer.body);
                Ok(Some(answer.head))
            }
            Err(refusal) if refusal.status == StatusCode::NOT_FOUND => Ok(None),
            Err(refusal) => Err(self.reason(&refusal)),
        }
    }

    /// The reason of a refusal that came without words, as to a HEAD: the bucket is asked once more, for its words.
    fn reason(&self, refusal: &Refusal) -> io::Error {
        if !refusal.code.is_empty() || !matches!(refusal.status, StatusCode::FORBIDDEN | StatusCode::BAD_REQUEST) {
            return refusal.as_io();
        }
        let query = [("list-type", "2"), ("max-keys", "1")];
        match self.ask(&Request { query: &query, ..Request::new(Method::GET, b"") }) {
            Ok(Err(with_words)) if with_words.is_of_login() => with_words.as_io(),
            _ => refusal.as_io(),
        }
    }
}

pub(super) const CHECKSUM_MODE: HeaderName = HeaderName::from_static("x-amz-checksum-mode");

pub(super) fn refusal(head: &response::Parts, body: &[u8]) -> Refusal {
    let mut said = Refusal { status: head.status, ..Refusal::default() };
    // A proxy may answer in another form.
    let _ = xml::read(body, |path, text| match path {
        ["Error", "Code"] => said.say_code(text),
        ["Error", "Message"] => said.say_message(text),
        _ => {}
    });
    said
}

/// Bounds and cleans a store's words for the terminal.
fn shortened(text: &str) -> String {
    text.chars().filter(|character| !character.is_control()).take(MAX_SAID_CHARACTERS).collect()
}

const MAX_SAID_CHARACTERS: usize = 300;

pub(super) fn etag(head: &response::Parts) -> io::Result<String> {
    let tag = text(&head.headers, &ETAG).filter(|tag| tag.len() <= MAX_TAG_BYTES && !tag.is_empty());
    tag.map(str::to_owned).ok_or_else(|| invalid("the store gives no ETag".to_owned()))
}

/// An ETag of S3 has at most 38 characters.
const MAX_TAG_BYTES: usize = 256;

/// Escapes all but unreserved bytes (RFC 3986, section 2.3), for signatures.
pub(super) fn escaped(text: &[u8], keeps_slashes: bool) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => out.push(char::from(*byte)),
            b'/' if keeps_slashes => out.push('/'),
            byte => {
                let _ = write!(out, "%{byte:02X}");
            }
        }
    }
    out
}
