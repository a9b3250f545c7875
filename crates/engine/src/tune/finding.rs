//! What was found about one setting, and who can change it.

use alloc::string::String;
use alloc::vec::Vec;

use super::host::Setting;

/// The finding about one setting.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// `net.ipv4.tcp_rmem`, `eth0 mtu`
    pub setting: String,
    /// The present value; `None`: unknown.
    pub now: Option<String>,
    /// `None`: as it is, or nothing helps.
    pub advised: Option<String>,
    /// Why, with the arithmetic.
    pub why: String,
    /// Whether it matters for what is wanted.
    pub matters: Matters,
    /// The way to change it.
    pub remedy: Remedy,
    /// Commands for what is no sysctl.
    pub commands: Vec<String>,
}

/// Whether a finding matters for what is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Matters {
    /// The wanted rate is not reached.
    Yes,
    /// Costs some rate, processor time, or start.
    WouldHelp,
    /// As it should be.
    Fine,
    /// Unknown.
    NotTold,
}

/// The person or program that can change a finding.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Remedy {
    /// A setting of the kernel.
    Sysctl {
        /// Whether this network namespace can change it.
        here: bool,
    },
    /// By its commands, or with hardware.
    ByHand,
    /// No change is needed.
    None,
}

impl Finding {
    pub(super) fn fine(setting: &str, now: impl Into<String>, why: impl Into<String>) -> Self {
        Self::new(setting, Some(now.into()), None, Matters::Fine, why.into(), Remedy::None)
    }

    pub(super) fn not_told(setting: &str, why: impl Into<String>) -> Self {
        Self::new(setting, None, None, Matters::NotTold, why.into(), Remedy::None)
    }

    pub(super) fn sysctl(name: &str, now: &Setting, advised: String, matters: Matters, mut why: String) -> Self {
        if !now.writable {
            why.push_str(" It cannot be changed from this network namespace: set it on the host.");
        }
        let remedy = Remedy::Sysctl { here: now.writable };
        Self::new(name, Some(now.value.clone()), Some(advised), matters, why, remedy)
    }

    pub(super) fn by_hand(
        setting: &str,
        now: impl Into<String>,
        advised: Option<String>,
        matters: Matters,
        why: impl Into<String>,
    ) -> Self {
        Self::new(setting, Some(now.into()), advised, matters, why.into(), Remedy::ByHand)
    }

    fn new(
        setting: &str,
        now: Option<String>,
        advised: Option<String>,
        matters: Matters,
        why: String,
        remedy: Remedy,
    ) -> Self {
        Self { setting: setting.into(), now, advised, why, matters, remedy, commands: Vec::new() }
    }

    pub(super) fn command(mut self, command: String) -> Self {
        self.commands.push(command);
        self
    }
}
