//! A path relative to the copied tree: any bytes, but never out of the tree.

use alloc::borrow::ToOwned;
use alloc::vec::Vec;
use core::fmt;

use serde::{Deserialize, Serialize};

use crate::limits::{MAX_NAME_BYTES, MAX_PATH_BYTES};

/// A path beneath a tree's root; empty for the root. Single slashes part components; none is empty, `.` or `..`; no byte is NUL.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Default)]
#[serde(transparent)]
pub struct RelPath(Vec<u8>);

/// Why bytes are no [`RelPath`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathFault {
    /// Longer than [`MAX_PATH_BYTES`].
    TooLong,
    /// Component above [`MAX_NAME_BYTES`].
    NameTooLong,
    /// Leading, trailing or double slash.
    EmptyName,
    /// Component `.` or `..`.
    DotName,
    /// Contains a NUL byte.
    Nul,
}

impl fmt::Display for PathFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            PathFault::TooLong => "path is too long",
            PathFault::NameTooLong => "a name in the path is too long",
            PathFault::EmptyName => "path is absolute or has an empty name",
            PathFault::DotName => "path contains `.` or `..`",
            PathFault::Nul => "path contains a NUL byte",
        })
    }
}

impl RelPath {
    /// Checks bytes.
    pub fn new(bytes: Vec<u8>) -> Result<Self, PathFault> {
        if bytes.len() > MAX_PATH_BYTES {
            return Err(PathFault::TooLong);
        }
        if bytes.is_empty() {
            return Ok(Self(bytes));
        }
        if bytes.contains(&0) {
            return Err(PathFault::Nul);
        }
        for name in bytes.split(|b| *b == b'/') {
            match name {
                b"" => return Err(PathFault::EmptyName),
                b"." | b".." => return Err(PathFault::DotName),
                _ if name.len() > MAX_NAME_BYTES => return Err(PathFault::NameTooLong),
                _ => {}
            }
        }
        Ok(Self(bytes))
    }

    /// The root of the tree.
    pub fn root() -> Self {
        Self(Vec::new())
    }

    /// The bytes, without leading slash.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// True for the root.
    pub fn is_root(&self) -> bool {
        self.0.is_empty()
    }

    /// Last component; empty for the root.
    pub fn name(&self) -> &[u8] {
        match self.0.iter().rposition(|b| *b == b'/') {
            Some(slash) => &self.0[slash + 1..],
            None => &self.0,
        }
    }

    /// Without the last component; `None` for the root.
    pub fn parent(&self) -> Option<RelPath> {
        if self.is_root() {
            return None;
        }
        let end = self.0.iter().rposition(|b| *b == b'/').unwrap_or(0);
        Some(Self(self.0[..end].to_owned()))
    }

    /// Common bytes with `other`.
    pub fn shared_prefix(&self, other: &[u8]) -> usize {
        self.0.iter().zip(other).take_while(|(a, b)| a == b).count()
    }
}

impl fmt::Debug for RelPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\"", self.0.escape_ascii())
    }
}

impl<'de> Deserialize<'de> for RelPath {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let bytes = Vec::<u8>::deserialize(deserializer)?;
        RelPath::new(bytes).map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_paths_beneath_the_root_are_paths() {
        for good in [&b""[..], b"a", b"a/b", b"..a/b..", b"-rf", b"a\nb/\xff\xfe", b"..."] {
            assert!(RelPath::new(good.to_vec()).is_ok(), "{}", good.escape_ascii());
        }
        for (bad, fault) in [
            (&b"/etc"[..], PathFault::EmptyName),
            (b"a//b", PathFault::EmptyName),
            (b"a/", PathFault::EmptyName),
            (b"..", PathFault::DotName),
            (b"a/../b", PathFault::DotName),
            (b"./a", PathFault::DotName),
            (b"a\0b", PathFault::Nul),
        ] {
            assert_eq!(RelPath::new(bad.to_vec()), Err(fault), "{}", bad.escape_ascii());
        }
        assert_eq!(RelPath::new(alloc::vec![b'a'; 256]), Err(PathFault::NameTooLong));
    }

    #[test]
    fn name_and_parent() {
        let path = RelPath::new(b"a/b/c".to_vec()).unwrap();
        assert_eq!(path.name(), b"c");
        assert_eq!(path.parent().unwrap().as_bytes(), b"a/b");
        assert_eq!(RelPath::new(b"a".to_vec()).unwrap().parent(), Some(RelPath::root()));
        assert_eq!(RelPath::root().parent(), None);
    }
}
