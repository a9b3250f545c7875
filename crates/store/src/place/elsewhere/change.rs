//! Makes, moves and removes entries at a server, which resolves each path anew: others can put a link in between.

use std::io;
use std::ops::ControlFlow;

use rustix::io::Errno;

use super::super::change::{Moved, Removal};
use super::super::facts::NodeKind;
use super::super::operand::Operand;
use super::descent::Step;
use super::listing::Wanted;
use super::{Elsewhere, is_gone};
use crate::error::{Result, StoreError, refusal};
use crate::listing::{Flow, Hint, Names};
use crate::name::{check_new_path, join};
use crate::place::site::{Line, Tell};
use crate::typed::{means_contents, parent_and_name};

/// Files removed at once: 3,000 a second at 20 ms to the server.
const REMOVED_AT_ONCE: usize = 64;

/// Listings of a directory being emptied, each of a million names. What is left makes its removal fail.
const MAX_ROUNDS: usize = 1000;

impl Elsewhere {
    /// [`Site::make_directory`](crate::place::Site::make_directory).
    pub fn make_directory(&self, operand: &Operand, parents: bool) -> Result<Vec<Vec<u8>>> {
        let failed = |error| self.note("make directory", &operand.shown, error);
        if !parents {
            let path = self.changed(operand)?;
            check_new_path(parent_and_name(path).1).map_err(failed)?;
            self.tree.make_directory(path).map_err(failed)?;
            return Ok(vec![operand.shown.clone()]);
        }
        let (mut missing, mut path) = (Vec::new(), trimmed(&operand.path));
        while !path.is_empty() && path != b"/" {
            match self.tree.facts(path, true) {
                Ok(facts) if facts.kind == NodeKind::Directory => break,
                Ok(_) => return Err(failed(Errno::NOTDIR.into())),
                Err(error) if is_gone(&error) => missing.push(path),
                Err(error) => return Err(failed(error)),
            }
            path = match parent_and_name(path).0 {
                b"." if !path.starts_with(b"./") => b"",
                parent => trimmed(parent),
            };
        }
        let mut made = Vec::new();
        for path in missing.into_iter().rev() {
            if means_contents(path) {
                continue;
            }
            check_new_path(parent_and_name(path).1).map_err(failed)?;
            if let Err(error) = self.tree.make_directory(path) {
                if !self.tree.facts(path, true).is_ok_and(|facts| facts.kind == NodeKind::Directory) {
                    return Err(failed(error));
                }
                continue;
            }
            let behind = operand.path.len() - path.len();
            made.push(operand.shown[..operand.shown.len().saturating_sub(behind)].to_vec());
        }
        Ok(made)
    }

    /// [`Site::takes_entries`](crate::place::Site::takes_entries).
    pub fn takes_entries(&self, to: &[u8]) -> bool {
        self.is_directory(&self.operand(to))
    }

    /// [`Site::rename`](crate::place::Site::rename). A server does not tell two names of one file.
    pub fn rename(&self, operand: &Operand, to: &[u8], keep: bool) -> Result<Moved> {
        let from = self.changed(operand)?;
        let mut target = self.operand(to);
        if self.is_directory(&target) {
            let name = parent_and_name(from).1;
            let into = |path: &[u8]| [path, if path.ends_with(b"/") { b"" } else { b"/" }, name].concat();
            target = Operand { shown: into(&target.shown), path: into(&target.path) };
        }
        let new = self.changed(&target)?;
        let failed = |error: io::Error| self.note("move", &operand.shown, error);
        let is_dir =
            self.facts(&Operand { path: from.to_vec(), ..operand.clone() }, false)?.kind == NodeKind::Directory;
        if target.path.ends_with(b"/") && !is_dir {
            return Err(StoreError::new("move to", &target.shown, Errno::NOTDIR));
        }
        if operand.path.ends_with(b"/") && !is_dir {
            return Err(failed(Errno::NOTDIR.into()));
        }
        check_new_path(parent_and_name(new).1).map_err(|error| self.note("make", &target.shown, error))?;
        if new == from {
            return Err(failed(refusal(io::ErrorKind::AlreadyExists, "both names are the same file")));
        }
        if is_dir && new.strip_prefix(from).is_some_and(|rest| rest.starts_with(b"/")) {
            return Err(failed(refusal(io::ErrorKind::InvalidInput, "a directory cannot be moved into itself")));
        }
        let there = match self.tree.facts(new, false) {
            Ok(there) => Some(there.kind),
            Err(error) if is_gone(&error) => None,
            Err(error) => return Err(self.note("access", &target.shown, error)),
        };
        match there {
            Some(_) if keep => return Ok(Moved::Stays(target.shown)),
            Some(NodeKind::Directory) if !is_dir => return Err(failed(Errno::ISDIR.into())),
            Some(kind) if is_dir && kind != NodeKind::Directory => return Err(failed(Errno::NOTDIR.into())),
            _ => {}
        }
        match self.tree.rename(from, new, keep) {
            Ok(()) => Ok(Moved::To(target.shown)),
            Err(error) if keep && error.kind() == io::ErrorKind::AlreadyExists => Ok(Moved::Stays(target.shown)),
            Err(error) => Err(failed(error)),
        }
    }

    /// [`Site::remove`](crate::place::Site::remove).
    pub fn remove(&self, operand: &Operand, removal: Removal, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let path = self.changed(operand)?;
        let failed = |error| self.note("remove", &operand.shown, error);
        let facts = match self.tree.facts(path, false) {
            Err(error) if removal.force && is_gone(&error) => return Ok(ControlFlow::Continue(())),
            facts => facts.map_err(failed)?,
        };
        let is_dir = facts.kind == NodeKind::Directory;
        if is_dir && !removal.trees {
            return Err(failed(refusal(io::ErrorKind::IsADirectory, "it is a directory, which only -r removes")));
        }
        if !is_dir {
            if operand.path.ends_with(b"/") {
                return Err(failed(Errno::NOTDIR.into()));
            }
            if !removal.dry_run {
                self.tree.remove_files(&[path.to_vec()]).into_iter().collect::<io::Result<()>>().map_err(failed)?;
            }
            return Ok(tell(Line::Removed(Vec::new())));
        }
        let operand = Operand { shown: trimmed(&operand.shown).to_vec(), path: path.to_vec() };
        if let Some(flow) = self.remove_at_once(&operand, removal.dry_run, tell) {
            return flow;
        }
        let mut step = |step: Step<'_>, tell: Tell<'_>| match step {
            Step::Into { directory, path, enter, .. } => {
                self.empty(&operand, (directory, path, enter), removal.dry_run, tell)
            }
            Step::OutOf { path } => {
                let removed = match removal.dry_run {
                    true => Ok(()),
                    false => self.tree.remove_directory(&self.beneath(&operand, path)),
                };
                Ok(match removed {
                    Ok(()) => tell(Line::Removed(path.to_vec())),
                    Err(error) if is_gone(&error) => ControlFlow::Continue(()),
                    Err(error) => self.failed("remove", &join(&operand.shown, path), error, tell),
                })
            }
            Step::At { .. } => Ok(ControlFlow::Continue(())),
        };
        Ok(self.descend(&operand, tell, &mut step))
    }

    fn remove_at_once(&self, operand: &Operand, dry_run: bool, tell: Tell<'_>) -> Option<Result<ControlFlow<()>>> {
        let mut is_whole = true;
        let removed = self.tree.remove_tree(&operand.path, dry_run, &mut |path, removed| match removed {
            Ok(()) => tell(Line::Removed(path.to_vec())),
            Err(error) => {
                is_whole = false;
                self.failed("remove", &join(&operand.shown, path), error, tell)
            }
        })?;
        Some(match removed {
            Ok(ControlFlow::Continue(())) if is_whole => Ok(tell(Line::Removed(Vec::new()))),
            Ok(flow) => Ok(flow),
            Err(error) => Err(self.note("remove", &operand.shown, error)),
        })
    }

    /// Removes a directory's files, and notes its directories. Names beyond memory are listed again later.
    fn empty(
        &self,
        operand: &Operand,
        (directory, path, enter): (&[u8], &[u8], &mut Names),
        dry_run: bool,
        tell: Tell<'_>,
    ) -> Flow {
        for _ in 0..MAX_ROUNDS {
            let mut round = Round { is_cut: false, removed: 0, files: Vec::new() };
            *enter = Names::default();
            // A link may stand there by now.
            let wanted = Wanted { follow: false, ..Wanted::KINDS };
            let flow =
                self.each_entry(operand, (directory, path), wanted, tell, &mut |name, listed, is_sorted, tell| {
                    let kind = match listed.kind() {
                        NodeKind::Unknown => match self.tree.facts(&self.tree.join(directory, name), false) {
                            Ok(facts) => facts.kind,
                            Err(error) if is_gone(&error) => return ControlFlow::Continue(()),
                            Err(error) => {
                                return self.failed("access", &join(&operand.shown, &join(path, name)), error, tell);
                            }
                        },
                        kind => kind,
                    };
                    if kind == NodeKind::Directory {
                        if let Err(error) = enter.add(name, 0, Hint::Directory) {
                            return self.failed("enter", &join(&operand.shown, &join(path, name)), error, tell);
                        }
                        return ControlFlow::Continue(());
                    }
                    round.is_cut |= !is_sorted;
                    round.files.push(name.to_vec());
                    if round.files.len() < REMOVED_AT_ONCE {
                        return ControlFlow::Continue(());
                    }
                    self.remove_some(operand, (directory, path), &mut round, dry_run, tell)
                })?;
            if flow.is_break() || self.remove_some(operand, (directory, path), &mut round, dry_run, tell).is_break() {
                return Ok(ControlFlow::Break(()));
            }
            // Some servers lose their place when names go. Each round removes some.
            if dry_run || !round.is_cut || round.removed == 0 {
                break;
            }
        }
        Ok(ControlFlow::Continue(()))
    }

    fn remove_some(
        &self,
        operand: &Operand,
        (directory, path): (&[u8], &[u8]),
        round: &mut Round,
        dry_run: bool,
        tell: Tell<'_>,
    ) -> ControlFlow<()> {
        let names = std::mem::take(&mut round.files);
        let outcomes = match dry_run {
            true => names.iter().map(|_| Ok(())).collect(),
            false => {
                let paths: Vec<Vec<u8>> = names.iter().map(|name| self.tree.join(directory, name)).collect();
                self.tree.remove_files(&paths)
            }
        };
        for (name, outcome) in names.iter().zip(outcomes) {
            let beneath = join(path, name);
            match outcome {
                Ok(()) => {
                    round.removed += 1;
                    tell(Line::Removed(beneath))?;
                }
                Err(error) if is_gone(&error) => {}
                Err(error) => self.failed("remove", &join(&operand.shown, &beneath), error, tell)?,
            }
        }
        ControlFlow::Continue(())
    }

    /// The path of an entry to change. `/` at its end means the same; `.` or `..` there has no name.
    fn changed<'a>(&self, operand: &'a Operand) -> Result<&'a [u8]> {
        let path = trimmed(&operand.path);
        if means_contents(path) {
            let why = refusal(io::ErrorKind::InvalidInput, "it ends in `.`, `..` or `/`, and has no name to change");
            return Err(StoreError::new("use", &operand.shown, why));
        }
        Ok(path)
    }
}

struct Round {
    is_cut: bool,
    removed: u64,
    files: Vec<Vec<u8>>,
}

fn trimmed(path: &[u8]) -> &[u8] {
    let end = path.iter().rposition(|byte| *byte != b'/').map_or(path.len().min(1), |last| last + 1);
    &path[..end]
}
