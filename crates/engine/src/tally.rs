//! What happened, told from the two streams of a session: items one way, receipts and outcomes the other.
//!
//! Every side that stands beside a person keeps a tally: the sender of a push, the receiver of a pull, and the one in the
//! middle of a copy between two other hosts, who sees both streams pass.

use alloc::collections::BTreeMap;
use alloc::string::String;

use haul_wire::control::{Changes, FailureKind, LeftOut, Outcome, OutcomeKind, Receipt};
use haul_wire::limits::MAX_OPEN_ITEMS;
use haul_wire::manifest::{Item, ItemKind, Time};
use haul_wire::path::RelPath;

use crate::integrity::Hash;
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
    /// Files already there.
    pub files_kept: u64,
    /// Directories and links made.
    pub others_made: u64,
    /// Entries that failed.
    pub failed: u64,
    /// Of these, vanished at the source.
    pub vanished: u64,
    /// Of these, not verified.
    pub unverified: u64,
    /// Of these, for lack of space.
    pub out_of_space: u64,
    /// Entries left out on purpose.
    pub skipped: u64,
    /// Entries that a rule of the job leaves out.
    pub left_out: u64,
    /// Of these, regular files.
    pub files_left_out: u64,
    /// Their bytes.
    pub bytes_left_out: u64,
    /// Bytes verified at the target in this run.
    pub bytes_moved: u64,
    /// Bytes of files already there, chunks of an earlier run and holes.
    pub bytes_kept: u64,
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
        /// What became of it.
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
    receipted_bytes: u64,
    settled: bool,
    content: Option<Content>,
}

/// What a file holds, whatever its names.
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
        if let ItemKind::File { identity, .. } = &item.kind {
            self.totals.files_found += 1;
            add(&mut self.totals.bytes_found, identity.size);
        }
        let weight = item.weight_bytes();
        let open = Open { item: item.clone(), receipted_bytes: 0, settled: false, content: None };
        self.open.push_checked(open, weight).map_err(|Overflow| TallyFault::Overflow)?;
        Ok(())
    }

    /// A chunk verified.
    pub fn on_receipt(&mut self, receipt: &Receipt) -> Result<(), TallyFault> {
        let open = self.open.get_mut(receipt.index).ok_or(TallyFault::NotOpen)?;
        add(&mut open.receipted_bytes, receipt.data_bytes);
        add(&mut self.totals.bytes_moved, receipt.data_bytes);
        Ok(())
    }

    /// What became of an item. `tell` gets what the user should know, hashes in manifest order.
    pub fn on_outcome(&mut self, outcome: &Outcome, tell: &mut dyn FnMut(Told)) -> Result<(), TallyFault> {
        let Outcome { index, result, changes } = outcome;
        let open = self.open.get_mut(*index).ok_or(TallyFault::NotOpen)?;
        if open.settled {
            return Err(TallyFault::Twice);
        }
        open.settled = true;
        let totals = &mut self.totals;
        let size = match &open.item.kind {
            ItemKind::File { identity, .. } => identity.size,
            _ => 0,
        };
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
            ItemKind::HardLink { first } => {
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
                add(&mut totals.bytes_kept, size.saturating_sub(open.receipted_bytes));
                tell(Told::Copied { path: path(), bytes: size });
            }
            OutcomeKind::WouldCopy => {
                totals.files_moved += 1;
                add(&mut totals.bytes_moved, size);
                tell(Told::Copied { path: path(), bytes: size });
            }
            OutcomeKind::LeftOut { rule } => {
                totals.left_out += 1;
                if matches!(open.item.kind, ItemKind::File { .. }) {
                    totals.files_left_out += 1;
                    add(&mut totals.bytes_left_out, size);
                }
                tell(Told::LeftOut { path: path(), rule: *rule });
            }
            OutcomeKind::Kept { .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, size);
            }
            OutcomeKind::Touched { .. } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, size);
                tell(Told::Touched { path: path() });
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
                | ItemKind::HardLink { .. } => {}
            },
            OutcomeKind::Failed { why, kind } => {
                totals.failed += 1;
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
            }
            OutcomeKind::Superseded => {}
        }
        if !changes.is_empty() && !matches!(result, OutcomeKind::Failed { .. } | OutcomeKind::LeftOut { .. }) {
            tell(Told::Item { item: open.item.clone(), result: result.clone(), changes: *changes });
        }
        self.let_go(tell);
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

    fn let_go(&mut self, tell: &mut dyn FnMut(Told)) {
        while self.open.front().is_some_and(|open| open.settled) {
            let Some((_, open)) = self.open.pop_front() else { return };
            if let Some(Content { size, mtime, blake3 }) = open.content {
                tell(Told::Hashed { path: open.item.path, size, mtime, blake3 });
            }
        }
    }
}

/// What a file that is there hashes to, where that is known.
fn hash_of(result: &OutcomeKind) -> Option<Hash> {
    match result {
        OutcomeKind::Copied { blake3 } => Some(*blake3),
        OutcomeKind::Kept { blake3 } | OutcomeKind::Touched { blake3 } => *blake3,
        _ => None,
    }
}

/// What stands under one more name of a file. After the last one nobody needs to remember it.
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
mod tests {
    use alloc::string::ToString;
    use alloc::vec::Vec;

    use haul_wire::manifest::{Attributes, Identity};

    use super::*;

    fn file(path: &str, size: u64) -> Item {
        let identity = Identity { size, mtime: Time::default(), ctime: Time::default(), inode: 0 };
        Item {
            path: RelPath::new(path.as_bytes().to_vec()).unwrap(),
            kind: ItemKind::File { identity, sparse: false, blake3: None, further_names: 0 },
            attributes: Attributes::default(),
        }
    }

    #[test]
    fn hashes_are_told_in_manifest_order_whatever_order_files_finish_in() {
        let mut tally = Tally::default();
        for path in ["a", "b", "c"] {
            tally.on_item(&file(path, 10)).unwrap();
        }
        let mut order = Vec::new();
        for index in [2, 0, 1] {
            tally.on_receipt(&Receipt { index, chunk: 0, data_bytes: 10 }).unwrap();
            let copied = OutcomeKind::Copied { blake3: [index as u8; 32] };
            tally
                .on_outcome(&Outcome::of(index, copied), &mut |told| {
                    if let Told::Hashed { blake3, .. } = told {
                        order.push(blake3[0]);
                    }
                })
                .unwrap();
        }
        assert_eq!(order, [0, 1, 2]);
        assert!(tally.all_settled());
        assert_eq!((tally.totals().files_moved, tally.totals().bytes_moved), (3, 30));
    }

    #[test]
    fn a_resumed_file_counts_what_moved_and_what_was_kept() {
        let mut tally = Tally::default();
        tally.on_item(&file("big", 100)).unwrap();
        tally.on_receipt(&Receipt { index: 0, chunk: 3, data_bytes: 30 }).unwrap();
        tally.on_outcome(&Outcome::of(0, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
        assert_eq!((tally.totals().bytes_moved, tally.totals().bytes_kept), (30, 70));
    }

    #[test]
    fn a_peer_cannot_settle_twice_or_what_is_not_open() {
        let mut tally = Tally::default();
        tally.on_item(&file("a", 1)).unwrap();
        tally.on_item(&file("b", 1)).unwrap();
        let kept = OutcomeKind::Kept { blake3: None };
        tally.on_outcome(&Outcome::of(1, kept.clone()), &mut |_| {}).unwrap();
        assert_eq!(tally.on_outcome(&Outcome::of(1, kept.clone()), &mut |_| {}), Err(TallyFault::Twice));
        assert_eq!(tally.on_outcome(&Outcome::of(7, kept.clone()), &mut |_| {}), Err(TallyFault::NotOpen));
    }

    #[test]
    fn whatever_a_peer_says_another_item_stands_for_nothing_overflows() {
        let mut tally = Tally::default();
        tally.on_item(&Item { kind: ItemKind::Directory, ..file("d", 0) }).unwrap();
        for _ in 0..2 {
            tally.on_item(&file("file", u64::MAX)).unwrap();
        }
        for index in 0..3 {
            tally.on_outcome(&Outcome::of(index, OutcomeKind::Superseded), &mut |_| {}).unwrap();
        }
        assert_eq!((tally.totals().files_found, tally.totals().bytes_found), (0, 0));
    }

    fn linked(path: &str, further_names: u32) -> Item {
        let mut item = file(path, 10);
        if let ItemKind::File { further_names: names, .. } = &mut item.kind {
            *names = further_names;
        }
        item
    }

    fn link(path: &str, first: &str) -> Item {
        Item { kind: ItemKind::HardLink { first: file(first, 0).path }, ..file(path, 0) }
    }

    /// The names that are told with a hash, in order.
    fn listed(tally: &mut Tally, outcomes: &[(u64, OutcomeKind)]) -> Vec<(String, u8)> {
        let mut listed = Vec::new();
        for (index, result) in outcomes {
            let mut tell = |told| {
                if let Told::Hashed { path, size: 10, blake3, .. } = told {
                    listed.push((String::from_utf8(path.as_bytes().to_vec()).unwrap(), blake3[0]));
                }
            };
            tally.on_outcome(&Outcome::of(*index, result.clone()), &mut tell).unwrap();
        }
        listed
    }

    #[test]
    fn further_names_are_told_with_the_hash_of_their_file_where_they_are_made_or_there() {
        let mut tally = Tally::default();
        for item in [linked("a", 3), link("b", "a"), link("c", "a"), file("d", 10), link("e", "a")] {
            tally.on_item(&item).unwrap();
        }
        let copied = |fill| OutcomeKind::Copied { blake3: [fill; 32] };
        let outcomes = [
            (3, copied(4)),
            (0, copied(1)),
            (1, OutcomeKind::Made),
            // Another file stays under this name.
            (2, OutcomeKind::LeftOut { rule: LeftOut::Exists }),
            (4, OutcomeKind::Nothing),
        ];
        let expected = [("a", 1), ("b", 1), ("d", 4), ("e", 1)].map(|(name, fill)| (name.to_string(), fill));
        assert_eq!(listed(&mut tally, &outcomes), expected);
        assert!(tally.first_names.is_empty(), "nobody needs it any more");
        assert_eq!((tally.totals().files_moved, tally.totals().files_kept, tally.totals().others_made), (2, 0, 1));
    }

    /// A file that changed while it was read is announced anew, behind the other names that wait for it.
    #[test]
    fn a_further_name_of_a_file_that_was_sent_again_has_the_hash_of_what_it_is_now() {
        let mut tally = Tally::default();
        for item in [linked("a", 1), link("b", "a"), linked("a", 1)] {
            tally.on_item(&item).unwrap();
        }
        let outcomes =
            [(0, OutcomeKind::Superseded), (2, OutcomeKind::Copied { blake3: [2; 32] }), (1, OutcomeKind::Made)];
        assert_eq!(listed(&mut tally, &outcomes), [("b".to_string(), 2), ("a".to_string(), 2)]);
    }

    #[test]
    fn of_a_file_that_failed_or_that_nobody_read_no_name_is_told() {
        let failed = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Io };
        for first in [failed, OutcomeKind::Kept { blake3: None }, OutcomeKind::WouldCopy] {
            let mut tally = Tally::default();
            tally.on_item(&linked("a", 1)).unwrap();
            tally.on_item(&link("b", "a")).unwrap();
            assert_eq!(listed(&mut tally, &[(0, first), (1, OutcomeKind::Nothing)]), []);
        }
    }

    #[test]
    fn a_peer_that_promises_further_names_without_end_fills_no_memory() {
        let mut tally = Tally::default();
        for number in 0..MAX_FIRST_NAMES as u64 + 10 {
            tally.on_item(&linked(&number.to_string(), u32::MAX)).unwrap();
            tally.on_outcome(&Outcome::of(number, OutcomeKind::Copied { blake3: [0; 32] }), &mut |_| {}).unwrap();
        }
        assert_eq!(tally.first_names.len(), MAX_FIRST_NAMES);
        tally.on_item(&link("name", "0")).unwrap();
        let last = MAX_FIRST_NAMES as u64 + 10;
        assert_eq!(listed(&mut tally, &[(last, OutcomeKind::Made)]), [("name".to_string(), 0)]);
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let mut tally = Tally::default();
        tally.on_item(&file("a", 1)).unwrap();
        let vanished = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Vanished };
        tally.on_outcome(&Outcome::of(0, vanished.clone()), &mut |_| {}).unwrap();
        assert_eq!((tally.totals().failed, tally.totals().vanished), (1, 1));
    }
}
