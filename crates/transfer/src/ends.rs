//! Opens the two ends of a job, as far as they lie on this host.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use haul_job::{Endpoint, Error, Fault, Here, Job, Place, WebServer};
use haul_pump::SendRoute;
use haul_store::Nowhere;
use haul_store::recording::{self, Recording};

use haul_channel::reporter::Watch;
use haul_copy::receiver::{self, Target};
use haul_copy::sender::{OpenSource, Sources};
use haul_foreign::Opened;
use haul_kept::faults;
use haul_kept::surroundings::Surroundings;

use crate::named_ends::named_target;
use crate::{dav_ends, ftp_ends, s3_ends, sftp_ends};

use crate::web;

pub(crate) fn check_made_up(job: &Job) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    let is_one_of_several = job.sources.len() > 1;
    match job.target.place {
        Place::Here(Here::Zero { .. }) => {
            let hint = "null: takes everything; a directory named so is ./zero:";
            return refused("zero: is a source, and no target", hint);
        }
        Place::Here(Here::Stripes { .. }) => {
            return refused("stripes: is a source, and no target", "haul record --stripe-dir makes such a recording");
        }
        Place::Here(Here::Web(WebServer { is_dav: false, .. })) => {
            return refused(
                "a web server is a source, and no target",
                "davs://host/path is one, where the server speaks WebDAV; haul serve takes files at haul://host/path",
            );
        }
        Place::Here(
            Here::Disk
            | Here::Sftp { .. }
            | Here::Web(_)
            | Here::Ftp(_)
            | Here::SshFtp { .. }
            | Here::S3 { .. }
            | Here::Null,
        )
        | Place::Far(_) => {}
    }
    for source in &job.sources {
        match source.place {
            Place::Here(Here::Null) => {
                let hint = "zero:1G is a source of zeros; a file named so is ./null:";
                return refused("null: is a target, and no source", hint);
            }
            Place::Here(Here::Zero { .. }) if is_one_of_several => {
                return refused("zero: is the only source of a copy", "one file of the whole size");
            }
            Place::Here(Here::Stripes { .. }) if is_one_of_several => {
                return refused("stripes: is the only source of a copy", "copy the recordings one after the other");
            }
            Place::Here(Here::Stripes { .. }) if job.carriage.route.is_some_and(|route| route != SendRoute::Copy) => {
                return refused("a striped recording is read and copied", "leave --route out");
            }
            Place::Here(Here::Web(_)) => check_web(job)?,
            Place::Here(
                Here::Disk
                | Here::Zero { .. }
                | Here::Stripes { .. }
                | Here::Sftp { .. }
                | Here::Ftp(_)
                | Here::SshFtp { .. }
                | Here::S3 { .. },
            )
            | Place::Far(_) => {}
        }
    }
    if job.target.place == Place::Here(Here::Null) && job.selection.delete {
        return Err(receiver::nothing_to_delete("null:"));
    }
    Ok(())
}

fn check_web(job: &Job) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if job.files_from.is_some() {
        return refused("a list of files is of no use with a web server", "name the URL of each file");
    }
    if job.selection.rules.iter().any(|rule| rule.merge.is_some()) {
        return refused("files of rules in directories (dir-merge) are not read on a web server", "leave them out");
    }
    if job.selection.remove_source_files {
        return refused("nothing can be removed from a web server", "leave --remove-source-files out");
    }
    if job.carriage.route.is_some_and(|route| route != SendRoute::Copy) {
        return refused("what comes from a web server is read and copied", "leave --route out");
    }
    Ok(())
}

/// Finds a mistyped name before a login, if no source exists.
pub(crate) fn check_some_source(job: &Job) -> Result<(), Error> {
    let missing = |source: &Endpoint| match source.place {
        Place::Here(Here::Disk) => Path::new(OsStr::from_bytes(&source.path))
            .symlink_metadata()
            .err()
            .filter(|error| error.kind() == io::ErrorKind::NotFound),
        Place::Here(
            Here::Zero { .. }
            | Here::Stripes { .. }
            | Here::Sftp { .. }
            | Here::Web(_)
            | Here::Ftp(_)
            | Here::SshFtp { .. }
            | Here::S3 { .. }
            | Here::Null,
        )
        | Place::Far(_) => None,
    };
    let Some(first) = job.sources.first() else { return Ok(()) };
    let Some(why) = missing(first) else { return Ok(()) };
    if job.sources[1..].iter().any(|source| missing(source).is_none()) {
        return Ok(());
    }
    let name = String::from_utf8_lossy(&first.path).into_owned();
    let more = match job.sources.len() - 1 {
        0 => String::new(),
        more => format!(", nor any of {more} more sources"),
    };
    Err(Error::new(Fault::Missing, format!("cannot find {name}{more}")).because(why))
}

pub(crate) fn was_hashed(job: &Job) -> bool {
    let Some(Endpoint { place: Place::Here(Here::Stripes { .. }), path }) = job.sources.first() else { return false };
    recording::is_hashed(Path::new(OsStr::from_bytes(path)))
}

pub(crate) fn sources_here(job: &Job, surroundings: &Surroundings, watch: &Arc<Watch>) -> Result<Sources, Error> {
    let Some(Endpoint { place, path }) = job.sources.first() else { return Ok(Sources::Paths(Vec::new())) };
    Ok(match place {
        Place::Here(Here::Disk) => Sources::Paths(job.source_paths()),
        Place::Here(Here::Zero { bytes }) => {
            let zeros = haul_store::zeros(*bytes).map_err(|error| faults::store_error(&error))?;
            Sources::Open(OpenSource::of(zeros))
        }
        Place::Here(Here::Stripes { directories }) => {
            let index = Path::new(OsStr::from_bytes(path));
            let Recording { sources, blake3, warning } =
                recording::open(index, directories).map_err(|error| faults::recording_error(&error))?;
            Sources::Open(OpenSource { recorded: blake3, warning, ..OpenSource::of(sources) })
        }
        Place::Here(sftp @ Here::Sftp { .. }) => sftp_ends::sources(sftp, job, surroundings, watch)?,
        Place::Here(Here::Web(server)) => {
            let Opened { tree, warning } = web::open(server, &job.source_paths(), job, surroundings, watch)?;
            Sources::Open(OpenSource { warning, ..OpenSource::of(tree) })
        }
        Place::Here(server @ (Here::Ftp(_) | Here::SshFtp { .. })) => {
            ftp_ends::sources(server, job, surroundings, watch)?
        }
        Place::Here(Here::S3 { bucket }) => s3_ends::sources(bucket, job, surroundings, watch)?,
        Place::Here(Here::Null) => unreachable!("check_made_up refuses null: as a source"),
        Place::Far(far) => unreachable!("{far} opens its sources itself"),
    })
}

pub(crate) fn target_here(job: &Job, surroundings: &Surroundings, watch: &Arc<Watch>) -> Result<Target, Error> {
    let target = match &job.target.place {
        Place::Here(Here::Disk) => Target::Path(job.target.path.clone()),
        Place::Here(Here::Null) => Target::Open(Arc::new(Nowhere)),
        Place::Here(sftp @ Here::Sftp { .. }) => sftp_ends::target(sftp, job, surroundings, watch)?,
        Place::Here(Here::Web(server)) => dav_ends::target(server, job, surroundings, watch)?,
        Place::Here(server @ (Here::Ftp(_) | Here::SshFtp { .. })) => {
            ftp_ends::target(server, job, surroundings, watch)?
        }
        Place::Here(Here::S3 { bucket }) => s3_ends::target(bucket, job, surroundings, watch)?,
        Place::Here(made_up @ (Here::Zero { .. } | Here::Stripes { .. })) => {
            unreachable!("check_made_up refuses {made_up} as a target")
        }
        Place::Far(far) => unreachable!("{far} opens its target itself"),
    };
    Ok(named_target(&job.target, target))
}
