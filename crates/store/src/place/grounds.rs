//! Where a question is answered: on disks of this host, or where no haul runs.

use std::io;
use std::ops::ControlFlow;

use haul_sys::file_system::Space;

use super::change::{Moved, Removal};
use super::elsewhere::Elsewhere;
use super::facts::EntryFacts;
use super::listing::ListOptions;
use super::operand::Operand;
use super::site::{Site, Tell};
use super::usage::Counted;
use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError};

/// Where a question is answered. [`Site`] describes each act.
pub enum Grounds<'a> {
    /// The file systems of this host.
    Disk(Box<Site>),
    /// An end where no haul runs.
    Elsewhere(&'a Elsewhere),
}

#[allow(missing_docs)]
impl Grounds<'_> {
    pub fn operands(&mut self, typed: &[u8]) -> Result<Vec<Operand>> {
        match self {
            Grounds::Disk(site) => site.operands(typed),
            Grounds::Elsewhere(end) => end.operands(typed),
        }
    }

    pub fn facts(&self, operand: &Operand, follow: bool) -> Result<EntryFacts> {
        match self {
            Grounds::Disk(site) => site.facts(operand, follow),
            Grounds::Elsewhere(end) => end.facts(operand, follow),
        }
    }

    pub fn space(&self, operand: &Operand) -> Result<Space> {
        match self {
            Grounds::Disk(site) => site.space(operand),
            Grounds::Elsewhere(end) => end.space(operand),
        }
    }

    pub fn read(&self, operand: &Operand) -> Result<SourceFile> {
        match self {
            Grounds::Disk(site) => site.read(operand),
            Grounds::Elsewhere(end) => end.read(operand),
        }
    }

    /// An error of reading a file that was opened here.
    pub fn read_failed(&self, shown: &[u8], error: io::Error) -> StoreError {
        match self {
            Grounds::Disk(_) => StoreError::new("read", shown, error),
            Grounds::Elsewhere(end) => end.read_failed(shown, error),
        }
    }

    pub fn lists_entries(&self, operand: &Operand, options: ListOptions) -> Result<bool> {
        match self {
            Grounds::Disk(site) => site.lists_entries(operand, options),
            Grounds::Elsewhere(end) => end.lists_entries(operand, options),
        }
    }

    pub fn list(&self, operand: &Operand, options: ListOptions, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        match self {
            Grounds::Disk(site) => site.list(operand, options, tell),
            Grounds::Elsewhere(end) => end.list(operand, options, tell),
        }
    }

    pub fn usage(
        &self,
        operand: &Operand,
        each: bool,
        counted: &mut Counted,
        tell: Tell<'_>,
    ) -> Result<ControlFlow<()>> {
        match self {
            Grounds::Disk(site) => site.usage(operand, each, counted, tell),
            Grounds::Elsewhere(end) => end.usage(operand, each, tell),
        }
    }

    pub fn files(&self, operand: &Operand, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        match self {
            Grounds::Disk(site) => site.files(operand, tell),
            Grounds::Elsewhere(end) => end.files(operand, tell),
        }
    }

    pub fn leftovers(&self, operand: &Operand, remove: bool, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        match self {
            Grounds::Disk(site) => site.leftovers(operand, remove, tell),
            Grounds::Elsewhere(end) => end.leftovers(operand, remove, tell),
        }
    }

    pub fn make_directory(&self, operand: &Operand, parents: bool) -> Result<Vec<Vec<u8>>> {
        match self {
            Grounds::Disk(site) => site.make_directory(operand, parents),
            Grounds::Elsewhere(end) => end.make_directory(operand, parents),
        }
    }

    pub fn takes_entries(&self, to: &[u8]) -> bool {
        match self {
            Grounds::Disk(site) => site.takes_entries(to),
            Grounds::Elsewhere(end) => end.takes_entries(to),
        }
    }

    pub fn rename(&self, operand: &Operand, to: &[u8], keep: bool) -> Result<Moved> {
        match self {
            Grounds::Disk(site) => site.rename(operand, to, keep),
            Grounds::Elsewhere(end) => end.rename(operand, to, keep),
        }
    }

    pub fn remove(&self, operand: &Operand, removal: Removal, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        match self {
            Grounds::Disk(site) => site.remove(operand, removal, tell),
            Grounds::Elsewhere(end) => end.remove(operand, removal, tell),
        }
    }
}
