//! The acts of [`Site`](super::Site) at an end where no haul runs, through [`PlaceTree`].
//!
//! A server's name that no file can have is told as a failure, and never becomes a path.

mod change;
mod descent;
mod files;
mod leftovers;
mod listing;
mod usage;

use std::io;
use std::sync::{Arc, Mutex, PoisonError};

use haul_sys::file_system::Space;

use super::facts::{EntryFacts, NodeKind};
use super::operand::Operand;
use super::site::SiteBounds;
use crate::ends::place_tree::PlaceTree;
use crate::ends::reading::SourceFile;
use crate::error::{Result, StoreError, refusal};

/// A tree at an end where no haul runs.
#[derive(Debug)]
pub struct Elsewhere {
    tree: Arc<dyn PlaceTree>,
    bounds: SiteBounds,
    lost: Mutex<Option<StoreError>>,
}

impl Elsewhere {
    /// Acts on this tree.
    pub fn new(tree: Arc<dyn PlaceTree>, bounds: SiteBounds) -> Elsewhere {
        Elsewhere { tree, bounds, lost: Mutex::default() }
    }

    /// The error of a lost connection or a refused login: no act succeeds any more.
    pub fn take_lost(&self) -> Option<StoreError> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Whether no act succeeds any more.
    pub fn is_lost(&self) -> bool {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner).is_some()
    }

    fn note(&self, op: &'static str, path: &[u8], error: io::Error) -> StoreError {
        let error = StoreError::new(op, path, error);
        if error.is_of_every_path() {
            self.lost.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error.again());
        }
        error
    }

    /// [`Site::operands`](super::Site::operands).
    pub fn operands(&self, typed: &[u8]) -> Result<Vec<Operand>> {
        let literal = self.operand(typed);
        let Some(matches) = self.tree.matches(typed) else { return Ok(vec![literal]) };
        let matches = matches.map_err(|error| self.note("find", &literal.shown, error))?;
        let exists = match self.tree.facts(typed, false) {
            Ok(_) => true,
            Err(error) if is_gone(&error) => false,
            Err(error) => return Err(self.note("find", &literal.shown, error)),
        };
        if matches.is_empty() && !exists {
            let why = refusal(io::ErrorKind::NotFound, "nothing matches the wildcard");
            return Err(StoreError::new("find", &literal.shown, why));
        }
        let mut operands: Vec<Operand> = matches.iter().map(|path| self.operand(path)).collect();
        if exists && operands.iter().all(|operand| operand.path != typed) {
            operands.insert(0, literal);
        }
        Ok(operands)
    }

    fn operand(&self, path: &[u8]) -> Operand {
        Operand { shown: self.tree.shown(path), path: path.to_vec() }
    }

    /// [`Site::facts`](super::Site::facts).
    pub fn facts(&self, operand: &Operand, follow: bool) -> Result<EntryFacts> {
        self.tree.facts(&operand.path, follow).map_err(|error| self.note("access", &operand.shown, error))
    }

    /// [`Site::space`](super::Site::space).
    pub fn space(&self, operand: &Operand) -> Result<Space> {
        self.tree.space(&operand.path).map_err(|error| self.note("access", &operand.shown, error))
    }

    /// [`Site::read`](super::Site::read).
    pub fn read(&self, operand: &Operand) -> Result<SourceFile> {
        self.tree.open(&operand.path).map_err(|error| self.note("open", &operand.shown, error))
    }

    /// An error of reading a file that was opened here.
    pub fn read_failed(&self, shown: &[u8], error: io::Error) -> StoreError {
        self.note("read", shown, error)
    }

    pub(super) fn is_directory(&self, operand: &Operand) -> bool {
        self.facts(operand, true).is_ok_and(|facts| facts.kind == NodeKind::Directory)
    }

    fn beneath(&self, operand: &Operand, path: &[u8]) -> Vec<u8> {
        let names = path.split(|byte| *byte == b'/').filter(|name| !name.is_empty());
        names.fold(operand.path.clone(), |directory, name| self.tree.join(&directory, name))
    }
}

fn is_gone(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::NotFound
}

/// Refuses a name that would lead out of its directory.
fn check_name(name: &[u8]) -> io::Result<()> {
    match name.is_empty() || matches!(name, b"." | b"..") || name.iter().any(|byte| matches!(byte, b'/' | 0)) {
        true => Err(refusal(io::ErrorKind::InvalidData, "the server lists a name that no file can have")),
        false => Ok(()),
    }
}
