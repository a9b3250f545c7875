//! The address of a resource: an origin, and a path with a query (RFC 3986).

use std::fmt;
use std::net::IpAddr;

use percent_encoding::{percent_decode, percent_encode};

use crate::http_client::limits::MAX_URL_BYTES;

/// Scheme, host and port: the owner of credentials and connections (RFC 6454).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// `https`, not `http`.
    pub is_tls: bool,
    /// A name or an address, without brackets, in lower case.
    pub host: String,
    /// The port, also if usual.
    pub port: u16,
}

impl Origin {
    /// The port that a URL of this scheme need not name.
    pub fn usual_port(is_tls: bool) -> u16 {
        if is_tls { 443 } else { 80 }
    }

    /// Whether it is an address of this host. A name depends on a resolver.
    pub(crate) fn is_loopback(&self) -> bool {
        self.host.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
    }

    pub(crate) fn authority(&self) -> String {
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        if self.port == Self::usual_port(self.is_tls) { host } else { format!("{host}:{}", self.port) }
    }

    /// Reads `host`, `host:port` or `[v6]:port`. A user in front is dropped, because credentials in links belong to nobody.
    fn parse(is_tls: bool, authority: &str) -> Option<Origin> {
        let authority = authority.rsplit('@').next()?;
        let (host, port) = match authority.strip_prefix('[') {
            Some(rest) => {
                let (host, port) = rest.split_once(']')?;
                (host, port.strip_prefix(':').unwrap_or(port))
            }
            None => authority.split_once(':').unwrap_or((authority, "")),
        };
        let port =
            if port.is_empty() { Self::usual_port(is_tls) } else { port.parse().ok().filter(|port| *port > 0)? };
        (!host.is_empty()).then(|| Origin { is_tls, host: host.to_ascii_lowercase(), port })
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", if self.is_tls { "https" } else { "http" }, self.authority())
    }
}

/// The address of one resource, printed without its query, which may be a signature.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Url {
    origin: Origin,
    /// The request's path and query: a slash first, visible ASCII alone.
    target: String,
}

impl Url {
    /// Escapes a typed path, and drops a fragment (`#...`). `None`: it is too long.
    pub fn new(origin: Origin, typed: &[u8]) -> Option<Url> {
        let typed = typed.split(|byte| *byte == b'#').next().unwrap_or_default();
        let mut target = escaped(typed);
        if !target.starts_with('/') {
            target.insert(0, '/');
        }
        let (path, query) = split_query(&target);
        let target = without_dots(path) + query;
        (target.len() <= MAX_URL_BYTES).then_some(Url { origin, target })
    }

    /// Resolves a link (RFC 3986, section 5.2). `None`: it leads to no file of a web server.
    pub(crate) fn join(&self, link: &[u8]) -> Option<Url> {
        let link = link.trim_ascii();
        let link = link.split(|byte| *byte == b'#').next().unwrap_or_default();
        let has_scheme = || {
            let end = link.iter().position(|byte| matches!(byte, b':' | b'/' | b'?'))?;
            (link[end] == b':').then_some(end)
        };
        if let Some(end) = has_scheme() {
            let is_tls = match link[..end].to_ascii_lowercase().as_slice() {
                b"http" => false,
                b"https" => true,
                _ => return None,
            };
            return Self::of_authority(is_tls, link[end + 1..].strip_prefix(b"//")?);
        }
        if let Some(rest) = link.strip_prefix(b"//") {
            return Self::of_authority(self.origin.is_tls, rest);
        }
        let path = split_query(&self.target).0;
        let directory = &path[..=path.rfind('/').unwrap_or(0)];
        let base: &[u8] = match link.first() {
            Some(b'/') => b"",
            Some(b'?') => path.as_bytes(),
            None => self.target.as_bytes(),
            Some(_) => directory.as_bytes(),
        };
        Url::new(self.origin.clone(), &[base, link].concat())
    }

    pub(crate) fn parse(text: &[u8]) -> Option<Url> {
        let end = text.windows(3).position(|three| three == b"://")?;
        let is_tls = match text[..end].to_ascii_lowercase().as_slice() {
            b"http" => false,
            b"https" => true,
            _ => return None,
        };
        Self::of_authority(is_tls, &text[end + 3..])
    }

    fn of_authority(is_tls: bool, rest: &[u8]) -> Option<Url> {
        let end = rest.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(rest.len());
        let origin = Origin::parse(is_tls, std::str::from_utf8(&rest[..end]).ok()?)?;
        Url::new(origin, &rest[end..])
    }

    /// The destination of requests.
    pub fn origin(&self) -> &Origin {
        &self.origin
    }

    pub(crate) fn target(&self) -> &str {
        &self.target
    }

    pub(crate) fn path(&self) -> &str {
        split_query(&self.target).0
    }

    pub(crate) fn has_query(&self) -> bool {
        self.target.contains('?')
    }

    /// Whether the path ends in a slash: a directory.
    pub fn is_directory(&self) -> bool {
        self.path().ends_with('/')
    }

    /// The last name, unescaped; empty for the top of a server.
    pub fn name(&self) -> Vec<u8> {
        let path = self.path().trim_end_matches('/');
        decoded(&path[path.rfind('/').map_or(0, |at| at + 1)..])
    }

    /// Returns the URL of an escaped name here; `None` if too long.
    pub(crate) fn child(&self, escaped: &str) -> Option<Url> {
        let path = self.path();
        let slash = if path.ends_with('/') { "" } else { "/" };
        let target = format!("{path}{slash}{escaped}");
        (target.len() <= MAX_URL_BYTES).then(|| Url { origin: self.origin.clone(), target })
    }

    /// `None`: this is the top.
    pub(crate) fn parent(&self) -> Option<Url> {
        let path = self.path().trim_end_matches('/');
        let at = path.rfind('/')?;
        Some(Url { origin: self.origin.clone(), target: path[..=at].to_owned() })
    }

    pub(crate) fn as_directory(&self) -> Url {
        let (path, query) = split_query(&self.target);
        let slash = if path.ends_with('/') { "" } else { "/" };
        Url { origin: self.origin.clone(), target: format!("{path}{slash}{query}") }
    }
}

impl fmt::Display for Url {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (path, query) = split_query(&self.target);
        write!(f, "{}{path}{}", self.origin, if query.is_empty() { "" } else { "?..." })
    }
}

pub(crate) fn decoded(escaped: &str) -> Vec<u8> {
    percent_decode(escaped.as_bytes()).collect()
}

fn split_query(target: &str) -> (&str, &str) {
    target.split_at(target.find('?').unwrap_or(target.len()))
}

/// Escapes controls, spaces, bytes beyond ASCII, and `%` without two digits.
fn escaped(typed: &[u8]) -> String {
    let mut text = String::with_capacity(typed.len());
    for (at, byte) in typed.iter().enumerate() {
        let is_escape = || typed.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
        match byte {
            b'%' if !is_escape() => text.push_str("%25"),
            b'!'..=b'~' if !FORBIDDEN.contains(byte) => text.push(char::from(*byte)),
            byte => text.extend(percent_encode(&[*byte], percent_encoding::NON_ALPHANUMERIC)),
        }
    }
    text
}

/// Visible characters that are neither reserved nor unreserved (RFC 3986, appendix A).
const FORBIDDEN: &[u8] = b"\"<>\\^`{|}";

/// Removes `.` and `..` (RFC 3986, section 5.2.4), to show what a path is beneath.
fn without_dots(path: &str) -> String {
    let mut kept: Vec<&str> = Vec::new();
    let mut parts = path.split('/').skip(1).peekable();
    while let Some(part) = parts.next() {
        let is_last = parts.peek().is_none();
        match part {
            "." | ".." => {
                if part == ".." {
                    kept.pop();
                }
                if is_last {
                    kept.push("");
                }
            }
            part => kept.push(part),
        }
    }
    format!("/{}", kept.join("/"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn url(path: &str) -> Url {
        let origin = Origin { is_tls: true, host: "host".to_owned(), port: 443 };
        Url::new(origin, path.as_bytes()).unwrap()
    }

    #[test]
    fn what_was_typed_becomes_a_target_without_bytes_that_no_url_has() {
        for (typed, target) in [
            ("", "/"),
            ("/a b", "/a%20b"),
            ("/a%20b", "/a%20b"),
            ("/100%", "/100%25"),
            ("/%zz", "/%25zz"),
            ("/\u{e4}", "/%C3%A4"),
            ("/a?b=c d#part", "/a?b=c%20d"),
            ("/a/./b/../c", "/a/c"),
            ("/../..", "/"),
            ("/a/..", "/"),
            ("/a/../../b/", "/b/"),
            ("/a?x=/../", "/a?x=/../"),
            ("/a;b+c&d", "/a;b+c&d"),
        ] {
            assert_eq!(url(typed).target(), target, "{typed}");
        }
    }

    #[test]
    fn links_are_resolved_as_browsers_do() {
        let page = url("/d/e/?C=N;O=D");
        for (link, expected) in [
            ("f", Some("https://host/d/e/f")),
            ("./f", Some("https://host/d/e/f")),
            ("../", Some("https://host/d/")),
            ("/g/", Some("https://host/g/")),
            ("?C=M", Some("https://host/d/e/?...")),
            ("", Some("https://host/d/e/?...")),
            ("//other:81/x", Some("https://other:81/x")),
            ("http://HOST/x", Some("http://host/x")),
            ("https://me:secret@[::1]:8443/x", Some("https://[::1]:8443/x")),
            ("a b", Some("https://host/d/e/a%20b")),
            ("mailto:me@host", None),
            ("javascript:void(0)", None),
            ("http:relative", None),
            ("https://host:99999/", None),
        ] {
            assert_eq!(page.join(link.as_bytes()).map(|url| url.to_string()).as_deref(), expected, "{link}");
        }
    }

    #[test]
    fn a_name_is_the_last_part_with_its_escapes_undone() {
        for (path, name) in [("/a/b%20c", "b c"), ("/d/", "d"), ("/", ""), ("/f?x=/y", "f"), ("/a%2Fb", "a/b")] {
            assert_eq!(url(path).name(), name.as_bytes(), "{path}");
        }
        assert_eq!(url("/d").as_directory().target(), "/d/");
    }
}
