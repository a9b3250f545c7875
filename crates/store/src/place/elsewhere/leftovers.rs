//! Tells what dead copies left at a server, as the end knows it.

use std::ops::ControlFlow;

use super::super::operand::Operand;
use super::Elsewhere;
use crate::error::Result;
use crate::name::join;
use crate::place::site::{Line, Tell};

impl Elsewhere {
    /// [`Site::leftovers`](crate::place::Site::leftovers).
    pub fn leftovers(&self, operand: &Operand, remove: bool, tell: Tell<'_>) -> Result<ControlFlow<()>> {
        let op = if remove { "remove" } else { "look at" };
        let left = self.tree.leftovers(&operand.path, remove, &mut |path, left| match left {
            Ok(bytes) => tell(Line::Left(path.to_vec(), bytes)),
            Err(error) => self.failed(op, &join(&operand.shown, path), error, tell),
        });
        left.map_err(|error| self.note("clean", &operand.shown, error))
    }
}
