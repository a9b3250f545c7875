//! Answers one request: check -> who asks -> answer -> a line of the log when its body has ended.

use std::convert::Infallible;
use std::fmt::Write as _;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

use bytes::Bytes;
use http::header::{AUTHORIZATION, CACHE_CONTROL, CONNECTION, EXPECT};
use http::{HeaderMap, HeaderValue, Method, Request, Response, StatusCode, Version};
use http_body::Body as _;
use hyper::body::Incoming;

use crate::access::{Asker, Lookup, Shelf};
use crate::answer::body::{Body, Given};
use crate::answer::paced::Paced;
use crate::answer::refusal::{Refusal, refusal};
use crate::answer::{Asked, answer, check, check_frame};
use crate::budget::Claimant;
use crate::cors::Cors;
use crate::house::Seat;
use crate::limits::OPEN_DEADLINE;
use crate::pools::Client;
use crate::reader_log::{About, Answered};
use crate::request::target::Target;
use crate::token::{Number, Reach, Refused, Token};
use crate::transport::line::Line;
use crate::transport::piece::Queue;

pub(crate) struct Guest {
    pub(crate) asker: Asker,
    pub(crate) files: Option<Queue>,
    pub(crate) line: Arc<Line>,
    /// TLS, with a cipher that its network class allows.
    pub(crate) is_encrypted: bool,
    pub(crate) seat: Seat,
}

impl Guest {
    /// Whether nobody can read along: TLS, or this host's loopback.
    fn is_private(&self) -> bool {
        self.is_encrypted || self.seat.from.ip().is_loopback()
    }

    fn may_read(&self) -> bool {
        let terms = self.seat.member.class().terms();
        terms.may_read() && (self.is_encrypted || terms.cipher.is_none_or(|floor| floor.allows(None)))
    }
}

pub(crate) async fn respond(guest: Arc<Guest>, request: Request<Incoming>) -> Result<Response<Body>, Infallible> {
    let (begun, now, is_head) = (Instant::now(), SystemTime::now(), request.method() == http::Method::HEAD);
    let (parts, body) = request.into_parts();
    let mut request = Request::from_parts(parts, ());
    guest.line.begins();
    let (mut who, has_token) = (Who::default(), request.headers().contains_key(AUTHORIZATION));
    let cors = guest.seat.house.cors.as_ref().map(|cors| (cors.clone(), cors.allowed(request.headers())));
    let mut body = Some(body).filter(|_| !request.headers().contains_key(EXPECT));
    // In HTTP/2 only a request's end shows whether it has content. An earlier answer would reset the stream, and later frames on
    // it could not be judged (RFC 9113, section 5.1).
    let has_content = match body.take_if(|body| request.version() == Version::HTTP_2 && !body.is_end_stream()) {
        Some(body) => !ends_empty(body).await,
        None => false,
    };
    let answered = attempt(&guest, &mut request, has_content, now, &mut who).await;
    if answered.is_err()
        && let Some(body) = body
        && !matches!(*request.method(), Method::GET | Method::HEAD)
    {
        ends_empty(body).await;
    }
    let mut response = answered.unwrap_or_else(|refused| refusal(&refused, is_head));
    if guest.line.is_stopping() {
        response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if response.headers().contains_key(CONNECTION) {
        guest.line.closes();
    }
    if request.version() == Version::HTTP_2 {
        // HTTP/2 has no such field (RFC 9113, section 8.2.2).
        response.headers_mut().remove(CONNECTION);
    }
    if let Some((cors, allowed)) = cors {
        cors.describe(response.headers_mut(), allowed);
    }
    if has_token {
        response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("private"));
    }
    at_end(guest, &request, &mut response, (who, begun));
    Ok(response)
}

/// Whether a request ends without content. Short content is thrown away: a client whose stream ends while it sends may not read
/// its answer (RFC 9112, section 9.6). A client that waits for leave to send gets none.
async fn ends_empty(mut body: Incoming) -> bool {
    let mut bytes = 0;
    let all = async {
        while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            bytes += frame.ok()?.data_ref().map_or(0, Bytes::len);
            if bytes > REFUSED_BODY_BYTES {
                return None;
            }
        }
        Some(())
    };
    matches!(tokio::time::timeout(REFUSED_BODY_DEADLINE, all).await, Ok(Some(()))) && bytes == 0
}

async fn attempt(
    guest: &Guest,
    request: &mut Request<()>,
    has_content: bool,
    now: SystemTime,
    who: &mut Who,
) -> Result<Response<Body>, Refusal> {
    let house = &guest.seat.house;
    if house.cors.is_some() && Cors::is_preflight(request) {
        check_frame(request)?;
        let mut response = Response::new(Body::empty());
        Cors::grant(response.headers_mut());
        return Ok(response);
    }
    let target = check(request)?;
    if has_content {
        return Err(Refusal::of(StatusCode::BAD_REQUEST));
    }
    if !guest.may_read() {
        return Err(Refusal::of(StatusCode::FORBIDDEN));
    }
    let (asker, reach) = asker(guest, request.headers(), &target, now, who)?;
    let claimant = Claimant { source: guest.seat.member.source(), line: Arc::clone(&guest.line) };
    let Some(shelf) = shelf(guest, &asker, &claimant).await? else {
        return Err(match asker {
            Asker::Anyone if house.secret.is_some() => Refusal::challenging("Bearer"),
            _ => Refusal::of(StatusCode::FORBIDDEN),
        });
    };
    who.shelf = Some(Arc::clone(&shelf));
    let asked = Asked {
        is_head: request.method() == http::Method::HEAD,
        target,
        reach,
        header: std::mem::take(request.headers_mut()),
        now,
        files: guest.files.clone(),
        is_http2: request.version() == Version::HTTP_2,
        client: Client { claimant, threads: shelf.threads.clone() },
        shared: Arc::clone(&house.shared),
    };
    answer(asked, shelf, request.uri()).await
}

/// Finds the asker's directory. A thread of its own opens it: a dead one holds up only its own readers.
async fn shelf(guest: &Guest, asker: &Asker, claimant: &Claimant) -> Result<Option<Arc<Shelf>>, Refusal> {
    let (house, begun) = (&guest.seat.house, Instant::now());
    let open = || {
        let work = Arc::clone(&house.access).open(asker)?;
        house.shared.pools.shelves.try_begin(claimant, move || {
            work();
            Ok(())
        })
    };
    let mut pause = Duration::from_millis(1);
    loop {
        match house.access.look_up(asker) {
            Lookup::Found(shelf) => return Ok(shelf),
            Lookup::Aged(shelf) => {
                open();
                return Ok(shelf);
            }
            Lookup::Unopened => {}
        }
        let left = OPEN_DEADLINE.checked_sub(begun.elapsed()).ok_or(Refusal::of(StatusCode::SERVICE_UNAVAILABLE))?;
        match open() {
            Some(opening) => drop(tokio::time::timeout(left, opening).await),
            None => tokio::time::sleep(left.min(pause)).await,
        }
        pause = (pause * 2).min(Duration::from_millis(50));
    }
}

#[derive(Default)]
struct Who {
    shelf: Option<Arc<Shelf>>,
    token: Option<Number>,
    refused: Option<Refused>,
}

/// A token counts before the certificate; a wrong one is refused.
fn asker(
    guest: &Guest,
    header: &HeaderMap,
    target: &Target,
    now: SystemTime,
    who: &mut Who,
) -> Result<(Asker, Reach), Refusal> {
    let mut values = header.get_all(AUTHORIZATION).iter();
    let value = match (values.next(), values.next()) {
        (None, _) => return Ok((guest.asker.clone(), Reach::default())),
        (Some(value), None) => value,
        (Some(_), Some(_)) => return Err(Refusal::of(StatusCode::BAD_REQUEST)),
    };
    let house = &guest.seat.house;
    let Some(secret) = &house.secret else { return Err(Refusal::of(StatusCode::FORBIDDEN)) };
    if !guest.is_private() {
        // The token may have been read on the way; accepting it would teach its holder to go on.
        return Err(Refusal::of(StatusCode::FORBIDDEN));
    }
    let token = bearer(value).ok_or(Refused::Malformed).and_then(Token::parse);
    let token = token.ok().filter(|token| secret.made(token)).ok_or_else(|| {
        who.refused = Some(Refused::Forged);
        // Only the holder of a genuine token is told what was wrong.
        Refusal::challenging("Bearer error=\"invalid_token\"")
    })?;
    who.token = Some(token.number());
    let verified = match house.access.is_revoked(token.number()) {
        true => Err(Refused::Revoked),
        false => secret.verify(&token, &target.path, now),
    };
    match verified {
        Ok(line) => Ok((Asker::Token(line.to_owned()), token.reach())),
        Err(why) => {
            who.refused = Some(why);
            Err(Refusal::of_token(why))
        }
    }
}

fn bearer(value: &HeaderValue) -> Option<&str> {
    let (scheme, token) = value.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Logs the answer when its body ended. Fields are not logged: one may hold a token.
fn at_end(guest: Arc<Guest>, request: &Request<()>, response: &mut Response<Body>, (who, begun): (Who, Instant)) {
    let (method, uri, status) = (request.method().clone(), request.uri().clone(), response.status().as_u16());
    let blocked_before = guest.line.blocked_us();
    if guest.seat.member.has_rate() {
        let (payer, line) = (Arc::clone(&guest), Arc::clone(&guest.line));
        let charge = move |bytes| payer.seat.member.charge(bytes, Instant::now());
        response.body_mut().keeps_to(Paced::new(Box::new(charge), line));
    }
    response.body_mut().on_end(Box::new(move |Given { bytes, disk, rate: held }| {
        guest.line.ends();
        let about = match who.shelf.as_ref().filter(|shelf| shelf.is_of_line) {
            Some(shelf) => About::holder(&shelf.name),
            None => About::Stranger(guest.seat.member.source()),
        };
        guest.seat.house.log.about(about, Instant::now(), || {
            let path = uri.path();
            let path = path.get(..LOGGED_PATH_BYTES).unwrap_or(path);
            let Who { shelf, token, refused } = &who;
            let name = shelf.as_ref().map(|shelf| shelf.name.clone());
            let who = name.as_deref().unwrap_or("nobody");
            let token = token.map(|number| format!(", token {number}")).unwrap_or_default();
            let (class_word, class) = guest.seat.member.class().name().map_or(("", ""), |class| (" class ", class));
            let (took, from) = (begun.elapsed(), guest.seat.from);
            let ms = took.as_secs_f64() * 1e3;
            let mut line = format!(
                "web: {who} ({from}{token}){class_word}{class} {method} {path} {status}: {bytes} bytes in {ms:.1} ms"
            );
            if bytes >= RATED_BYTES {
                let blocked = Duration::from_micros(guest.line.blocked_us().saturating_sub(blocked_before));
                let rate = bytes as f64 / took.as_secs_f64() / 1e6;
                let _ = write!(line, " at {rate:.0} MB/s, limited by {}", limit_of(took, blocked, disk, held));
            }
            if let Some(why) = refused {
                let _ = write!(line, ", the token was refused: {why}");
            }
            let class = guest.seat.member.class().name().map(str::to_owned);
            let (method, path) = (method.to_string(), path.to_owned());
            (line, Some(Answered { name, from, class, method, path, status, bytes, took }))
        });
    }));
}

fn limit_of(took: Duration, blocked: Duration, disk: Duration, rate: Duration) -> &'static str {
    if blocked.max(disk).max(rate) * 2 < took {
        "this host"
    } else if rate > blocked.max(disk) {
        "the rate of its network class"
    } else if blocked >= disk {
        "the reader or its path"
    } else {
        "the disk"
    }
}

/// The bytes of a refused body that are thrown away, and the time for it.
const REFUSED_BODY_BYTES: usize = 64 << 10;
const REFUSED_BODY_DEADLINE: Duration = Duration::from_secs(1);

const LOGGED_PATH_BYTES: usize = 512;

/// The least bytes that show a rate.
const RATED_BYTES: u64 = 1 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn most_of_the_time_names_the_limit() {
        let ms = Duration::from_millis;
        for (took, blocked, disk, rate, expected) in [
            (100, 10, 10, 0, "this host"),
            (100, 60, 10, 0, "the reader or its path"),
            (100, 10, 60, 0, "the disk"),
            (100, 10, 10, 80, "the rate of its network class"),
            (0, 0, 0, 0, "the reader or its path"),
        ] {
            let limit = limit_of(ms(took), ms(blocked), ms(disk), ms(rate));
            assert_eq!(limit, expected, "{took} {blocked} {disk} {rate}");
        }
    }
}
