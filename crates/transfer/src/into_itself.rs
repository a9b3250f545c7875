//! Refuses copies that would find themselves, or lose what they copy.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use haul_channel::convert;
use haul_job::{Endpoint, Error, Fault, Here, Job, Place};

/// Refuses two copies, as cp does: a directory into itself, which would find its own copy for ever, and a link over its own
/// file, which would be lost.
pub(crate) fn refuse(job: &Job) -> Result<(), Error> {
    match job.target.place {
        Place::Here(Here::Disk) => on_disk(job),
        _ => at_one_server(job),
    }
}

/// A list that grows while it is read would bring the copy's own entries for ever. Names alone are compared: the server is not
/// asked where its links lead, nor where a path begins that has no slash in front.
fn at_one_server(job: &Job) -> Result<(), Error> {
    let path_of = |end: &Endpoint| PathBuf::from(OsStr::from_bytes(&end.path));
    let target = path_of(&job.target);
    for source in job.sources.iter().filter(|source| source.place == job.target.place) {
        let path = path_of(source);
        let is_beneath = path.is_absolute() == target.is_absolute() && target.starts_with(&path);
        if is_beneath && selects(job, source, &path, &target) {
            return Err(into_itself(source));
        }
    }
    Ok(())
}

fn into_itself(source: &Endpoint) -> Error {
    // A server's top has no path.
    let shown = match source.path.is_empty() {
        true => source.place.to_string(),
        false => haul_store::printable(&source.path),
    };
    Error::new(Fault::Usage, format!("cannot copy {shown} into itself"))
        .try_this("choose a target outside of the source, or leave it out with --exclude")
}

fn on_disk(job: &Job) -> Result<(), Error> {
    let path_of = |bytes: &[u8]| PathBuf::from(OsStr::from_bytes(bytes));
    let typed_target = path_of(&job.target.path);
    // A missing path lies where its nearest existing ancestor does.
    let absolute = std::path::absolute(&typed_target).unwrap_or_else(|_| typed_target.clone());
    let ancestors = absolute.ancestors();
    let nearest = |path: &Path| Some((path.canonicalize().ok()?, absolute.strip_prefix(path).ok()?.to_owned()));
    let Some((target, missing)) = ancestors.clone().find_map(nearest) else { return Ok(()) };
    for source in &job.sources {
        match source.place {
            Place::Here(Here::Disk | Here::Stripes { .. }) => {}
            Place::Here(
                Here::Zero { .. }
                | Here::Sftp { .. }
                | Here::Web(_)
                | Here::Ftp(_)
                | Here::SshFtp { .. }
                | Here::S3 { .. }
                | Here::Null,
            )
            | Place::Far(_) => continue,
        }
        let typed = path_of(&source.path);
        let Ok(path) = typed.canonicalize() else { continue };
        let shown = haul_store::printable(&source.path);
        let is_link = !job.selection.follow_links && typed.symlink_metadata().is_ok_and(|found| found.is_symlink());
        if is_link {
            let name = typed.file_name().unwrap_or_default();
            let place = if target.is_dir() { typed_target.join(name) } else { typed_target.clone() };
            // A standing link is replaced by its like.
            let is_file = place.symlink_metadata().is_ok_and(|found| found.is_file());
            if is_file && place.canonicalize().is_ok_and(|place| place == path) {
                return Err(Error::new(Fault::Usage, format!("cannot copy {shown} onto the file to which it leads"))
                    .try_this("choose another target; -L copies what links lead to"));
            }
        } else if job.selection.remove_source_files && is_itself(&typed, &path, &target, &typed_target) {
            return Err(Error::new(Fault::Usage, format!("cannot move {shown} onto itself"))
                .because("--remove-source-files would remove what was to be kept")
                .try_this("choose another target"));
        } else if path.is_dir() && target.starts_with(&path) && selects(job, source, &path, &target.join(&missing)) {
            return Err(into_itself(source));
        }
    }
    Ok(())
}

/// As in rsync, a list of paths or a rule may leave the target's directory out.
fn selects(job: &Job, source: &Endpoint, source_path: &Path, directory: &Path) -> bool {
    let Ok(beneath) = directory.strip_prefix(source_path) else { return true };
    let beneath = beneath.as_os_str().as_bytes();
    if let Some(list) = &job.files_from
        && !list.selects_what_comes_into(beneath)
    {
        return false;
    }
    let Ok(filter) = convert::filter(&job.selection.rules) else { return true };
    // Rules see the path at the target.
    let has_own_name = !source.path.ends_with(b"/") && job.files_from.is_none();
    let name = source_path.file_name().filter(|_| has_own_name).map(OsStr::as_bytes).unwrap_or_default();
    let path = [name, beneath].into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(&b'/');
    let ends = (0..path.len()).filter(|at| path[*at] == b'/').chain([path.len()]);
    ends.into_iter().all(|end| filter.selects(&path[..end], true))
}

/// Whether a source without a final slash lands where it is.
fn is_itself(typed: &Path, path: &Path, target: &Path, typed_target: &Path) -> bool {
    let Some(name) = typed.file_name() else { return false };
    let place = if target.is_dir() { typed_target.join(name) } else { typed_target.to_owned() };
    place.canonicalize().is_ok_and(|place| place == path)
}
