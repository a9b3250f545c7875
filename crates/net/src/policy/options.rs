//! The options of a policy: how each is set, read back and written.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::time::Duration;

use haul_sys::retransmission;
use haul_sys::socket::{self, Family};

use crate::host;

/// An option of a socket. `Display` writes a value for people.
pub(super) trait Setting: fmt::Display + Sized + PartialEq {
    const NAME: &'static str;
    const WHY: &'static str;

    fn set(&self, socket: BorrowedFd<'_>, peer: IpAddr) -> io::Result<()>;

    fn read(socket: BorrowedFd<'_>, peer: IpAddr) -> io::Result<Self>;

    fn is_granted(&self, granted: &Self) -> bool {
        self == granted
    }

    fn refusal(error: &io::Error) -> String {
        format!("; the kernel refuses it: {error}")
    }
}

/// TCP_NODELAY: small writes are sent at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDelay(pub bool);

impl Setting for NoDelay {
    const NAME: &'static str = "TCP_NODELAY";
    const WHY: &'static str = "writes are whole messages already";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        socket::set_no_delay(socket, self.0)
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        socket::no_delay(socket).map(NoDelay)
    }
}

impl fmt::Display for NoDelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

/// Congestion controls by the kernel's names, best first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CongestionControl {
    names: Vec<String>,
}

impl CongestionControl {
    /// Asks for this congestion control and no other.
    pub fn named(name: &str) -> CongestionControl {
        CongestionControl { names: vec![name.to_owned()] }
    }

    /// Takes the first of these that is granted.
    pub fn first_of(names: &[&str]) -> CongestionControl {
        CongestionControl { names: names.iter().map(|name| (*name).to_owned()).collect() }
    }
}

impl Setting for CongestionControl {
    const NAME: &'static str = "congestion control";
    const WHY: &'static str = "the host's default";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        let now = socket::congestion_control(socket)?;
        let mut outcome = Err(io::Error::from(io::ErrorKind::NotFound));
        for name in &self.names {
            outcome = if *name == now { Ok(()) } else { socket::set_congestion_control(socket, name) };
            if outcome.is_ok() {
                break;
            }
        }
        outcome
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        socket::congestion_control(socket).map(|name| CongestionControl { names: vec![name] })
    }

    fn is_granted(&self, granted: &Self) -> bool {
        granted.names.iter().all(|name| self.names.contains(name))
    }

    fn refusal(error: &io::Error) -> String {
        let why = match error.kind() {
            io::ErrorKind::NotFound => "the kernel has none of that name".to_owned(),
            io::ErrorKind::PermissionDenied => "this process may not choose it".to_owned(),
            _ => error.to_string(),
        };
        let allowed = host::limits().allowed_congestion_controls.join(", ");
        format!(", but {why}; the host allows {allowed} (net.ipv4.tcp_allowed_congestion_control)")
    }
}

impl fmt::Display for CongestionControl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.names.join(" or "))
    }
}

/// The option SO_MAX_PACING_RATE bounds the rate, spread over time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pacing {
    /// The most.
    pub bytes_per_s: u64,
}

impl Setting for Pacing {
    const NAME: &'static str = "pacing";
    const WHY: &'static str = "far path: a window is spread over the round trip, so that bursts do not queue up";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        socket::set_max_pacing_rate(socket, Some(self.bytes_per_s))
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        socket::max_pacing_rate(socket).map(|rate| Pacing { bytes_per_s: rate.unwrap_or(u64::MAX) })
    }
}

impl fmt::Display for Pacing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.bytes_per_s {
            u64::MAX => f.write_str("off"),
            rate => write!(f, "at most {rate} bytes/s"),
        }
    }
}

/// The DSCP (RFC 2474) of sent packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dscp(u8);

impl Dscp {
    /// 0 to 63.
    pub fn new(code_point: u8) -> Option<Dscp> {
        (code_point < 64).then_some(Dscp(code_point))
    }

    /// 0 to 63.
    pub fn code_point(self) -> u8 {
        self.0
    }
}

impl Setting for Dscp {
    const NAME: &'static str = "DSCP";
    const WHY: &'static str = "the class of the job";

    fn set(&self, socket: BorrowedFd<'_>, peer: IpAddr) -> io::Result<()> {
        socket::set_dscp(socket, family_of(peer), self.0)
    }

    fn read(socket: BorrowedFd<'_>, peer: IpAddr) -> io::Result<Self> {
        socket::dscp(socket, family_of(peer)).map(Dscp)
    }
}

impl fmt::Display for Dscp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

pub(crate) fn family_of(peer: IpAddr) -> Family {
    if peer.to_canonical().is_ipv4() { Family::V4 } else { Family::V6 }
}

/// The floor of the retransmission timeout. Linux grants up to 200 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoMin(pub Duration);

impl Setting for RtoMin {
    const NAME: &'static str = "TCP_RTO_MIN_US";
    const WHY: &'static str = "a lost packet is sent again after so long at the earliest";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        retransmission::set_rto_min(socket, self.0)
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        retransmission::rto_min(socket).map(RtoMin)
    }

    fn is_granted(&self, granted: &Self) -> bool {
        is_rounded_up(self.0, granted.0)
    }
}

impl fmt::Display for RtoMin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, self.0)
    }
}

/// The ceiling of the retransmission timeout. Linux grants 1 to 120 s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RtoMax(pub Duration);

impl Setting for RtoMax {
    const NAME: &'static str = "TCP_RTO_MAX_MS";
    const WHY: &'static str = "a lost packet is sent again after so long at the latest";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        retransmission::set_rto_max(socket, self.0)
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        retransmission::rto_max(socket).map(RtoMax)
    }

    fn is_granted(&self, granted: &Self) -> bool {
        is_rounded_up(self.0, granted.0)
    }
}

impl fmt::Display for RtoMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, self.0)
    }
}

/// The longest delay of an acknowledgement. Linux grants up to 200 ms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DelayedAckMax(pub Duration);

impl Setting for DelayedAckMax {
    const NAME: &'static str = "TCP_DELACK_MAX_US";
    const WHY: &'static str = "the peer's timeout may be short";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        retransmission::set_delayed_ack_max(socket, self.0)
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        retransmission::delayed_ack_max(socket).map(DelayedAckMax)
    }

    fn is_granted(&self, granted: &Self) -> bool {
        is_rounded_up(self.0, granted.0)
    }
}

impl fmt::Display for DelayedAckMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, self.0)
    }
}

/// TCP_USER_TIMEOUT: bytes unacknowledged so long end the connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UserTimeout(pub Duration);

impl Setting for UserTimeout {
    const NAME: &'static str = "TCP_USER_TIMEOUT";
    const WHY: &'static str = "a dead path is noticed while work can go to other lanes";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        socket::set_user_timeout_ms(socket, u32::try_from(self.0.as_millis()).unwrap_or(u32::MAX))
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        socket::user_timeout_ms(socket).map(|ms| UserTimeout(Duration::from_millis(ms.into())))
    }
}

impl fmt::Display for UserTimeout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write_ms(f, self.0)
    }
}

/// The option SO_KEEPALIVE probes an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
}

impl Setting for Keepalive {
    const NAME: &'static str = "keepalive";
    const WHY: &'static str = "a peer that vanished while idle is noticed";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        let Keepalive { idle, interval } = *self;
        socket::set_keepalive(socket, Some(socket::Keepalive { idle, interval }))
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        let off = socket::Keepalive { idle: Duration::ZERO, interval: Duration::ZERO };
        let socket::Keepalive { idle, interval } = socket::keepalive(socket)?.unwrap_or(off);
        Ok(Keepalive { idle, interval })
    }
}

impl fmt::Display for Keepalive {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.idle.is_zero() {
            true => f.write_str("off"),
            false => write!(f, "after {} s, then each {} s", self.idle.as_secs_f64(), self.interval.as_secs_f64()),
        }
    }
}

/// TCP_NOTSENT_LOWAT: bytes that may wait unsent in the send buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnsentMax {
    /// The most.
    pub bytes: u32,
}

impl Setting for UnsentMax {
    const NAME: &'static str = "TCP_NOTSENT_LOWAT";
    const WHY: &'static str = "far path: chunks go to the lane that sends next, not into a buffer";

    fn set(&self, socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<()> {
        socket::set_unsent_bytes_max(socket, self.bytes)
    }

    fn read(socket: BorrowedFd<'_>, _: IpAddr) -> io::Result<Self> {
        socket::unsent_bytes_max(socket).map(|bytes| UnsentMax { bytes })
    }
}

impl fmt::Display for UnsentMax {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.bytes)
    }
}

/// The kernel rounds up to jiffies of up to 10 ms.
fn is_rounded_up(asked: Duration, granted: Duration) -> bool {
    (asked..asked.saturating_add(LONGEST_JIFFY)).contains(&granted)
}

const LONGEST_JIFFY: Duration = Duration::from_millis(10);

fn write_ms(f: &mut fmt::Formatter<'_>, time: Duration) -> fmt::Result {
    write!(f, "{} ms", time.as_micros() as f64 / 1e3)
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener, TcpStream};

    use super::super::{Policy, apply};
    use super::*;

    #[test]
    fn a_delay_of_acknowledgements_is_granted_or_told() {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let asked = DelayedAckMax(Duration::from_millis(40));
        let policy = Policy { delayed_ack_max: Some(asked), ..Policy::default() };
        let told = apply(&socket, &policy, Ipv4Addr::LOCALHOST.into()).settings;
        let [setting] = &told[..] else { panic!("{told:#?}") };
        let is_granted = retransmission::delayed_ack_max(&socket).is_ok_and(|now| is_rounded_up(asked.0, now));
        assert_eq!((setting.asked.as_str(), setting.falls_short), ("40 ms", !is_granted), "{setting}");
    }
}
