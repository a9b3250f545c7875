//! Requests to a server: over kept connections, along redirects, with credentials where they belong, repeated after passing
//! failures.
//!
//! ```text
//! ask -> an idle connection or a new one -> answer
//!          cut, silent, 5xx -> pause, again     429, 503 -> the pause that the server asks for, again
//!          3xx -> the next URL                  401, 403 -> once more with credentials
//! ```
//! A request with a stream as body, or that would do its work twice, is repeated only if nothing of it can have arrived.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use http::header::{
    ACCEPT, ACCEPT_ENCODING, AUTHORIZATION, CONTENT_LENGTH, EXPECT, HOST, LOCATION, RANGE, RETRY_AFTER, USER_AGENT,
};
use http::{HeaderName, HeaderValue, Method, Request, StatusCode, request, response};

use crate::http_client::connection::Body;
use crate::http_client::credentials::Credentials;
use crate::http_client::fields::text;
use crate::http_client::limits::{
    DIALLED_AHEAD, FIRST_PAUSE, MAX_REDIRECTS, MAX_RETRY_AFTER, MAX_TRIES, PATIENCE, WORTH_DRAINING_BYTES,
};
use crate::http_client::outgoing::{Content, Outgoing, hold_back};
use crate::http_client::pool::{BeginsWith, Pool};
use crate::http_client::reach::Reach;
use crate::http_client::url::{Origin, Url};

#[cfg(test)]
mod tests;

/// How servers are reached.
#[derive(Debug)]
pub struct Settings {
    /// The most bodies at once, and connections for other questions.
    pub connections: usize,
    /// Silence after which a server counts as dead.
    pub silence: Duration,
    /// How connections leave this host, and their tuning.
    pub reach: Reach,
    /// How many connections are made at first.
    pub begins_with: BeginsWith,
    /// The pause before the second try; tests shorten it.
    pub first_pause: Duration,
    /// The credentials that servers may be shown.
    pub credentials: Credentials,
}

impl Settings {
    /// The usual settings, with credentials of the environment.
    pub fn usual(connections: usize, credentials: Credentials) -> Settings {
        let silence = Duration::from_secs(20);
        let reach = Reach::default();
        Settings { connections, silence, reach, begins_with: |_, _| 1, first_pause: FIRST_PAUSE, credentials }
    }
}

/// Signs requests before each try and behind redirects: signatures are for one URL and some minutes.
pub(crate) trait Sign: fmt::Debug + Send + Sync {
    /// Adds fields to the head. `whole` is the body, unless it is a stream.
    fn sign(&self, url: &Url, head: &mut request::Parts, whole: Option<&[u8]>) -> io::Result<()>;
}

#[derive(Debug)]
pub(crate) struct Client {
    typed: Origin,
    pub(crate) settings: Settings,
    pub(crate) pool: Arc<Pool>,
    asking: Mutex<HashSet<Origin>>,
    /// A server that never answered is not awaited: its name may be mistyped.
    has_answered: AtomicBool,
    refusals: AtomicU32,
    pauses: (Mutex<()>, Condvar),
    signer: Option<Arc<dyn Sign>>,
}

pub(crate) struct Ask<'a> {
    pub(crate) method: Method,
    pub(crate) url: &'a Url,
    /// The first byte, and the byte behind the last; `None`: to the end.
    pub(crate) range: Option<(u64, Option<u64>)>,
    pub(crate) condition: Option<(HeaderName, HeaderValue)>,
    pub(crate) accept: &'static str,
    /// A busy server is an error: another connection reads already.
    pub(crate) takes_busy: bool,
    /// Tells, again and again, whether the server starves this request while it serves others of ours: an error, then. With it
    /// a failed try for a body is the caller's.
    pub(crate) is_starved: Option<&'a dyn Fn() -> bool>,
    /// A large body follows in its turn ([`Pool::turn`]).
    pub(crate) is_for_body: bool,
    /// The start of the wait.
    pub(crate) since: Instant,
    pub(crate) fields: Vec<(HeaderName, HeaderValue)>,
    pub(crate) content: Content,
    /// The body waits for `100 Continue`.
    pub(crate) expects: bool,
    /// The request may arrive twice without harm.
    pub(crate) repeats: bool,
    /// Redirects are followed with method and body; else they are answers.
    pub(crate) redirects: bool,
}

impl<'a> Ask<'a> {
    pub(crate) fn new(method: Method, url: &'a Url) -> Ask<'a> {
        let repeats = method.is_idempotent();
        Ask {
            method,
            url,
            range: None,
            condition: None,
            accept: "*/*",
            takes_busy: false,
            is_starved: None,
            is_for_body: false,
            since: Instant::now(),
            fields: Vec::new(),
            content: Content::Nothing,
            expects: false,
            repeats,
            redirects: true,
        }
    }
}

pub(crate) struct Answer {
    pub(crate) head: response::Parts,
    pub(crate) body: Body,
    pub(crate) url: Url,
}

pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Drop for Client {
    fn drop(&mut self) {
        self.pool.end();
    }
}

impl Client {
    pub(crate) fn new(typed: Origin, settings: Settings) -> Client {
        let Settings { reach, silence, begins_with, connections, .. } = &settings;
        let pool = Pool::new(reach.clone(), *silence, *begins_with, 2 * connections);
        Client {
            typed,
            settings,
            pool,
            asking: Mutex::default(),
            has_answered: AtomicBool::new(false),
            refusals: AtomicU32::new(0),
            pauses: Default::default(),
            signer: None,
        }
    }

    pub(crate) fn signed_by(mut self, signer: Arc<dyn Sign>) -> Client {
        self.signer = Some(signer);
        self
    }

    pub(crate) fn typed(&self) -> &Origin {
        &self.typed
    }

    /// Makes connections that the bytes are worth, beside the resting ones, as long as it is not known whether they are needed.
    pub(crate) fn dial_ahead(&self, bytes: u64) {
        self.pool.dial_more(&self.typed, bytes, DIALLED_AHEAD);
    }

    /// [`Client::dial_ahead`] for bytes that will be sent.
    pub(crate) fn dial_for_upload(&self, bytes: u64) {
        self.pool.dial_more(&self.typed, bytes, usize::MAX);
    }

    /// How often servers were busy, or refused a connection.
    pub(crate) fn refusals(&self) -> u32 {
        self.refusals.load(Ordering::Relaxed)
    }

    /// Connects to the typed origin, and returns the round-trip time.
    pub(crate) fn meet(&self) -> io::Result<u32> {
        let connection = self.pool.take(&self.typed)?;
        self.pool.keep(&self.typed, connection);
        Ok(self.pool.rtt_us())
    }

    pub(crate) fn ask(&self, ask: &Ask<'_>) -> io::Result<Answer> {
        let mut url = ask.url.clone();
        let mut seen = vec![url.clone()];
        let (mut tries, mut expects) = (0, ask.expects);
        // A long upload may outlast the wait for a server.
        let mut since = ask.since;
        loop {
            let shown = self.credential(url.origin());
            let (head, body) = match self.once(&url, ask, expects, shown.clone()) {
                Ok(answer) => answer,
                Err(Failed { error, may_have_arrived, took }) => {
                    since += took;
                    tries += 1;
                    let pause = self.backoff(tries);
                    let is_known = self.has_answered.load(Ordering::Relaxed);
                    let is_once = !ask.content.is_at_hand() || (may_have_arrived && !ask.repeats);
                    let has_time = self.has_time(since, pause);
                    let is_starved = error.kind() == ErrorKind::ResourceBusy;
                    let is_of_caller = is_starved || (ask.is_for_body && ask.is_starved.is_some());
                    if tries >= MAX_TRIES || !is_known || !is_passing(&error) || is_once || is_of_caller || !has_time {
                        return Err(error);
                    }
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                    self.pause(pause);
                    continue;
                }
            };
            self.has_answered.store(true, Ordering::Relaxed);
            let is_at_hand = ask.content.is_at_hand();
            match head.status {
                StatusCode::EXPECTATION_FAILED if expects && is_at_hand => {
                    expects = false;
                    self.give_back(url.origin(), body);
                }
                StatusCode::MOVED_PERMANENTLY
                | StatusCode::FOUND
                | StatusCode::SEE_OTHER
                | StatusCode::TEMPORARY_REDIRECT
                | StatusCode::PERMANENT_REDIRECT
                    if ask.redirects && is_at_hand =>
                {
                    let next = head.headers.get(LOCATION).and_then(|link| url.join(link.as_bytes()));
                    let next = next.ok_or_else(|| invalid(format!("{} leads nowhere ({})", url, head.status)))?;
                    if url.origin().is_tls && !next.origin().is_tls {
                        return Err(invalid(format!("it is redirected from https to http: {next}")));
                    }
                    if seen.contains(&next) {
                        return Err(invalid(format!("its redirects go round in a circle: {next}")));
                    }
                    if seen.len() > MAX_REDIRECTS {
                        return Err(invalid(format!("it is redirected more than {MAX_REDIRECTS} times")));
                    }
                    self.give_back(url.origin(), body);
                    seen.push(next.clone());
                    url = next;
                }
                StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN
                    if shown.is_none() && is_at_hand && self.learns(url.origin()) =>
                {
                    self.give_back(url.origin(), body);
                }
                StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => {
                    tries += 1;
                    self.refusals.fetch_add(1, Ordering::Relaxed);
                    let asked = text(&head.headers, &RETRY_AFTER).and_then(|text| pause_in(text, SystemTime::now()));
                    let pause = asked.unwrap_or_else(|| self.backoff(tries));
                    let pause = pause.clamp(self.settings.first_pause, MAX_RETRY_AFTER);
                    if ask.takes_busy || !is_at_hand || !self.has_time(since, pause) {
                        return Ok(Answer { head, body, url });
                    }
                    drop(body);
                    self.pause(pause);
                }
                StatusCode::REQUEST_TIMEOUT
                | StatusCode::INTERNAL_SERVER_ERROR
                | StatusCode::BAD_GATEWAY
                | StatusCode::GATEWAY_TIMEOUT
                    if tries + 1 < MAX_TRIES
                        && is_at_hand
                        && ask.repeats
                        && self.has_time(since, self.backoff(tries + 1)) =>
                {
                    tries += 1;
                    drop(body);
                    self.pause(self.backoff(tries));
                }
                _ => return Ok(Answer { head, body, url }),
            }
        }
    }

    /// Sends a request once. A connection that the server closed while it rested does not count.
    fn once(
        &self,
        url: &Url,
        ask: &Ask<'_>,
        expects: bool,
        credential: Option<HeaderValue>,
    ) -> Result<(response::Parts, Body), Failed> {
        let mut unsent: Option<Box<Request<Outgoing>>> = None;
        loop {
            let connection = self.pool.take(url.origin()).map_err(Failed::early)?;
            if ask.is_for_body {
                self.pause(self.pool.turn());
            }
            let request = match unsent.take() {
                Some(unsent) => *unsent,
                None => self.request(url, ask, expects, credential.clone()).map_err(Failed::early)?,
            };
            let begun = Instant::now();
            let may_repeat = ask.repeats && ask.content.is_at_hand();
            match connection.ask(request, ask.is_starved) {
                Ok(answer) => return Ok(answer),
                // A new connection has never rested: the loop ends.
                Err(refused) if refused.was_resting && (refused.unsent.is_some() || may_repeat) => {
                    unsent = refused.unsent;
                }
                Err(refused) => {
                    let may_have_arrived = refused.unsent.is_none();
                    let took = match ask.content {
                        Content::Nothing => Duration::ZERO,
                        _ => begun.elapsed().saturating_sub(self.settings.silence),
                    };
                    return Err(Failed { error: refused.why, may_have_arrived, took });
                }
            }
        }
    }

    fn request(
        &self,
        url: &Url,
        ask: &Ask<'_>,
        expects: bool,
        credential: Option<HeaderValue>,
    ) -> io::Result<Request<Outgoing>> {
        let mut request = Request::builder()
            .method(&ask.method)
            .uri(url.target())
            .header(HOST, url.origin().authority())
            .header(USER_AGENT, concat!("haul/", env!("CARGO_PKG_VERSION")))
            .header(ACCEPT, ask.accept)
            // A coding changes lengths and ranges.
            .header(ACCEPT_ENCODING, "identity");
        if let Some((start, end)) = ask.range {
            request = request
                .header(RANGE, format!("bytes={start}-{}", end.map(|end| (end - 1).to_string()).unwrap_or_default()));
        }
        if let Some((name, value)) = &ask.condition {
            request = request.header(name, value);
        }
        for (name, value) in &ask.fields {
            request = request.header(name, value);
        }
        if let Some(credential) = credential {
            request = request.header(AUTHORIZATION, credential);
        }
        if expects {
            request = request.header(EXPECT, "100-continue");
        }
        let request = request.body(()).map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?;
        let (mut head, ()) = request.into_parts();
        if let Some(signer) = &self.signer {
            signer.sign(url, &mut head, ask.content.whole())?;
        }
        let is_empty = ask.content.whole().is_some_and(<[u8]>::is_empty);
        if is_empty && matches!(ask.method, Method::PUT | Method::POST) {
            // hyper leaves it out, and stores refuse such a request (411).
            head.headers.insert(CONTENT_LENGTH, HeaderValue::from_static("0"));
        }
        let body = ask.content.body().ok_or_else(|| io::Error::new(ErrorKind::BrokenPipe, "its body is spent"))?;
        let mut request = Request::from_parts(head, body);
        if expects {
            hold_back(&mut request);
        }
        Ok(request)
    }

    /// Keeps a connection whose answer's body was read, or is short.
    pub(crate) fn give_back(&self, origin: &Origin, body: Body) {
        if let Some(connection) = body.finish(WORTH_DRAINING_BYTES) {
            self.pool.keep(origin, connection);
        }
    }

    fn credential(&self, origin: &Origin) -> Option<HeaderValue> {
        let asks = lock(&self.asking).contains(origin);
        self.settings.credentials.of(origin, &self.typed, asks)
    }

    /// Notes that an origin asks for credentials. True: there are some.
    fn learns(&self, origin: &Origin) -> bool {
        let has_some = self.settings.credentials.of(origin, &self.typed, true).is_some();
        if has_some {
            lock(&self.asking).insert(origin.clone());
        }
        has_some
    }

    pub(crate) fn has_time(&self, since: Instant, pause: Duration) -> bool {
        since.elapsed() + pause < self.settings.silence * PATIENCE
    }

    pub(crate) fn backoff(&self, tries: u32) -> Duration {
        self.settings.first_pause * 2u32.saturating_pow(tries.saturating_sub(1).min(MAX_TRIES))
    }

    pub(crate) fn pause(&self, pause: Duration) {
        let (mutex, condition) = &self.pauses;
        drop(condition.wait_timeout_while(lock(mutex), pause, |()| true));
    }
}

struct Failed {
    error: io::Error,
    may_have_arrived: bool,
    /// The time in which the body moved: the server was not awaited.
    took: Duration,
}

impl Failed {
    fn early(error: io::Error) -> Failed {
        Failed { error, may_have_arrived: false, took: Duration::ZERO }
    }
}

/// Unknown names, untrusted certificates and answers other than HTTP do not pass.
pub(crate) fn is_passing(error: &io::Error) -> bool {
    !matches!(error.kind(), ErrorKind::InvalidData | ErrorKind::InvalidInput | ErrorKind::PermissionDenied)
}

/// Reads `Retry-After`: seconds, or a date (RFC 9110, section 10.2.3).
fn pause_in(text: &str, now: SystemTime) -> Option<Duration> {
    if let Ok(seconds) = text.parse() {
        return Some(Duration::from_secs(seconds));
    }
    Some(httpdate::parse_http_date(text).ok()?.duration_since(now).unwrap_or_default())
}

pub(crate) fn invalid(why: String) -> io::Error {
    io::Error::new(ErrorKind::InvalidData, why)
}

pub(crate) fn refusal(head: &response::Parts) -> io::Error {
    let what = match head.status {
        StatusCode::UNAUTHORIZED => "it wants a login: put one for this host into ~/.netrc, or a token into HAUL_TOKEN",
        StatusCode::FORBIDDEN => "the server does not let us read it",
        StatusCode::NOT_FOUND | StatusCode::GONE => "the server has no such file",
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => "the server is busy",
        _ => "the server does not give it",
    };
    let kind = match head.status {
        StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => ErrorKind::PermissionDenied,
        StatusCode::NOT_FOUND | StatusCode::GONE => ErrorKind::NotFound,
        StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => ErrorKind::ResourceBusy,
        _ => ErrorKind::InvalidData,
    };
    io::Error::new(kind, format!("{what} ({})", head.status))
}
