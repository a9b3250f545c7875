//! The values that a connection may be asked for: one line for each option.

use std::net::IpAddr;
use std::os::fd::BorrowedFd;

use super::options::{
    CongestionControl, DelayedAckMax, Dscp, Keepalive, NoDelay, Pacing, RtoMax, RtoMin, Setting, UnsentMax, UserTimeout,
};

pub(super) trait Visit {
    fn value<S: Setting>(&mut self, value: &S, at: usize);
}

/// Each option of a policy: name, and type, which sets and reads it.
macro_rules! policy_of {
    ($($(#[$doc:meta])* $option:ident: $kind:ty,)*) => {
        /// The values asked of a connection; `None` leaves them to the kernel.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Policy {
            $($(#[$doc])* pub $option: Option<$kind>,)*
        }

        pub(super) fn visit_first<'a>(policies: impl Iterator<Item = &'a Policy> + Clone, visit: &mut impl Visit) {
            $(
                let value = |(at, policy): (usize, &'a Policy)| policy.$option.as_ref().map(|value| (at, value));
                if let Some((at, value)) = policies.clone().enumerate().find_map(value) {
                    visit.value(value, at);
                }
            )*
        }

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
    /// The bound of the rate, spread over time.
    pacing: Pacing,
    /// The mark of sent packets.
    dscp: Dscp,
    /// Floor of the retransmission timeout.
    rto_min: RtoMin,
    /// Ceiling of the retransmission timeout.
    rto_max: RtoMax,
    /// Longest delay of an acknowledgement.
    delayed_ack_max: DelayedAckMax,
    /// The time without an acknowledgement until the end.
    user_timeout: UserTimeout,
    /// When an idle connection is probed.
    keepalive: Keepalive,
    /// Bytes that may wait unsent in the send buffer.
    unsent_max: UnsentMax,
}
