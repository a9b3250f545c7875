//! The pieces of an answer and their receiver, here and over a channel.

use std::ops::ControlFlow;

use haul_job::Here;
use haul_wire::place::Told;

/// A piece of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line of the answer.
    Line(Told),
    /// The next bytes of the files.
    Data(Vec<u8>),
    /// An end without haul, which this process asks. It comes first.
    Elsewhere(Here),
}

/// [`ControlFlow::Break`] ends the answer.
pub(crate) trait Hearer {
    fn line(&mut self, line: Told) -> ControlFlow<()>;

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()>;

    /// Runs while the work goes on without news.
    fn busy(&mut self) -> ControlFlow<()>;
}
