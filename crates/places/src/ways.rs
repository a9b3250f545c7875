//! How places are reached: what this user keeps, and who opens ends without haul.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use haul_channel::reporter::Watch;
use haul_job::{Error, Event, Far, Fault, Here, Place};
use haul_kept::surroundings::Surroundings;
use haul_store::PlaceTree;

use super::request::Request;

/// Opens a tree at an end without haul, or refuses what the end cannot do.
pub type OpenEnd = fn(&Here, &Request, &Surroundings, &Arc<Watch>) -> Result<Arc<dyn PlaceTree>, Error>;

/// How places are reached.
#[derive(Clone)]
pub struct Ways {
    pub(crate) surroundings: Surroundings,
    open_end: OpenEnd,
    /// Hosts with sftp only: they are not asked again for a haul.
    sftp_only: Arc<Mutex<Vec<Far>>>,
}

impl Ways {
    /// Reaches places for this user.
    pub fn new(surroundings: &Surroundings, open_end: OpenEnd) -> Ways {
        Ways { surroundings: surroundings.clone(), open_end, sftp_only: Arc::default() }
    }

    /// Reaches this host's disks and other hauls.
    pub fn to_hauls(surroundings: &Surroundings) -> Ways {
        Ways::new(surroundings, |end, _, _, _| Err(Error::new(Fault::Usage, format!("{end} is not looked at here"))))
    }

    /// The end that this process asks, for lack of a haul.
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

    /// The end to ask after this error of a haul. It is told once.
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
        let request = Request { place: end.clone().into(), ..request.clone() };
        (self.open_end)(end, &request, &self.surroundings, watch).map_err(of_question)
    }
}

/// A copy resumes, a question begins anew.
fn of_question(error: Error) -> Error {
    match error.fault {
        Fault::Network | Fault::Timeout if error.hint.is_none() => error.try_this(AGAIN),
        _ => error,
    }
}

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
