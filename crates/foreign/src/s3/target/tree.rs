//! A place in a bucket where files are written, shared by all its drafts.

use std::collections::HashSet;
use std::fmt;
use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use haul_store::{DraftPlan, check_new_path, printable};
use http::{HeaderName, HeaderValue, Method};

use crate::s3::kept;
use crate::s3::limits::MAX_KEY_BYTES;
use crate::s3::listing::NO_UTF8;
use crate::s3::source::walk::LINK_ENDING;
use crate::s3::store::{Refusal, Request, Store};
use crate::s3::target::held::Held;
use crate::s3::target::standing::{Seen, Standing, Takes};

/// The facts to keep of files, and the user's wishes.
#[derive(Clone, Debug, Default)]
pub struct TargetSettings {
    /// Modes are kept (s3fs's `mode`).
    pub modes: bool,
    /// Owners are kept (s3fs's `uid` and `gid`).
    pub owners: bool,
    /// No object is replaced, even one that appears during the copy.
    pub keeps_what_stands: bool,
    /// One file is copied, so the key may be its new name.
    pub single_file: bool,
    /// Sums of parts and objects are sent (CRC64NVME).
    pub sums: bool,
    /// Parts up to this size are held until the store has them. `None`: the usual size.
    pub held_part_bytes: Option<u64>,
    /// The directory of this host with the journals of uploads.
    pub journals: Option<PathBuf>,
}

pub(super) fn changed_meanwhile() -> io::Error {
    let why = "somebody else has written or removed it since it was looked at, and it stays so: copy again";
    io::Error::new(ErrorKind::StaleNetworkFileHandle, why)
}

/// Tells the user something, and what an upload proves.
pub trait Told: Send + Sync {
    /// A warning.
    fn warn(&self, text: String);

    /// The store keeps an object whose sum it did not compare.
    fn unsummed(&self);
}

pub(super) struct Tree {
    pub(super) store: Arc<Store>,
    /// The start of each key: empty, or with a final slash.
    pub(super) prefix: Vec<u8>,
    pub(super) settings: TargetSettings,
    sums: AtomicBool,
    conditions: AtomicBool,
    trailers: AtomicBool,
    has_doubted: AtomicBool,
    told: Box<dyn Told>,
    pub(super) standing: Standing,
    pub(super) held: Held,
    /// Directories without keys beneath.
    fresh: Mutex<HashSet<Vec<u8>>>,
    links: Mutex<HashSet<Vec<u8>>>,
}

/// Fresh directories kept in mind; others cost a request each.
const MAX_FRESH: usize = 4096;

/// More links than files replace at once. A forgotten one stays beside its file; the next copy from there names it.
const MAX_LINKS: usize = 1 << 16;

impl fmt::Debug for Tree {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({})", String::from_utf8_lossy(&self.prefix))
    }
}

impl Tree {
    pub(super) fn new(store: Arc<Store>, prefix: Vec<u8>, settings: TargetSettings, told: Box<dyn Told>) -> Arc<Tree> {
        Arc::new(Tree {
            store,
            prefix,
            sums: AtomicBool::new(settings.sums),
            conditions: AtomicBool::new(true),
            trailers: AtomicBool::new(true),
            has_doubted: AtomicBool::new(false),
            settings,
            told,
            standing: Standing::default(),
            held: Held::default(),
            fresh: Mutex::default(),
            links: Mutex::default(),
        })
    }

    pub(super) fn key(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        let key = [&self.prefix[..], path].concat();
        if key.len() > MAX_KEY_BYTES {
            return Err(io::Error::new(
                ErrorKind::InvalidFilename,
                "its key is longer than the 1024 bytes that a store takes",
            ));
        }
        match std::str::from_utf8(&key) {
            Ok(_) => Ok(key),
            Err(_) => Err(io::Error::new(ErrorKind::InvalidFilename, NO_UTF8)),
        }
    }

    /// A name that reads as a link's would come back as a link.
    pub(super) fn new_key(&self, path: &[u8]) -> io::Result<Vec<u8>> {
        check_new_path(path)?;
        if path.is_empty() {
            return Err(io::Error::from(ErrorKind::IsADirectory));
        }
        if path.ends_with(LINK_ENDING) {
            return Err(io::Error::new(ErrorKind::InvalidFilename, "links are kept under names with this ending"));
        }
        self.key(path)
    }

    pub(super) fn sums(&self) -> bool {
        self.sums.load(Ordering::Relaxed)
    }

    pub(super) fn without_sums(&self) {
        if self.sums.swap(false, Ordering::Relaxed) {
            self.told.warn(format!(
                "{} takes no CRC64NVME: what it stores is compared by size alone",
                self.store.access.origin
            ));
        }
    }

    /// Whether a sum may come behind a part. Else the store compares only the whole.
    pub(super) fn takes_trailers(&self) -> bool {
        self.trailers.load(Ordering::Relaxed)
    }

    pub(super) fn without_trailers(&self) {
        self.trailers.store(false, Ordering::Relaxed);
    }

    pub(super) fn conditions(&self) -> bool {
        self.conditions.load(Ordering::Relaxed)
    }

    pub(super) fn without_conditions(&self) {
        if self.conditions.swap(false, Ordering::Relaxed) {
            self.told.warn(format!(
                "{} knows no conditions (If-Match): what somebody else writes during the copy may be replaced",
                self.store.access.origin
            ));
        }
    }

    /// The condition of a write: only what was seen is replaced.
    pub(super) fn condition(&self, path: &[u8], key: &[u8]) -> io::Result<Option<(HeaderName, HeaderValue)>> {
        let seen = self.standing.take(path);
        let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |at| &path[..at]);
        let seen = match seen {
            _ if !self.conditions() => return Ok(None),
            _ if self.settings.keeps_what_stands => Seen::Nothing,
            Some(seen @ (Seen::Nothing | Seen::Version(_))) => seen,
            None if self.is_fresh(parent) => Seen::Nothing,
            None | Some(Seen::Ours) => Seen::of(self.store.head(key)?.as_ref())?,
        };
        Ok(seen.condition())
    }

    /// Whether a condition failed that the user did not ask for.
    pub(super) fn is_of_change(&self, refusal: &Refusal) -> bool {
        // A version that is gone cannot be replaced either.
        !self.settings.keeps_what_stands && (refusal.is_of_condition() || refusal.code == "NoSuchKey")
    }

    /// Learns which fields the store did not take.
    pub(super) fn learn(&self, first: Takes, taken: Takes) {
        if first.sums && !taken.sums {
            self.without_sums();
        }
        if first.conditions && !taken.conditions {
            self.without_conditions();
        }
    }

    /// Warns once that not every store takes this size.
    pub(super) fn doubts_size(&self) {
        if !self.has_doubted.swap(true, Ordering::Relaxed) {
            self.told.warn("not every store takes objects of more than 5 TiB, and says so only at the end".to_owned());
        }
    }

    pub(super) fn unsummed(&self) {
        self.told.unsummed();
    }

    pub(super) fn warn(&self, text: String) {
        self.told.warn(text);
    }

    pub(super) fn fields(&self, plan: &DraftPlan) -> Vec<(HeaderName, HeaderValue)> {
        let TargetSettings { modes, owners, .. } = self.settings;
        let owner = |id| owners.then_some(id);
        let mut fields = kept::fields(Some(plan.mtime), modes.then_some(plan.mode), [owner(plan.uid), owner(plan.gid)]);
        fields.push((http::header::CONTENT_TYPE, HeaderValue::from_static("application/octet-stream")));
        fields
    }

    pub(super) fn enter_link(&self, path: &[u8]) {
        let mut links = self.links.lock().unwrap_or_else(PoisonError::into_inner);
        if links.len() < MAX_LINKS {
            links.insert(path.to_vec());
        }
    }

    /// Removes the link that a file replaced.
    pub(super) fn replace_link(&self, path: &[u8]) {
        if !self.links.lock().unwrap_or_else(PoisonError::into_inner).remove(path) {
            return;
        }
        let removed = self
            .key(&[path, LINK_ENDING].concat())
            .and_then(|key| self.store.need(&Request::new(Method::DELETE, &key)));
        match removed {
            Ok(answer) => self.store.client.give_back(answer.url.origin(), answer.body),
            Err(error) => self.warn(format!("a link of the same name stays beside {}: {error}", printable(path))),
        }
    }

    pub(super) fn enter_fresh(&self, path: &[u8]) {
        let mut fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        if fresh.len() < MAX_FRESH {
            fresh.insert(path.to_vec());
        }
    }

    fn is_fresh(&self, path: &[u8]) -> bool {
        self.fresh.lock().unwrap_or_else(PoisonError::into_inner).contains(path) || self.is_in_fresh(path)
    }

    pub(super) fn is_in_fresh(&self, path: &[u8]) -> bool {
        let fresh = self.fresh.lock().unwrap_or_else(PoisonError::into_inner);
        let ends = (0..path.len()).filter(|at| path[*at] == b'/');
        (!path.is_empty() && fresh.contains(&b""[..])) || ends.into_iter().any(|end| fresh.contains(&path[..end]))
    }
}
