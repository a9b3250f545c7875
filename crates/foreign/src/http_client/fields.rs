//! Fields of a head that several readers want.

use http::header::CONTENT_LENGTH;
use http::{HeaderMap, HeaderName, response};

/// Returns a field's only value.
pub(crate) fn text<'a>(header: &'a HeaderMap, name: &HeaderName) -> Option<&'a str> {
    header.get(name)?.to_str().ok().map(str::trim)
}

pub(crate) fn content_length(head: &response::Parts) -> Option<u64> {
    text(&head.headers, &CONTENT_LENGTH)?.parse().ok()
}
