//! What happened, told from the two streams of a session: items one way, receipts and outcomes the other.
//!
//! Every side beside a person keeps one: a push's sender, a pull's receiver, the middle of a copy.

use alloc::collections::BTreeMap;
use alloc::string::String;

use haul_wire::control::{
    Brought, Changes, ChunkRange, Counted, Cut, FailureKind, LeftOut, Outcome, OutcomeKind, Receipt, Wanted,
};
use haul_wire::limits::MAX_OPEN_ITEMS;
use haul_wire::manifest::{Item, ItemKind, Time};
use haul_wire::path::RelPath;

use crate::integrity::Hash;
use crate::plan::ChunkLayout;
use crate::window::{Overflow, Window};

/// Running totals of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Regular files listed, superseded ones once.
    pub files_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// The listing is complete.
    pub found_all: bool,
    /// Files whose data moved (or would move).
    pub files_moved: u64,
    /// Files already at the target, or in a reference tree.
    pub files_kept: u64,
    /// Hard-linked from a reference tree.
    pub files_linked: u64,
    /// Copied at the target from a reference tree.
    pub files_copied_there: u64,
    /// Files that went from server to server.
    pub files_between_servers: u64,
    /// Directories and links made.
    pub others_made: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Failed regular files.
    pub files_failed: u64,
    /// Their data that did not arrive.
    pub bytes_failed: u64,
    /// Failed entries that vanished at the source.
    pub vanished: u64,
    /// Failed entries that did not verify.
    pub unverified: u64,
    /// Failed entries for lack of space.
    pub out_of_space: u64,
    /// Entries left out on purpose.
    pub skipped: u64,
    /// Entries that a rule leaves out.
    pub left_out: u64,
    /// Left out regular files.
    pub files_left_out: u64,
    /// Their data in bytes.
    pub bytes_left_out: u64,
    /// Holes of all files: neither moved nor kept.
    pub bytes_holes: u64,
    /// Bytes verified at the target in this run.
    pub bytes_moved: u64,
    /// Data already there, of files and earlier runs' chunks.
    pub bytes_kept: u64,
    /// Moved bytes that stood in differing files.
    pub bytes_matched: u64,
    /// Verified data of files without an outcome, perhaps flushed.
    pub bytes_unsettled: u64,
}

/// Something to tell the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Data moved (or would), verified, under its final name.
    Copied {
        /// Path.
        path: RelPath,
        /// Size in bytes.
        bytes: u64,
        /// Bytes that stood at the target.
        matched_bytes: u64,
    },
    /// Metadata was brought up to date.
    Touched {
        /// Path.
        path: RelPath,
    },
    /// A directory or link was made.
    Made {
        /// Path.
        path: RelPath,
    },
    /// Left out on purpose.
    Skipped {
        /// Path.
        path: RelPath,
        /// Why.
        why: String,
    },
    /// A rule leaves it out.
    LeftOut {
        /// Path.
        path: RelPath,
        /// Which rule.
        rule: LeftOut,
    },
    /// All about an entry made, changed or found changed.
    Item {
        /// As the source has it.
        item: Item,
        /// The outcome of the item.
        result: OutcomeKind,
        /// How it differed before.
        changes: Changes,
    },
    /// Could not be copied.
    Failed {
        /// Path.
        path: RelPath,
        /// Why.
        why: String,
    },
    /// In manifest order: a file, or a further name, with its hash.
    Hashed {
        /// Path.
        path: RelPath,
        /// Size in bytes.
        size: u64,
        /// Modification time.
        mtime: Time,
        /// BLAKE3 of the contents.
        blake3: Hash,
    },
}

/// Why a peer's report cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TallyFault {
    /// Too many open items.
    Overflow,
    /// No open item has this outcome or receipt.
    NotOpen,
    /// An item has a second outcome.
    Twice,
}

#[derive(Debug)]
struct Open {
    item: Item,
    data_bytes: u64,
    receipted_bytes: u64,
    /// The answer, or a match, counts before the outcome.
    kept_bytes: u64,
    matched_bytes: u64,
    settled: bool,
    content: Option<Content>,
}

#[derive(Clone, Copy, Debug)]
struct Content {
    size: u64,
    mtime: Time,
    blake3: Hash,
}

/// Keeps the totals.
#[derive(Debug, Default)]
pub struct Tally {
    open: Window<Open>,
    totals: Totals,
    counted: Option<Counted>,
    resumed_bytes: u64,
    cut: Cut,
    /// Settled files with their unsettled further names, by [`key`].
    first_names: BTreeMap<Key, (Content, u32)>,
}

/// Half of a hash: no peer finds two equal paths, and all have one length.
type Key = [u8; 16];

fn key(path: &RelPath) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    key
}

/// A walk looks for further names of 2^18 files, and as many found ones as items are open are unsettled: 29 MiB at 100 bytes. No
/// honest sender has more; others are not listed.
const MAX_FIRST_NAMES: usize = (1 << 18) + 2 * MAX_OPEN_ITEMS;

impl Tally {
    /// Sets the rule by which files are cut.
    pub fn cut_by(&mut self, cut: Cut) {
        self.cut = cut;
    }

    /// The totals so far.
    pub fn totals(&self) -> &Totals {
        &self.totals
    }

    /// Whether every item has its outcome.
    pub fn all_settled(&self) -> bool {
        self.open.is_empty()
    }

    /// Books the end of the listing.
    pub fn on_end_of_manifest(&mut self) {
        self.totals.found_all = true;
    }

    /// Books the next item of the manifest.
    pub fn on_item(&mut self, item: &Item) -> Result<(), TallyFault> {
        let mut data_bytes = 0;
        if let ItemKind::File { identity, hole_bytes, .. } = &item.kind {
            self.totals.files_found += 1;
            add(&mut self.totals.bytes_found, identity.size);
            data_bytes = identity.size.saturating_sub(*hole_bytes);
            add(&mut self.totals.bytes_holes, identity.size - data_bytes);
        }
        let weight = item.weight_bytes();
        let (item, receipted_bytes, kept_bytes, matched_bytes) = (item.clone(), 0, 0, 0);
        let open = Open { item, data_bytes, receipted_bytes, kept_bytes, matched_bytes, settled: false, content: None };
        self.open.push_checked(open, weight).map_err(|Overflow| TallyFault::Overflow)?;
        Ok(())
    }

    /// Books a verified chunk.
    pub fn on_receipt(&mut self, receipt: &Receipt) -> Result<(), TallyFault> {
        let open = self.open.get_mut(receipt.index).ok_or(TallyFault::NotOpen)?;
        add(&mut open.receipted_bytes, receipt.data_bytes);
        add(&mut self.totals.bytes_moved, receipt.data_bytes);
        if !open.settled {
            add(&mut self.totals.bytes_unsettled, receipt.data_bytes);
        }
        // Compressed files seem to have holes, and arrive whole.
        let more = open.receipted_bytes.saturating_sub(open.data_bytes);
        open.data_bytes += more;
        self.totals.bytes_holes = self.totals.bytes_holes.saturating_sub(more);
        if !open.settled {
            let left_bytes = open.data_bytes.saturating_sub(open.receipted_bytes).saturating_sub(open.kept_bytes);
            let matched_bytes = receipt.matched_bytes.min(left_bytes);
            open.kept_bytes += matched_bytes;
            open.matched_bytes += matched_bytes;
            add(&mut self.totals.bytes_kept, matched_bytes);
            add(&mut self.totals.bytes_matched, matched_bytes);
        }
        Ok(())
    }

    /// Books an answer: the target has the rest.
    pub fn on_answer(&mut self, index: u64, wanted: &Wanted) {
        // The outcome may have overtaken the answer.
        let Some(open) = self.open.get_mut(index).filter(|open| !open.settled) else { return };
        self.totals.on_file(open);
        let (ItemKind::File { identity, .. }, Wanted::Chunks(ranges)) = (&open.item.kind, wanted) else { return };
        let layout = ChunkLayout::by(self.cut, identity.size);
        let wanted_bytes = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(bytes_of(&layout, range)));
        // Holes are taken to be spread evenly.
        let kept = u128::from(identity.size.saturating_sub(wanted_bytes)) * u128::from(open.data_bytes);
        let kept = u64::try_from(kept / u128::from(identity.size.max(1))).unwrap_or(u64::MAX);
        let kept = kept.min(open.data_bytes.saturating_sub(open.receipted_bytes));
        self.totals.bytes_kept = self.totals.bytes_kept.saturating_sub(open.kept_bytes).saturating_add(kept);
        self.resumed_bytes = self.resumed_bytes.saturating_sub(open.kept_bytes).saturating_add(kept);
        open.kept_bytes = kept;
    }

    /// Earlier runs' data, by all answers.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Books a count's findings.
    pub fn on_counted(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    /// The work that is to come.
    pub fn left(&self) -> ToCome {
        self.totals.left(self.counted.as_ref())
    }

    /// Books an outcome. `tell` gets the news, hashes in manifest order.
    pub fn on_outcome(&mut self, outcome: &Outcome, tell: &mut dyn FnMut(Told)) -> Result<(), TallyFault> {
        let Outcome { index, result, changes } = outcome;
        let open = self.open.get_mut(*index).ok_or(TallyFault::NotOpen)?;
        if open.settled {
            return Err(TallyFault::Twice);
        }
        open.settled = true;
        let totals = &mut self.totals;
        let of_a_file =
            matches!(result, OutcomeKind::Copied { .. } | OutcomeKind::WouldCopy | OutcomeKind::Kept { .. })
                || matches!(result, OutcomeKind::Touched { .. } | OutcomeKind::Brought { .. });
        if of_a_file {
            totals.on_file(open);
        }
        let size = match &open.item.kind {
            ItemKind::File { identity, .. } => identity.size,
            _ => 0,
        };
        let data = open.data_bytes;
        totals.bytes_unsettled = totals.bytes_unsettled.saturating_sub(open.receipted_bytes);
        totals.bytes_kept = totals.bytes_kept.saturating_sub(core::mem::take(&mut open.kept_bytes));
        open.content = match &open.item.kind {
            ItemKind::File { identity, further_names, .. } => {
                let content = hash_of(result).map(|blake3| Content { size, mtime: identity.mtime, blake3 });
                if let Some(content) = content.filter(|_| *further_names > 0) {
                    let key = key(&open.item.path);
                    if self.first_names.len() < MAX_FIRST_NAMES || self.first_names.contains_key(&key) {
                        self.first_names.insert(key, (content, *further_names));
                    }
                }
                content
            }
            ItemKind::HardLink { first } | ItemKind::FurtherName { first, .. } => {
                // Its turn comes after all before it.
                let content = further_name(&mut self.first_names, key(first));
                content.filter(|_| matches!(result, OutcomeKind::Made | OutcomeKind::Nothing))
            }
            _ => None,
        };
        let path = || open.item.path.clone();
        match result {
            OutcomeKind::Copied { .. } => {
                totals.files_moved += 1;
                add(&mut totals.bytes_kept, data.saturating_sub(open.receipted_bytes));
                tell(Told::Copied { path: path(), bytes: size, matched_bytes: open.matched_bytes });
            }
            OutcomeKind::WouldCopy => {
                totals.files_moved += 1;
                add(&mut totals.bytes_moved, data);
                tell(Told::Copied { path: path(), bytes: size, matched_bytes: 0 });
            }
            OutcomeKind::LeftOut { rule } => {
                totals.left_out += 1;
                if matches!(open.item.kind, ItemKind::File { .. }) {
                    totals.files_left_out += 1;
                    add(&mut totals.bytes_left_out, data);
                }
                tell(Told::LeftOut { path: path(), rule: *rule });
            }
            OutcomeKind::Kept { .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, data);
            }
            OutcomeKind::Touched { .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, data);
                tell(Told::Touched { path: path() });
            }
            OutcomeKind::Brought { how: Brought::ByServer, .. } => {
                totals.files_moved += 1;
                totals.files_between_servers += 1;
                add(&mut totals.bytes_moved, data);
                tell(Told::Copied { path: path(), bytes: size, matched_bytes: 0 });
            }
            OutcomeKind::Brought { how, .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, data);
                totals.files_linked += u64::from(*how == Brought::Linked);
                totals.files_copied_there += u64::from(*how == Brought::Copied);
            }
            OutcomeKind::Made => {
                totals.others_made += 1;
                tell(Told::Made { path: path() });
            }
            OutcomeKind::Nothing => match &open.item.kind {
                ItemKind::Skipped { why } => {
                    totals.skipped += 1;
                    tell(Told::Skipped { path: path(), why: why.clone() });
                }
                ItemKind::Failed { why, vanished } => {
                    totals.failed += 1;
                    totals.vanished += u64::from(*vanished);
                    tell(Told::Failed { path: path(), why: why.clone() });
                }
                ItemKind::File { .. }
                | ItemKind::Directory
                | ItemKind::DirectoryEnd { .. }
                | ItemKind::Symlink { .. }
                | ItemKind::HardLink { .. }
                | ItemKind::FurtherName { .. }
                | ItemKind::Special(_) => {}
            },
            OutcomeKind::Failed { why, kind } => {
                totals.failed += 1;
                if matches!(open.item.kind, ItemKind::File { .. }) {
                    totals.files_failed += 1;
                    add(&mut totals.bytes_failed, data.saturating_sub(open.receipted_bytes));
                }
                match kind {
                    FailureKind::Vanished => totals.vanished += 1,
                    FailureKind::Unverified => totals.unverified += 1,
                    FailureKind::Space => totals.out_of_space += 1,
                    FailureKind::Io | FailureKind::Changed => {}
                }
                tell(Told::Failed { path: path(), why: why.clone() });
            }
            // A peer may say so of other entries.
            OutcomeKind::Superseded if matches!(open.item.kind, ItemKind::File { .. }) => {
                totals.files_found -= 1;
                totals.bytes_found = totals.bytes_found.saturating_sub(size);
                totals.bytes_holes = totals.bytes_holes.saturating_sub(size.saturating_sub(data));
            }
            OutcomeKind::Superseded => {}
        }
        let is_left =
            matches!(result, OutcomeKind::Failed { .. } | OutcomeKind::LeftOut { .. } | OutcomeKind::Superseded);
        if !changes.is_empty() && !is_left {
            tell(Told::Item { item: open.item.clone(), result: result.clone(), changes: *changes });
        }
        self.pop_settled(tell);
        Ok(())
    }

    /// Books a failure beside the items (a deletion).
    pub fn on_failure_aside(&mut self) {
        self.totals.failed += 1;
    }

    /// Books an omission beside the items (an attribute).
    pub fn on_skip_aside(&mut self) {
        self.totals.skipped += 1;
    }

    fn pop_settled(&mut self, tell: &mut dyn FnMut(Told)) {
        while self.open.front().is_some_and(|open| open.settled) {
            let Some((_, open)) = self.open.pop_front() else { return };
            if let Some(Content { size, mtime, blake3 }) = open.content {
                tell(Told::Hashed { path: open.item.path, size, mtime, blake3 });
            }
        }
    }
}

/// The rest of a job.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToCome {
    /// Regular files of the job, if known.
    pub files: u64,
    /// Their data in bytes, without holes and omissions.
    pub bytes: u64,
    /// Files without an outcome.
    pub files_left: u64,
    /// Data neither there nor given up.
    pub bytes_left: u64,
    /// The rest is estimated.
    pub is_rough: bool,
    /// Share of the sources seen, in millionths; 0: unknown.
    pub seen_ppm: u32,
}

impl Totals {
    fn on_file(&mut self, open: &mut Open) {
        if matches!(open.item.kind, ItemKind::FurtherName { .. })
            && let Some(kind) = open.item.kind.as_file()
            && let ItemKind::File { identity, .. } = kind
        {
            self.files_found += 1;
            add(&mut self.bytes_found, identity.size);
            open.data_bytes = identity.size;
            open.item.kind = kind;
        }
    }

    /// The rest of the list, and of a count.
    fn left(&self, counted: Option<&Counted>) -> ToCome {
        let files = self.files_found.saturating_sub(self.files_left_out);
        let bytes = self.bytes_found.saturating_sub(self.bytes_holes).saturating_sub(self.bytes_left_out);
        let files_over = self.files_moved + self.files_kept + self.files_failed;
        let bytes_over = self.bytes_moved.saturating_add(self.bytes_kept).saturating_add(self.bytes_failed);
        let (mut all_files, mut all_bytes, mut is_rough) = (files, bytes, !self.found_all);
        let mut seen_ppm = 0;
        if let Some(counted) = counted.filter(|_| !self.found_all) {
            // Omissions of the listed part are unknown to the count.
            all_files = all_files.max(counted.whole(counted.files).saturating_sub(self.files_left_out));
            all_bytes = all_bytes.max(counted.whole(counted.data_bytes).saturating_sub(self.bytes_left_out));
            is_rough = !counted.is_whole();
            seen_ppm = counted.share_ppm;
        }
        ToCome {
            files: all_files,
            bytes: all_bytes,
            files_left: all_files.saturating_sub(files_over),
            bytes_left: all_bytes.saturating_sub(bytes_over),
            is_rough,
            seen_ppm,
        }
    }
}

fn bytes_of(layout: &ChunkLayout, range: &ChunkRange) -> u64 {
    let start = |chunk: u32| u64::from(chunk).saturating_mul(layout.chunk_bytes()).min(layout.size());
    start(range.first.saturating_add(range.count)).saturating_sub(start(range.first))
}

fn hash_of(result: &OutcomeKind) -> Option<Hash> {
    match result {
        OutcomeKind::Copied { blake3 } => Some(*blake3),
        OutcomeKind::Kept { blake3 } | OutcomeKind::Touched { blake3 } | OutcomeKind::Brought { blake3, .. } => *blake3,
        _ => None,
    }
}

/// The content of one more name; the last one drops it.
fn further_name(first_names: &mut BTreeMap<Key, (Content, u32)>, first: Key) -> Option<Content> {
    let (content, left) = first_names.get_mut(&first)?;
    let content = *content;
    *left -= 1;
    if *left == 0 {
        first_names.remove(&first);
    }
    Some(content)
}

/// Saturates: a peer's three files of 2^63 bytes must not overflow a total.
fn add(total: &mut u64, bytes: u64) {
    *total = total.saturating_add(bytes);
}

#[cfg(test)]
mod tests;
