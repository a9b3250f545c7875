//! The file that stands at the target under the name of one that comes.

use std::io;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use haul_store::SourceFile;

use crate::pieces::{Cutter, barren_bytes};

pub(super) struct StandingFile {
    pub(super) file: SourceFile,
    pub(super) size: u64,
    pub(super) cutter: Cutter,
    pub(super) told: AtomicUsize,
    came_bytes: AtomicU64,
    matched_bytes: AtomicU64,
}

impl StandingFile {
    pub(super) fn new(file: SourceFile, size: u64, cutter: Cutter) -> Self {
        let (told, came_bytes, matched_bytes) = Default::default();
        Self { file, size, cutter, told, came_bytes, matched_bytes }
    }

    pub(super) fn enter(&self, came_bytes: u64, matched_bytes: u64) {
        self.came_bytes.fetch_add(came_bytes, Ordering::Relaxed);
        self.matched_bytes.fetch_add(matched_bytes, Ordering::Relaxed);
    }

    /// Whether a further look only costs time, the sender knowing the file to this offset.
    pub(super) fn is_of_no_use(&self, looked_at_bytes: u64) -> bool {
        let most = barren_bytes(self.size);
        looked_at_bytes >= most
            && self.came_bytes.load(Ordering::Relaxed) >= most
            && self.matched_bytes.load(Ordering::Relaxed) == 0
    }

    /// Fills `data` from this offset on; what is gone reads as zeros, which the chunk's hash tells.
    pub(super) fn read(&self, data: &mut [u8], offset: u64) -> io::Result<()> {
        let mut filled = 0;
        while filled < data.len() {
            let read = self.file.read_at(&mut data[filled..], offset + filled as u64)?;
            if read == 0 {
                data[filled..].fill(0);
                break;
            }
            filled += read;
        }
        Ok(())
    }

    pub(super) fn reaches(&self, end: u64) -> bool {
        end <= self.size
    }
}
