//! Who is where, who sends, who receives.

use std::borrow::Cow;
use std::sync::{Arc, Once};

use haul_job::{Error, Event, Fault, Job, Observer, Place, Report};
use haul_wire::limits::MAX_MOVERS;

use crate::faults;
use crate::kept::surroundings::Surroundings;
use crate::reach::connect;
use crate::reach::movers::{left_out, warn_of_one_host};
use crate::reach::remote::Remote;
use crate::run::ends::{check_made_up, check_some_source, was_hashed};
use crate::run::here::here;
use crate::run::joined::{Joined, Side};
use crate::run::order::Order;
use crate::run::relay;
use crate::session::foreseen::Foreseen;
use crate::session::hooks;
use crate::session::reporter::{self, Ends, Watch};
use crate::session::sender::early_look::EarlyLook;

/// Carries a job out. Returns when everything is verified and flushed, or with the error that ended it.
///
/// One bad file is not an error: it is an [`haul_job::Event::Failed`] and counted in the report.
pub fn run(job: &Job, surroundings: &Surroundings, observer: Arc<dyn Observer>) -> Result<Report, Error> {
    let wants_manifest = observer.wants_manifest();
    let watch = Arc::new(Watch::new(observer));
    carry_out(job, surroundings, (&watch, wants_manifest), |order, source, target| {
        match (source.is_here(), target.is_here()) {
            (true, true) => here(order),
            (true, false) => with_remote(order, target, Side::Sender),
            (false, true) => with_remote(order, source, Side::Receiver),
            (false, false) => relay::run(order, source, target),
        }
    })
}

/// Carries a job out between its two ends like this, if it makes sense.
pub(crate) fn carry_out(
    job: &Job,
    surroundings: &Surroundings,
    (watch, wants_manifest): (&Arc<Watch>, bool),
    between: impl FnOnce(Order<'_>, &Place, &Place) -> Result<Ends, Error>,
) -> Result<Report, Error> {
    // More files may then be open at once; with the old limit it still works.
    let _ = haul_sys::process::raise_open_file_limit();
    hooks::give_back_what_is_left(surroundings);
    // Once, however many jobs this process carries out.
    static TELLS: Once = Once::new();
    TELLS.call_once(|| {
        if let Some(text) = surroundings.why_nothing_is_kept() {
            watch.tell(&Event::Warning { text });
        }
    });
    check(job)?;
    warn_of_one_host(job, watch);
    let (source, target) = (&job.sources[0].place, &job.target.place);
    // The hash of a recording is known. A file that stands at the target already is compared with it, too.
    let hash_kept = wants_manifest || was_hashed(job);
    let ends = between(Order { job, surroundings, watch, hash_kept }, source, target);
    // Ctrl-C reaches ssh as well: whatever broke by that, the person knows why.
    let ends = ends.map_err(|error| if watch.interrupted() { faults::interrupted() } else { error })?;
    let asked = reporter::asked(job);
    Ok(watch.report(&ends, asked, job.selection.dry_run).expect("somebody watches"))
}

/// What nobody has to be reached for to be refused.
pub(crate) fn check(job: &Job) -> Result<(), Error> {
    let source = &job.sources.first().ok_or_else(|| Error::new(Fault::Usage, "no source was named"))?.place;
    let target = &job.target.place;
    check_made_up(job)?;
    if job.carriage.clear && !source.is_here() && !target.is_here() {
        // Should they have to run through here, neither end could prove to the other what it sent.
        return Err(Error::new(Fault::Usage, "data connections between two other hosts are always encrypted")
            .try_this("leave --cipher none out, or run haul on one of the two"));
    }
    check_movers(job)?;
    if source.is_here() && !target.is_here() { check_some_source(job) } else { Ok(()) }
}

fn check_movers(job: &Job) -> Result<(), Error> {
    if job.movers.len() > usize::from(MAX_MOVERS) {
        return Err(Error::new(Fault::Usage, "one end has at most five hosts").try_this("name fewer of them"));
    }
    Ok(())
}

/// One side here, the other at a remote place.
fn with_remote(order: Order<'_>, place: &Place, side: Side) -> Result<Ends, Error> {
    let Order { job, surroundings, .. } = order;
    let early = early_look(job, surroundings, side);
    let foreseen = early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
    let (job, remote) = leader(order, place, side, &foreseen)?;
    let mut joined = Joined::new(remote, side, early, order.watch);
    let result = joined.run(Order { job: &job, ..order }, false);
    joined.close();
    result
}

/// The first of the hosts of the far end that answers, and the job for it and the others.
fn leader<'a>(
    order: Order<'a>,
    place: &Place,
    side: Side,
    foreseen: &Foreseen,
) -> Result<(Cow<'a, Job>, Remote), Error> {
    let Order { job, surroundings, watch, .. } = order;
    let reach = |place: &Place, job: &Job| -> Result<Remote, Error> {
        connect::connect(place, job, surroundings, watch, Some(side.direction()), foreseen.clone())
    };
    let mut first = match reach(place, job) {
        Ok(remote) => return Ok((Cow::Borrowed(job), remote)),
        Err(error) => error,
    };
    let mut others = job.clone();
    let mut place = place.clone();
    while !others.movers.is_empty() && !watch.interrupted() {
        watch.tell(&Event::Warning { text: left_out(&place, &first) });
        place = others.movers.remove(0);
        match side {
            Side::Sender => others.target.place = place.clone(),
            Side::Receiver => others.sources.iter_mut().for_each(|source| source.place = place.clone()),
        }
        match reach(&place, &others) {
            Ok(remote) => return Ok((Cow::Owned(others), remote)),
            Err(error) => first = error,
        }
    }
    Err(first)
}

/// Begins with what is to be sent from here, while the far side is being reached.
pub(crate) fn early_look(job: &Job, surroundings: &Surroundings, side: Side) -> Option<EarlyLook> {
    if side != Side::Sender || job.selection.dry_run {
        return None;
    }
    match job.sources.first()?.place {
        Place::Zero { bytes } => Some(EarlyLook::of_bytes(bytes)),
        Place::Stripes { .. } => None,
        _ => EarlyLook::begin(&job.source_paths(), surroundings.home.clone(), &job.selection, job.carriage.clear),
    }
}
