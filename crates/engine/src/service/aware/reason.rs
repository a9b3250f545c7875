//! What changes, and why.

use core::fmt;

use crate::service::ServiceClass;

/// The class has changed, and why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Change {
    /// The new class.
    pub class: ServiceClass,
    /// Why.
    pub reason: Reason,
}

/// Why the class changes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// We lose a part of our rate to others.
    Taken {
        /// Our rate.
        rate_bytes_per_s: u64,
        /// Our rate before.
        before_bytes_per_s: u64,
    },
    /// Others fill the queue that we left empty.
    Filled,
    /// Behind a queue, the rate is below the floor.
    BelowFloor {
        /// Our rate.
        rate_bytes_per_s: u64,
        /// The asked rate.
        floor_bytes_per_s: u64,
    },
    /// Unmarked packets find no queue.
    OthersGone,
    /// Marked packets are no quicker.
    NoEffect,
    /// Marked packets do not arrive.
    Dropped,
    /// A policer drops marked packets: less arrives with the mark.
    Policed {
        /// Their rate that arrives.
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
