//! Several jobs between the same two ends, one after the other.
//!
//! A login, the keys, the connections and what was found of the path serve all of them. So the second job needs no
//! login and no handshake.

use std::sync::{Arc, Mutex};

use haul_job::{Carriage, Error, Event, Fault, Job, Observer, Place, Report, SshOptions};

use crate::kept::surroundings::Surroundings;
use crate::reach::connect;
use crate::run::coordinate::{self, check, early_look};
use crate::run::joined::{Joined, Side};
use crate::run::order::Order;
use crate::session::reporter::Watch;
use crate::session::sender::early_look::EarlyLook;
use crate::sync::lock;

/// An open session.
pub struct Session {
    surroundings: Surroundings,
    ends: Ends,
    /// `None`: nothing of a job serves another one, so each is on its own.
    joined: Option<Joined>,
    /// Hears what belongs to no job.
    watch: Arc<Watch>,
    ears: Arc<Ears>,
    /// The job that was named when it was opened, until it has run.
    first: Option<Job>,
}

/// Between which two ends, and how, the jobs of a session go.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Ends {
    /// `None`: this machine.
    source: Option<Place>,
    target: Option<Place>,
    has_movers: bool,
    carriage: Carriage,
    ssh: SshOptions,
}

impl Ends {
    fn of(job: &Job) -> Self {
        let far = |place: &Place| if place.is_here() { None } else { Some(place.clone()) };
        Self {
            source: job.sources.first().and_then(|source| far(&source.place)),
            target: far(&job.target.place),
            has_movers: !job.movers.is_empty(),
            carriage: job.carriage.clone(),
            ssh: job.ssh.clone(),
        }
    }

    /// The far one, if the other is here and one host is enough.
    fn far(&self) -> Option<(&Place, Side)> {
        match (&self.source, &self.target) {
            _ if self.has_movers => None,
            (None, Some(target)) => Some((target, Side::Sender)),
            (Some(source), None) => Some((source, Side::Receiver)),
            _ => None,
        }
    }
}

/// Opens a session between the ends of this job, for it and others. `observer` hears how they are reached.
///
/// Where both ends are here, or neither is, there is nothing to keep open: each job is then carried out on its own.
///
/// # Errors
/// The job makes no sense, or the far side cannot be reached.
pub fn open(first: &Job, surroundings: &Surroundings, observer: Arc<dyn Observer>) -> Result<Session, Error> {
    check(first)?;
    let ears = Arc::new(Ears(Mutex::new(Some(observer))));
    let watch = Arc::new(Watch::new(Arc::clone(&ears) as Arc<dyn Observer>));
    let ends = Ends::of(first);
    let joined = match ends.far() {
        None => None,
        Some((place, side)) => {
            let early = early_look(first, surroundings, side);
            let foreseen = early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
            let direction = Some(side.direction());
            let remote = connect::connect(place, first, surroundings, &watch, direction, foreseen);
            let remote = remote.map_err(|error| if watch.interrupted() { watch.interruption() } else { error })?;
            Some(Joined::new(remote, side, early, &watch))
        }
    };
    ears.lend(None);
    Ok(Session { surroundings: surroundings.clone(), ends, joined, watch, ears, first: Some(first.clone()) })
}

impl Session {
    /// Whether the session lives, and this job goes between its ends, in the same way.
    pub fn takes(&mut self, job: &Job) -> bool {
        !self.is_over() && Ends::of(job) == self.ends
    }

    /// Whether no further job can be run: its connection was lost, or one of its ends gave it up.
    pub fn is_over(&mut self) -> bool {
        self.joined.as_mut().is_some_and(Joined::is_over)
    }

    /// Carries a job out, as [`crate::run`] does. After an error that concerns the job alone, such as a missing source, another job
    /// can be run; see [`Session::is_over`].
    ///
    /// # Errors
    /// [`Fault::Usage`]: the job is not for this session. Else as [`crate::run`].
    pub fn run(&mut self, job: &Job, observer: Arc<dyn Observer>) -> Result<Report, Error> {
        if !self.takes(job) {
            return Err(Error::new(Fault::Usage, "the job is for other ends than its session"));
        }
        let Some(joined) = &mut self.joined else { return coordinate::run(job, &self.surroundings, observer) };
        if self.first.take().is_some_and(|first| first != *job) {
            // It looked at the sources of another job.
            joined.forget_early_look();
        }
        self.ears.lend(Some(Arc::clone(&observer)));
        let wants_manifest = observer.wants_manifest();
        let watch = Arc::new(self.watch.of_job_for(observer));
        let told = (&watch, wants_manifest);
        let report = coordinate::carry_out(job, &self.surroundings, told, |order: Order<'_>, _: &Place, _: &Place| {
            joined.run(order, true)
        });
        self.ears.lend(None);
        report
    }

    /// Ends the session. Its threads have ended when this returns.
    pub fn close(self) {
        drop(self);
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        if let Some(joined) = self.joined.take() {
            joined.close();
        }
    }
}

/// Who hears what belongs to no job: the one who watches the job that runs.
struct Ears(Mutex<Option<Arc<dyn Observer>>>);

impl Ears {
    fn lend(&self, observer: Option<Arc<dyn Observer>>) {
        *lock(&self.0) = observer;
    }

    fn observer(&self) -> Option<Arc<dyn Observer>> {
        lock(&self.0).clone()
    }
}

impl Observer for Ears {
    fn on_event(&self, event: &Event) {
        if let Some(observer) = self.observer() {
            observer.on_event(event);
        }
    }

    fn interrupted(&self) -> bool {
        self.observer().is_some_and(|observer| observer.interrupted())
    }
}
