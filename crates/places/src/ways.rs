//! How places are reached: what this user keeps, and who opens ends where no haul runs.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use haul_channel::reporter::Watch;
use haul_job::{Error, Event, Far, Fault, Here, Place};
use haul_kept::surroundings::Surroundings;
use haul_store::PlaceTree;

use super::request::Request;

/// Opens the tree of a request at an end where no haul runs, or refuses what such an end cannot do.
pub type OpenEnd = fn(&Here, &Request, &Surroundings, &Arc<Watch>) -> Result<Arc<dyn PlaceTree>, Error>;

/// How places are reached.
#[derive(Clone)]
pub struct Ways {
    pub(crate) surroundings: Surroundings,
    open_end: OpenEnd,
    /// Hosts that were found to let the account use sftp only. No further question asks them for a haul.
    sftp_only: Arc<Mutex<Vec<Far>>>,
}

impl Ways {
    /// Reaches places for this user.
    pub fn new(surroundings: &Surroundings, open_end: OpenEnd) -> Ways {
        Ways { surroundings: surroundings.clone(), open_end, sftp_only: Arc::default() }
    }

    /// Reaches the disks of this host and other hauls alone.
    pub fn to_hauls(surroundings: &Surroundings) -> Ways {
        Ways::new(surroundings, |end, _, _, _| Err(Error::new(Fault::Usage, format!("{end} is not looked at here"))))
    }

    /// The end at which this process answers by itself, because no haul runs there. `None`: the disks of this host, or a haul.
    pub(crate) fn end_of(&self, place: &Place) -> Option<Here> {
        match place {
            Place::Here(Here::Disk) => None,
            Place::Here(here) => Some(here.clone()),
            Place::Far(far) => {
                let is_known = self.sftp_only.lock().unwrap_or_else(PoisonError::into_inner).contains(far);
                is_known.then(|| over_sftp(far)).flatten()
            }
        }
    }

    /// The end that answers instead of a haul, after this error. It is told once.
    pub(crate) fn instead(&self, far: &Far, error: &Error, watch: &Watch) -> Option<Here> {
        let end = over_sftp(far).filter(|_| error.fault == Fault::SftpOnly)?;
        let mut known = self.sftp_only.lock().unwrap_or_else(PoisonError::into_inner);
        if !known.contains(far) {
            known.push(far.clone());
            drop(known);
            watch.tell(&Event::Warning { text: format!("{}: this goes over sftp, as with {end}/", error.what) });
        }
        Some(end)
    }

    pub(crate) fn open(&self, end: &Here, request: &Request, watch: &Arc<Watch>) -> Result<Arc<dyn PlaceTree>, Error> {
        // Such an end is reached like the place itself.
        let request = Request { place: end.clone().into(), ..request.clone() };
        (self.open_end)(end, &request, &self.surroundings, watch).map_err(of_question)
    }
}

/// A copy goes on where it stopped; a question begins anew.
fn of_question(error: Error) -> Error {
    match error.fault {
        Fault::Network | Fault::Timeout if error.hint.is_none() => error.try_this(AGAIN),
        _ => error,
    }
}

/// What to try after a question that had no answer.
pub(crate) const AGAIN: &str = "run the same command again";

fn over_sftp(far: &Far) -> Option<Here> {
    match far {
        Far::Ssh { user, host, port } => Some(Here::Sftp { user: user.clone(), host: host.clone(), port: *port }),
        Far::Haul { .. } => None,
    }
}

impl fmt::Debug for Ways {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ways").finish_non_exhaustive()
    }
}
