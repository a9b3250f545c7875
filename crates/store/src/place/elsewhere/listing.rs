//! Lists the entries of directories at a server.

use std::io;
use std::ops::ControlFlow;

use super::super::facts::{EntryFacts, NodeKind};
use super::super::listing::ListOptions;
use super::super::operand::Operand;
use super::descent::Step;
use super::{Elsewhere, check_name, is_gone};
use crate::ends::place_tree::Listed;
use crate::error::{Result, refusal};
use crate::listing::{Flow, Hint, Names};
use crate::name::join;
use crate::place::site::{Line, Tell};

type EachEntry<'a> = &'a mut dyn FnMut(&[u8], Listed, bool, Tell<'_>) -> ControlFlow<()>;

impl Elsewhere {
    /// [`Site::lists_entries`](crate::place::Site::lists_entries).
    pub fn lists_entries(&self, operand: &Operand, options: ListOptions) -> Result<bool> {
        let facts = self.facts(operand, false)?;
        Ok(match facts.kind {
            _ if options.itself => false,
            NodeKind::Directory => true,
            NodeKind::Symlink => !options.facts && self.is_directory(operand),
            _ => false,
        })
    }

    /// [`Site::list`](crate::place::Site::list).
    pub fn list(&self, operand: &Operand, options: ListOptions, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let mut step = |step: Step<'_>, tell: Tell<'_>| match step {
            Step::Into { directory, path, enter, .. } => {
                self.list_one(operand, options, (directory, path, enter), tell)
            }
            Step::OutOf { .. } | Step::At { .. } => Ok(ControlFlow::Continue(())),
        };
        Ok(self.descend(operand, tell, &mut step))
    }

    fn list_one(
        &self,
        operand: &Operand,
        options: ListOptions,
        (directory, path, enter): (&[u8], &[u8], &mut Names),
        tell: Tell<'_>,
    ) -> Flow {
        let mut begun = false;
        let wanted = Wanted { facts: options.facts, hidden: options.hidden, ..Wanted::KINDS };
        let flow =
            self.each_entry(operand, (directory, path), wanted, tell, &mut |name, listed, is_sorted, tell| {
                if !begun {
                    begun = true;
                    tell(Line::In(path.to_vec()))?;
                    if !is_sorted {
                        tell(Line::Unsorted)?;
                    }
                }
                let beneath = join(path, name);
                let is_dir = match listed.kind() {
                    NodeKind::Unknown if options.recursive => {
                        match self.tree.facts(&self.tree.join(directory, name), false) {
                            Ok(facts) => facts.kind == NodeKind::Directory,
                            Err(error) if is_gone(&error) => return ControlFlow::Continue(()),
                            Err(error) => return self.failed("access", &join(&operand.shown, &beneath), error, tell),
                        }
                    }
                    kind => kind == NodeKind::Directory,
                };
                if options.recursive && is_dir && enter.add(name, 0, Hint::Directory).is_err() {
                    let why = io::Error::from(io::ErrorKind::FileTooLarge);
                    self.failed("enter", &join(&operand.shown, &beneath), why, tell)?;
                }
                tell(Line::Entry(beneath, facts_of(listed).filter(|_| options.facts)))
            })?;
        if flow.is_continue() && !begun {
            return Ok(tell(Line::In(path.to_vec())));
        }
        Ok(flow)
    }

    /// Gives each entry of a directory, unsorted if they do not fit into memory. Invalid names, and what cannot be looked
    /// at, are failures.
    pub(super) fn each_entry(
        &self,
        operand: &Operand,
        (directory, path): (&[u8], &[u8]),
        wanted: Wanted,
        tell: Tell<'_>,
        each: EachEntry<'_>,
    ) -> Flow {
        let (mut held, mut count) = (Held::default(), 0_u64);
        let mut is_sorted = wanted.sorted;
        let comes_sorted = self.tree.lists_in_order();
        let mut take = |name: &[u8], listed: io::Result<Listed>| {
            count += 1;
            if count > MAX_NAMES {
                let why = refusal(io::ErrorKind::FileTooLarge, "the server lists more names than any directory has");
                let _ = self.failed("list", &join(&operand.shown, path), why, tell);
                return ControlFlow::Break(());
            }
            if let Err(error) = check_name(name) {
                // Such a name must not become a path, also not in a message.
                let shown = crate::printable(name).replace('/', "\\x2f").into_bytes();
                return self.failed("list", &join(&operand.shown, &join(path, &shown)), error, tell);
            }
            if !wanted.hidden && name.starts_with(b".") {
                return ControlFlow::Continue(());
            }
            let listed = match listed {
                Ok(listed) => listed,
                Err(error) if is_gone(&error) => return ControlFlow::Continue(()),
                Err(error) => return self.failed("access", &join(&operand.shown, &join(path, name)), error, tell),
            };
            if !wanted.sorted || comes_sorted {
                return each(name, listed, wanted.sorted, tell);
            }
            match held.add(name, listed) {
                Ok(()) if held.memory_bytes() <= self.bounds.sorted_bytes => tell(Line::Busy),
                Ok(()) => {
                    is_sorted = false;
                    std::mem::take(&mut held).each(false, tell, each)
                }
                Err(error) => self.failed("list", &join(&operand.shown, &join(path, name)), error, tell),
            }
        };
        let read = match wanted.sizes_alone {
            true => self.tree.list_sizes(directory, &mut take),
            false => self.tree.list(directory, wanted.follow, wanted.facts, &mut take),
        }?;
        if read.is_break() {
            return Ok(read);
        }
        if is_sorted {
            held.sort();
        }
        Ok(held.each(is_sorted, tell, each))
    }
}

/// The most lines of a haul's answer. A server that lists more names never ends.
const MAX_NAMES: u64 = 1 << 31;

#[derive(Clone, Copy, Debug)]
pub(super) struct Wanted {
    pub follow: bool,
    pub facts: bool,
    /// The sizes are enough.
    pub sizes_alone: bool,
    pub hidden: bool,
    /// Sorted, if they fit into memory.
    pub sorted: bool,
}

impl Wanted {
    pub(super) const KINDS: Wanted =
        Wanted { follow: true, facts: false, sizes_alone: false, hidden: true, sorted: true };
}

/// Names with what is known of them; without facts they take as little as a disk's.
#[derive(Default)]
struct Held {
    /// A name's source is its facts' index plus one; 0: none.
    names: Names,
    facts: Vec<EntryFacts>,
    target_bytes: usize,
}

impl Held {
    fn add(&mut self, name: &[u8], listed: Listed) -> io::Result<()> {
        let hint = match listed.kind() {
            NodeKind::Directory => Hint::Directory,
            NodeKind::Symlink => Hint::Symlink,
            NodeKind::Unknown => Hint::Unknown,
            _ => Hint::Other,
        };
        let number = match listed {
            Listed::Kind(_) => 0,
            Listed::Facts(facts) => {
                self.target_bytes += facts.target.len();
                self.facts.push(*facts);
                u32::try_from(self.facts.len()).map_err(|_| io::ErrorKind::FileTooLarge)?
            }
        };
        self.names.add(name, number, hint)
    }

    fn memory_bytes(&self) -> usize {
        self.names.memory_bytes() + self.facts.capacity() * size_of::<EntryFacts>() + self.target_bytes
    }

    /// Merges names that a server lists twice.
    fn sort(&mut self) {
        self.names.sort();
    }

    fn each(mut self, is_sorted: bool, tell: Tell<'_>, each: EachEntry<'_>) -> ControlFlow<()> {
        let mut last: Option<&[u8]> = None;
        for index in 0..self.names.len() {
            let (Some((name, hint)), Some(number)) = (self.names.get(index), self.names.source(index)) else { break };
            if is_sorted && last.replace(name) == Some(name) {
                continue;
            }
            let facts = (number as usize).checked_sub(1).and_then(|at| self.facts.get_mut(at));
            let listed = match facts {
                Some(facts) => {
                    let nothing = EntryFacts::of_kind(facts.kind);
                    Listed::Facts(Box::new(std::mem::replace(facts, nothing)))
                }
                None => Listed::Kind(match hint {
                    Hint::Directory => NodeKind::Directory,
                    Hint::Symlink => NodeKind::Symlink,
                    Hint::Other => NodeKind::File,
                    Hint::Unknown => NodeKind::Unknown,
                }),
            };
            each(name, listed, is_sorted, tell)?;
        }
        ControlFlow::Continue(())
    }
}

fn facts_of(listed: Listed) -> Option<EntryFacts> {
    match listed {
        Listed::Kind(_) => None,
        Listed::Facts(facts) => Some(*facts),
    }
}
