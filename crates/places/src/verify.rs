//! Checks a tree against a list of hashes, for `haul verify`.
//!
//! Read a line -> the host of the tree opens the file beneath its root, following no link, and hashes it -> compare -> tell
//! the watcher of a difference. The list streams, so its length needs no memory. Only the search for extra files keeps 16
//! bytes of hash for each path.

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
    /// Files in the lists. A file of several lists counts in each.
    pub files: u64,
    /// The bytes of the files: as listed, or as found if the list has no sizes.
    pub bytes: u64,
    /// Listed files that are missing, differ or could not be read.
    pub differing: u64,
    /// Unlisted files in the tree, if they were looked for.
    pub extra: u64,
    /// The algorithms by which files were found right.
    pub algorithms: BTreeSet<Algorithm>,
    /// The root hash of a manifest of haul. It is that of the tree if nothing differs.
    pub root_blake3: Option<[u8; 32]>,
    /// Who read the files.
    pub proof: Proof,
    /// The time of the whole check.
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
    // Ctrl-C ends ssh as well.
    let extra = outcome.map_err(|error| if watcher.interrupted() { interrupted() } else { error })?;
    let root_blake3 = single.as_ref().and_then(List::trailer).map(|trailer| trailer.root);
    let Totals { files, bytes, differing } = check.totals;
    let algorithms = check.algorithms;
    let elapsed = started.elapsed();
    Ok(VerifyReport { files, bytes, differing, extra, algorithms, root_blake3, proof, elapsed })
}

/// Checks the files of one list, and looks for others if asked to.
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
