//! How a TCP connection is tuned to its path: ask, read back, report.

use std::io;
use std::net::TcpStream;

use haul_sys::{socket, tcp_info};
use socket2::{SockRef, TcpKeepalive};

use crate::{host, limits};

/// One setting: what was asked, what the kernel granted, and why it was asked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Applied {
    /// Name of the setting.
    pub what: &'static str,
    /// What was asked for.
    pub asked: String,
    /// What is in effect.
    pub granted: String,
    /// Why.
    pub reason: String,
}

/// How far the peer is, which decides the policy.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum NetworkClass {
    /// In the same building: loss is rare, timers are dear.
    Near,
    /// Over a long path: the host's choice of congestion control stands.
    Far,
}

impl NetworkClass {
    /// The class of a path with this round-trip time.
    pub fn of_rtt(rtt_us: u32) -> NetworkClass {
        if rtt_us < limits::NEAR_RTT_US { NetworkClass::Near } else { NetworkClass::Far }
    }
}

/// Tunes a connection, made or accepted. `congestion_control` is the user's choice, by the kernel's name.
///
/// Nothing here fails the connection: what was not granted is told.
pub fn apply(stream: &TcpStream, congestion_control: Option<&str>) -> Vec<Applied> {
    let rtt_us =
        tcp_info::tcp_info(stream).ok().map(|info| info.rtt_min_us.unwrap_or(info.rtt_us)).filter(|rtt_us| *rtt_us > 0);
    vec![
        apply_no_delay(stream),
        apply_congestion_control(stream, congestion_control, rtt_us),
        apply_user_timeout(stream),
        apply_keepalive(stream),
    ]
}

fn apply_no_delay(stream: &TcpStream) -> Applied {
    let granted = stream.set_nodelay(true).and_then(|()| stream.nodelay()).map(on_off);
    applied("TCP_NODELAY", "on", granted, "writes are whole messages already")
}

fn apply_congestion_control(stream: &TcpStream, user: Option<&str>, rtt_us: Option<u32>) -> Applied {
    let what = "congestion control";
    let host = match socket::congestion_control(stream) {
        Ok(host) => host,
        Err(error) => return applied(what, "", Err(error), "the kernel does not tell it"),
    };
    if let Some(user) = user {
        let granted = choose(stream, user);
        let reason = match &granted {
            Ok(_) => "asked for by the user".to_owned(),
            Err(error) => format!(
                "asked for by the user, but {}; the host allows {} \
                 (net.ipv4.tcp_allowed_congestion_control)",
                why_refused(error),
                host::limits().allowed_congestion_controls.join(", ")
            ),
        };
        return applied(what, user, granted.or(Ok(host)), reason);
    }
    let near = rtt_us.map(NetworkClass::of_rtt) == Some(NetworkClass::Near);
    if host != PACED_BY_TIMERS || !near {
        let reason = match rtt_us {
            Some(rtt_us) => format!("the host's default, round trip {rtt_us} us"),
            None => "the host's default, round trip unknown".to_owned(),
        };
        return applied(what, &host, Ok(host.clone()), reason);
    }
    // Measured over loopback: bbr without the fq queue paces by timers and costs 3 to 8 times the CPU.
    let reason = format!(
        "near, round trip {} us: {PACED_BY_TIMERS} paces by timers, which costs CPU",
        rtt_us.unwrap_or_default()
    );
    let granted = NEAR_CHOICES.iter().find_map(|name| choose(stream, name).ok());
    applied(what, &NEAR_CHOICES.join(" or "), Ok(granted.unwrap_or(host)), reason)
}

fn apply_user_timeout(stream: &TcpStream) -> Applied {
    let granted = socket::set_user_timeout_ms(stream, limits::USER_TIMEOUT_MS)
        .and_then(|()| socket::user_timeout_ms(stream))
        .map(|timeout_ms| format!("{timeout_ms} ms"));
    applied(
        "TCP_USER_TIMEOUT",
        &format!("{} ms", limits::USER_TIMEOUT_MS),
        granted,
        "a dead path is noticed while work can go to other lanes",
    )
}

fn apply_keepalive(stream: &TcpStream) -> Applied {
    let keepalive = TcpKeepalive::new().with_time(limits::KEEPALIVE_IDLE).with_interval(limits::KEEPALIVE_INTERVAL);
    let socket = SockRef::from(stream);
    let granted = socket.set_tcp_keepalive(&keepalive).and_then(|()| socket.keepalive()).map(on_off);
    applied("keepalive", "on", granted, "a peer that vanished while idle is noticed")
}

/// bbr sends by a timer for each packet train unless the fq queue does it.
const PACED_BY_TIMERS: &str = "bbr";
/// Best first. reno is always allowed; cubic is unless the operator says otherwise.
const NEAR_CHOICES: [&str; 2] = ["cubic", "reno"];

fn choose(stream: &TcpStream, name: &str) -> io::Result<String> {
    socket::set_congestion_control(stream, name)?;
    socket::congestion_control(stream)
}

fn why_refused(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "the kernel has none of that name".to_owned(),
        io::ErrorKind::PermissionDenied => "this process may not choose it".to_owned(),
        _ => error.to_string(),
    }
}

fn on_off(on: bool) -> String {
    if on { "on" } else { "off" }.to_owned()
}

fn applied(what: &'static str, asked: &str, granted: io::Result<String>, reason: impl Into<String>) -> Applied {
    Applied {
        what,
        asked: asked.to_owned(),
        granted: granted.unwrap_or_else(|error| format!("unchanged: {error}")),
        reason: reason.into(),
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn congestion_control_of(applied: &[Applied]) -> &Applied {
        applied.iter().find(|applied| applied.what == "congestion control").unwrap()
    }

    #[test]
    fn a_near_path_avoids_pacing_by_timers() {
        let (near, far) = connected();
        for stream in [&near, &far] {
            let applied = apply(stream, None);
            let granted = &congestion_control_of(&applied).granted;
            assert_ne!(granted, PACED_BY_TIMERS, "{applied:#?}");
            assert_eq!(granted, &socket::congestion_control(stream).unwrap());
            assert!(applied.iter().any(|applied| applied.granted == "30000 ms"), "{applied:#?}");
        }
    }

    #[test]
    fn the_users_name_wins() {
        let (near, _far) = connected();
        let applied = apply(&near, Some("reno"));
        assert_eq!(congestion_control_of(&applied).granted, "reno");
    }

    #[test]
    fn a_refused_name_is_told_with_the_setting_that_lifts_it() {
        let (near, _far) = connected();
        let host = socket::congestion_control(&near).unwrap();
        let applied = apply(&near, Some("no-such"));
        let applied = congestion_control_of(&applied);
        assert_eq!((applied.asked.as_str(), &applied.granted), ("no-such", &host));
        assert!(applied.reason.contains("tcp_allowed_congestion_control"), "{applied:?}");
    }

    #[test]
    fn two_milliseconds_divide_near_from_far() {
        assert_eq!(NetworkClass::of_rtt(1_999), NetworkClass::Near);
        assert_eq!(NetworkClass::of_rtt(2_000), NetworkClass::Far);
    }
}
