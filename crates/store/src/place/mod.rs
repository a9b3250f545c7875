//! A tree to look at and to change by hand: `haul ls`, `du`, `stat`, `mkdir`, `mv`, `rm`, `cat`. The caller gets results
//! line by line, and can stop the work.

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
