//! A tree as a place to look at and to change by hand: `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`, `verify`, `diff`.
//!
//! ```text
//!   asking                                     serving
//!   Start: role place, a question --->         answering   what `store::place` finds becomes lines
//!                                 <---  pages  paged       as many as the peer has taken, and some ahead
//!   each line, each byte ---> the caller
//!   More                          --->
//!                                 <---  End
//! ```
//! A stream of unknown length goes the other way (`stream`), and so do names of files that are hashed (`named_hashes`). A place on this host is answered without messages, by the same code. A session has one question and no lanes. Neither end holds
//! more than some pages, however long the answer is.

mod answering;
mod arriving;
mod asking;
pub mod diff;
mod file_at;
mod hash_pool;
mod lists;
mod named_hashes;
mod paged;
#[cfg(test)]
#[path = "../../tests/inside/places.rs"]
mod scenarios;
mod serving;
mod stream;
pub mod verify;
#[cfg(test)]
#[path = "../../tests/inside/verifying.rs"]
mod verifying;

use std::ops::ControlFlow;

pub use asking::{Answered, Request, ask};
pub use haul_wire::place::{Algorithm, Facts, Kind, List, Moment, Question, Told, Verb, Whole};
pub(crate) use serving::serve;
pub use stream::write;

/// What an answer consists of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Piece {
    /// A line.
    Line(Told),
    /// The next bytes of the files that were asked for.
    Data(Vec<u8>),
}

/// Who hears an answer. [`ControlFlow::Break`]: no more is wanted.
pub(crate) trait Hearer {
    fn line(&mut self, line: Told) -> ControlFlow<()>;

    fn data(&mut self, bytes: &[u8]) -> ControlFlow<()>;

    /// Nothing new: the work goes on, if it is still wanted.
    fn busy(&mut self) -> ControlFlow<()>;
}
