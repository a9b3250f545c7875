//! Finds several paths between the two ends of a session, dials them, and brings them back.
//!
//! ```text
//!   the first lane stands             -> its way is the first path
//!   a daemon answers                  -> further ways to its address are dialled together with the first path
//!   the addresses of both ends        -> ways worth a try (`haul_engine::paths`) -> dialled -> further paths
//!   interface gone, silence, no lanes -> down -> dialled again until the session ends
//! ```

mod ahead;
mod asked;
mod bringer;
mod own_addresses;
mod peer_addresses;
mod set;
mod ways;

pub use ahead::{Ahead, Wish};
pub use asked::{asked, first_candidates, first_way, named_ways, names_remote, offered, way_of};
pub use bringer::{Bringer, First};
pub use own_addresses::{own_addresses, tell_changes};
pub use peer_addresses::PeerAddresses;
pub use set::PathSet;
