//! Copies from and to stores that cut, lie, forget and refuse.

// The shared scenarios name these by `crate`.
use haul_store::{
    Abilities, Draft, EntryKind, Filter, Found, FoundEntry, Kind, Listed, Metadata, PlaceTree, SourceNames, SourceTree,
    Stat, TargetTree, Time, WalkOptions, place,
};

#[path = "../../../store/tests/conformance/mod.rs"]
// A store passes only those that are named.
#[expect(unused_imports, unused_macros, dead_code)]
mod conformance;
mod ends;
mod leftovers;
#[path = "../../../store/tests/conformance/place.rs"]
mod place_conformance;
mod places;
mod roles;
mod server;
mod small;
mod source;
mod standing;
mod target;
