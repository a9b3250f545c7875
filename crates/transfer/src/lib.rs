//! Carries a job out: `run(Job, observer) -> Result<Report, Error>`.

#![forbid(unsafe_code)]


pub mod error;
pub mod event;
pub mod job;

pub use error::{Error, Fault};
pub use event::{Change, Event, Limit, ManifestLine, Observer, Progress, Report, TimeShares};
pub use job::{
    Carriage, Cipher, Endpoint, Family, FilterRule, Job, Place, Selection, SshOptions,
};

/// Carries a job out.
pub fn run(_job: &Job, _observer: std::sync::Arc<dyn Observer>) -> Result<Report, Error> {
    Err(Error::new(Fault::Protocol, "not built yet"))
}

/// The far side of a session over standard input and output: what `haul agent` runs. Returns the process exit code.
pub fn agent(_options: &AgentOptions) -> u8 {
    1
}

/// What `haul agent` was told on its command line.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentOptions {
    /// `--port-range FIRST-LAST`
    pub port_range: Option<(u16, u16)>,
    /// `--relay PORT`: carry one lane between standard input/output and this local port instead of a control session.
    pub relay_port: Option<u16>,
}
