//! The followed links to directories (`--keep-dirlinks`), and the directory where a path begins.

use std::collections::{BTreeMap, HashSet};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::limits::MAX_MADE_LINKS;
use crate::meta::{FileId, Stat};

/// The cache of open parents tells roots apart; a target has one.
pub(super) const ONLY_ROOT: u32 = 0;

#[derive(Debug, Default)]
pub(crate) struct Dirlinks {
    pub(super) is_on: bool,
    followed: Mutex<BTreeMap<Vec<u8>, Followed>>,
    /// The job's own links: a sender must not lead itself out of the tree.
    made: Mutex<HashSet<FileId>>,
}

#[derive(Clone, Debug)]
pub(super) struct Followed {
    /// The directory's number in the cache of open parents.
    pub(super) number: u32,
    pub(super) dir: Arc<OwnedFd>,
    pub(super) id: FileId,
}

impl Dirlinks {
    pub(super) fn new(is_on: bool) -> Self {
        Self { is_on, ..Self::default() }
    }

    pub(super) fn has(&self, path: &[u8]) -> bool {
        self.is_on && self.followed().contains_key(path)
    }

    pub(super) fn note_made(&self, link: &Stat) {
        if self.is_on {
            let mut made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
            // Once it is full, no link counts as the user's own.
            if made.len() < MAX_MADE_LINKS {
                made.insert(link.id);
            }
        }
    }

    pub(super) fn may_be_made_by_this_job(&self, link: &Stat) -> bool {
        let made = self.made.lock().unwrap_or_else(PoisonError::into_inner);
        made.len() >= MAX_MADE_LINKS || made.contains(&link.id)
    }

    pub(crate) fn lead_to(&self, dir: &OwnedFd) -> bool {
        self.is_on && Stat::of_fd(dir).is_ok_and(|stat| self.followed().values().any(|followed| followed.id == stat.id))
    }

    pub(super) fn followed(&self) -> MutexGuard<'_, BTreeMap<Vec<u8>, Followed>> {
        self.followed.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn find<'p>(&self, path: &'p [u8]) -> Option<(Followed, &'p [u8])> {
        if !self.is_on {
            return None;
        }
        let followed = self.followed();
        let ends = path.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at);
        let ends: Vec<usize> = ends.chain([path.len()]).collect();
        ends.into_iter().rev().find_map(|end| {
            let found = followed.get(&path[..end])?.clone();
            Some((found, path.get(end + 1..).unwrap_or_default()))
        })
    }
}

pub(super) struct Base<'a, 'p> {
    pub(super) number: u32,
    pub(super) dir: BaseDir<'a>,
    pub(super) rest: &'p [u8],
}

pub(super) enum BaseDir<'a> {
    Root(BorrowedFd<'a>),
    Followed(Arc<OwnedFd>),
}

impl Base<'_, '_> {
    pub(super) fn dir(&self) -> BorrowedFd<'_> {
        match &self.dir {
            BaseDir::Root(root) => *root,
            BaseDir::Followed(dir) => dir.as_fd(),
        }
    }
}
