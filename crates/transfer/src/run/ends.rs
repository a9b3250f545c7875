//! What the two ends of a job are, where they lie on this host.

use std::ffi::OsStr;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

use haul_job::{Endpoint, Error, Fault, Job, Place};
use haul_pump::SendRoute;
use haul_store::Nowhere;
use haul_store::recording::{self, Recording};

use crate::faults;
use crate::session::receiver::{self, Target};
use crate::session::sender::{OpenSource, Sources};

/// Zeros and striped recordings only come, and nowhere is only gone to.
pub(crate) fn check_made_up(job: &Job) -> Result<(), Error> {
    let refused = |what: &str, hint: &str| Err(Error::new(Fault::Usage, what).try_this(hint));
    if let Place::Zero { .. } = job.target.place {
        return refused("zero: is a source, and no target", "null: takes everything; a directory named so is ./zero:");
    }
    if job.sources.iter().any(|source| source.place == Place::Null) {
        return refused("null: is a target, and no source", "zero:1G is a source of zeros; a file named so is ./null:");
    }
    if job.sources.len() > 1 && job.sources.iter().any(|source| matches!(source.place, Place::Zero { .. })) {
        return refused("zero: is the only source of a copy", "one file of the whole size");
    }
    if let Place::Stripes { .. } = job.target.place {
        return refused("stripes: is a source, and no target", "haul record --stripe-dir makes such a recording");
    }
    if let Some(Endpoint { place: Place::Stripes { .. }, .. }) = job.sources.first() {
        if job.sources.len() > 1 {
            return refused("stripes: is the only source of a copy", "copy the recordings one after the other");
        }
        if job.carriage.route.is_some_and(|route| route != SendRoute::Copy) {
            return refused("a striped recording is read and copied", "leave --route out");
        }
    }
    if job.target.place == Place::Null && job.selection.delete {
        return Err(receiver::nothing_to_delete("null:"));
    }
    Ok(())
}

/// A name that is mistyped here is found before anybody logs in there. Of several sources, those that are there are copied.
pub(crate) fn check_some_source(job: &Job) -> Result<(), Error> {
    let missing = |source: &Endpoint| match source.place {
        Place::Local => Path::new(OsStr::from_bytes(&source.path))
            .symlink_metadata()
            .err()
            .filter(|error| error.kind() == io::ErrorKind::NotFound),
        _ => None,
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

/// Whether the source is a recording whose hash is known.
pub(crate) fn was_hashed(job: &Job) -> bool {
    let Some(Endpoint { place: Place::Stripes { .. }, path }) = job.sources.first() else { return false };
    recording::is_hashed(Path::new(OsStr::from_bytes(path)))
}

/// What a sender on this machine reads.
pub(crate) fn sources_here(job: &Job) -> Result<Sources, Error> {
    Ok(match job.sources.first() {
        Some(Endpoint { place: Place::Zero { bytes }, .. }) => {
            let zeros = haul_store::zeros(*bytes).map_err(|error| faults::store_error(&error))?;
            Sources::Open(OpenSource::of(zeros))
        }
        Some(Endpoint { place: Place::Stripes { directories }, path }) => {
            let index = Path::new(OsStr::from_bytes(path));
            let Recording { sources, blake3, warning } =
                recording::open(index, directories).map_err(|error| faults::recording_error(&error))?;
            Sources::Open(OpenSource { tree: sources, recorded: blake3, warning })
        }
        _ => Sources::Paths(job.source_paths()),
    })
}

/// What a receiver on this machine writes to.
pub(crate) fn target_here(job: &Job) -> Target {
    match job.target.place {
        Place::Null => Target::Open(Arc::new(Nowhere)),
        _ => Target::Path(job.target.path.clone()),
    }
}
