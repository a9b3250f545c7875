//! Lists the entries of directories.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::BorrowedFd;

use rustix::fs::AtFlags;

use super::descent::{Step, descend};
use super::facts::{EntryFacts, NodeKind};
use super::operand::Operand;
use super::site::{Line, Site, Tell};
use crate::error::{Result, StoreError, is_missing};
use crate::listing::{Flow, Hint, Names};
use crate::name::join;

/// How to list.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ListOptions {
    /// Whether to list all beneath the directory.
    pub recursive: bool,
    /// Whether to list names with a leading dot.
    pub hidden: bool,
    /// Whether to list a directory itself.
    pub itself: bool,
    /// Whether to list each entry's facts.
    pub facts: bool,
}

impl Site {
    /// Whether an operand's entries are listed. As in ls, a link to a directory counts as one, unless facts are asked for.
    pub fn lists_entries(&self, operand: &Operand, options: ListOptions) -> Result<bool> {
        let facts = self.facts(operand, false)?;
        Ok(match facts.kind {
            _ if options.itself => false,
            NodeKind::Directory => true,
            NodeKind::Symlink => !options.facts && self.is_directory(operand),
            _ => false,
        })
    }

    /// Tells a directory's entries, sorted if they fit into memory.
    pub fn list(&self, operand: &Operand, options: ListOptions, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let root = self.directory(operand)?;
        let bounds = self.options.bounds;
        let mut step = |step: Step<'_>| match step {
            Step::Into { dir, path, enter, .. } => self.list_one(operand, options, (dir, path, enter), tell),
            Step::OutOf { .. } | Step::At { .. } => Ok(ControlFlow::Continue(())),
            Step::Failed(error) => Ok(tell(Line::Failed(error))),
        };
        Ok(descend(root, &operand.shown, (self.kernel_files, bounds.held_bytes), &mut step))
    }

    fn list_one(
        &self,
        operand: &Operand,
        options: ListOptions,
        (dir, path, enter): (BorrowedFd<'_>, &[u8], &mut Names),
        tell: Tell<'_>,
    ) -> Flow {
        let wanted = |name: &[u8]| options.hidden || !name.starts_with(b".");
        let (mut begun, mut flow) = (false, ControlFlow::Continue(()));
        let sorted_bytes = self.options.bounds.sorted_bytes;
        let read = for_each_name(dir, sorted_bytes, wanted, &mut |name, hint, is_sorted| {
            if !begun {
                begun = true;
                tell(Line::In(path.to_vec()))?;
                if !is_sorted {
                    tell(Line::Unsorted)?;
                }
            }
            let beneath = join(path, name);
            let needs_look = options.facts || (options.recursive && hint == Hint::Unknown);
            let facts = match needs_look.then(|| EntryFacts::look(dir, name, AtFlags::empty())) {
                Some(Err(error)) if is_missing(&error) => return ControlFlow::Continue(()),
                Some(Err(error)) => {
                    return tell(Line::Failed(StoreError::new("access", &join(&operand.shown, &beneath), error)));
                }
                Some(Ok(facts)) => Some(facts),
                None => None,
            };
            let is_dir = facts.as_ref().map_or(hint == Hint::Directory, |facts| facts.kind == NodeKind::Directory);
            if options.recursive && is_dir && enter.add(name, 0, Hint::Directory).is_err() {
                let why = io::Error::from(io::ErrorKind::FileTooLarge);
                tell(Line::Failed(StoreError::new("enter", &join(&operand.shown, &beneath), why)))?;
            }
            tell(Line::Entry(beneath, facts.filter(|_| options.facts)))
        });
        match read? {
            ControlFlow::Break(()) => flow = ControlFlow::Break(()),
            ControlFlow::Continue(()) if !begun => flow = tell(Line::In(path.to_vec())),
            ControlFlow::Continue(()) => {}
        }
        Ok(flow)
    }
}

type EachName<'a> = &'a mut dyn FnMut(&[u8], Hint, bool) -> ControlFlow<()>;

/// Sorts names of at most `sorted_bytes`.
pub(super) fn for_each_name(
    dir: BorrowedFd<'_>,
    sorted_bytes: usize,
    wanted: impl Fn(&[u8]) -> bool,
    each: EachName<'_>,
) -> Flow {
    let (mut names, mut is_sorted) = (Names::default(), true);
    let mut tell_all = |names: &Names, is_sorted: bool| {
        (0..names.len()).filter_map(|index| names.get(index)).try_for_each(|(name, hint)| each(name, hint, is_sorted))
    };
    let read = Names::each(dir, &mut |name, hint| {
        if !wanted(name) {
            return Ok(ControlFlow::Continue(()));
        }
        names.add(name, 0, hint)?;
        if names.memory_bytes() <= sorted_bytes {
            return Ok(ControlFlow::Continue(()));
        }
        is_sorted = false;
        let told = tell_all(&names, false);
        names = Names::default();
        Ok(told)
    })?;
    if read.is_break() {
        return Ok(read);
    }
    if is_sorted {
        names.sort();
    }
    Ok(tell_all(&names, is_sorted))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::place::{SiteBounds, SiteOptions};

    fn told(options: SiteOptions, path: &str, list: ListOptions) -> Vec<String> {
        let mut site = Site::open(options).unwrap();
        let operand = site.operands(path.as_bytes()).unwrap().remove(0);
        let mut lines = Vec::new();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        let flow = site.list(&operand, list, &mut |line| {
            lines.push(match line {
                Line::In(path) => format!("in {}", text(path)),
                Line::Unsorted => "unsorted".to_owned(),
                Line::Entry(path, _) => text(path),
                line => format!("{line:?}"),
            });
            ControlFlow::Continue(())
        });
        assert_eq!(flow.unwrap(), ControlFlow::Continue(()));
        lines
    }

    #[test]
    fn entries_come_sorted_and_a_directory_that_is_too_large_in_its_own_order() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().canonicalize().unwrap();
        for name in ["b", "a", "c/e", "c/d", ".h"] {
            std::fs::create_dir_all(root.join(name)).unwrap();
        }
        std::os::unix::fs::symlink("/", root.join("out")).unwrap();
        let confined = SiteOptions { confine: Some(root), ..SiteOptions::default() };
        let recursive = ListOptions { recursive: true, ..ListOptions::default() };
        let all = ListOptions { hidden: true, ..ListOptions::default() };
        assert_eq!(told(confined.clone(), "/", ListOptions::default()), ["in ", "a", "b", "c", "out"]);
        assert_eq!(told(confined.clone(), ".", all), ["in ", ".h", "a", "b", "c", "out"]);
        assert_eq!(
            told(confined.clone(), "", recursive),
            ["in ", "a", "b", "c", "out", "in a", "in b", "in c", "c/d", "c/e", "in c/d", "in c/e"]
        );
        let bounds = SiteBounds { sorted_bytes: 20, ..SiteBounds::default() };
        let mut lines = told(SiteOptions { bounds, ..confined }, ".", all);
        assert_eq!(lines.drain(..2).collect::<Vec<_>>(), ["in ", "unsorted"]);
        lines.sort();
        assert_eq!(lines, [".h", "a", "b", "c", "out"]);
    }
}
