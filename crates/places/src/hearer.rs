//! Who hears an answer, and in which pieces it comes: the same on this host and over a channel.

use std::ops::ControlFlow;

use haul_job::Here;
use haul_wire::place::Told;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line of the answer.
    Line(Told),
    /// The next bytes of the files that were asked for.
    Data(Vec<u8>),
    /// No haul runs at the place: this process answers, through this end. It comes first.
    Elsewhere(Here),
}

/// Receives an answer. [`ControlFlow::Break`] means that no more is wanted.
pub(crate) trait Hearer {
    fn line(&mut self, line: Told) -> ControlFlow<()>;

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()>;

    /// Is called while the work goes on without news.
    fn busy(&mut self) -> ControlFlow<()>;
}
