//! Foretells what a copy is going to move, before any walk.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use haul_job::{Endpoint, Here, Job, Place};

/// The bytes of named files of this host, as far as a look at each tells.
pub(crate) fn bytes(job: &Job) -> u64 {
    sizes(job).sum()
}

/// The bytes of the largest of them.
pub(crate) fn largest_bytes(job: &Job) -> u64 {
    sizes(job).max().unwrap_or(0)
}

fn sizes(job: &Job) -> impl Iterator<Item = u64> {
    let is_new = |source: &&Endpoint| source.place == Place::Here(Here::Disk) && !job.selection.dry_run;
    let sources = job.sources.iter().filter(is_new).take(MAX_LOOKS);
    let facts = sources.filter_map(|source| Path::new(OsStr::from_bytes(&source.path)).metadata().ok());
    facts.filter(|facts| facts.is_file()).map(|facts| facts.len())
}

/// The looks before a login take milliseconds.
const MAX_LOOKS: usize = 1000;
