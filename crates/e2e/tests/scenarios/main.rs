//! Scenarios: the built `haul` between hosts made of network namespaces. One file per theme.
//!
//! Each test stands alone: it makes its hosts, copies, looks at exit code, report and disk, and leaves nothing behind.
#![forbid(unsafe_code)]

mod bad_paths;
mod bars;
mod batch;
mod bootstrap;
mod changed;
mod classes;
mod completion;
mod daemon;
mod detached;
mod dirlinks;
mod errors;
mod faithful;
mod faults;
mod filters;
mod foreign_places;
mod forms;
mod goes_on;
mod growing;
mod host_to_host;
mod hosts;
mod json_schema;
mod kept_logins;
mod lanes;
mod limits;
mod lists;
mod memory;
mod mounts;
mod odd_disks;
mod outages;
mod outlook;
mod own_places;
mod owners;
mod pages;
mod paths;
mod places;
mod power;
mod probe;
mod record;
mod resume;
mod roaming;
mod rsync;
mod sftp;
mod shared;
mod stage;
mod start;
mod store;
mod streams;
mod terminal;
mod tour;
mod tune;
mod web_source;
mod why;
mod widths;
