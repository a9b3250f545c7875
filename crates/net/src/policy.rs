//! How a TCP connection is tuned to its path: ask, read back, report.

use std::fmt;
use std::io;
use std::net::TcpStream;
use std::os::fd::AsFd;

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
    /// The user asked for it by name, and the host does not grant it.
    pub falls_short: bool,
}

impl fmt::Display for Applied {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { what, asked, granted, reason, .. } = self;
        write!(f, "{what}: {asked} asked for, {granted} granted: {reason}")
    }
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
    /// The class of a path with this round-trip time, where shorter ones than `near_rtt_us` are near.
    pub fn of_rtt(rtt_us: u32, near_rtt_us: u32) -> NetworkClass {
        if rtt_us < near_rtt_us { NetworkClass::Near } else { NetworkClass::Far }
    }
}

/// What the user insists on; `None` leaves it to the path.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Wanted {
    /// Congestion control by the kernel's name.
    pub congestion_control: Option<String>,
    /// Bytes that one connection may have under way.
    pub window_bytes: Option<u64>,
}

/// To be done with a socket before it connects or listens, when nobody knows yet how far the peer will be.
///
/// A connection that begins with bbr is paced by timers for ever, whatever congestion control it goes on with (Linux: `bbr_init` sets
/// `sk_pacing_status`, which is never taken back). Over loopback that was 12 to 18 % of the processor time of a whole verified copy. So it
/// begins without, and [`apply`] gives it what the host chose when it turns out to be a far one.
pub(crate) fn prepare(socket: impl AsFd) {
    if socket::congestion_control(&socket).is_ok_and(|host| host == PACED_BY_TIMERS) {
        // What is refused leaves the connection as the host has it.
        let _ = NEAR_CHOICES.iter().find(|name| socket::set_congestion_control(&socket, name).is_ok());
    }
}

/// Tunes a connection, made or accepted. Paths with a shorter round trip than `near_rtt_us` are near.
///
/// Nothing here fails the connection: what was not granted is told.
pub fn apply(stream: &TcpStream, wanted: &Wanted, near_rtt_us: u32) -> Vec<Applied> {
    let (rtt_us, class) = distance(stream, near_rtt_us);
    let mut applied = vec![
        apply_no_delay(stream),
        apply_congestion_control(stream, wanted.congestion_control.as_deref(), rtt_us, class),
        apply_user_timeout(stream),
        apply_keepalive(stream),
    ];
    applied.extend(apply_buffers(stream, wanted.window_bytes, class, &host::limits()));
    if class == Some(NetworkClass::Far) {
        applied.push(apply_unsent(stream));
        applied.push(apply_pacing(stream));
    }
    applied
}

/// Of [`apply`] the congestion control alone: for a connection that carries words, not data.
pub fn apply_to_words(stream: &TcpStream, near_rtt_us: u32) {
    let (rtt_us, class) = distance(stream, near_rtt_us);
    apply_congestion_control(stream, None, rtt_us, class);
}

/// Round-trip time, and the class that follows from it, as far as the kernel knows.
fn distance(stream: &TcpStream, near_rtt_us: u32) -> (Option<u32>, Option<NetworkClass>) {
    let info = tcp_info::tcp_info(stream).ok();
    let rtt_us = info.map(|info| info.rtt_min_us.unwrap_or(info.rtt_us)).filter(|rtt_us| *rtt_us > 0);
    (rtt_us, rtt_us.map(|rtt_us| NetworkClass::of_rtt(rtt_us, near_rtt_us)))
}

/// The kernel's own tuning lets a send buffer grow to `tcp_wmem`; a buffer that is asked for may have twice `wmem_max`
/// (socket(7)), and does not grow. So asking is better only where the operator raised `wmem_max` and not `tcp_wmem`: through
/// 10 Gbit/s x 50 ms one connection then carried 906 instead of 470 Mbit/s. Receive buffers stay with the kernel, which grows them to
/// `tcp_rmem` as the data comes; asking would also fix the window before the path is known.
fn apply_buffers(
    stream: &TcpStream,
    window_bytes: Option<u64>,
    class: Option<NetworkClass>,
    limits: &host::Limits,
) -> Vec<Applied> {
    if let Some(window_bytes) = window_bytes {
        let send = Buffer {
            what: "send buffer",
            settings: ["net.core.wmem_max", "net.ipv4.tcp_wmem"],
            asked_max: limits.wmem_max_bytes,
            grown_max: limits.tcp_wmem_max_bytes,
            set: |stream, bytes| {
                socket::set_send_buffer_bytes(stream, bytes).and_then(|()| socket::send_buffer_bytes(stream))
            },
        };
        let receive = Buffer {
            what: "receive buffer",
            settings: ["net.core.rmem_max", "net.ipv4.tcp_rmem"],
            asked_max: limits.rmem_max_bytes,
            grown_max: limits.tcp_rmem_max_bytes,
            set: |stream, bytes| {
                socket::set_receive_buffer_bytes(stream, bytes).and_then(|()| socket::receive_buffer_bytes(stream))
            },
        };
        return vec![send.ask(stream, window_bytes), receive.ask(stream, window_bytes)];
    }
    let (Some(asked_max), Some(grown_max)) = (limits.wmem_max_bytes, limits.tcp_wmem_max_bytes) else {
        return Vec::new();
    };
    if class != Some(NetworkClass::Far) || asked_max.saturating_mul(2) <= grown_max {
        return Vec::new();
    }
    let granted = socket::set_send_buffer_bytes(stream, usize::try_from(asked_max).unwrap_or(usize::MAX))
        .and_then(|()| socket::send_buffer_bytes(stream))
        .map(|bytes| format!("{bytes} bytes"));
    let reason = format!("the kernel would let it grow to {grown_max} bytes (tcp_wmem) only");
    vec![applied("send buffer", &format!("{asked_max} bytes"), granted, reason)]
}

/// One of the two buffers of a connection, and what bounds it.
struct Buffer {
    what: &'static str,
    /// What bounds a request, and the kernel's own tuning.
    settings: [&'static str; 2],
    asked_max: Option<u64>,
    grown_max: Option<u64>,
    set: fn(&TcpStream, usize) -> io::Result<usize>,
}

impl Buffer {
    /// A request for more than the host grants would be cut to that and end the kernel's own tuning (socket(7), tcp(7)): where that goes
    /// further, `--window 64M` would narrow the window. So then it is left to the kernel. Of a buffer the kernel takes half for its own
    /// book-keeping, and grants twice what is asked for.
    fn ask(&self, stream: &TcpStream, window_bytes: u64) -> Applied {
        let asked = format!("{window_bytes} bytes");
        let [request_setting, growth_setting] = self.settings;
        let most = self.asked_max.map(|most| most.min(window_bytes).saturating_mul(2));
        if let (Some(most), Some(grown)) = (most, self.grown_max)
            && most < grown.min(window_bytes.saturating_mul(2))
        {
            let granted = Ok(format!("at most {grown} bytes"));
            let reason = format!(
                "left to the kernel, which goes further by itself ({growth_setting}) than on request ({request_setting})"
            );
            return Applied {
                falls_short: grown < window_bytes.saturating_mul(2),
                ..applied(self.what, &asked, granted, reason)
            };
        }
        let granted = (self.set)(stream, usize::try_from(window_bytes).unwrap_or(usize::MAX));
        let falls_short = granted.as_ref().map_or(true, |bytes| (*bytes as u64) < window_bytes.saturating_mul(2));
        let reason = match falls_short {
            true => format!("asked for by the user; {request_setting} of this host allows no more"),
            false => "asked for by the user".to_owned(),
        };
        Applied {
            falls_short,
            ..applied(self.what, &asked, granted.map(|bytes| format!("{} bytes", bytes / 2)), reason)
        }
    }
}

fn apply_unsent(stream: &TcpStream) -> Applied {
    let asked = format!("{} bytes", limits::UNSENT_BYTES_MAX);
    let granted = socket::set_unsent_bytes_max(stream, limits::UNSENT_BYTES_MAX).map(|()| asked.clone());
    applied("TCP_NOTSENT_LOWAT", &asked, granted, "far path: chunks go to the lane that sends next, not into a buffer")
}

fn apply_no_delay(stream: &TcpStream) -> Applied {
    let granted = stream.set_nodelay(true).and_then(|()| stream.nodelay()).map(on_off);
    applied("TCP_NODELAY", "on", granted, "writes are whole messages already")
}

fn apply_congestion_control(
    stream: &TcpStream,
    user: Option<&str>,
    rtt_us: Option<u32>,
    class: Option<NetworkClass>,
) -> Applied {
    let what = "congestion control";
    let now = match socket::congestion_control(stream) {
        Ok(now) => now,
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
        let falls_short = granted.is_err();
        return Applied { falls_short, ..applied(what, user, granted.or(Ok(now)), reason) };
    }
    let is_near = class == Some(NetworkClass::Near);
    let host = hosts_choice(&now);
    if host != PACED_BY_TIMERS || !is_near {
        let reason = match rtt_us {
            Some(rtt_us) => format!("the host's default, round trip {rtt_us} us"),
            None => "the host's default, round trip unknown".to_owned(),
        };
        let granted = if host == now { Ok(now) } else { choose(stream, &host).or(Ok(now)) };
        return applied(what, &host, granted, reason);
    }
    // Measured over loopback: bbr without the fq queue paces by timers and costs 3 to 8 times the CPU.
    let reason = format!(
        "near, round trip {} us: {PACED_BY_TIMERS} paces by timers, which costs CPU",
        rtt_us.unwrap_or_default()
    );
    let granted = NEAR_CHOICES.iter().find_map(|name| choose(stream, name).ok());
    applied(what, &NEAR_CHOICES.join(" or "), Ok(granted.unwrap_or(now)), reason)
}

/// What the host would have a connection use that has `now`: something else where [`prepare`] was there before.
fn hosts_choice(now: &str) -> String {
    match host::limits().congestion_control {
        Some(default) if default == PACED_BY_TIMERS && NEAR_CHOICES.contains(&now) => default,
        _ => now.to_owned(),
    }
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

/// Slow start without pacing sends each window as one burst. On 1 Gbit/s x 228 ms the bursts of 32 lanes stood 40 ms in the queue when the
/// path was a third full; cubic took that for congestion (HyStart, RFC 9406) and grew slowly from there. A bound that binds
/// nobody makes the kernel spread each window over the round trip.
fn apply_pacing(stream: &TcpStream) -> Applied {
    let granted = socket::set_max_pacing_rate(stream, Some(PACED_BYTES_PER_S)).map(|()| "on".to_owned());
    applied("pacing", "on", granted, "far path: a window is spread over the round trip, so that bursts do not queue up")
}

/// More than any lane sends: 100 Gbit/s.
const PACED_BYTES_PER_S: u64 = 12_500_000_000;

/// bbr sends by a timer for each packet train unless the fq queue does it.
pub(crate) const PACED_BY_TIMERS: &str = "bbr";
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
        falls_short: false,
    }
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    /// Loopback is well below.
    const NEAR_RTT_US: u32 = 5_000;

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (near, listener.accept().unwrap().0)
    }

    fn cc(name: &str) -> Wanted {
        Wanted { congestion_control: Some(name.to_owned()), window_bytes: None }
    }

    fn congestion_control_of(applied: &[Applied]) -> &Applied {
        applied.iter().find(|applied| applied.what == "congestion control").unwrap()
    }

    #[test]
    fn a_near_path_avoids_pacing_by_timers() {
        let (near, far) = connected();
        for stream in [&near, &far] {
            let applied = apply(stream, &Wanted::default(), NEAR_RTT_US);
            let granted = &congestion_control_of(&applied).granted;
            assert_ne!(granted, PACED_BY_TIMERS, "{applied:#?}");
            assert_eq!(granted, &socket::congestion_control(stream).unwrap());
            assert!(applied.iter().any(|applied| applied.granted == "30000 ms"), "{applied:#?}");
        }
    }

    #[test]
    fn the_users_name_wins() {
        let (near, _far) = connected();
        let applied = apply(&near, &cc("reno"), NEAR_RTT_US);
        assert_eq!(congestion_control_of(&applied).granted, "reno");
    }

    #[test]
    fn a_refused_name_is_told_with_the_setting_that_lifts_it() {
        let (near, _far) = connected();
        let host = socket::congestion_control(&near).unwrap();
        let applied = apply(&near, &cc("no-such"), NEAR_RTT_US);
        let applied = congestion_control_of(&applied);
        assert_eq!((applied.asked.as_str(), &applied.granted), ("no-such", &host));
        assert!(applied.falls_short && applied.reason.contains("tcp_allowed_congestion_control"), "{applied:?}");
    }

    #[test]
    fn a_window_that_was_asked_for_is_granted_or_told() {
        let (near, _far) = connected();
        let wanted = Wanted { window_bytes: Some(100_000), ..Wanted::default() };
        let applied = apply(&near, &wanted, NEAR_RTT_US);
        let buffers: Vec<&str> =
            applied.iter().filter(|applied| applied.asked == "100000 bytes").map(|applied| &*applied.granted).collect();
        assert_eq!(buffers, ["100000 bytes"; 2], "{applied:#?}");
        assert_eq!(socket::send_buffer_bytes(&near).unwrap(), 200_000);
        assert!(applied.iter().all(|applied| !applied.falls_short), "{applied:#?}");
    }

    #[test]
    fn a_window_beyond_what_the_host_grants_never_narrows_it_and_is_told() {
        let (stream, _far) = connected();
        let before = (socket::send_buffer_bytes(&stream).unwrap(), socket::receive_buffer_bytes(&stream).unwrap());
        let stock = host::Limits {
            rmem_max_bytes: Some(212_992),
            wmem_max_bytes: Some(212_992),
            tcp_rmem_max_bytes: Some(6 << 20),
            tcp_wmem_max_bytes: Some(4 << 20),
            ..host::Limits::default()
        };
        let told = apply_buffers(&stream, Some(64 << 20), None, &stock);
        assert!(told.iter().all(|applied| applied.falls_short), "{told:#?}");
        assert_eq!((&*told[0].granted, &*told[1].granted), ("at most 4194304 bytes", "at most 6291456 bytes"));
        let after = (socket::send_buffer_bytes(&stream).unwrap(), socket::receive_buffer_bytes(&stream).unwrap());
        assert_eq!(before, after, "the kernel goes on tuning them");
        // Where a request goes further than the kernel by itself, it is made, and what is missing is told.
        let raised = host::Limits { wmem_max_bytes: Some(4 << 20), rmem_max_bytes: Some(4 << 20), ..stock };
        let told = apply_buffers(&stream, Some(u64::from(u32::MAX)), None, &raised);
        assert!(
            told.iter().all(|applied| applied.falls_short && applied.reason.contains("allows no more")),
            "{told:#?}"
        );
    }

    #[test]
    fn a_send_buffer_is_asked_for_only_where_that_is_more_than_the_kernel_grows_it_to() {
        let (stream, _far) = connected();
        let limits = |wmem_max, tcp_wmem_max| host::Limits {
            wmem_max_bytes: Some(wmem_max),
            tcp_wmem_max_bytes: Some(tcp_wmem_max),
            ..host::Limits::default()
        };
        let far = Some(NetworkClass::Far);
        assert_eq!(apply_buffers(&stream, None, far, &limits(212_992, 4 << 20)), []);
        assert_eq!(apply_buffers(&stream, None, Some(NetworkClass::Near), &limits(4 << 20, 4 << 20)), []);
        assert_eq!(apply_buffers(&stream, None, far, &limits(4 << 20, 4 << 20))[0].what, "send buffer");
    }

    #[test]
    fn near_ends_where_it_is_told_to() {
        assert_eq!(NetworkClass::of_rtt(NEAR_RTT_US - 1, NEAR_RTT_US), NetworkClass::Near);
        assert_eq!(NetworkClass::of_rtt(NEAR_RTT_US, NEAR_RTT_US), NetworkClass::Far);
    }
}
