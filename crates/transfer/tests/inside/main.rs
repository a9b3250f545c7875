//! Tests whole jobs inside one process, with faults at chosen moments.

#[path = "../shared/asked_for.rs"]
mod asked_for;
mod attributes;
mod bad_disk;
mod bad_medium;
mod bad_source;
mod changing;
mod clear_lanes;
mod cut_short;
mod hand_over;
mod holes;
mod hostile;
mod kernel_scenarios;
mod kill_sweep;
mod large_files;
mod left_behind;
mod links;
mod manifests;
mod many;
mod other_ends;
mod past_cache;
mod record;
mod scenarios;
mod second_names;
mod several_jobs;
mod several_sources;
mod shared_flush;
mod slow_disk;
mod standing;
mod third_party;
