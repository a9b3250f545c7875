//! Scenarios of whole jobs inside one process, with faults at chosen moments.

pub(crate) mod attributes;
pub(crate) mod bad_disk;
pub(crate) mod bad_medium;
pub(crate) mod bad_source;
pub(crate) mod changing;
pub(crate) mod clear_lanes;
pub(crate) mod cut_short;
pub(crate) mod holes;
pub(crate) mod hostile;
pub(crate) mod kernel_scenarios;
pub(crate) mod kill_sweep;
pub(crate) mod large_files;
pub(crate) mod left_behind;
pub(crate) mod links;
pub(crate) mod manifests;
pub(crate) mod many;
pub(crate) mod other_ends;
pub(crate) mod past_cache;
pub(crate) mod record;
pub(crate) mod scenarios;
pub(crate) mod second_names;
#[cfg(test)]
mod several_jobs;
pub(crate) mod several_sources;
pub(crate) mod shared_flush;
pub(crate) mod slow_disk;
