//! What happened, told from the two streams of a session: items one way, receipts and outcomes the other.
//!
//! Every side that stands beside a person keeps a tally: the sender of a push, the receiver of a pull, and the one in the
//! middle of a copy between two other hosts, who sees both streams pass.

use alloc::string::String;

use haul_wire::control::{FailureKind, OutcomeKind, Receipt};
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
    /// Could not be copied.
    Failed {
        /// Path.
        path: RelPath,
        /// Why.
        why: String,
    },
    /// In manifest order: a file and its hash.
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
    blake3: Option<Hash>,
}

/// Keeps the totals.
#[derive(Debug, Default)]
pub struct Tally {
    open: Window<Open>,
    totals: Totals,
}

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
        let open = Open { item: item.clone(), receipted_bytes: 0, settled: false, blake3: None };
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
    pub fn on_outcome(
        &mut self,
        index: u64,
        result: &OutcomeKind,
        tell: &mut dyn FnMut(Told),
    ) -> Result<(), TallyFault> {
        let open = self.open.get_mut(index).ok_or(TallyFault::NotOpen)?;
        if open.settled {
            return Err(TallyFault::Twice);
        }
        open.settled = true;
        let totals = &mut self.totals;
        let size = match &open.item.kind {
            ItemKind::File { identity, .. } => identity.size,
            _ => 0,
        };
        let path = || open.item.path.clone();
        match result {
            OutcomeKind::Copied { blake3 } => {
                totals.files_moved += 1;
                add(&mut totals.bytes_kept, size.saturating_sub(open.receipted_bytes));
                open.blake3 = Some(*blake3);
                tell(Told::Copied { path: path(), bytes: size });
            }
            OutcomeKind::WouldCopy => {
                totals.files_moved += 1;
                add(&mut totals.bytes_moved, size);
                tell(Told::Copied { path: path(), bytes: size });
            }
            OutcomeKind::Kept { blake3 } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, size);
                open.blake3 = *blake3;
            }
            OutcomeKind::Touched { blake3 } => {
                totals.files_kept += 1;
                add(&mut totals.bytes_kept, size);
                open.blake3 = *blake3;
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
            if let (ItemKind::File { identity, .. }, Some(blake3)) = (&open.item.kind, open.blake3) {
                let (size, mtime) = (identity.size, identity.mtime);
                tell(Told::Hashed { path: open.item.path, size, mtime, blake3 });
            }
        }
    }
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
            kind: ItemKind::File { identity, sparse: false, blake3: None },
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
                .on_outcome(index, &copied, &mut |told| {
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
        tally.on_outcome(0, &OutcomeKind::Copied { blake3: [0; 32] }, &mut |_| {}).unwrap();
        assert_eq!((tally.totals().bytes_moved, tally.totals().bytes_kept), (30, 70));
    }

    #[test]
    fn a_peer_cannot_settle_twice_or_what_is_not_open() {
        let mut tally = Tally::default();
        tally.on_item(&file("a", 1)).unwrap();
        tally.on_item(&file("b", 1)).unwrap();
        let kept = OutcomeKind::Kept { blake3: None };
        tally.on_outcome(1, &kept, &mut |_| {}).unwrap();
        assert_eq!(tally.on_outcome(1, &kept, &mut |_| {}), Err(TallyFault::Twice));
        assert_eq!(tally.on_outcome(7, &kept, &mut |_| {}), Err(TallyFault::NotOpen));
    }

    #[test]
    fn whatever_a_peer_says_another_item_stands_for_nothing_overflows() {
        let mut tally = Tally::default();
        tally.on_item(&Item { kind: ItemKind::Directory, ..file("d", 0) }).unwrap();
        for _ in 0..2 {
            tally.on_item(&file("file", u64::MAX)).unwrap();
        }
        for index in 0..3 {
            tally.on_outcome(index, &OutcomeKind::Superseded, &mut |_| {}).unwrap();
        }
        assert_eq!((tally.totals().files_found, tally.totals().bytes_found), (0, 0));
    }

    #[test]
    fn failures_are_counted_by_kind() {
        let mut tally = Tally::default();
        tally.on_item(&file("a", 1)).unwrap();
        let vanished = OutcomeKind::Failed { why: "gone".to_string(), kind: FailureKind::Vanished };
        tally.on_outcome(0, &vanished, &mut |_| {}).unwrap();
        assert_eq!((tally.totals().failed, tally.totals().vanished), (1, 1));
    }
}
