//! What stood under a target's names: nothing unseen is replaced.
//!
//! ```text
//!   a look -> nothing            -> the write is for a new name       (If-None-Match: *)
//!          -> an object, its tag -> the write replaces this version   (If-Match)
//!   no look                      -> a look right before the write
//! ```

use std::collections::HashMap;
use std::io;
use std::sync::{Mutex, PoisonError};

use http::header::{IF_MATCH, IF_NONE_MATCH};
use http::{HeaderName, HeaderValue, response};

use crate::s3::store::etag;

#[derive(Debug, Default)]
pub(super) struct Standing(Mutex<HashMap<Vec<u8>, Seen>>);

/// A copy's open files, at about 200 bytes. Others are looked at again.
const MAX_SEEN: usize = 16 << 10;

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Seen {
    Nothing,
    Version(String),
    /// The object is this copy's own. A second write looks again.
    Ours,
}

impl Seen {
    pub(super) fn of(head: Option<&response::Parts>) -> io::Result<Seen> {
        head.map_or(Ok(Seen::Nothing), |head| etag(head).map(Seen::Version))
    }

    /// The condition for this version. A weak tag is for no write (RFC 9110, section 13.1.1).
    pub(super) fn condition(&self) -> Option<(HeaderName, HeaderValue)> {
        match self {
            Seen::Nothing => Some((IF_NONE_MATCH, HeaderValue::from_static("*"))),
            Seen::Ours => None,
            Seen::Version(tag) if tag.starts_with("W/") => None,
            Seen::Version(tag) => Some((IF_MATCH, HeaderValue::from_str(tag).ok()?)),
        }
    }
}

impl Standing {
    pub(super) fn enter(&self, path: &[u8], seen: Seen) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() >= MAX_SEEN {
            all.clear();
        }
        all.insert(path.to_vec(), seen);
    }

    /// Takes what was seen; the next write needs another look.
    pub(super) fn take(&self, path: &[u8]) -> Option<Seen> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(path)
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Takes {
    pub(super) sums: bool,
    pub(super) conditions: bool,
}

impl Takes {
    /// The fields to try after a refusal of these, fewer than at `first`, the sums longest. `None`: they are not the cause.
    pub(super) fn next(self, first: Takes) -> Option<Takes> {
        match self {
            Takes { conditions: true, .. } => Some(Takes { conditions: false, ..self }),
            Takes { sums: true, .. } => Some(Takes { sums: false, ..first }),
            Takes { sums: false, conditions: false } => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_pair_of_fields_is_tried_once() {
        let tries = |sums, conditions| {
            let first = Takes { sums, conditions };
            let all = std::iter::successors(Some(first), |takes| takes.next(first));
            all.map(|takes| (takes.sums, takes.conditions)).collect::<Vec<_>>()
        };
        assert_eq!(tries(true, true), [(true, true), (true, false), (false, true), (false, false)]);
        assert_eq!(tries(true, false), [(true, false), (false, false)]);
        assert_eq!(tries(false, true), [(false, true), (false, false)]);
        assert_eq!(tries(false, false), [(false, false)]);
    }

    #[test]
    fn the_looks_that_are_kept_have_a_bound() {
        let standing = Standing::default();
        for at in 0..2 * MAX_SEEN {
            standing.enter(at.to_string().as_bytes(), Seen::Nothing);
        }
        assert!(standing.0.lock().unwrap().len() <= MAX_SEEN);
        assert_eq!(standing.take((2 * MAX_SEEN - 1).to_string().as_bytes()), Some(Seen::Nothing));
        assert_eq!(standing.take((2 * MAX_SEEN - 1).to_string().as_bytes()), None);
    }
}
