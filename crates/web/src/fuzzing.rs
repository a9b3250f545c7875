//! The decoders of this crate as functions of bytes, for the fuzz targets.

use std::time::{Duration, UNIX_EPOCH};

use haul_store::{FileId, Kind, Stat, Time, Version};
use http::header::{ACCEPT_ENCODING, HeaderName, IF_MATCH, IF_NONE_MATCH, IF_RANGE};
use http::{HeaderMap, HeaderValue};

use crate::answer::digest::digest_file::{self, CHECK_BYTES, RECORD_BYTES};
use crate::answer::{coding, digest, names};
use crate::limits::MAX_RANGES;
use crate::request::condition::Validators;
use crate::request::range::{Wanted, wanted};
use crate::request::target::Target;
use crate::token::Token;

/// Decodes parts between zeros, each as several kinds of text.
pub fn request(bytes: &[u8]) {
    for (part, bytes) in bytes.split(|byte| *byte == 0).enumerate() {
        match part % 4 {
            0 => target(bytes),
            1 => range(bytes),
            2 => fields(bytes),
            _ => token(bytes),
        }
    }
}

/// Decodes a file of digests.
pub fn digests(bytes: &[u8]) {
    for part in bytes.chunks(RECORD_BYTES) {
        let same = |part: &[u8]| {
            if let Some((state, digests)) = digest_file::parse(part) {
                assert_eq!(digest_file::record(&state, &digests), part, "it is read in one way only");
            }
        };
        same(part);
        // Chance does not find the check.
        if part.len() == RECORD_BYTES {
            let mut checked = part.to_vec();
            checked[RECORD_BYTES - CHECK_BYTES..].copy_from_slice(&digest_file::check(part));
            same(&checked);
        }
    }
}

/// Makes a record of such a file.
pub fn a_digest() -> Vec<u8> {
    let changed = Time { s: -5, ns: 999_999_999 };
    let state = (FileId { dev: 1, ino: 2 }, 3, Version::new(changed, 4));
    digest_file::record(&state, &digest::Digests { adler32: 4, sha256: [5; 32], blake3: [6; 32], md5: Some([7; 16]) })
        .to_vec()
}

fn target(bytes: &[u8]) {
    let text = String::from_utf8_lossy(bytes);
    let (path, query) = text.split_once('?').map_or((&*text, None), |(path, query)| (path, Some(query)));
    if let Ok(target) = Target::parse(path, query) {
        assert!(!target.path.starts_with(b"/") && !target.path.contains(&0));
        let is_dots = |name: &[u8]| matches!(name, b"." | b"..");
        assert!(!target.path.split(|byte| *byte == b'/').any(is_dots), "{target:?}");
        let link = target.path.split(|byte| *byte == b'/').map(names::link).collect::<Vec<_>>().join("/");
        assert_eq!(Target::parse(&format!("/{link}"), None).map(|again| again.path), Ok(target.path.clone()));
        assert!(HeaderValue::from_str(&names::disposition(target.name())).is_ok());
        assert!(HeaderValue::from_str(&names::media_type(target.name())).is_ok());
        assert!(!names::html(target.name()).contains(['<', '>', '"', '\'']));
    }
}

fn range(bytes: &[u8]) {
    for size in [0, 1, 10, u64::MAX] {
        if let Wanted::Parts(parts) = wanted(bytes, size) {
            assert!((1..=MAX_RANGES).contains(&parts.len()));
            assert!(parts.iter().all(|part| part.start < part.end && part.end <= size), "{parts:?} of {size}");
            let mut sorted = parts.clone();
            sorted.sort_by_key(|part| part.start);
            assert!(sorted.windows(2).all(|two| two[0].end <= two[1].start), "{parts:?} overlap");
        }
    }
}

fn fields(bytes: &[u8]) {
    let Ok(value) = HeaderValue::from_bytes(bytes) else { return };
    let (changed, now) = (Time { s: 5, ns: 5 }, UNIX_EPOCH + Duration::from_secs(1_000));
    let stat = Stat {
        kind: Kind::File,
        mode: 0o644,
        size: 10,
        blocks: 8,
        mtime: changed,
        id: FileId { dev: 1, ino: 2 },
        version: Version::new(changed, 2),
        nlink: 1,
        uid: 0,
        gid: 0,
    };
    let validators = Validators::of(&stat, "", now);
    let with = |name: HeaderName| HeaderMap::from_iter([(name, value.clone())]);
    for name in [IF_MATCH, IF_NONE_MATCH, IF_RANGE] {
        let _ = validators.judge(&with(name));
    }
    let _ = coding::taken(&with(ACCEPT_ENCODING)).count();
    let wish = digest::Wish::of(&with(digest::WANT));
    let digests = digest::Digests { adler32: 0, sha256: [0; 32], blake3: [0; 32], md5: None };
    assert!(HeaderValue::from_str(&wish.field(&digests)).is_ok());
    let old = digest::OldWish::of(&with(digest::OLD_WANT));
    assert!(HeaderValue::from_str(&old.field(&digests)).is_ok());
}

fn token(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    if let Ok(token) = Token::parse(text) {
        assert_eq!(*token.to_text(), text, "a token is read in one way only");
    }
}
