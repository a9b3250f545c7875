//! Looks at trees and changes them by hand: `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`, `hash`, `clean`, `verify`,
//! `diff`.
//!
//! ```text
//!   asking                                     serving
//!   Start: role place, a question --->         answering   what `store::place` finds becomes lines
//!                                 <---  pages  paged       as many as the peer has taken, and some ahead
//!   each line, each byte ---> the caller
//!   More                          --->
//!                                 <---  End
//! ```
//! Streams of unknown length (`stream`) and names of files to hash (`named_hashes`) go the other way. The same code answers on
//! this host, and at ends without haul (`elsewhere`). A session has one question, no lanes, and holds a few pages.

#![forbid(unsafe_code)]

mod answering;
mod arriving;
mod asking;
pub mod diff;
mod elsewhere;
mod file_at;
mod hash_of;
mod hash_pool;
mod hearer;
mod lists;
mod named_hashes;
mod paged;
mod request;
#[cfg(test)]
#[path = "../tests/unit/places.rs"]
mod scenarios;
mod serving;
mod stream;
pub mod verify;
#[cfg(test)]
#[path = "../tests/unit/verifying.rs"]
mod verifying;
mod ways;

pub use asking::ask;
pub use haul_wire::place::{Algorithm, Facts, Kind, Lacks, List, Moment, Question, Space, Told, Verb, Whole};
pub use hearer::Piece;
pub use request::{Answered, Request};
pub use serving::serve;
pub use stream::write;
pub use ways::{OpenEnd, Ways};
