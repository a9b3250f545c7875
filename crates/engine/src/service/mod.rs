//! Service classes: what a job asks of a network that it shares with others.
//!
//! ```text
//!   allowed what an operator allows                -> the class, rate and time instead of those that are asked for
//!   aware   lanes and estimate of a path  -> whether priority is needed, what the mark does, when it can be given back
//! ```

pub mod allowed;
pub mod aware;

pub mod background;
pub mod dropped;
pub mod policed;
pub mod schedule;

/// How a job wants to be treated beside the traffic of others, from the most modest up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ServiceClass {
    /// Only what nobody else wants: "lower effort" (RFC 8622), and a rate that gives way at the first sign of others.
    Background,
    /// A fair share, as every TCP connection takes it.
    #[default]
    Normal,
    /// Before others, where the network and its operator allow that: "expedited forwarding" (RFC 3246).
    Priority,
}

impl ServiceClass {
    /// The mark of its packets (DSCP, RFC 2474): LE, default, EF.
    #[must_use]
    pub const fn code_point(self) -> u8 {
        match self {
            Self::Background => 1,
            Self::Normal => 0,
            Self::Priority => 46,
        }
    }

    /// As in flags, JSON and the log.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Background => "background",
            Self::Normal => "normal",
            Self::Priority => "priority",
        }
    }
}

/// The class that a job asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum AskedClass {
    /// [`ServiceClass::Background`] from the start to the end.
    Background,
    /// [`ServiceClass::Normal`] from the start to the end.
    #[default]
    Normal,
    /// [`ServiceClass::Priority`] from the start to the end.
    Priority,
    /// Normal, and priority only while others take the path away.
    Auto,
}

impl AskedClass {
    /// The class in which its first byte travels.
    #[must_use]
    pub const fn first(self) -> ServiceClass {
        match self {
            Self::Background => ServiceClass::Background,
            Self::Normal | Self::Auto => ServiceClass::Normal,
            Self::Priority => ServiceClass::Priority,
        }
    }
}
