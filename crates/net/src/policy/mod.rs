//! How a TCP connection is tuned to its peer: choose, ask, read back, report.
//!
//! ```text
//! what the user asked for ---------+
//! network class (`networks.rs`) ---+-> layers -> apply -> Granted: asked against granted, for each option
//! what haul chooses by distance ---+              (`options.rs` knows each option)
//! ```
//! [`Policies`] does this for every connection that is made or accepted (`connection.rs`).

mod buffers;
pub mod class;
mod connection;
mod distance;
mod floors;
mod members;
mod networks;
pub mod observed;
mod options;
mod prefix;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::Arc;

pub use class::{CipherFloor, ClassValue, NetworkClass, Terms};
pub(crate) use connection::prepare;
pub use connection::{Policies, Tried, Wanted};
pub use distance::Distance;
pub(crate) use members::source_of;
pub use members::{Membership, OverLimit};
pub use networks::{BadClass, ClassList, Fits, Found, FoundClass, NEAR_RTT_US, Networks, OwnNetworks, Peer};
use options::Setting as _;
pub(crate) use options::family_of;
pub use options::*;
pub use prefix::{BadPrefix, BadRow, Prefix, PrefixTable};

use crate::mptcp;

/// Each option of a policy: its name, and its type, which says how it is set and read back. A new option is one line
/// more.
macro_rules! policy_of {
    ($($(#[$doc:meta])* $option:ident: $kind:ty,)*) => {
        /// The values that are asked of a connection. An option that is `None` stays as the kernel has it.
        #[derive(Clone, Debug, Default, PartialEq, Eq)]
        pub struct Policy {
            $($(#[$doc])* pub $option: Option<$kind>,)*
        }

        /// For each option, asks for the value of the first layer that has one.
        fn ask_for_each(socket: BorrowedFd<'_>, layers: &[Layer<'_>], peer: IpAddr) -> Vec<Applied> {
            let (mut applied, mut missing) = (Vec::new(), Vec::new());
            $(
                let value = |layer: &Layer<'_>| layer.policy.$option.clone().map(|value| (value, layer.source.clone()));
                match layers.iter().find_map(value).map(|(value, source)| ask(socket, &value, source, peer)) {
                    Some(Ok(setting)) => applied.push(setting),
                    Some(Err(not_over_mptcp)) => missing.push(not_over_mptcp),
                    None => {}
                }
            )*
            applied.extend(told_at_once(&missing));
            applied
        }

        /// Each option as the kernel has it, where it tells.
        fn in_effect(socket: BorrowedFd<'_>, peer: IpAddr) -> Vec<(&'static str, String)> {
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

/// A policy, and who asks for it.
#[derive(Clone, Debug)]
pub struct Layer<'a> {
    /// The values.
    pub policy: &'a Policy,
    /// The person or program that asks for them.
    pub source: Source,
}

impl Source {
    /// Somebody has written it down.
    fn is_by_name(&self) -> bool {
        match self {
            Source::User => true,
            Source::Class(class) => class.file.is_some(),
            Source::Haul(_) => false,
        }
    }
}

/// The person or program that asks for a value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Source {
    /// The user, by name.
    User,
    /// The operator or the user, in this network class; or the class is built in.
    Class(Arc<NetworkClass>),
    /// The program asks, for this reason. `None`: for the usual reason of the option.
    Haul(Option<String>),
}

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

/// Asks the kernel for a policy, and reads back what it granted. Nothing here fails the connection.
pub fn apply(socket: impl AsFd, policy: &Policy, peer: IpAddr) -> Granted {
    apply_layers(socket.as_fd(), &[Layer { policy, source: Source::User }], peer)
}

/// The mark of what a connection sends.
pub(crate) fn mark_of(socket: impl AsFd, peer: IpAddr) -> Option<Dscp> {
    Dscp::read(socket.as_fd(), peer).ok()
}

/// [`apply`] for several policies: for each option, the first layer that has a value wins.
fn apply_layers(socket: BorrowedFd<'_>, layers: &[Layer<'_>], peer: IpAddr) -> Granted {
    let peer = peer.to_canonical();
    let class = layers.iter().find_map(|layer| match &layer.source {
        Source::Class(class) => Some(class.name.as_str().into()),
        Source::User | Source::Haul(_) => None,
    });
    Granted { peer, class, settings: ask_for_each(socket, layers, peer) }
}

fn ask<S: Setting>(socket: BorrowedFd<'_>, value: &S, source: Source, peer: IpAddr) -> Result<Applied, NotOverMptcp> {
    let refused = value.set(socket, peer).err();
    let is_by_name = source.is_by_name();
    if refused.as_ref().is_some_and(is_no_such_option) && mptcp::is_socket(socket) {
        return Err(NotOverMptcp { asked: format!("{} {value}", S::NAME), is_by_name });
    }
    let granted = S::read(socket, peer);
    let is_granted = refused.is_none() && granted.as_ref().is_ok_and(|granted| value.is_granted(granted));
    let mut reason = match source {
        Source::User => "asked for by the user".to_owned(),
        Source::Class(class) => format!("network class {}", class.name),
        Source::Haul(why) => why.unwrap_or_else(|| S::WHY.to_owned()),
    };
    if let Some(error) = refused {
        reason += &S::refusal(&error);
    }
    Ok(Applied {
        what: S::NAME,
        asked: value.to_string(),
        granted: granted.map_or_else(|error| format!("unknown: {error}"), |granted| granted.to_string()),
        reason,
        refused: !is_granted,
        falls_short: is_by_name && !is_granted,
    })
}

/// An option that TCP has and MPTCP has not.
struct NotOverMptcp {
    /// The option's name and the requested value.
    asked: String,
    is_by_name: bool,
}

/// One setting that stands for all of them.
fn told_at_once(missing: &[NotOverMptcp]) -> Option<Applied> {
    let asked: Vec<&str> = missing.iter().map(|missing| missing.asked.as_str()).collect();
    (!asked.is_empty()).then(|| Applied {
        what: "options of TCP",
        asked: asked.join(", "),
        granted: "none of them".to_owned(),
        reason: "a connection over MPTCP does not have them".to_owned(),
        refused: true,
        falls_short: missing.iter().any(|missing| missing.is_by_name),
    })
}

/// The answers of an MPTCP socket: EOPNOTSUPP and ENOPROTOOPT, by their numbers on most architectures of Linux.
fn is_no_such_option(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(92 | 95))
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::time::Duration;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn peer_of(socket: &TcpStream) -> IpAddr {
        socket.peer_addr().unwrap().ip()
    }

    #[test]
    fn what_is_not_asked_for_stays() {
        let (near, _far) = connected();
        let granted = apply(&near, &Policy::default(), peer_of(&near));
        assert_eq!(granted, Granted { peer: peer_of(&near), class: None, settings: Vec::new() });
    }

    #[test]
    fn each_option_is_asked_for_and_read_back() {
        let (near, _far) = connected();
        let policy = Policy {
            no_delay: Some(NoDelay(true)),
            congestion_control: Some(CongestionControl::named("reno")),
            pacing: Some(Pacing { bytes_per_s: 1_250_000 }),
            dscp: Some(Dscp::new(46).unwrap()),
            user_timeout: Some(UserTimeout(Duration::from_millis(12_345))),
            keepalive: Some(Keepalive { idle: Duration::from_secs(60), interval: Duration::from_secs(10) }),
            unsent_max: Some(UnsentMax { bytes: 65_536 }),
            ..Policy::default()
        };
        let granted = apply(&near, &policy, peer_of(&near));
        let told: Vec<(&str, &str, &str)> = granted
            .settings
            .iter()
            .map(|Applied { what, asked, granted, .. }| (*what, asked.as_str(), granted.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("TCP_NODELAY", "on", "on"),
                ("congestion control", "reno", "reno"),
                ("pacing", "at most 1250000 bytes/s", "at most 1250000 bytes/s"),
                ("DSCP", "46", "46"),
                ("TCP_USER_TIMEOUT", "12345 ms", "12345 ms"),
                ("keepalive", "after 60 s, then each 10 s", "after 60 s, then each 10 s"),
                ("TCP_NOTSENT_LOWAT", "65536 bytes", "65536 bytes"),
            ]
        );
        assert_eq!(granted.falls_short().count(), 0, "{granted:#?}");
    }

    #[test]
    fn timeouts_are_granted_where_the_kernel_has_them_and_told_elsewhere() {
        let (near, _far) = connected();
        let ms = Duration::from_millis;
        let policy = Policy { rto_min: Some(RtoMin(ms(40))), rto_max: Some(RtoMax(ms(5_000))), ..Policy::default() };
        let granted = apply(&near, &policy, peer_of(&near));
        for setting in &granted.settings {
            assert!(setting.granted.ends_with(" ms") || setting.falls_short, "{setting}");
        }
        // No kernel grants a floor of ten minutes.
        let policy = Policy { rto_min: Some(RtoMin(ms(600_000))), ..Policy::default() };
        let granted = apply(&near, &policy, peer_of(&near));
        let [setting] = &granted.settings[..] else { panic!("{granted:#?}") };
        assert!(setting.falls_short && setting.asked == "600000 ms" && setting.granted != setting.asked, "{setting}");
        assert!(setting.reason.contains("the kernel refuses"), "{setting}");
    }

    #[test]
    fn the_first_layer_that_has_a_value_wins_option_by_option() {
        let (near, _far) = connected();
        let of_user = Policy { dscp: Dscp::new(1), ..Policy::default() };
        let of_row = Policy {
            dscp: Dscp::new(46),
            user_timeout: Some(UserTimeout(Duration::from_secs(7))),
            ..Policy::default()
        };
        let class = Arc::new(NetworkClass { name: "inside".into(), policy: of_row, ..NetworkClass::default() });
        let layers = [
            Layer { policy: &of_user, source: Source::User },
            Layer { policy: &class.policy, source: Source::Class(Arc::clone(&class)) },
        ];
        let granted = apply_layers(near.as_fd(), &layers, peer_of(&near));
        let told: Vec<(&str, &str)> =
            granted.settings.iter().map(|setting| (setting.granted.as_str(), setting.reason.as_str())).collect();
        assert_eq!(told, [("1", "asked for by the user"), ("7000 ms", "network class inside")]);
        assert_eq!(granted.class.as_deref(), Some("inside"));
    }
}
