//! Paths of resources, which servers write absolute or not, escaped or not.

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode, percent_encode};

/// Leaves RFC 3986's unreserved bytes (section 2.3): servers have lost names behind `;` and `=`.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~');

pub(crate) fn escaped(name: &[u8]) -> String {
    percent_encode(name, ESCAPED).to_string()
}

/// The unescaped names, and whether the path ends in a slash.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Names {
    pub(crate) names: Vec<Vec<u8>>,
    pub(crate) has_slash: bool,
}

impl Names {
    /// The host in `href` does not matter: behind a proxy a server does not know its own.
    pub(crate) fn of_href(href: &str) -> Names {
        let href = href.trim();
        let path = match href.split_once("://") {
            Some((scheme, rest)) if scheme.bytes().all(|byte| byte.is_ascii_alphanumeric()) => {
                rest.find('/').map_or("/", |at| &rest[at..])
            }
            _ => href,
        };
        // nginx writes names raw.
        let is_raw = path.bytes().any(|byte| !byte.is_ascii_graphic() || b"\"<>\\^`{|}".contains(&byte));
        Self::of(path, |name| if is_raw { name.as_bytes().to_vec() } else { percent_decode(name.as_bytes()).collect() })
    }

    pub(crate) fn of_path(path: &str) -> Names {
        Self::of(path, |name| percent_decode(name.as_bytes()).collect())
    }

    fn of(path: &str, decoded: impl Fn(&str) -> Vec<u8>) -> Names {
        let names = path.split('/').filter(|name| !name.is_empty() && *name != ".").map(decoded);
        Names { names: names.collect(), has_slash: path.ends_with('/') }
    }

    pub(crate) fn beneath(&self, directory: &Names) -> Option<&[Vec<u8>]> {
        self.names.strip_prefix(&directory.names[..])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_from_every_way_to_write_them() {
        let directory = Names::of_path("/d%C3%A4/e/");
        for (href, name) in [
            ("/d%C3%A4/e/a%20b", "a b"),
            ("/d%c3%a4/e/a%20b", "a b"),
            ("https://other:8443/d%C3%A4/e/a%20b/", "a b"),
            ("/d\u{e4}/e/a b", "a b"),
            ("/d\u{e4}/e/100%25", "100%25"),
            ("/d%C3%A4/e/100%25", "100%"),
            ("/d%C3%A4//e/x?y#z", "x?y#z"),
            (" /d\u{e4}/e/\u{202e} ", "\u{202e}"),
            ("/d%C3%A4/e/a%2Fb", "a/b"),
            ("/d%C3%A4/e/..", ".."),
        ] {
            let names = Names::of_href(href);
            assert_eq!(names.beneath(&directory), Some(&[name.as_bytes().to_vec()][..]), "{href}");
        }
        assert_eq!(Names::of_href("/d/e/f").beneath(&directory), None);
        assert_eq!(Names::of_href("/d%C3%A4/e").beneath(&directory), Some(&[][..]));
        assert_eq!(escaped("a;b=c&d%~\u{e4}/".as_bytes()), "a%3Bb%3Dc%26d%25~%C3%A4%2F");
    }
}
