//! Opens the regular files of a tree, one after the other.

use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode};

use super::descent::{Step, descend};
use super::facts::{EntryFacts, NodeKind};
use super::listing::for_each_name;
use super::{Line, Operand, Site, Tell};
use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError, is_missing};
use crate::listing::{Flow, Hint, Names};
use crate::local_file::LocalFile;
use crate::name::join;
use crate::regular_file::READ_FLAGS;

impl Site {
    /// Tells an operand that is a file, or each regular file beneath one that is a directory: of each directory first its files, then
    /// those of its directories, sorted. Links beneath it are not followed, and neither they nor devices are told.
    pub fn files(&self, operand: &Operand, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        if !self.is_directory(operand) {
            return Ok(tell(Line::File(Vec::new(), self.read(operand)?)));
        }
        let root = self.directory(operand)?;
        let bounds = (self.kernel_files, self.options.bounds.held_bytes);
        let mut step = |step: Step<'_>| match step {
            Step::Into { dir, path, enter } => self.files_of(operand, (dir, path, enter), tell),
            Step::OutOf { .. } => Ok(ControlFlow::Continue(())),
            Step::Failed(error) => Ok(tell(Line::Failed(error))),
        };
        Ok(descend(root, &operand.shown, bounds, &mut step))
    }

    fn files_of(
        &self,
        operand: &Operand,
        (dir, path, enter): (BorrowedFd<'_>, &[u8], &mut Names),
        tell: Tell<'_>,
    ) -> Flow {
        for_each_name(dir, self.options.bounds.sorted_bytes, |_| true, &mut |name, _, _| {
            let beneath = join(path, name);
            let mut look = || -> std::io::Result<Option<SourceFile>> {
                match EntryFacts::look(dir, name, AtFlags::empty())?.kind {
                    NodeKind::Directory => enter.add(name, 0, Hint::Directory).map(|()| None),
                    NodeKind::File => {
                        let opened = rustix::io::retry_on_intr(|| {
                            rustix::fs::openat(dir.as_fd(), name, READ_FLAGS, Mode::empty())
                        })?;
                        Ok(Some(SourceFile::Local(LocalFile::new(self.kernel_files.checked(opened)?)?)))
                    }
                    _ => Ok(None),
                }
            };
            match look() {
                Ok(Some(file)) => tell(Line::File(beneath, file)),
                Ok(None) => ControlFlow::Continue(()),
                Err(error) if is_missing(&error) => ControlFlow::Continue(()),
                Err(error) => tell(Line::Failed(StoreError::new("open", &join(&operand.shown, &beneath), error))),
            }
        })
    }
}
