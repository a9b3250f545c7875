//! Checks a tree against a list of hashes, for `haul verify`.
//!
//! Read a line -> the tree's host opens the file beneath its root, without links, and hashes it -> compare -> tell the watcher of
//! a difference. Only the search for extra files takes memory: 16 bytes for each path.

mod bags;
mod check;
mod context;
mod extra;
mod findings;

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use haul_channel::reporter::Watch;
use haul_job::{Error, Observer, Proof};
use haul_wire::hashed::Algorithm;
use haul_wire::place::Verb;

use super::lists::List;
use super::named_hashes::Hashes;
use super::ways::Ways;
use bags::Bag;
use check::{Check, Totals};
use context::Context;
pub use context::{ListAt, VerifyOptions};
use findings::interrupted;
pub use findings::{Finding, VerifyProgress, VerifyWatcher};

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct VerifyReport {
    /// Files, counted in each list.
    pub files: u64,
    /// Bytes as listed, or as found.
    pub bytes: u64,
    /// Listed files without the listed content.
    pub differing: u64,
    /// Unlisted files, if looked for.
    pub extra: u64,
    /// The algorithms of right files.
    pub algorithms: BTreeSet<Algorithm>,
    /// The tree's root hash by a manifest, if nothing differs.
    pub root_blake3: Option<[u8; 32]>,
    /// The reader of the files.
    pub proof: Proof,
    /// The time of the check.
    pub elapsed: Duration,
}

/// Checks a tree against a list.
///
/// # Errors
/// The list is invalid or damaged, the tree cannot be opened, or its host cannot be reached. A difference is no error.
pub fn verify(
    options: &VerifyOptions,
    ways: &Ways,
    observer: &Arc<dyn Observer>,
    watcher: &dyn VerifyWatcher,
) -> Result<VerifyReport, Error> {
    let started = Instant::now();
    let context = Context { options, ways, observer, watcher };
    // A bad list is found before a login.
    let mut single = match &options.list {
        ListAt::InBag => None,
        list => Some(context.open_list(list)?),
    };
    let bag = match options.list {
        ListAt::InBag => Some(Bag::open(&context)?),
        _ => None,
    };
    let watch = Arc::new(Watch::new(Arc::clone(observer)));
    let request = context.request(Verb::HashNamed, options.tree.path.clone());
    let hashes = Hashes::open(&request, options.threads, ways, &watch)?;
    let proof = hashes.proof();
    let mut check = Check::new(hashes, watcher);
    let outcome = match (&mut single, &bag) {
        (Some(list), _) => one_list(&context, &mut check, list),
        (None, Some(bag)) => bag.check(&context, &mut check),
        (None, None) => Ok(0),
    };
    let outcome = check.hashes.close(outcome);
    let extra = outcome.map_err(|error| if watcher.interrupted() { interrupted() } else { error })?;
    let root_blake3 = single.as_ref().and_then(List::trailer).map(|trailer| trailer.root);
    let Totals { files, bytes, differing } = check.totals;
    let algorithms = check.algorithms;
    let elapsed = started.elapsed();
    Ok(VerifyReport { files, bytes, differing, extra, algorithms, root_blake3, proof, elapsed })
}

fn one_list(context: &Context<'_>, check: &mut Check<'_>, list: &mut List) -> Result<u64, Error> {
    let mut seen = context.options.extra.then(HashSet::new);
    check.listed = list.listed;
    check.list(&mut || list.next_file(), seen.as_mut())?;
    if let Some(trailer) = list.trailer() {
        check.totals.bytes = trailer.bytes;
    }
    match seen {
        Some(seen) => context.find_extra(check, b"", &[seen], list.id),
        None => Ok(0),
    }
}
