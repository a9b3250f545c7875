//! Service classes: what a job asks of a network that it shares with others.

pub mod background;

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
