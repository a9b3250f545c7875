//! Names the regular files of a tree at a server.

use std::ops::ControlFlow;

use super::super::facts::NodeKind;
use super::super::operand::Operand;
use super::descent::Step;
use super::listing::Wanted;
use super::{Elsewhere, is_gone};
use crate::ends::reading::SourceFile;
use crate::error::Result;
use crate::listing::{Flow, Hint, Names};
use crate::name::join;
use crate::place::site::{Line, Tell};

impl Elsewhere {
    /// Tells the files of [`Site::files`](crate::place::Site::files) by name. [`Elsewhere::open_beneath`] opens several at
    /// once: it waits for the server.
    pub fn files(&self, operand: &Operand, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        if self.facts(operand, true)?.kind != NodeKind::Directory {
            return Ok(tell(Line::FileAt(Vec::new())));
        }
        let mut step = |step: Step<'_>, tell: Tell<'_>| match step {
            Step::Into { directory, path, enter, room, .. } => {
                self.names_of(operand, (directory, path), (enter, room), tell)
            }
            Step::At { path } => Ok(tell(Line::FileAt(path.to_vec()))),
            Step::OutOf { .. } => Ok(ControlFlow::Continue(())),
        };
        Ok(self.descend(operand, tell, &mut step))
    }

    fn names_of(
        &self,
        operand: &Operand,
        (directory, path): (&[u8], &[u8]),
        (enter, room): (&mut Names, usize),
        tell: Tell<'_>,
    ) -> Flow {
        let wanted = Wanted::KINDS;
        let mut is_told = false;
        self.each_entry(operand, (directory, path), wanted, tell, &mut |name, listed, is_sorted, tell| {
            let beneath = join(path, name);
            let kind = match listed.kind() {
                NodeKind::Unknown => match self.tree.facts(&self.tree.join(directory, name), false) {
                    Ok(facts) => facts.kind,
                    Err(error) if is_gone(&error) => return ControlFlow::Continue(()),
                    Err(error) => return self.failed("access", &join(&operand.shown, &beneath), error, tell),
                },
                kind => kind,
            };
            let fits = is_sorted && enter.memory_bytes() + name.len() < room / ROOM_FOR_FILES;
            match kind {
                NodeKind::Directory => {
                    if let Err(error) = enter.add(name, 0, Hint::Directory) {
                        return self.failed("enter", &join(&operand.shown, &beneath), error, tell);
                    }
                    ControlFlow::Continue(())
                }
                NodeKind::File if fits && enter.add(name, 0, Hint::Other).is_ok() => ControlFlow::Continue(()),
                NodeKind::File => {
                    if !std::mem::replace(&mut is_told, true) {
                        tell(Line::Unsorted)?;
                    }
                    tell(Line::FileAt(beneath))
                }
                _ => ControlFlow::Continue(()),
            }
        })
    }

    /// Opens a file named beneath an operand.
    pub fn open_beneath(&self, operand: &Operand, path: &[u8]) -> Result<SourceFile> {
        if path.is_empty() {
            return self.read(operand);
        }
        let opened = self.tree.open_beneath(&operand.path, path);
        opened.map_err(|error| self.note("open", &join(&operand.shown, path), error))
    }
}

/// Half of the room is for directories beneath.
const ROOM_FOR_FILES: usize = 2;
