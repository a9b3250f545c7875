//! Digests in the fields of an answer. Unreadable and unknown ones are ignored.
//!
//! ```text
//! Repr-Digest: sha-256=:BASE64:, adler=:BASE64:      RFC 9530
//! Digest: adler32=3da0195, md5=BASE64                RFC 3230; grids leave leading zeros of adler32 out
//! Content-MD5: BASE64                                RFC 1864; of the part, where a part is sent
//! OC-Checksum: SHA1:HEX                              ownCloud, Nextcloud
//! ```

use haul_store::SumKind;
use http::header::{HeaderMap, HeaderName, HeaderValue};
use http::{StatusCode, response};

use crate::digest::{Digest, bytes_of};

/// Asks for digests. Adler-32 comes first: parts in any order give it, and grids keep it.
const WANTED: [(HeaderName, &str); 2] = [
    (HeaderName::from_static("want-repr-digest"), "adler=9, sha-256=8, sha-512=4, md5=2"),
    (HeaderName::from_static("want-digest"), "adler32, sha-256;q=0.8, sha-512;q=0.4, md5;q=0.2"),
];

/// Asks for the whole content's sum. A server may compute it first, and answer late.
pub(crate) fn wanted() -> Vec<(HeaderName, HeaderValue)> {
    WANTED.map(|(name, value)| (name, HeaderValue::from_static(value))).to_vec()
}

/// Servers give one to five.
const MAX_ENTRIES: usize = 16;

/// Finds digests of the whole content, also in the head of a part. If none `were_wanted`, XRootD 5 repeats in `Digest` its
/// earlier answer about another file.
pub(crate) fn of_answer(head: &response::Parts, were_wanted: bool) -> Vec<Digest> {
    let mut digests = Vec::new();
    entries(&head.headers, "repr-digest").filter_map(of_structured).for_each(|digest| digests.push(digest));
    let instance = entries(&head.headers, "digest").filter(|_| were_wanted);
    instance.filter_map(of_instance).for_each(|digest| digests.push(digest));
    if head.status == StatusCode::OK {
        let md5 = |text: &str| Digest::new(SumKind::Md5, haul_net::base64_bytes(text)?);
        entries(&head.headers, "content-md5").filter_map(md5).for_each(|digest| digests.push(digest));
    }
    entries(&head.headers, "oc-checksum").flat_map(of_words).for_each(|digest| digests.push(digest));
    digests.truncate(MAX_ENTRIES);
    digests
}

fn entries<'a>(headers: &'a HeaderMap, name: &str) -> impl Iterator<Item = &'a str> {
    let values = headers.get_all(name).into_iter().filter_map(|value| value.to_str().ok());
    values.flat_map(|value| value.split(',')).map(str::trim).take(MAX_ENTRIES)
}

/// Reads `sha-256=:BASE64:` with optional parameters (RFC 9530, RFC 8941).
fn of_structured(entry: &str) -> Option<Digest> {
    let (name, value) = entry.split_once('=')?;
    let value = value.split(';').next()?.trim();
    let base64 = value.strip_prefix(':')?.strip_suffix(':')?;
    Digest::new(kind(name)?, haul_net::base64_bytes(base64)?)
}

/// Reads `adler32=HEX`, `md5=BASE64`; some servers use hex for the others.
fn of_instance(entry: &str) -> Option<Digest> {
    let (name, value) = entry.split_once('=')?;
    let (kind, value) = (kind(name)?, value.trim());
    match kind {
        SumKind::Adler32 => of_hex(kind, value),
        _ if value.len() == 2 * bytes_of(kind) => of_hex(kind, value),
        _ => Digest::new(kind, haul_net::base64_bytes(value)?),
    }
}

/// Reads properties of WebDAV: `SHA1:HEX ADLER32:HEX`, `adler32=HEX,md5=BASE64`.
pub(crate) fn of_words(text: &str) -> impl Iterator<Item = Digest> {
    let words = text.split([',', ' ', '\t', '\n', '\r']).filter(|word| !word.is_empty()).take(MAX_ENTRIES);
    words.filter_map(|word| of_owncloud(word).or_else(|| of_instance(word)))
}

/// Reads `SHA1:HEX`, `MD5:HEX`, `ADLER32:HEX`.
fn of_owncloud(word: &str) -> Option<Digest> {
    let (name, value) = word.split_once(':')?;
    of_hex(kind(name)?, value.trim())
}

/// Reads hexadecimal digits. Adler-32 may lack leading zeros.
pub fn of_hex(kind: SumKind, digits: &str) -> Option<Digest> {
    let wanted = 2 * bytes_of(kind);
    let missing = wanted.checked_sub(digits.len())?;
    let may_be_short = kind == SumKind::Adler32 && !digits.is_empty();
    if (missing > 0 && !may_be_short) || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let digits = "0".repeat(missing) + digits;
    let bytes = (0..wanted).step_by(2).map(|at| u8::from_str_radix(&digits[at..at + 2], 16).ok());
    Digest::new(kind, bytes.collect::<Option<Vec<u8>>>()?)
}

fn kind(name: &str) -> Option<SumKind> {
    match name.trim().to_ascii_lowercase().as_str() {
        "adler" | "adler32" => Some(SumKind::Adler32),
        "md5" => Some(SumKind::Md5),
        "sha" | "sha1" | "sha-1" => Some(SumKind::Sha1),
        "sha-256" | "sha256" => Some(SumKind::Sha256),
        "sha-512" | "sha512" => Some(SumKind::Sha512),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn digests(status: u16, fields: &[(&str, &str)]) -> Vec<(SumKind, String)> {
        let mut response = http::Response::builder().status(status);
        for (name, value) in fields {
            response = response.header(*name, *value);
        }
        let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        let found = of_answer(&response.body(()).unwrap().into_parts().0, true);
        found.iter().map(|digest| (digest.kind, hex(&digest.value))).collect()
    }

    /// The sums of `0123456789`.
    const ADLER32: &str = "0aff020e";
    const MD5: &str = "781e5e245d69b566979b86e28d23f2c7";

    #[test]
    fn each_generation_of_fields_is_read() {
        let adler32 = vec![(SumKind::Adler32, ADLER32.to_owned())];
        let md5 = vec![(SumKind::Md5, MD5.to_owned())];
        for (fields, expected) in [
            ([("Repr-Digest", "adler=:Cv8CDg==:")], &adler32),
            ([("Repr-Digest", "md5=:eB5eJF1ptWaXm4bijSPyxw==:;q=1")], &md5),
            ([("Digest", "adler32=aff020e")], &adler32),
            ([("Digest", "ADLER32=0AFF020E")], &adler32),
            ([("Digest", "md5=eB5eJF1ptWaXm4bijSPyxw==")], &md5),
            ([("Digest", "md5=781e5e245d69b566979b86e28d23f2c7")], &md5),
            ([("Digest", "UNIXsum=30637, adler32=aff020e, crc32c=xyz")], &adler32),
            ([("Content-MD5", "eB5eJF1ptWaXm4bijSPyxw==")], &md5),
            ([("OC-Checksum", "MD5:781e5e245d69b566979b86e28d23f2c7")], &md5),
            ([("OC-Checksum", "SHA3-256:00 ADLER32:0aff020e")], &adler32),
        ] {
            assert_eq!(&digests(200, &fields), expected, "{fields:?}");
        }
    }

    #[test]
    fn what_is_no_digest_says_nothing() {
        for field in [
            ("Repr-Digest", "sha-256=:AAAA:"),
            ("Repr-Digest", "adler=Cv8CDg=="),
            ("Repr-Digest", "adler=:***:"),
            ("Digest", "adler32="),
            ("Digest", "adler32=123456789"),
            ("Digest", "adler32=0x0aff02"),
            ("Digest", "adler32=+aff020e"),
            ("Digest", "md5=0123"),
            ("Digest", "=,;=,"),
            ("Content-MD5", "none"),
            ("OC-Checksum", "MD5:"),
            ("OC-Checksum", ":"),
        ] {
            assert_eq!(digests(200, &[field]), [], "{field:?}");
        }
        assert_eq!(digests(206, &[("Content-MD5", "eB5eJF1ptWaXm4bijSPyxw==")]), [], "it is the sum of the part");
    }
}
