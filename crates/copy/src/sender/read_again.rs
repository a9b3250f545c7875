//! The target reports how much of the data of earlier runs it has read again.
//!
//! This is progress: a disk may take an hour for it while nothing else happens. Bounds keep a target from claiming progress for
//! ever.

use std::sync::atomic::{AtomicU64, Ordering};

use haul_engine::sending::Broken;
use haul_wire::manifest::{Item, ItemKind};

/// The slowest path brings as much in a minute: a smaller report is no sign of progress.
const LEAST_BYTES: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct ReadAgain {
    offered_bytes: AtomicU64,
    told_bytes: AtomicU64,
}

impl ReadAgain {
    /// Counts an item of which the target may have a part.
    pub(super) fn offer(&self, item: &Item) {
        if let ItemKind::File { identity, .. } | ItemKind::FurtherName { identity, .. } = &item.kind {
            let add = |bytes: u64| Some(bytes.saturating_add(identity.size));
            let _ = self.offered_bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add);
        }
    }

    /// Returns true if the bytes read so far are progress.
    pub(super) fn told(&self, bytes: u64) -> Result<bool, Broken> {
        if bytes > self.offered_bytes.load(Ordering::Relaxed) {
            return Err(Broken("it reads more than it was offered"));
        }
        let is_progress = bytes >= self.told_bytes.load(Ordering::Relaxed).saturating_add(LEAST_BYTES);
        if is_progress {
            self.told_bytes.store(bytes, Ordering::Relaxed);
        }
        Ok(is_progress)
    }
}

#[cfg(test)]
mod tests {
    use haul_wire::RelPath;
    use haul_wire::manifest::{Attributes, Identity};

    use super::*;

    #[test]
    fn what_is_read_counts_by_steps_and_as_far_as_there_can_be_so_much() {
        let read_again = ReadAgain::default();
        assert!(read_again.told(1).is_err());
        let identity = Identity { size: 1 << 20, mtime: Default::default(), ctime: Default::default(), inode: 1 };
        let kind = ItemKind::File { identity, hole_bytes: 0, blake3: None, further_names: 0 };
        let path = RelPath::new(b"file".to_vec()).unwrap();
        read_again.offer(&Item { path, kind, attributes: Attributes::default() });
        assert_eq!(read_again.told(LEAST_BYTES - 1), Ok(false));
        assert_eq!(read_again.told(LEAST_BYTES), Ok(true));
        assert_eq!(read_again.told(LEAST_BYTES), Ok(false));
        assert_eq!(read_again.told(LEAST_BYTES + 1), Ok(false), "a byte now and then");
        assert_eq!(read_again.told(1 << 20), Ok(true));
        assert!(read_again.told((1 << 20) + 1).is_err());
    }
}
