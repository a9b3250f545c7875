//! Reaches the far side of a job.

use std::cell::Cell;

use haul_job::{Error, Event, Job, Place};

use crate::kept::known_paths::Direction;
use crate::kept::surroundings::Surroundings;
use crate::reach::daemon::{Wanted, connect_daemon};
use crate::reach::over_ssh::connect_ssh;
use crate::reach::remote::Remote;
use crate::session::foreseen::Foreseen;
use crate::session::reporter::Watch;

/// Reaches the far side of a job at `place`. With the direction in which this end of the lanes will be used, they may be dialled at once.
pub(crate) fn connect(
    place: &Place,
    job: &Job,
    surroundings: &Surroundings,
    watch: &Watch,
    direction: Option<Direction>,
    foreseen: Foreseen,
) -> Result<Remote, Error> {
    watch.tell(&Event::Connecting { place: place.to_string() });
    let connected = match place {
        Place::Local | Place::Zero { .. } | Place::Stripes { .. } | Place::Null => {
            unreachable!("this machine is not reached, it is here")
        }
        Place::Ssh { .. } => connect_ssh(place, job, surroundings, watch),
        Place::Haul { host, port } => {
            let wanted = Wanted { host, port: *port, only: None, is_same: Cell::default() };
            connect_daemon(place, &wanted, job, surroundings, watch, direction, &foreseen)
        }
    };
    connected.map(|remote| Remote { foreseen, ..remote })
}
