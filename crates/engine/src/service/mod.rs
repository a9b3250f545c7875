//! Service classes: what a job asks of a network that it shares with others.
//!
//! ```text
//!   path_policies   a reading of a path -> one policy after the other -> class, marked lanes, bounds, and what is said
//!     asked         a class that was asked for: all lanes have its mark
//!     operator      which class, rate and time an operator allows (`allowed`)
//!     aware         `auto`: whether priority is needed, what the mark does, when it can be given back
//!     dropped       packets with the mark do not arrive
//!     policed       only a part of them arrives
//!     hook          the network is asked first, by a program of the operator
//!   schedule        a job with a deadline    -> the class that it needs, for all paths
//!   background      ten readings for each one -> the rate and the lanes that leave a queue to others
//! ```

pub mod allowed;
mod asked;
pub mod aware;
pub mod background;
mod dropped;
mod hook;
mod operator;
pub mod path_policies;
mod policed;
pub mod policy;
pub mod reading;
pub mod said;
pub mod schedule;

/// A job's place beside others' traffic, most modest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum ServiceClass {
    /// Only what nobody else wants: "lower effort" (RFC 8622).
    Background,
    /// A fair share, as of any TCP connection.
    #[default]
    Normal,
    /// Before others, where that is allowed: "expedited forwarding" (RFC 3246).
    Priority,
}

impl ServiceClass {
    /// The class's DSCP (RFC 2474): LE, default, EF.
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
    /// Always [`ServiceClass::Background`].
    Background,
    /// Always [`ServiceClass::Normal`].
    #[default]
    Normal,
    /// Always [`ServiceClass::Priority`].
    Priority,
    /// Normal; priority while others take the path away.
    Auto,
}

impl AskedClass {
    /// The class of its first byte.
    #[must_use]
    pub const fn first(self) -> ServiceClass {
        match self {
            Self::Background => ServiceClass::Background,
            Self::Normal | Self::Auto => ServiceClass::Normal,
            Self::Priority => ServiceClass::Priority,
        }
    }
}
