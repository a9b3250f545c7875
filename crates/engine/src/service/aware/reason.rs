//! What changes, and why.

use core::fmt;

use crate::service::ServiceClass;

/// The class has changed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// From now on.
    pub class: ServiceClass,
    /// Why.
    pub reason: Reason,
}

/// Why the class changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Others take a part of what the path carried for us.
    Taken {
        /// Our rate.
        rate_bytes_per_s: u64,
        /// Our rate before.
        before_bytes_per_s: u64,
    },
    /// Others fill the queue that we left empty.
    Filled,
    /// The rate is below the floor, and a queue stands.
    BelowFloor {
        /// Our rate.
        rate_bytes_per_s: u64,
        /// The rate that is asked for.
        floor_bytes_per_s: u64,
    },
    /// Unmarked packets find no queue: the others have gone.
    OthersGone,
    /// Marked packets are no quicker than others.
    NoEffect,
    /// Marked packets do not arrive.
    Dropped,
    /// Marked packets beyond a rate are dropped, and less arrives than without the mark.
    Policed {
        /// The rate that arrives of them.
        rate_bytes_per_s: u64,
    },
    /// The class is not allowed any more.
    NotAllowed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mbit = |bytes_per_s: &u64| *bytes_per_s as f64 * 8.0 / 1e6;
        match self {
            Self::Taken { rate_bytes_per_s, before_bytes_per_s } => write!(
                f,
                "others take the path: {:.1} Mbit/s of the {:.1} that it carried before",
                mbit(rate_bytes_per_s),
                mbit(before_bytes_per_s)
            ),
            Self::Filled => f.write_str("others fill the queue that we left empty"),
            Self::BelowFloor { rate_bytes_per_s, floor_bytes_per_s } => write!(
                f,
                "{:.1} Mbit/s is below the floor of {:.1} Mbit/s",
                mbit(rate_bytes_per_s),
                mbit(floor_bytes_per_s)
            ),
            Self::OthersGone => f.write_str("unmarked packets find no queue any more: the others have gone"),
            Self::NoEffect => f.write_str("marked packets are no quicker than others on this path"),
            Self::Dropped => f.write_str("marked packets do not arrive on this path: the mark harms"),
            Self::Policed { rate_bytes_per_s } => {
                let rate = mbit(rate_bytes_per_s);
                write!(f, "the path lets {rate:.1} Mbit/s of marked packets through and drops the rest: the mark harms")
            }
            Self::NotAllowed => f.write_str("priority is not allowed any longer"),
        }
    }
}
