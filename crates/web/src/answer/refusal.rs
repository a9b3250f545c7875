//! Short answers in plain text: why a request was not carried out.

use bytes::Bytes;
use http::header::{CONNECTION, CONTENT_LENGTH, CONTENT_TYPE};
use http::{HeaderValue, Response, StatusCode};

use super::allowed;
use super::body::Body;

/// A refusal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: StatusCode,
    /// What follows on the connection may not be what it seems: it ends here.
    pub(crate) closes: bool,
}

impl Refusal {
    pub(crate) fn of(status: StatusCode) -> Refusal {
        Refusal { status, closes: false }
    }

    pub(crate) fn closing(status: StatusCode) -> Refusal {
        Refusal { status, closes: true }
    }
}

/// Its answer. HEAD has the length and no text.
pub(crate) fn refusal(refused: &Refusal, is_head: bool) -> Response<Body> {
    let status = refused.status;
    let text = format!("{} {}\n", status.as_str(), status.canonical_reason().unwrap_or_default().to_lowercase());
    let length = text.len();
    let body = if is_head { Body::empty() } else { Body::full(Bytes::from(text), None) };
    let mut response = Response::new(body);
    *response.status_mut() = status;
    let header = response.headers_mut();
    header.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    header.insert(CONTENT_LENGTH, length.into());
    if refused.closes {
        header.insert(CONNECTION, HeaderValue::from_static("close"));
    }
    if status == StatusCode::METHOD_NOT_ALLOWED {
        allowed(&mut response);
    }
    response
}
