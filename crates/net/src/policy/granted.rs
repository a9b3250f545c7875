//! What was asked of a connection, and what the kernel granted.

use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// One setting: the requested value, the value that the kernel granted, and the reason.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Name of the setting.
    pub what: &'static str,
    /// The requested value.
    pub asked: String,
    /// The value in effect.
    pub granted: String,
    /// Why.
    pub reason: String,
    /// The host does not grant it.
    pub refused: bool,
    /// The user or the operator asked for it by name, and the host does not grant it.
    pub falls_short: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, asked, granted, reason, .. } = self;
        write!(f, "{what}: {asked} asked for, {granted} granted: {reason}")
    }
}

/// The outcome of a policy. This is the event that a connection was tuned.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Granted {
    /// The other end.
    pub peer: IpAddr,
    /// The name of the network class that holds for it.
    pub class: Option<Arc<str>>,
    /// Each setting that was asked for.
    pub settings: Vec<Applied>,
}

impl Granted {
    /// The settings that were asked for by name and are not in effect.
    pub fn falls_short(&self) -> impl Iterator<Item = &Applied> {
        self.settings.iter().filter(|setting| setting.falls_short)
    }
}
