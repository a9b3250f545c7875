//! The words that every front end shares with the program's inside.
//!
//! ```text
//!   job     one copy job, free of flags      event   what happens while it runs, and the report
//!   error   why a whole job ended early    item    what is told of one entry
//!   rate    rates and sizes as people type them     filter_rules   rules as they are matched, and as they travel
//!   timetable   a limit of the rate that changes with the time of day      written   ends as people would type them
//! ```

#![forbid(unsafe_code)]

pub mod error;
pub mod event;
pub mod filter_rules;
pub mod item;
pub mod job;
pub mod rate;
pub mod timetable;
pub mod written;

pub use error::{Error, Fault};
pub use event::{
    Change, ClassChange, Earlier, Event, ManifestLine, Observer, PathNow, Progress, Proof, Report, Subject,
    WITH_ITS_DIRECTORY,
};
pub use haul_engine::attribute::{Cause, Limit, Shares, limit_of_path};
pub use haul_engine::outage::{Gathering as OutageGathering, Outage, Outages};
pub use haul_engine::remedy::{Buffer, End, Host, LanePath, Remedy};
pub use haul_net::DeviceName;
pub use haul_store::{SumCounter, SumCounts, SumKind};
pub use haul_wire::control::Address;
pub use haul_wire::limits::{MAX_MOVERS, MAX_PATHS};
pub use haul_wire::summary::{
    Arrival, HostLimits, MarkEffect, OnePath, PathService, PathState, PathSummary, PathTime, Subflow,
};
pub use item::{Changed, EntryType, ItemTold, LeftOut};
pub use job::{
    AccountRule, Accounts, AskedClass, AskedPath, AskedPaths, Backup, Carriage, Cipher, Drafts, Endpoint, Entries,
    Family, Far, FilterRule, FtpServer, Here, Job, ModeChange, OfReference, Place, References, Selection, Service,
    ServiceClass, SshOptions, Transport, WebLogin, WebServer, Wish, Wishes,
};
