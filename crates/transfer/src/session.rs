//! Runs several jobs between the same two ends, one after the other. They share the login, the keys, the connections and the
//! findings about the path.

use std::sync::{Arc, Mutex};

use haul_job::{Carriage, Error, Event, Far, Fault, Job, Observer, Place, Report, SshOptions};

use crate::coordinate::{self, check, early_look};
use crate::joined::{Joined, Side};
use crate::order::Order;
use haul_channel::reporter::Watch;
use haul_copy::sender::early_look::EarlyLook;
use haul_kept::surroundings::Surroundings;
use haul_kept::sync::lock;
use haul_reach::connect;

/// An open session.
pub struct Session {
    surroundings: Surroundings,
    ends: Ends,
    /// `None`: each job runs on its own.
    joined: Option<Joined>,
    /// Receives what belongs to no job.
    watch: Arc<Watch>,
    ears: Arc<Ears>,
    first: Option<Job>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Ends {
    /// `None`: this machine.
    source: Option<Far>,
    target: Option<Far>,
    has_movers: bool,
    carriage: Carriage,
    ssh: SshOptions,
}

impl Ends {
    fn of(job: &Job) -> Self {
        Self {
            source: job.sources.first().and_then(|source| source.place.far().cloned()),
            target: job.target.place.far().cloned(),
            has_movers: !job.movers.is_empty(),
            // Each job has a limit of its own.
            carriage: Carriage { rate_bytes_per_s: None, ..job.carriage.clone() },
            ssh: job.ssh.clone(),
        }
    }

    /// The far end, if the other is here and one host is enough.
    fn far(&self) -> Option<(&Far, Side)> {
        match (&self.source, &self.target) {
            _ if self.has_movers => None,
            (None, Some(target)) => Some((target, Side::Sender)),
            (Some(source), None) => Some((source, Side::Receiver)),
            _ => None,
        }
    }
}

/// Opens a session between this job's ends. `observer` watches how they are reached.
///
/// If both ends are here, or neither is, or the far side permits sftp only, each job runs on its own.
///
/// # Errors
/// The job is invalid, or the far side cannot be reached.
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
            match remote.map_err(|error| if watch.interrupted() { watch.interruption() } else { error }) {
                Ok(remote) => Some(Joined::new(remote, side, early, &watch)),
                // Each job finds this out, and goes over sftp.
                Err(error) if error.fault == Fault::SftpOnly => None,
                Err(error) => return Err(error),
            }
        }
    };
    ears.lend(None);
    Ok(Session { surroundings: surroundings.clone(), ends, joined, watch, ears, first: Some(first.clone()) })
}

impl Session {
    /// Whether the session lives, and fits this job.
    pub fn takes(&mut self, job: &Job) -> bool {
        !self.is_over() && Ends::of(job) == self.ends
    }

    /// Whether no further job can run.
    pub fn is_over(&mut self) -> bool {
        self.joined.as_mut().is_some_and(Joined::is_over)
    }

    /// Carries a job out as [`crate::run`]. After an error of the job alone another may run; see [`Session::is_over`].
    ///
    /// # Errors
    /// [`Fault::Usage`]: the job is not for this session. Others as in [`crate::run`].
    pub fn run(&mut self, job: &Job, observer: Arc<dyn Observer>) -> Result<Report, Error> {
        if !self.takes(job) {
            return Err(Error::new(Fault::Usage, "the job is for other ends than its session"));
        }
        let Some(joined) = &mut self.joined else { return coordinate::run(job, &self.surroundings, observer) };
        if self.first.take().is_some_and(|first| first != *job) {
            // The early look was for another job's sources.
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

    /// Ends the session, and waits for its threads.
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

/// Passes what belongs to no job to the running job's observer.
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

    fn rate_limit(&self, now: Option<u64>) -> Option<u64> {
        self.observer().map_or(now, |observer| observer.rate_limit(now))
    }

    fn interrupted(&self) -> bool {
        self.observer().is_some_and(|observer| observer.interrupted())
    }
}
