//! Decides who is where, who sends and who receives.

use std::borrow::Cow;
use std::sync::{Arc, Once};

use haul_job::{Error, Event, Far, Fault, Here, Job, Observer, Place, Proof, Report};
use haul_wire::limits::MAX_MOVERS;

use crate::ends::{check_made_up, check_some_source, was_hashed};
use crate::far_movers::{left_out, warn_of_one_host};
use crate::here::here;
use crate::joined::{Joined, Side};
use crate::order::Order;
use crate::relay;
use crate::{dav_ends, ftp_ends};
use crate::{s3_ends, sftp_ends};
use haul_channel::foreseen::Foreseen;
use haul_channel::reporter::{self, Ends, Watch};
use haul_copy::sender::early_look::EarlyLook;
use haul_govern::hooks;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;
use haul_reach::connect;
use haul_reach::remote::Remote;

/// Carries a job out, until all is verified and flushed. A failed file is no error: it is an [`haul_job::Event::Failed`],
/// counted in the report.
pub fn run(job: &Job, surroundings: &Surroundings, observer: Arc<dyn Observer>) -> Result<Report, Error> {
    let wants_manifest = observer.wants_manifest();
    let watch = Arc::new(Watch::new(observer));
    carry_out(job, surroundings, (&watch, wants_manifest), |order, source, target| match (source, target) {
        (Place::Here(_), Place::Here(_)) => here(order),
        (Place::Here(_), Place::Far(target)) => with_remote(order, target, Side::Sender).or_else(over_sftp(order)),
        (Place::Far(source), Place::Here(_)) => with_remote(order, source, Side::Receiver).or_else(over_sftp(order)),
        (Place::Far(source), Place::Far(target)) => relay::run(order, source, target),
    })
}

/// Where an account may use sftp alone, the same login serves for a copy over sftp.
fn over_sftp(order: Order<'_>) -> impl FnOnce(Error) -> Result<Ends, Error> {
    move |error| {
        let instead = sftp_ends::instead(order.job).filter(|_| error.fault == Fault::SftpOnly);
        let Some((job, place)) = instead else { return Err(error) };
        sftp_ends::check(&job).map_err(|refused| error.clone().because(refused.what))?;
        let text = format!("{}: this copy goes over sftp, as with {place}/", error.what);
        order.watch.tell(&Event::Warning { text });
        here(Order { job: &job, ..order })
    }
}

/// Checks a job, and carries it out by `between`.
pub fn carry_out(
    job: &Job,
    surroundings: &Surroundings,
    (watch, wants_manifest): (&Arc<Watch>, bool),
    between: impl FnOnce(Order<'_>, &Place, &Place) -> Result<Ends, Error>,
) -> Result<Report, Error> {
    let _ = haul_sys::process::raise_open_file_limit();
    hooks::give_back_what_is_left(surroundings);
    static TELLS: Once = Once::new();
    TELLS.call_once(|| {
        if let Some(text) = surroundings.why_nothing_is_kept() {
            watch.tell(&Event::Warning { text });
        }
    });
    check(job)?;
    warn_of_one_host(job, watch);
    watch.cut_by(job.target.place.cut());
    let job = &*dav_ends::adjusted(job);
    let job = &*ftp_ends::adjusted(job);
    let (source, target) = (&job.sources[0].place, &job.target.place);
    // A recording has a known hash for a standing file.
    let hash_kept = wants_manifest || was_hashed(job);
    let ends = between(Order { job, surroundings, watch, hash_kept }, source, target);
    // Ctrl-C ends ssh as well.
    let ends = ends.map_err(|error| if watch.interrupted() { faults::interrupted() } else { error })?;
    let asked = reporter::asked(job);
    let report = watch.report(&ends, asked, job.selection.dry_run).expect("somebody watches");
    let proof = match (source, report.proof) {
        // A haul at the target proves no more of what a web server has, or a store that keeps no sum.
        (
            Place::Here(server @ (Here::Web(_) | Here::Ftp(_) | Here::SshFtp { .. } | Here::S3 { .. })),
            Proof::BothEnds,
        ) => server.proof_of_reading(),
        (_, proof) => proof,
    };
    Ok(Report { proof, ..report })
}

/// Refuses without reaching a host.
pub fn check(job: &Job) -> Result<(), Error> {
    let source = &job.sources.first().ok_or_else(|| Error::new(Fault::Usage, "no source was named"))?.place;
    let target = &job.target.place;
    check_made_up(job)?;
    if job.carriage.clear && !source.is_here() && !target.is_here() {
        // With lanes through here, neither end could prove to the other what it sent.
        return Err(Error::new(Fault::Usage, "data connections between two other hosts are always encrypted")
            .try_this("leave --cipher none out, or run haul on one of the two"));
    }
    check_movers(job)?;
    sftp_ends::check(job)?;
    dav_ends::check(job)?;
    s3_ends::check(job)?;
    ftp_ends::check(job)?;
    if source.is_here() && !target.is_here() { check_some_source(job) } else { Ok(()) }
}

fn check_movers(job: &Job) -> Result<(), Error> {
    if job.movers.len() > usize::from(MAX_MOVERS) {
        return Err(Error::new(Fault::Usage, "one end has at most five hosts").try_this("name fewer of them"));
    }
    Ok(())
}

fn with_remote(order: Order<'_>, place: &Far, side: Side) -> Result<Ends, Error> {
    let Order { job, surroundings, .. } = order;
    let early = early_look(job, surroundings, side);
    let foreseen = early.as_ref().map(EarlyLook::foreseen).unwrap_or_default();
    let (job, remote) = leader(order, place, side, &foreseen)?;
    let mut joined = Joined::new(remote, side, early, order.watch);
    let result = joined.run(Order { job: &job, ..order }, false);
    joined.close();
    result
}

/// Reaches the first host of the far end that answers. The job then names it and the remaining hosts.
fn leader<'a>(order: Order<'a>, place: &Far, side: Side, foreseen: &Foreseen) -> Result<(Cow<'a, Job>, Remote), Error> {
    let Order { job, surroundings, watch, .. } = order;
    let reach = |place: &Far, job: &Job| -> Result<Remote, Error> {
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
            Side::Sender => others.target.place = place.clone().into(),
            Side::Receiver => others.sources.iter_mut().for_each(|source| source.place = place.clone().into()),
        }
        match reach(&place, &others) {
            Ok(remote) => return Ok((Cow::Owned(others), remote)),
            Err(error) => first = error,
        }
    }
    Err(first)
}

/// Looks at the sources here while the far side is being reached.
pub fn early_look(job: &Job, surroundings: &Surroundings, side: Side) -> Option<EarlyLook> {
    if side != Side::Sender || job.selection.dry_run {
        return None;
    }
    match job.sources.first()?.place {
        Place::Here(Here::Zero { bytes }) => Some(EarlyLook::of_bytes(bytes)),
        Place::Here(
            Here::Stripes { .. }
            | Here::Sftp { .. }
            | Here::Web(_)
            | Here::Ftp(_)
            | Here::SshFtp { .. }
            | Here::S3 { .. }
            | Here::Null,
        )
        | Place::Far(_) => None,
        Place::Here(Here::Disk) => EarlyLook::begin(job, surroundings.home.clone()),
    }
}
