//! The sizes of a tree's files at a server: what they take on its disk is unknown.

use std::io;
use std::ops::ControlFlow;

use super::super::facts::NodeKind;
use super::super::operand::Operand;
use super::Elsewhere;
use super::descent::Step;
use super::listing::Wanted;
use crate::ends::place_tree::Listed;
use crate::error::Result;
use crate::listing::{Flow, Hint, Names};
use crate::name::join;
use crate::place::site::{Line, Tell};

impl Elsewhere {
    /// [`Site::usage`](crate::place::Site::usage), by sizes alone. A file counts with each name.
    pub fn usage(&self, operand: &Operand, each: bool, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let facts = self.facts(operand, false)?;
        if facts.kind != NodeKind::Directory {
            return Ok(tell(Line::Usage(Vec::new(), 0, facts.size)));
        }
        let mut sums: Vec<u64> = Vec::new();
        let mut step = |step: Step<'_>, tell: Tell<'_>| match step {
            Step::Into { directory, path, enter, note, .. } => {
                let mut sum = if path.is_empty() { facts.size } else { note.into() };
                let counted = self.count_one(operand, (directory, path, enter), &mut sum, tell);
                enter.sort();
                sums.push(sum);
                counted
            }
            Step::OutOf { path } => {
                let Some(sum) = sums.pop() else { return Ok(ControlFlow::Continue(())) };
                if let Some(above) = sums.last_mut() {
                    *above = above.saturating_add(sum);
                }
                let is_told = each || path.is_empty();
                Ok(if is_told { tell(Line::Usage(path.to_vec(), 0, sum)) } else { ControlFlow::Continue(()) })
            }
            Step::At { .. } => Ok(ControlFlow::Continue(())),
        };
        Ok(self.descend(operand, tell, &mut step))
    }

    fn count_one(
        &self,
        operand: &Operand,
        (directory, path, enter): (&[u8], &[u8], &mut Names),
        sum: &mut u64,
        tell: Tell<'_>,
    ) -> Flow {
        let wanted = Wanted { facts: true, sizes_alone: true, sorted: false, ..Wanted::KINDS };
        self.each_entry(operand, (directory, path), wanted, tell, &mut |name, listed, _, tell| {
            let Listed::Facts(facts) = listed else { return ControlFlow::Continue(()) };
            if facts.kind != NodeKind::Directory {
                *sum = sum.saturating_add(facts.size);
                return ControlFlow::Continue(());
            }
            // A directory itself takes some KiB.
            let own = u32::try_from(facts.size).unwrap_or(u32::MAX);
            match enter.add(name, own, Hint::Directory) {
                Ok(()) => ControlFlow::Continue(()),
                Err(error) => {
                    let why = io::Error::from(error.kind());
                    self.failed("enter", &join(&operand.shown, &join(path, name)), why, tell)
                }
            }
        })
    }
}
