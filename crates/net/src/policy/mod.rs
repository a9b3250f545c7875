//! Tunes a TCP connection to its peer: choose, ask, read back, report.
//!
//! ```text
//! what the user asked for ---------+
//! network class (`networks.rs`) ---+-> layers -> apply -> Granted: asked against granted, for each option
//! what haul chooses by distance ---+              (`options.rs` knows each option)
//! ```
//! [`Policies`] does this for every connection (`connection.rs`).

mod apply;
mod buffers;
pub mod class;
mod connection;
mod distance;
mod floors;
mod granted;
mod layers;
mod members;
mod networks;
pub mod observed;
mod options;
mod prefix;
mod values;

pub use apply::apply;
pub(crate) use apply::mark_of;
pub use class::{CipherFloor, ClassValue, NetworkClass, Terms};
pub(crate) use connection::prepare;
pub use connection::{Policies, Tried, Wanted};
pub use distance::Distance;
pub use granted::{Applied, Granted};
pub use layers::{Layer, Source};
pub(crate) use members::source_of;
pub use members::{Membership, OverLimit};
pub use networks::{BadClass, ClassList, Fits, Found, FoundClass, NEAR_RTT_US, Networks, OwnNetworks, Peer};
pub(crate) use options::family_of;
pub use options::*;
pub use prefix::{BadPrefix, BadRow, Prefix, PrefixTable};
pub use values::Policy;

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, TcpListener, TcpStream};
    use std::os::fd::AsFd as _;
    use std::sync::Arc;
    use std::time::Duration;

    use super::apply::apply_layers;
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
