//! What happened, told from the two streams of a session: items one way, receipts and outcomes the other.
//!
//! Every side that stands beside a person keeps a tally: the sender of a push, the receiver of a pull, and the one in the
//! middle of a copy between two other hosts, who sees both streams pass.

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
    /// Regular files listed (superseded ones not counted twice).
    pub files_found: u64,
    /// Their bytes.
    pub bytes_found: u64,
    /// The listing is complete.
    pub found_all: bool,
    /// Files whose data moved (or would move).
    pub files_moved: u64,
    /// Files already there, at the target or in a reference tree of it.
    pub files_kept: u64,
    /// The part of these that were made at the target as hard links to files of a reference tree.
    pub files_linked: u64,
    /// The part of these that were copied at the target from a reference tree.
    pub files_copied_there: u64,
    /// Directories and links made.
    pub others_made: u64,
    /// Entries that failed.
    pub failed: u64,
    /// The part of these that are regular files.
    pub files_failed: u64,
    /// Their data that did not arrive.
    pub bytes_failed: u64,
    /// The part of these that vanished at the source.
    pub vanished: u64,
    /// The part of these that did not verify.
    pub unverified: u64,
    /// The part of these that failed for lack of space.
    pub out_of_space: u64,
    /// Entries left out on purpose.
    pub skipped: u64,
    /// Entries that a rule of the job leaves out.
    pub left_out: u64,
    /// The part of these that are regular files.
    pub files_left_out: u64,
    /// Their data in bytes.
    pub bytes_left_out: u64,
    /// Holes of all files: what is neither moved nor kept.
    pub bytes_holes: u64,
    /// Bytes verified at the target in this run.
    pub bytes_moved: u64,
    /// Data of files already there, and of chunks that an earlier run left.
    pub bytes_kept: u64,
    /// The part of these that stood at the target in files that differed.
    pub bytes_matched: u64,
    /// Data verified in this run of files that have no outcome yet. Some of it may be flushed already.
    pub bytes_unsettled: u64,
}

/// Something to tell the user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Told {
    /// Data moved (or would move); verified, under its final name.
    Copied {
        /// Path.
        path: RelPath,
        /// Size in bytes.
        bytes: u64,
        /// The part of these that stood at the target, in the file that differed.
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
    /// An entry that was made, changed or found changed, for whoever wants all that is known of it.
    Item {
        /// As the source has it.
        item: Item,
        /// The outcome of the item.
        result: OutcomeKind,
        /// In what it differed before.
        changes: Changes,
    },
    /// Could not be copied.
    Failed {
        /// Path.
        path: RelPath,
        /// Why.
        why: String,
    },
    /// In manifest order: a file, or a further name of one, and its hash.
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
    /// An outcome or receipt for an item that is not open.
    NotOpen,
    /// An item has a second outcome.
    Twice,
}

#[derive(Debug)]
struct Open {
    item: Item,
    /// The data bytes, as far as they are known.
    data_bytes: u64,
    receipted_bytes: u64,
    /// Counts as kept before its outcome: by the target's answer, or because it matched.
    kept_bytes: u64,
    /// The part of these that matched.
    matched_bytes: u64,
    settled: bool,
    content: Option<Content>,
}

/// The content of a file, whatever its names.
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
    /// Files that are there and of which so many further names are not settled, by [`key`] of the first one.
    first_names: BTreeMap<Key, (Content, u32)>,
}

/// The half of a hash: whatever a peer's paths are, nobody finds two with the same one, and they are all equally long.
type Key = [u8; 16];

fn key(path: &RelPath) -> Key {
    let mut key = [0; 16];
    key.copy_from_slice(&blake3::hash(path.as_bytes()).as_bytes()[..16]);
    key
}

/// A walk keeps 2^18 files in mind whose further names it looks for, and of those that it has found as many as are open are not settled. At
/// about 100 bytes that is 29 MiB. No honest sender comes to more; what a dishonest one sends beyond them is not listed.
const MAX_FIRST_NAMES: usize = (1 << 18) + 2 * MAX_OPEN_ITEMS;

impl Tally {
    /// Files are cut by this rule.
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

    /// The listing is complete.
    pub fn on_end_of_manifest(&mut self) {
        self.totals.found_all = true;
    }

    /// The next item of the manifest.
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

    /// A chunk verified.
    pub fn on_receipt(&mut self, receipt: &Receipt) -> Result<(), TallyFault> {
        let open = self.open.get_mut(receipt.index).ok_or(TallyFault::NotOpen)?;
        add(&mut open.receipted_bytes, receipt.data_bytes);
        add(&mut self.totals.bytes_moved, receipt.data_bytes);
        if !open.settled {
            add(&mut self.totals.bytes_unsettled, receipt.data_bytes);
        }
        // A file of a compressing file system looks as if it had holes, and arrives whole.
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

    /// Books what the target wants of a file: it has all the rest.
    pub fn on_answer(&mut self, index: u64, wanted: &Wanted) {
        // Its outcome may have overtaken it.
        let Some(open) = self.open.get_mut(index).filter(|open| !open.settled) else { return };
        self.totals.on_file(open);
        let (ItemKind::File { identity, .. }, Wanted::Chunks(ranges)) = (&open.item.kind, wanted) else { return };
        let layout = ChunkLayout::by(self.cut, identity.size);
        let wanted_bytes = ranges.iter().fold(0_u64, |sum, range| sum.saturating_add(bytes_of(&layout, range)));
        // Holes are spread evenly, as far as anybody knows.
        let kept = u128::from(identity.size.saturating_sub(wanted_bytes)) * u128::from(open.data_bytes);
        let kept = u64::try_from(kept / u128::from(identity.size.max(1))).unwrap_or(u64::MAX);
        let kept = kept.min(open.data_bytes.saturating_sub(open.receipted_bytes));
        self.totals.bytes_kept = self.totals.bytes_kept.saturating_sub(open.kept_bytes).saturating_add(kept);
        self.resumed_bytes = self.resumed_bytes.saturating_sub(open.kept_bytes).saturating_add(kept);
        open.kept_bytes = kept;
    }

    /// Data that earlier runs left, of all answers so far.
    pub fn resumed_bytes(&self) -> u64 {
        self.resumed_bytes
    }

    /// Books what a count of the sources has found so far.
    pub fn on_counted(&mut self, counted: Counted) {
        self.counted = Some(counted);
    }

    /// The work that is to come.
    pub fn left(&self) -> ToCome {
        self.totals.left(self.counted.as_ref())
    }

    /// Books the outcome of an item. `tell` gets what the user should know, hashes in manifest order.
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
                // It comes to its turn after all that stands before it.
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
            OutcomeKind::Brought { how, .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, data);
                match how {
                    Brought::Linked => totals.files_linked += 1,
                    Brought::Copied => totals.files_copied_there += 1,
                }
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
            // A peer may say so of what is no file.
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

    /// Something failed beside the items (a deletion).
    pub fn on_failure_aside(&mut self) {
        self.totals.failed += 1;
    }

    /// Something was left out beside the items (an attribute).
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

/// The part of a job that is still to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ToCome {
    /// Regular files of the whole job, as far as is known.
    pub files: u64,
    /// Their data in bytes, without holes and without what a rule leaves out.
    pub bytes: u64,
    /// Files that have no outcome.
    pub files_left: u64,
    /// Data that is neither there nor given up.
    pub bytes_left: u64,
    /// The figures above reckon with what was not seen yet.
    pub is_rough: bool,
    /// The share of the sources that was seen then, in millionths; 0: not known.
    pub seen_ppm: u32,
}

impl Totals {
    /// A further name of a file turns out to be sent for itself.
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

    /// The remaining part of what is listed; and of what is not, as far as a count of the sources tells.
    fn left(&self, counted: Option<&Counted>) -> ToCome {
        let files = self.files_found.saturating_sub(self.files_left_out);
        let bytes = self.bytes_found.saturating_sub(self.bytes_holes).saturating_sub(self.bytes_left_out);
        let files_over = self.files_moved + self.files_kept + self.files_failed;
        let bytes_over = self.bytes_moved.saturating_add(self.bytes_kept).saturating_add(self.bytes_failed);
        let (mut all_files, mut all_bytes, mut is_rough) = (files, bytes, !self.found_all);
        let mut seen_ppm = 0;
        if let Some(counted) = counted.filter(|_| !self.found_all) {
            // Of what is left out of the listed part, the count knows nothing.
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

/// The hash of a file that is there, where that is known.
fn hash_of(result: &OutcomeKind) -> Option<Hash> {
    match result {
        OutcomeKind::Copied { blake3 } => Some(*blake3),
        OutcomeKind::Kept { blake3 } | OutcomeKind::Touched { blake3 } | OutcomeKind::Brought { blake3, .. } => *blake3,
        _ => None,
    }
}

/// The content that stands under one more name of a file. After the last one nobody needs to remember it.
fn further_name(first_names: &mut BTreeMap<Key, (Content, u32)>, first: Key) -> Option<Content> {
    let (content, left) = first_names.get_mut(&first)?;
    let content = *content;
    *left -= 1;
    if *left == 0 {
        first_names.remove(&first);
    }
    Some(content)
}

/// Sizes are what a peer says: three files of 2^63 bytes must not overflow a total.
fn add(total: &mut u64, bytes: u64) {
    *total = total.saturating_add(bytes);
}

#[cfg(test)]
mod tests;
