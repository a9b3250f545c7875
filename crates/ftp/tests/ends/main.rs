//! Trees at a server of FTP that runs in this process: honest, and not.

// The scenarios of `conformance` name these by `crate`.
use haul_store::{
    Abilities, Draft, EntryKind, Filter, Found, FoundEntry, Kind, Metadata, SourceNames, SourceTree, Stat, TargetTree,
    Time, WalkOptions,
};

mod between;
#[path = "../../../store/tests/conformance/mod.rs"]
#[allow(dead_code, unused_imports, unused_macros, reason = "only some scenarios of a target apply")]
mod conformance;
mod conforms;
mod faults;
mod grid;
mod grid_goes_on;
mod grid_server;
mod grid_stripes;
mod ranges;
mod server;
