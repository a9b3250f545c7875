//! Data of a file counts while the file is as listed, or has only grown where the job asks for that.

use std::sync::Mutex;
use std::sync::atomic::Ordering;

use haul_store::{SourceFile, printable};
use haul_wire::control::FailureKind;
use haul_wire::manifest::Identity;

use haul_channel::convert;
use haul_kept::sync::lock;

use super::source_item::SourceItem;
use super::stop::{Stop, cannot_read, changed};

pub(super) struct Growing {
    is_taken: bool,
    grown: Mutex<Grown>,
}

#[derive(Default)]
struct Grown {
    files: u64,
    first: Vec<u8>,
}

impl Growing {
    pub(super) fn new(is_taken: bool) -> Self {
        Self { is_taken, grown: Mutex::default() }
    }

    pub(super) fn is_taken(&self) -> bool {
        self.is_taken
    }

    /// Whether what was read is of the listed file. It first reads behind the announced end: then an honest file system tells
    /// of growth.
    pub(super) fn check(&self, file: &SourceItem, open: &SourceFile) -> Result<(), Stop> {
        self.check_read(file, open, None)
    }

    /// [`Growing::check`], where the last read may have shown bytes behind the announced end.
    pub(super) fn check_read(&self, file: &SourceItem, open: &SourceFile, reads_on: Option<bool>) -> Result<(), Stop> {
        let listed = &file.identity;
        let look = || open.reads_on_at(listed.size).map_err(|error| cannot_read(listed.size, &error));
        let is_longer = reads_on.map_or_else(look, Ok)?;
        let stat = open.stat().map_err(|error| Stop::Source(error.to_string(), FailureKind::Io))?;
        match convert::identity(&stat) {
            now if now == *listed && is_longer => Err(Stop::Source(longer_than(listed.size), FailureKind::Io)),
            now if now == *listed => Ok(()),
            now if self.is_taken && has_grown(listed, &now) => {
                self.note(file);
                Ok(())
            }
            now if has_grown(listed, &now) => Err(Stop::Source(GREW.into(), FailureKind::Changed)),
            _ => Err(changed()),
        }
    }

    fn note(&self, file: &SourceItem) {
        if file.has_grown.swap(true, Ordering::Relaxed) {
            return;
        }
        let mut grown = lock(&self.grown);
        if grown.files == 0 {
            grown.first.clone_from(&file.origin.path);
        }
        grown.files += 1;
    }

    pub(super) fn warning(&self) -> Option<String> {
        let grown = lock(&self.grown);
        let first = printable(&grown.first);
        match grown.files {
            0 => None,
            1 => Some(format!("{first} grew meanwhile: the copy has what was there when it was listed")),
            more => Some(format!(
                "{more} files grew meanwhile ({first}, for one): the copy has what was there when they were listed"
            )),
        }
    }
}

const GREW: &str = "it grew while it was read: --growing copies what was there when it was listed";

fn has_grown(listed: &Identity, now: &Identity) -> bool {
    now.inode == listed.inode && now.size > listed.size
}

/// Files of /proc are longer than their size says, and so are those of some FUSE file systems.
fn longer_than(size: u64) -> String {
    format!("its size says {size} bytes, and more can be read: copy it as a stream, haul cp - TARGET < FILE")
}

#[cfg(test)]
mod tests {
    use haul_wire::manifest::Time;

    use super::*;

    #[test]
    fn a_file_of_the_same_length_or_another_one_has_not_grown() {
        let time = |s| Time { s, ns: 0 };
        let listed = Identity { size: 100, mtime: time(1), ctime: time(1), inode: 7 };
        let now = |size, inode| Identity { size, mtime: time(2), ctime: time(2), inode };
        assert!(has_grown(&listed, &now(101, 7)));
        for other in [now(100, 7), now(99, 7), now(101, 8)] {
            assert!(!has_grown(&listed, &other), "{other:?}");
        }
    }
}
