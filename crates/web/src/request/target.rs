//! The target of a request: its path as bytes, and the wishes of its query.

use percent_encoding::percent_decode;

use crate::limits::MAX_TARGET_BYTES;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Target {
    /// The path without a slash at either end.
    pub(crate) path: Vec<u8>,
    /// The path ended in a slash or dots, so it means a directory.
    pub(crate) is_directory: bool,
    /// The path as written, if it has segments of dots.
    pub(crate) dotted: Option<String>,
    pub(crate) wishes: Wishes,
}

/// The wishes of the query. Unknown words are ignored: caches add some.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wishes {
    /// `?download`: the file is saved, not shown.
    pub(crate) download: bool,
    pub(crate) json: bool,
    pub(crate) manifest: bool,
    pub(crate) tar: bool,
    /// `?sort=name`, `?sort=-size` ...
    pub(crate) order: Order,
    pub(crate) limit: Option<usize>,
    /// `?after=...`: only names behind this one.
    pub(crate) after: Option<Vec<u8>>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Order {
    pub(crate) by: Column,
    pub(crate) is_reverse: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Column {
    #[default]
    Name,
    Size,
    Time,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BadTarget {
    TooLong,
    /// `%` without two digits, a NUL, `..` above the root, or a slash written as `%2F`.
    Malformed,
}

impl Target {
    /// Reads path and query. Segments of dots, also encoded, go before any path is looked at: rclone asks for `/./a:b`.
    pub(crate) fn parse(path: &str, query: Option<&str>) -> Result<Target, BadTarget> {
        if path.len() + query.map_or(0, str::len) > MAX_TARGET_BYTES {
            return Err(BadTarget::TooLong);
        }
        let rest = path.strip_prefix('/').ok_or(BadTarget::Malformed)?;
        let mut decoded: Vec<u8> = Vec::with_capacity(rest.len());
        let mut is_directory = true;
        for component in rest.split('/') {
            let component = decode(component)?;
            is_directory = matches!(component.as_slice(), b"" | b"." | b"..");
            match component.as_slice() {
                b"" | b"." => {}
                // RFC 3986, section 5.2.4, would stay at the root. Clients resolve the dots of links, so this is an attempt to
                // leave; nginx refuses it, too.
                b".." if decoded.is_empty() => return Err(BadTarget::Malformed),
                b".." => decoded.truncate(decoded.iter().rposition(|byte| *byte == b'/').unwrap_or(0)),
                name if name.iter().any(|byte| matches!(byte, b'/' | 0)) => return Err(BadTarget::Malformed),
                name => {
                    if !decoded.is_empty() {
                        decoded.push(b'/');
                    }
                    decoded.extend_from_slice(name);
                }
            }
        }
        let has_dots = rest.split('/').any(|component| matches!(component, "." | ".."));
        let dotted = has_dots.then(|| path.to_owned());
        Ok(Target { path: decoded, is_directory, dotted, wishes: Wishes::parse(query.unwrap_or_default()) })
    }

    pub(crate) fn name(&self) -> &[u8] {
        self.path.rsplit(|byte| *byte == b'/').next().unwrap_or_default()
    }
}

impl Wishes {
    fn parse(query: &str) -> Wishes {
        let mut wishes = Wishes::default();
        for word in query.split('&') {
            match word.split_once('=').unwrap_or((word, "")) {
                ("download", _) => wishes.download = true,
                ("json", _) => wishes.json = true,
                ("manifest", _) => wishes.manifest = true,
                ("limit", number) => wishes.limit = number.parse().ok().filter(|number| *number > 0).or(wishes.limit),
                ("after", marker) => wishes.after = Some(percent_decode(marker.as_bytes()).collect()),
                ("tar", _) => wishes.tar = true,
                ("sort", order) => wishes.order = Order::parse(order).unwrap_or(wishes.order),
                _ => {}
            }
        }
        wishes
    }
}

impl Order {
    pub(crate) fn text(self) -> String {
        let column = match self.by {
            Column::Name => "name",
            Column::Size => "size",
            Column::Time => "time",
        };
        format!("{}{column}", if self.is_reverse { "-" } else { "" })
    }

    fn parse(text: &str) -> Option<Order> {
        let (is_reverse, column) = match text.strip_prefix('-') {
            Some(column) => (true, column),
            None => (false, text),
        };
        let by = match column {
            "name" => Column::Name,
            "size" => Column::Size,
            "time" => Column::Time,
            _ => return None,
        };
        Some(Order { by, is_reverse })
    }
}

fn decode(component: &str) -> Result<Vec<u8>, BadTarget> {
    let bytes = component.as_bytes();
    let is_whole = |at: usize| bytes.get(at + 1..at + 3).is_some_and(|two| two.iter().all(u8::is_ascii_hexdigit));
    match (0..bytes.len()).all(|at| bytes[at] != b'%' || is_whole(at)) {
        true => Ok(percent_decode(bytes).collect()),
        false => Err(BadTarget::Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<Vec<u8>, BadTarget> {
        Target::parse(text, None).map(|target| target.path)
    }

    #[test]
    fn any_bytes_of_a_name_can_be_asked_for() {
        assert_eq!(path("/"), Ok(b"".to_vec()));
        assert_eq!(path("/a%20b/%C3%BC"), Ok("a b/ü".into()));
        assert_eq!(path("/ü"), Ok("ü".into()));
        assert_eq!(path("/%ff%01%0a?"), Ok(b"\xff\x01\n?".to_vec()));
        assert_eq!(path("//a///b/"), Ok(b"a/b".to_vec()));
        assert_eq!(path("/..."), Ok(b"...".to_vec()));
        assert_eq!(path("/a%5c..%5cb"), Ok(b"a\\..\\b".to_vec()), "a backslash is an ordinary byte of a name");
        assert_eq!(path("/%252e%252e/x"), Ok(b"%2e%2e/x".to_vec()), "nothing is decoded twice");
    }

    #[test]
    fn what_could_lead_out_is_refused() {
        for text in [
            "",
            "a",
            "*",
            "/..",
            "/../x",
            "/a/../..",
            "/a/../../b",
            "/a/b/../../../c",
            "/./..",
            "//..",
            "/%2e%2e/x",
            "/a/%2e%2e/.%2e/x",
            "/%2e/../x",
            "/%2E%2e",
            "/.%2e/",
            "/a%2fb",
            "/a%2Fb",
            "/%2f",
            "/%00",
            "/a%00.txt",
            "/%",
            "/%2",
            "/%zz",
            "/a%",
        ] {
            assert_eq!(path(text), Err(BadTarget::Malformed), "{text}");
        }
        assert_eq!(path(&"/a".repeat(MAX_TARGET_BYTES)), Err(BadTarget::TooLong));
    }

    #[test]
    fn segments_of_dots_are_taken_away_beneath_the_root() {
        for (text, expected, is_directory) in [
            ("/./2026-11-25T10:00.fits", "2026-11-25T10:00.fits", false),
            ("/%2e/a", "a", false),
            ("/.", "", true),
            ("/a/.", "a", true),
            ("/a/./b", "a/b", false),
            ("/a/..", "", true),
            ("/a/../b", "b", false),
            ("/a/b/%2E%2e/c/", "a/c", true),
            ("/a/b/..", "a", true),
            ("/a//../b", "b", false),
            ("/.../..a/.b/c..", ".../..a/.b/c..", false),
        ] {
            let target = Target::parse(text, None).unwrap();
            assert_eq!((target.path, target.is_directory), (expected.into(), is_directory), "{text}");
        }
    }

    #[test]
    fn wishes_are_words_of_the_query() {
        let wishes = |query| Target::parse("/", Some(query)).unwrap().wishes;
        assert!(wishes("download").download && wishes("x=1&json").json && wishes("manifest=").manifest);
        assert_eq!(wishes("sort=-size").order, Order { by: Column::Size, is_reverse: true });
        assert_eq!(wishes("sort=nonsense").order, Order::default());
        assert_eq!((wishes("limit=0").limit, wishes("limit=x&limit=7").limit), (None, Some(7)));
        assert_eq!(wishes("after=a%26b%ff/").after, Some(b"a&b\xff/".to_vec()));
        for text in ["name", "-name", "size", "-time"] {
            assert_eq!(Order::parse(text).unwrap().text(), text);
        }
        assert_eq!(wishes("utm=1&&=&%zz"), Wishes::default());
    }
}
