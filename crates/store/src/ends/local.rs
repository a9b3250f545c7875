//! The disk of this host, and what is mounted there.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::reading::{ItemSource, SourceFile, SourceTree};
use crate::error::Result;
use crate::source::SourceSet;
use crate::walk::Walk;
use crate::walk_options::WalkOptions;

impl SourceTree for SourceSet {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        Box::new(self.walk(options))
    }

    fn open(&self, source: u32, source_path: &[u8]) -> Result<SourceFile> {
        self.open(source, source_path)
    }

    fn is_single_file(&self) -> bool {
        self.is_single_file()
    }

    fn name_of_single_file(&self) -> &[u8] {
        self.name_of_single_file()
    }

    fn roots(&self) -> Option<Vec<BorrowedFd<'_>>> {
        self.roots()
    }
}

impl ItemSource for Walk {
    fn duplicates(&self) -> u64 {
        self.duplicates()
    }
}
