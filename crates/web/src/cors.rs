//! Which pages of other origins may read answers (Cross-Origin Resource Sharing, fetch.spec.whatwg.org).

use http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ACCESS_CONTROL_REQUEST_METHOD, CONTENT_LENGTH, ORIGIN, VARY,
};
use http::{HeaderMap, HeaderValue, Method, Request, Uri};

/// The allowed origins. A page sends a token itself; a browser's own credentials are never taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Option<Vec<HeaderValue>>,
}

impl Cors {
    /// Reads `*`, or origins such as `https://viewer.example`. `None`: there are none.
    pub fn parse(words: &[String]) -> Result<Option<Cors>, String> {
        if words.is_empty() {
            return Ok(None);
        }
        if words.iter().any(|word| word == "*") {
            return Ok(Some(Cors { origins: None }));
        }
        let origins = words.iter().map(|word| origin(word).ok_or_else(|| format!("'{word}' is no origin")));
        Ok(Some(Cors { origins: Some(origins.collect::<Result<_, _>>()?) }))
    }

    pub(crate) fn allowed(&self, header: &HeaderMap) -> Option<HeaderValue> {
        let origin = header.get(ORIGIN)?;
        match &self.origins {
            None => Some(HeaderValue::from_static("*")),
            Some(origins) => origins.contains(origin).then(|| origin.clone()),
        }
    }

    pub(crate) fn is_preflight<B>(request: &Request<B>) -> bool {
        *request.method() == Method::OPTIONS
            && request.headers().contains_key(ORIGIN)
            && request.headers().contains_key(ACCESS_CONTROL_REQUEST_METHOD)
    }

    pub(crate) fn grant(header: &mut HeaderMap) {
        header.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, HEAD"));
        header.insert(ACCESS_CONTROL_ALLOW_HEADERS, HeaderValue::from_static(ASKED_FIELDS));
        header.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("86400"));
        header.insert(CONTENT_LENGTH, 0.into());
    }

    pub(crate) fn describe(&self, header: &mut HeaderMap, allowed: Option<HeaderValue>) {
        if self.origins.is_some() {
            header.append(VARY, HeaderValue::from_static("Origin"));
        }
        let Some(allowed) = allowed else { return };
        header.insert(ACCESS_CONTROL_ALLOW_ORIGIN, allowed);
        header.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static(ANSWERED_FIELDS));
    }
}

fn origin(word: &str) -> Option<HeaderValue> {
    let uri: Uri = word.parse().ok()?;
    let (scheme, authority) = (uri.scheme_str()?, uri.authority()?);
    let same = format!("{scheme}://{authority}").to_ascii_lowercase();
    (same == word && matches!(scheme, "http" | "https") && !word.contains('@'))
        .then(|| HeaderValue::from_str(word).ok())?
}

const ASKED_FIELDS: &str = "Accept, Authorization, Range, If-Match, If-None-Match, If-Modified-Since, If-Unmodified-Since, If-Range, \
                            Want-Repr-Digest, Want-Digest";

/// Fields that a page may read beside those it always may.
const ANSWERED_FIELDS: &str = "Accept-Ranges, Content-Disposition, Content-Encoding, Content-Length, Content-Range, Digest, ETag, Link, \
                               Repr-Digest, Retry-After, WWW-Authenticate";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_those_that_a_browser_sends() {
        let parse = |words: &[&str]| Cors::parse(&words.iter().map(|word| (*word).to_owned()).collect::<Vec<_>>());
        assert_eq!(parse(&[]), Ok(None));
        assert_eq!(parse(&["https://a.example", "*"]), Ok(Some(Cors { origins: None })));
        for wrong in ["a.example", "https://a.example/", "https://A.example", "ftp://a", "https://u@a", "null", ""] {
            assert!(parse(&[wrong]).is_err(), "{wrong}");
        }
        let cors = parse(&["https://a.example", "http://b:8080"]).unwrap().unwrap();
        let allowed =
            |origin: &'static str| cors.allowed(&HeaderMap::from_iter([(ORIGIN, HeaderValue::from_static(origin))]));
        assert_eq!(allowed("http://b:8080").unwrap(), "http://b:8080");
        for other in ["http://b", "https://b:8080", "null", "https://a.example.evil"] {
            assert_eq!(allowed(other), None, "{other}");
        }
        assert_eq!(cors.allowed(&HeaderMap::new()), None);
    }
}
