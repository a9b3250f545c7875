//! The disk usage of a tree, as du(1) counts it.

use std::collections::HashSet;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::AtFlags;

use super::descent::{Step, descend};
use super::facts::{EntryFacts, NodeKind};
use super::listing::for_each_name;
use super::operand::Operand;
use super::site::{Line, Site, Tell};
use crate::error::{Result, StoreError, is_missing};
use crate::listing::{Flow, Hint, Names};
use crate::name::join;

/// Counted inodes with several names: device and number.
#[derive(Debug, Default)]
pub struct Counted(HashSet<((u32, u32), u64)>);

#[derive(Clone, Copy, Default)]
struct Sum {
    blocks: u64,
    apparent: u64,
}

impl Sum {
    fn add(&mut self, blocks: u64, apparent: u64) {
        self.blocks = self.blocks.saturating_add(blocks);
        self.apparent = self.apparent.saturating_add(apparent);
    }
}

impl Site {
    /// Tells the usage of an operand, and with `each` of directories beneath, before those above. Inodes in `counted` count
    /// no more.
    pub fn usage(
        &self,
        operand: &Operand,
        each: bool,
        counted: &mut Counted,
        tell: Tell<'_>,
    ) -> Result<ControlFlow<()>> {
        let facts = self.facts(operand, false)?;
        if facts.kind != NodeKind::Directory {
            let (blocks, apparent) = if self.counts(&facts, counted) { (facts.blocks, facts.size) } else { (0, 0) };
            return Ok(tell(Line::Usage(Vec::new(), blocks, apparent)));
        }
        let root = self.directory(operand)?;
        let mut sums: Vec<Sum> = Vec::new();
        let mut step = |step: Step<'_>| match step {
            Step::Into { dir, path, enter, .. } => {
                if tell(Line::Busy).is_break() {
                    return Ok(ControlFlow::Break(()));
                }
                let (mut sum, result) = (Sum::default(), EntryFacts::look(dir, b"", AtFlags::EMPTY_PATH));
                if let Ok(own) = &result {
                    sum.add(own.blocks, own.size);
                }
                let read = self.count_one(operand, (dir, path, enter), counted, &mut sum, tell);
                sums.push(sum);
                result.and(read)
            }
            Step::OutOf { path } => {
                let Some(sum) = sums.pop() else { return Ok(ControlFlow::Continue(())) };
                if let Some(above) = sums.last_mut() {
                    above.add(sum.blocks, sum.apparent);
                }
                let told = each || path.is_empty();
                Ok(if told { tell(Line::Usage(path.to_vec(), sum.blocks, sum.apparent)) } else { tell_nothing() })
            }
            Step::At { .. } => Ok(ControlFlow::Continue(())),
            Step::Failed(error) => Ok(tell(Line::Failed(error))),
        };
        Ok(descend(root, &operand.shown, (self.kernel_files, self.options.bounds.held_bytes), &mut step))
    }

    fn count_one(
        &self,
        operand: &Operand,
        (dir, path, enter): (BorrowedFd<'_>, &[u8], &mut Names),
        counted: &mut Counted,
        sum: &mut Sum,
        tell: Tell<'_>,
    ) -> Flow {
        for_each_name(dir, self.options.bounds.sorted_bytes, |_| true, &mut |name, _, _| {
            let facts = match EntryFacts::look(dir, name, AtFlags::empty()) {
                Ok(facts) => facts,
                Err(error) if is_missing(&error) => return ControlFlow::Continue(()),
                Err(error) => {
                    let path = join(&operand.shown, &join(path, name));
                    return tell(Line::Failed(StoreError::new("access", &path, error)));
                }
            };
            if facts.kind == NodeKind::Directory {
                if let Err(error) = enter.add(name, 0, Hint::Directory) {
                    let path = join(&operand.shown, &join(path, name));
                    return tell(Line::Failed(StoreError::new("enter", &path, error)));
                }
            } else if self.counts(&facts, counted) {
                sum.add(facts.blocks, facts.size);
            }
            ControlFlow::Continue(())
        })
    }

    fn counts(&self, facts: &EntryFacts, counted: &mut Counted) -> bool {
        if facts.links < 2 || counted.0.len() >= self.options.bounds.inodes {
            return true;
        }
        counted.0.insert((facts.device, facts.inode))
    }
}

fn tell_nothing() -> ControlFlow<()> {
    ControlFlow::Continue(())
}
