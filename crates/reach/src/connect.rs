//! Reaches the far side of a job.

use std::cell::Cell;

use haul_job::{Error, Event, Far, Job};

use crate::daemon::{Wanted, connect_daemon};
use crate::over_ssh::connect_ssh;
use crate::remote::Remote;
use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::Watch;
use haul_kept::known_paths::Direction;
use haul_kept::surroundings::Surroundings;

/// Reaches `place`. With a `direction`, lanes may be dialled at once.
pub fn connect(
    place: &Far,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Watch,
    direction: Option<Direction>,
    foreseen: Foreseen,
) -> Result<Remote, Error> {
    watch.tell(&Event::Connecting { place: place.to_string() });
    let connected = match place {
        Far::Ssh { .. } => connect_ssh(place, job, surroundings, watch),
        Far::Haul { host, port } => {
            let wanted = Wanted { host, port: *port, only: None, is_same: Cell::default() };
            connect_daemon(place, &wanted, job, surroundings, watch, direction, &foreseen)
        }
    };
    connected.map(|remote| Remote { foreseen, ..remote })
}
