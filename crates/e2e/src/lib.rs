//! A stage for the built `haul` program: hosts made of network namespaces with a real sshd each, trees to copy, and
//! exact comparisons.
//!
//! A test asks for what it needs ([`needs!`]), makes a [`Lab`], and plants a tree ([`plant`]). It runs `haul` in a host
//! ([`Lab::haul`]), then looks at exit code, report and disk ([`Outcome`], [`compare`]). A dropped `Lab` removes
//! everything that the test made, also after a panic.
//!
//! This crate knows nothing of haul's inside: haul is run like any other program.
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
