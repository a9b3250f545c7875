//! Several paths between the two ends of a session: finds them, dials them, and brings them back.
//!
//! ```text
//!   the first lane stands             -> its way is the first path
//!   a daemon answers                  -> further ways to its address are dialled together with the first path
//!   the addresses of both ends        -> ways worth a try (`haul_engine::paths`) -> dialled -> further paths
//!   interface gone, silence, no lanes -> down -> dialled again until the session ends
//! ```
//! The side that dials the lanes does this, on a thread of its own. Where both ends have one address, the thread waits for a change of the
//! network and does nothing else.

mod ahead;
mod asked;
mod bringer;
mod own_addresses;
mod peer_addresses;
mod set;
mod ways;

pub(crate) use ahead::{Ahead, Wish};
pub(crate) use asked::{asked, first_candidates, first_way, names_remote, offered, way_of};
pub(crate) use bringer::{Bringer, First};
pub(crate) use own_addresses::{own_addresses, tell_changes};
pub(crate) use peer_addresses::PeerAddresses;
pub(crate) use set::PathSet;
