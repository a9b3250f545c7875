//! The values that a connection may be asked for: one line for each option.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::options::{
    CongestionControl, DelayedAckMax, Dscp, Keepalive, NoDelay, Pacing, RtoMax, RtoMin, Setting, UnsentMax, UserTimeout,
};

/// Visits values of options of different types.
pub(super) trait Visit {
    /// A value, and at which place the policy stands that has it.
    fn value<S: Setting>(&mut self, value: &S, at: usize);
}

/// Each option of a policy: its name, and its type, which says how it is set and read back. A new option is one line
/// more.
macro_rules! policy_of {
    ($($(#[$doc:meta])* $option:ident: $kind:ty,)*) => {
        /// The values that are asked of a connection. An option that is `None` stays as the kernel has it.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Policy {
            $($(#[$doc])* pub $option: Option<$kind>,)*
        }

        /// For each option, visits the value of the first policy that has one.
        pub(super) fn visit_first<'a>(policies: impl Iterator<Item = &'a Policy> + Clone, visit: &mut impl Visit) {
            $(
                let value = |(at, policy): (usize, &'a Policy)| policy.$option.as_ref().map(|value| (at, value));
                if let Some((at, value)) = policies.clone().enumerate().find_map(value) {
                    visit.value(value, at);
                }
            )*
        }

        /// Each option as the kernel has it, where it tells.
        pub(super) fn in_effect(socket: BorrowedFd<'_>, peer: IpAddr) -> Vec<(&'static str, String)> {
            let mut values = Vec::new();
            $(values.extend(<$kind>::read(socket, peer).ok().map(|value| (<$kind>::NAME, value.to_string())));)*
            values
        }
    };
}

policy_of! {
    /// Writes are sent at once.
    no_delay: NoDelay,
    /// How the rate follows the path.
    congestion_control: CongestionControl,
    /// Bound of the rate, spread evenly over time.
    pacing: Pacing,
    /// Mark of the packets that are sent.
    dscp: Dscp,
    /// Floor of the retransmission timeout.
    rto_min: RtoMin,
    /// Ceiling of the retransmission timeout.
    rto_max: RtoMax,
    /// Longest delay of an acknowledgement.
    delayed_ack_max: DelayedAckMax,
    /// Without an acknowledgement for this long, the connection ends.
    user_timeout: UserTimeout,
    /// When an idle connection is probed.
    keepalive: Keepalive,
    /// Bytes that may wait in the send buffer unsent.
    unsent_max: UnsentMax,
}
