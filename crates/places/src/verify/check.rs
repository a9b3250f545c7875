//! Compares a list with the hashes that the tree's host answers.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::time::Duration;

use haul_channel::clock::TICK;
use haul_job::Error;
use haul_kept::files::hash_list::Listed;
use haul_wire::hashed::{Algorithm, FileFound, WantedFile};

use super::findings::{Finding, VerifyProgress, VerifyWatcher, interrupted};
use crate::named_hashes::Hashes;

pub(crate) struct Check<'a> {
    pub(super) hashes: Hashes,
    watcher: &'a dyn VerifyWatcher,
    waiting: BTreeMap<u64, Listed>,
    pub totals: Totals,
    pub(super) algorithms: BTreeSet<Algorithm>,
    /// The hash of ambiguous lines, once a file was right.
    decided: Option<Algorithm>,
    pub(super) listed: Option<(u64, u64)>,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub files: u64,
    pub bytes: u64,
    pub differing: u64,
}

impl<'a> Check<'a> {
    pub(super) fn new(hashes: Hashes, watcher: &'a dyn VerifyWatcher) -> Self {
        Self {
            hashes,
            watcher,
            waiting: BTreeMap::new(),
            totals: Totals::default(),
            algorithms: BTreeSet::new(),
            decided: None,
            listed: None,
        }
    }

    pub fn list(
        &mut self,
        next: &mut dyn FnMut() -> Result<Option<Listed>, Error>,
        mut seen: Option<&mut HashSet<[u8; 16]>>,
    ) -> Result<(), Error> {
        let mut has_ended = false;
        while !has_ended || self.hashes.has_open() {
            // Each line takes one answer, so a slow list delays none.
            if !has_ended && self.hashes.has_room() {
                match next()? {
                    Some(listed) => {
                        if let Some(seen) = &mut seen {
                            seen.insert(short_hash(listed.path.as_bytes()));
                        }
                        self.want(listed);
                    }
                    None => has_ended = true,
                }
            }
            let must_wait = has_ended || !self.hashes.has_room();
            while let Some((number, found)) = self.hashes.next(if must_wait { TICK } else { Duration::ZERO })? {
                self.answer(number, found)?;
                if must_wait {
                    break;
                }
            }
            if self.watcher.interrupted() {
                return Err(interrupted());
            }
            let (files, bytes) = (self.totals.files, self.hashes.bytes());
            self.watcher.on_progress(&VerifyProgress { files, bytes, listed: self.listed });
        }
        Ok(())
    }

    fn want(&mut self, mut listed: Listed) {
        if let (Some(_), Some(decided)) = (listed.or, self.decided) {
            (listed.algorithm, listed.or) = (decided, None);
        }
        let Listed { path, size, algorithm, or, .. } = &listed;
        let wanted = WantedFile { path: path.clone(), size: *size, algorithm: *algorithm, or: *or };
        let number = self.hashes.want(wanted);
        self.waiting.insert(number, listed);
    }

    fn answer(&mut self, number: u64, found: FileFound) -> Result<(), Error> {
        let listed = self.waiting.remove(&number);
        let listed = listed.ok_or_else(|| Error::broke_the_protocol("it tells of what was not asked for"))?;
        self.totals.files += 1;
        let finding = match found {
            FileFound::Hashed { size, hash, or } => {
                self.totals.bytes = self.totals.bytes.saturating_add(size);
                let right = match &listed {
                    Listed { size: Some(listed), .. } if *listed != size => None,
                    Listed { hash: wanted, algorithm, .. } if *wanted == hash => Some(*algorithm),
                    Listed { hash: wanted, or: Some(other), .. } if *wanted == or => Some(*other),
                    _ => None,
                };
                if let Some(algorithm) = right {
                    self.algorithms.insert(algorithm);
                    if listed.or.is_some() {
                        self.decided.get_or_insert(algorithm);
                    }
                    return Ok(());
                }
                Finding::Altered
            }
            FileFound::OtherSize { size } => {
                self.totals.bytes = self.totals.bytes.saturating_add(size);
                match listed.size {
                    Some(listed) => Finding::Size { listed, found: size },
                    None => Finding::Altered,
                }
            }
            FileFound::Missing => Finding::Missing,
            FileFound::NotAFile => Finding::NotAFile,
            FileFound::Unreadable { why } => Finding::Unreadable(why),
        };
        self.tell(listed.path.as_bytes(), &finding);
        Ok(())
    }

    pub(super) fn tell(&mut self, path: &[u8], finding: &Finding) {
        self.totals.differing += 1;
        self.watcher.on_finding(if path.is_empty() { b"." } else { path }, finding);
    }
}

/// Half of BLAKE3: two of a million paths share it with a chance of 2^-89.
pub(super) fn short_hash(path: &[u8]) -> [u8; 16] {
    let mut short = [0; 16];
    short.copy_from_slice(&blake3::hash(path).as_bytes()[..16]);
    short
}
