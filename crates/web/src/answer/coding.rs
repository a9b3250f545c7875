//! A file's compressed neighbour, `x.zst` or `x.gz` beside `x`, for readers that take it.

use http::HeaderMap;
use http::header::ACCEPT_ENCODING;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coding {
    pub(crate) name: &'static str,
    pub(crate) suffix: &'static [u8],
}

const CODINGS: [Coding; 2] = [Coding { name: "zstd", suffix: b".zst" }, Coding { name: "gzip", suffix: b".gz" }];

/// `*` names no coding: old programs send it and cannot decompress.
pub(crate) fn taken(header: &HeaderMap) -> impl Iterator<Item = Coding> {
    CODINGS.into_iter().filter(|coding| {
        let values = header.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|member| {
            let mut words = member.split(';').map(str::trim);
            let is_it = words.next().is_some_and(|name| name.eq_ignore_ascii_case(coding.name));
            let is_refused = |word: &str| {
                let weight = word.strip_prefix("q=").or_else(|| word.strip_prefix("Q="));
                weight.is_some_and(|weight| !weight.bytes().any(|digit| matches!(digit, b'1'..=b'9')))
            };
            is_it && !words.any(is_refused)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reader_gets_what_it_names() {
        for (value, expected) in [
            ("gzip", &["gzip"][..]),
            ("br, GZIP;q=0.5 , zstd", &["zstd", "gzip"]),
            ("gzip;q=0, zstd; q=0.000", &[]),
            ("gzip;q=0.001", &["gzip"]),
            ("*", &[]),
            ("identity", &[]),
            ("gzipx, xzstd", &[]),
            ("", &[]),
        ] {
            let header = HeaderMap::from_iter([(ACCEPT_ENCODING, value.parse().unwrap())]);
            assert_eq!(taken(&header).map(|coding| coding.name).collect::<Vec<_>>(), expected, "{value}");
        }
    }
}
