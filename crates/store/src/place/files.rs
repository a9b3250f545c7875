//! Opens the regular files of a tree, one after the other.

use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use haul_sys::beneath::{self, Links};
use rustix::fs::{AtFlags, Mode};

use super::descent::{Step, descend};
use super::facts::{EntryFacts, NodeKind};
use super::listing::for_each_name;
use super::operand::Operand;
use super::site::{Line, Site, Tell};
use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError, is_missing};
use crate::listing::{Flow, Hint, Names};
use crate::local_file::LocalFile;
use crate::name::join;
use crate::regular_file::READ_FLAGS;

impl Site {
    /// Tells a file, or each regular file beneath a directory, in the order of a copy. Too many names come as
    /// [`Line::Unsorted`], files first.
    pub fn files(&self, operand: &Operand, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        if !self.is_directory(operand) {
            return Ok(tell(Line::File(Vec::new(), self.read(operand)?)));
        }
        let root = self.directory(operand)?;
        let bounds = (self.kernel_files, self.options.bounds.held_bytes);
        let mut step = |step: Step<'_>| match step {
            Step::Into { dir, path, enter, room } => self.names_of(operand, (dir, path), (enter, room), tell),
            Step::At { root, path } => Ok(self.tell_file(operand, self.open_beneath(root, path), path, tell)),
            Step::OutOf { .. } => Ok(ControlFlow::Continue(())),
            Step::Failed(error) => Ok(tell(Line::Failed(error))),
        };
        Ok(descend(root, &operand.shown, bounds, &mut step))
    }

    fn names_of(
        &self,
        operand: &Operand,
        (dir, path): (BorrowedFd<'_>, &[u8]),
        (enter, room): (&mut Names, usize),
        tell: Tell<'_>,
    ) -> Flow {
        let bounds = self.options.bounds;
        let sorted_bytes = bounds.sorted_bytes.min(room.saturating_sub(bounds.held_bytes / ROOM_LEFT));
        let mut is_told = false;
        for_each_name(dir, sorted_bytes, |_| true, &mut |name, _, is_sorted| {
            if !is_sorted && !std::mem::replace(&mut is_told, true) {
                tell(Line::Unsorted)?;
            }
            let beneath = join(path, name);
            let noted = EntryFacts::look(dir, name, AtFlags::empty()).and_then(|facts| match facts.kind {
                NodeKind::Directory => enter.add(name, 0, Hint::Directory).map(|()| false),
                NodeKind::File if is_sorted => enter.add(name, 0, Hint::Other).map(|()| false),
                kind => Ok(kind == NodeKind::File),
            });
            match noted {
                Ok(true) => self.tell_file(operand, self.open_beneath(dir, name), &beneath, tell),
                Ok(false) => tell(Line::Busy),
                Err(error) => self.tell_file(operand, Err(error), &beneath, tell),
            }
        })
    }

    fn open_beneath(&self, dir: BorrowedFd<'_>, path: &[u8]) -> std::io::Result<SourceFile> {
        let opened = beneath::open(dir, path, READ_FLAGS, Mode::empty(), Links::Refused)?;
        Ok(SourceFile::Local(LocalFile::new(self.kernel_files.checked(opened)?)?))
    }

    fn tell_file(
        &self,
        operand: &Operand,
        file: std::io::Result<SourceFile>,
        path: &[u8],
        tell: Tell<'_>,
    ) -> ControlFlow<()> {
        match file {
            Ok(file) => tell(Line::File(path.to_vec(), file)),
            Err(error) if is_missing(&error) => ControlFlow::Continue(()),
            Err(error) => tell(Line::Failed(StoreError::new("open", &join(&operand.shown, path), error))),
        }
    }
}

/// A quarter of the room for names is for directories beneath.
const ROOM_LEFT: usize = 4;
