//! Bytes at rest: where trees are read and written.
//!
//! An end is a tree to read ([`SourceTree`]) or to write ([`TargetTree`]). On a disk of this host a source is resolved
//! ([`SourceSet::resolve`]), walked ([`SourceSet::walk`]), and its files are opened ([`SourceSet::open`]). A target is an
//! open root directory ([`LocalTree`]); a file is written as a [`Part`] under a temporary name until [`Part::commit`].
//!
//! Both distrust every path and name: the kernel resolves paths beneath an open directory without links, and names are
//! escaped.

#![forbid(unsafe_code)]

mod as_copied;
mod asked_for;
mod at;
mod attributes;
mod cold;
#[cfg(test)]
#[path = "../tests/conformance/mod.rs"]
mod conformance;
#[cfg(test)]
#[path = "../tests/conformance/ends.rs"]
mod conformance_of_ends;
#[cfg(test)]
#[path = "../tests/conformance/journals.rs"]
mod conformance_of_journals;
mod delete;
mod disk_rate;
mod duplicates;
mod ends;
mod error;
mod files_from;
mod filter;
mod found;
mod glob;
mod hard_links;
mod held;
mod inventory;
mod journal_file;
mod kernel_files;
mod layers;
mod limits;
mod listing;
mod local_file;
mod local_tree;
pub mod memory;
mod meta;
mod name;
mod occupied;
mod own_file;
mod parents;
mod part;
mod path_list;
mod pattern;
pub mod place;
mod placed;
mod published;
pub mod recording;
mod regular_file;
mod removal;
mod resolve;
pub mod scratch;
mod source;
mod source_names;
mod special;
mod spelling;
mod striped;
mod sweep;
mod trial;
mod trusted_path;
mod typed;
mod walk;
mod walk_options;

pub use as_copied::AsCopied;
pub use asked_for::AskedFor;
pub use cold::ColdMap;
pub use disk_rate::{DiskRate, disk_rate, disk_rate_within};
pub use duplicates::Duplicates;
pub use ends::abilities::Abilities;
pub use ends::connections::{ConnectionReading, Connections, ConnectionsNow};
pub use ends::journal::Journal;
pub use ends::nowhere::Nowhere;
pub use ends::place_tree::{EachLeft, EachListed, EachRemoved, Listed, PlaceTree};
pub use ends::reading::{Access, FileToRead, ItemSource, SourceFile, SourceTree};
pub use ends::sums::{ServerSum, SumCounter, SumCounts, SumDiffers, SumKind};
pub use ends::third_party::{Carried, FileToBring, ThirdParty};
pub use ends::writing::{Draft, DraftPlan, FileToWrite, TargetTree};
pub use ends::zeros::zeros;
pub use error::{LoginRefused, Result, StoreError, drives_terminal, printable};
pub use files_from::{Extent, FileList, FileListBuilder, ListFault};
pub use filter::{
    Asks, CVS_PATTERNS, DirectoryRules, Filter, FilterRule, MergeFile, MergeFormat, PatternRule, ReadRule, RuleTraits,
    Sides, read_rule,
};
pub use found::{CALLED_LIKE_A_PART, EntryKind, Found, FoundEntry, Hidden};
pub use glob::NamePattern;
pub use journal_file::JournalFile;
pub use limits::{DIRECT_FROM_BYTES, MAX_LISTED_PATH_BYTES};
pub use local_file::LocalFile;
pub use local_tree::{LeftToOwners, LocalTree, NO_DIRECTORY, TargetOptions, is_null_device, no_directory};
pub use meta::{Applied, FileId, Kind, MayStay, Metadata, Stat, Time, Version};
pub use name::{check_new_path, check_path, journal_name, journal_of_part, name_hash, parse_haul_name, part_name};
pub use part::Part;
pub use path_list::{PathList, PathListReader};
pub use pattern::has_wildcard;
pub use published::{FoundName, NameKind, OpenDirectory, Opened, Patience, Published, TakeName};
pub use resolve::{ResolveOptions, SourceLimits};
pub use source::SourceSet;
pub use source_names::SourceNames;
pub use special::Special;
pub use spelling::{Fold, Spellings};
pub use striped::{Striped, stripe_bytes};
pub use trial::{Trial, WriteRoute};
pub use typed::{TypedFile, open_root};
pub use walk::Walk;
pub use walk_options::{SurelyWanted, WalkOptions};
