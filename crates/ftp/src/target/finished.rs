//! The time of a written file, as the server's answers show it.

use std::io;

use haul_store::Time;

use super::draft::{has_time, set_time};
use crate::codec::listing::Facts;
use crate::server::blocks::Finished;
use crate::server::{Server, Times};

/// What the server shows of a file with this time. The first file finds out how times are set.
pub(super) fn with_time(server: &Server, place: &[u8], mtime: Time, finished: Finished) -> io::Result<Option<Facts>> {
    let how = finished.sets_time_by;
    match (server.times(), &finished.facts) {
        (Times::Unknown, Some(facts)) if has_time(facts, mtime) => {
            how.into_iter().for_each(|how| server.sets_times(how));
            Ok(finished.facts)
        }
        (Times::Lost, _) => Ok(finished.facts),
        (known, _) if how == Some(known) => Ok(finished.facts),
        _ => set_time(server, place, mtime),
    }
}
