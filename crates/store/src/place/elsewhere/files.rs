//! Opens the regular files of a tree at a server, one after the other.

use std::ops::ControlFlow;

use super::super::facts::NodeKind;
use super::super::operand::Operand;
use super::descent::Step;
use super::listing::Wanted;
use super::{Elsewhere, is_gone};
use crate::error::Result;
use crate::listing::{Flow, Hint, Names};
use crate::name::join;
use crate::place::site::{Line, Tell};

impl Elsewhere {
    /// [`Site::files`](crate::place::Site::files).
    pub fn files(&self, operand: &Operand, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        if self.facts(operand, true)?.kind != NodeKind::Directory {
            return Ok(tell(Line::File(Vec::new(), self.read(operand)?)));
        }
        let mut step = |step: Step<'_>, tell: Tell<'_>| match step {
            Step::Into { directory, path, enter, room, .. } => {
                self.names_of(operand, (directory, path), (enter, room), tell)
            }
            Step::At { path } => Ok(self.tell_file(operand, path, tell)),
            Step::OutOf { .. } => Ok(ControlFlow::Continue(())),
        };
        Ok(self.descend(operand, tell, &mut step))
    }

    /// Notes the files and directories of one directory. If they do not fit, tells the files at once.
    fn names_of(
        &self,
        operand: &Operand,
        (directory, path): (&[u8], &[u8]),
        (enter, room): (&mut Names, usize),
        tell: Tell<'_>,
    ) -> Flow {
        let wanted = Wanted { follow: true, facts: false, hidden: true, sorted: true };
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
                    self.tell_file(operand, &beneath, tell)
                }
                _ => ControlFlow::Continue(()),
            }
        })
    }

    fn tell_file(&self, operand: &Operand, path: &[u8], tell: Tell<'_>) -> ControlFlow<()> {
        match self.tree.open_beneath(&operand.path, path) {
            Ok(file) => tell(Line::File(path.to_vec(), file)),
            // The file was removed after its directory was read.
            Err(error) if is_gone(&error) => ControlFlow::Continue(()),
            Err(error) => self.failed("open", &join(&operand.shown, path), error, tell),
        }
    }
}

/// Half of the room is for names of directories beneath this one.
const ROOM_FOR_FILES: usize = 2;
