//! Facts kept beside an object: time, mode, owners and hash, as other tools write and read them.
//!
//! ```text
//!   mtime            SECONDS.NANOSECONDS           rclone; s3fs reads the seconds
//!   mode, uid, gid   decimal                       s3fs (modes also as 0o or 0x)
//!   file-permissions, file-owner, file-group       FSx and DataSync, read alone
//!   blake3           hex                           haul
//! ```

use http::{HeaderMap, HeaderName, HeaderValue};

use haul_store::Time;

use crate::http_client::fields::text;
use crate::web::version::{KEPT_TIME, kept_time_text};

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Kept {
    pub(super) mode: Option<u32>,
    pub(super) uid: Option<u32>,
    pub(super) gid: Option<u32>,
    pub(super) blake3: Option<[u8; 32]>,
}

const MODE: HeaderName = HeaderName::from_static("x-amz-meta-mode");
const UID: HeaderName = HeaderName::from_static("x-amz-meta-uid");
const GID: HeaderName = HeaderName::from_static("x-amz-meta-gid");
const PERMISSIONS: HeaderName = HeaderName::from_static("x-amz-meta-file-permissions");
const OWNER: HeaderName = HeaderName::from_static("x-amz-meta-file-owner");
const GROUP: HeaderName = HeaderName::from_static("x-amz-meta-file-group");
pub(super) const BLAKE3: HeaderName = HeaderName::from_static("x-amz-meta-blake3");

/// The kind of a file in its mode (stat(2)).
const KIND_BITS: u32 = 0o170_000;
const LINK: u32 = 0o120_000;
const REGULAR: u32 = 0o100_000;

impl Kept {
    pub(super) fn of(fields: &HeaderMap) -> Kept {
        let number = |name: &HeaderName| text(fields, name).and_then(|text| text.parse().ok());
        let octal = |name: &HeaderName| text(fields, name).and_then(|text| u32::from_str_radix(text, 8).ok());
        Kept {
            mode: text(fields, &MODE).and_then(mode).or_else(|| octal(&PERMISSIONS)),
            uid: number(&UID).or_else(|| number(&OWNER)),
            gid: number(&GID).or_else(|| number(&GROUP)),
            blake3: text(fields, &BLAKE3).and_then(unhex),
        }
    }

    /// s3fs keeps a link as an object of this mode with the link's text.
    pub(super) fn is_link(&self) -> bool {
        self.mode.is_some_and(|mode| mode & KIND_BITS == LINK)
    }

    pub(super) fn permissions(&self) -> Option<u32> {
        Some(self.mode? & 0o7777)
    }
}

fn mode(text: &str) -> Option<u32> {
    match (text.strip_prefix("0x"), text.strip_prefix('0').filter(|rest| !rest.is_empty())) {
        (Some(hex), _) => u32::from_str_radix(hex, 16).ok(),
        (None, Some(octal)) => u32::from_str_radix(octal.trim_start_matches('o'), 8).ok(),
        (None, None) => text.parse().ok(),
    }
}

fn unhex(text: &str) -> Option<[u8; 32]> {
    let mut bytes = [0; 32];
    if text.len() != 64 || !text.is_ascii() {
        return None;
    }
    for (at, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * at..2 * at + 2], 16).ok()?;
    }
    Some(bytes)
}

/// Mode and owners are written only on request.
pub(super) fn fields(
    mtime: Option<Time>,
    mode: Option<u32>,
    owners: [Option<u32>; 2],
) -> Vec<(HeaderName, HeaderValue)> {
    let value = |text: String| HeaderValue::from_str(&text).expect("digits are a value");
    let mut fields = Vec::new();
    fields.extend(mtime.map(|time| (KEPT_TIME, value(kept_time_text(time)))));
    fields.extend(mode.map(|mode| (MODE, value((REGULAR | (mode & 0o7777)).to_string()))));
    for (name, id) in [UID, GID].into_iter().zip(owners) {
        fields.extend(id.map(|id| (name, value(id.to_string()))));
    }
    fields
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(fields: &[(&'static str, &str)]) -> Kept {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            map.insert(*name, value.parse().unwrap());
        }
        Kept::of(&map)
    }

    #[test]
    fn modes_are_read_as_three_tools_write_them() {
        for text in ["33188", "0100644", "0o100644", "0x81a4"] {
            assert_eq!(kept(&[("x-amz-meta-mode", text)]).permissions(), Some(0o644), "{text}");
        }
        let of_fsx = kept(&[("x-amz-meta-file-permissions", "0100664"), ("x-amz-meta-file-owner", "7")]);
        assert_eq!((of_fsx.permissions(), of_fsx.uid, of_fsx.gid), (Some(0o664), Some(7), None));
        assert!(kept(&[("x-amz-meta-mode", "41471")]).is_link() && !of_fsx.is_link());
        assert_eq!(kept(&[("x-amz-meta-mode", "rw-r--r--"), ("x-amz-meta-uid", "-1")]), Kept::default());
    }

    #[test]
    fn what_is_written_is_read() {
        let mut map = HeaderMap::new();
        map.extend(fields(Some(Time { s: 5, ns: 7 }), Some(0o4755), [Some(1), None]));
        assert_eq!((map.get("x-amz-meta-mtime").unwrap(), map.len()), (&HeaderValue::from_static("5.000000007"), 3));
        let kept = Kept::of(&map);
        assert_eq!((kept.permissions(), kept.uid, kept.gid), (Some(0o4755), Some(1), None));
    }
}
