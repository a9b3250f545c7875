//! Short answers in plain text that say why a request was refused.

use std::borrow::Cow;

use bytes::Bytes;
use http::header::{ALLOW, CONNECTION, CONTENT_LENGTH, CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE};
use http::{HeaderValue, Response, StatusCode};

use super::body::Body;
use crate::limits::RETRY_AFTER_S;
use crate::pools::Busy;
use crate::token::Refused;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// Whether the connection ends: later bytes on it may be misread.
    pub(crate) closes: bool,
    /// The parameters of `WWW-Authenticate: Bearer`.
    pub(crate) challenge: Option<Cow<'static, str>>,
    pub(crate) reason: Option<String>,
}

impl From<Busy> for Refusal {
    fn from(_: Busy) -> Refusal {
        Refusal::of(StatusCode::SERVICE_UNAVAILABLE)
    }
}

impl Refusal {
    pub(crate) fn of(status: StatusCode) -> Refusal {
        Refusal { status, closes: false, challenge: None, reason: None }
    }

    pub(crate) fn closing(status: StatusCode) -> Refusal {
        Refusal { status, closes: true, challenge: None, reason: None }
    }

    /// Asks for a token: 401 (RFC 6750).
    pub(crate) fn challenging(parameters: &'static str) -> Refusal {
        Refusal { challenge: Some(parameters.into()), ..Refusal::of(StatusCode::UNAUTHORIZED) }
    }

    pub(crate) fn of_token(why: Refused) -> Refusal {
        let challenge = format!("Bearer error=\"invalid_token\", error_description=\"{why}\"");
        Refusal {
            challenge: Some(challenge.into()),
            reason: Some(format!("of the token: {why}")),
            ..Refusal::of(StatusCode::UNAUTHORIZED)
        }
    }
}

pub(crate) fn refusal(refused: &Refusal, is_head: bool) -> Response<Body> {
    let status = refused.status;
    let reason = refused.reason.as_ref().map(|reason| format!(" because {reason}")).unwrap_or_default();
    let text =
        format!("{} {}{reason}\n", status.as_str(), status.canonical_reason().unwrap_or_default().to_lowercase());
    let length = text.len();
    let body = if is_head { Body::empty() } else { Body::full(Bytes::from(text)) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let header = response.headers_mut();
    header.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    header.insert(CONTENT_LENGTH, length.into());
    if refused.closes {
        header.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if let Some(challenge) = refused.challenge.as_deref().and_then(|challenge| HeaderValue::from_str(challenge).ok()) {
        header.insert(WWW_AUTHENTICATE, challenge);
    }
    if status == StatusCode::SERVICE_UNAVAILABLE {
        header.insert(RETRY_AFTER, RETRY_AFTER_S.into());
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        header.insert(ALLOW, HeaderValue::from_static("GET, HEAD"));
    }
    response
}
