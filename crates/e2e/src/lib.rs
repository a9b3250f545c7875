//! A stage for the built `haul`: hosts as network namespaces with real sshds, trees to copy, exact comparisons.
//!
//! A test names its needs ([`needs!`]), makes a [`Lab`], plants a tree ([`plant`]), runs `haul` in a host ([`Lab::haul`]),
//! and looks at exit code, report and disk ([`Outcome`], [`compare`]). Dropping the `Lab` removes everything, also after a
//! panic.
//!
//! This crate knows nothing of haul's inside.
#![forbid(unsafe_code)]

pub mod binary;
pub mod boxed;
mod boxed_stage;
pub mod compare;
pub mod deadline;
pub mod disk;
pub mod firewall;
pub mod lab;
pub mod memory;
pub mod needs;
pub mod odd_disk;
pub mod outcome;
mod own_root;
pub mod page;
pub mod plant;
pub mod power;
pub mod proxy;
pub mod run;
pub mod slow;
pub mod stranger;
pub mod typist;
pub mod user_manager;
pub mod ways;

pub use boxed::Boxed;
pub use compare::{Facets, assert_same, differences};
pub use deadline::{eventually, settle};
pub use disk::{SmallDisk, scratch};
pub use lab::{Host, Lab, at, contents_of};
pub use odd_disk::{OddDisk, Oddities};
pub use outcome::{Outcome, code};
pub use power::MortalDisk;
pub use proxy::{Fate, Harm, Proxy};
pub use run::{Run, Running};
pub use slow::{SlowCpu, SlowDisk};
pub use user_manager::UserManager;
pub use ways::{Joined, Ways};
