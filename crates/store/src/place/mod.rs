//! A tree to look at and to change by hand: `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`.
//!
//! ```text
//!   operand    what a typed path means; wildcards      facts   what the file system knows of an entry
//!   listing    the entries of directories              usage   what a tree takes
//!   files      the files of a tree, to hash them         leftovers  what dead copies left
//!   descent    one directory after the other           change  make, move, remove
//!   elsewhere  the same at an end where no haul runs    grounds  which of the two it is
//! ```
//! Results go to the caller line by line, and the caller can stop the work.

mod change;
mod descent;
mod elsewhere;
mod facts;
mod files;
mod grounds;
mod leftovers;
mod listing;
mod operand;
mod site;
mod usage;

pub use change::{Moved, Removal};
pub use elsewhere::Elsewhere;
pub use facts::{EntryFacts, Lacks, NodeKind};
pub use grounds::Grounds;
pub use listing::ListOptions;
pub use operand::{Operand, is_answer_to};
pub use site::{Line, Site, SiteBounds, SiteOptions, Tell};
pub use usage::Counted;
