//! What was asked of a connection, and what the kernel granted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One setting: what was asked, granted, and why.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// The setting.
    pub what: &'static str,
    /// The requested value.
    pub asked: String,
    /// The value in effect.
    pub granted: String,
    /// The reason.
    pub reason: String,
    /// The host does not grant it.
    pub refused: bool,
    /// The same, of a setting named by user or operator.
    pub falls_short: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, asked, granted, reason, .. } = self;
        write!(f, "{what}: {asked} asked for, {granted} granted: {reason}")
    }
}

/// The outcome of a policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The other end.
    pub peer: IpAddr,
    /// The network class that holds for it.
    pub class: Option<Arc<str>>,
    /// Each setting that was asked for.
    pub settings: Vec<Applied>,
}

impl Granted {
    /// The named settings that are not in effect.
    pub fn falls_short(&self) -> impl Iterator<Item = &Applied> {
        self.settings.iter().filter(|setting| setting.falls_short)
    }
}
