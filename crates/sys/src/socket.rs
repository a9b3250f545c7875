//! Socket options that std does not offer.

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use rustix::net::sockopt;

/// The congestion control in use.
pub fn congestion_control(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Whether the socket was told to listen (SO_ACCEPTCONN, socket(7)).
pub fn is_listening(socket: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::socket_acceptconn(socket)?)
}

/// Chooses the congestion control: `ENOENT` if missing, `EPERM` if not in `net.ipv4.tcp_allowed_congestion_control` and the
/// process may not administer the network.
pub fn set_congestion_control(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The time until unacknowledged bytes end the connection; 0: the system's.
pub fn user_timeout_ms(socket: impl AsFd) -> io::Result<u32> {
    Ok(sockopt::tcp_user_timeout(socket)?)
}

/// See [`user_timeout_ms`].
pub fn set_user_timeout_ms(socket: impl AsFd, timeout_ms: u32) -> io::Result<()> {
    Ok(sockopt::set_tcp_user_timeout(socket, timeout_ms)?)
}

/// The send buffer in effect: the request doubled and capped.
pub fn send_buffer_bytes(socket: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_send_buffer_size(socket)?)
}

/// Asks for a send buffer; read back what was granted.
pub fn set_send_buffer_bytes(socket: impl AsFd, size_bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(socket, size_bytes)?)
}

/// The receive buffer in effect.
pub fn receive_buffer_bytes(socket: impl AsFd) -> io::Result<usize> {
    Ok(sockopt::socket_recv_buffer_size(socket)?)
}

/// Asks for a receive buffer. On TCP this ends the kernel's own tuning.
pub fn set_receive_buffer_bytes(socket: impl AsFd, size_bytes: usize) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, size_bytes)?)
}

/// Bounds a connection's rate (SO_MAX_PACING_RATE, socket(7)), or lifts the bound. Without `fq` TCP paces by timers. MPTCP
/// refuses it.
pub fn set_max_pacing_rate(socket: impl AsFd, rate_bytes_per_s: Option<u64>) -> io::Result<()> {
    set_option(&socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &rate_bytes_per_s.unwrap_or(u64::MAX).to_ne_bytes())
}

/// The bound of [`set_max_pacing_rate`].
pub fn max_pacing_rate(socket: impl AsFd) -> io::Result<Option<u64>> {
    let mut rate = [0; 8];
    let rate = match option(&socket, libc::SOL_SOCKET, libc::SO_MAX_PACING_RATE, &mut rate)? {
        8 => u64::from_ne_bytes(rate),
        // An older kernel gives 32 bits; all ones: no bound.
        _ => match u32::from_ne_bytes([rate[0], rate[1], rate[2], rate[3]]) {
            u32::MAX => u64::MAX,
            rate => rate.into(),
        },
    };
    Ok((rate != u64::MAX).then_some(rate))
}

/// The DSCP of sent packets (RFC 2474), 0 to 63, by the peer's family.
pub fn dscp(socket: impl AsFd, family: Family) -> io::Result<u8> {
    let (level, name) = family.traffic_class();
    Ok((option_u32(&socket, level, name)? >> ECN_BITS) as u8)
}

/// See [`dscp`]. TCP keeps its ECN bits.
pub fn set_dscp(socket: impl AsFd, family: Family, dscp: u8) -> io::Result<()> {
    let (level, name) = family.traffic_class();
    set_option_u32(&socket, level, name, u32::from(dscp) << ECN_BITS)
}

/// Makes the kernel keep arriving TCP marks, for [`arriving_dscp`].
pub fn keep_arriving_dscp(socket: impl AsFd, family: Family) -> io::Result<()> {
    let (level, name) = match family {
        Family::V4 => (libc::IPPROTO_IP, libc::IP_RECVTOS),
        Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    };
    set_option_u32(&socket, level, name, 1)
}

/// The arriving mark on TCP: over IPv6 the last packet's; over IPv4 the handshake's, if accepted, else 0 (Linux,
/// `inet->rcv_tos`). `None`: not kept yet.
pub fn arriving_dscp(socket: impl AsFd, family: Family) -> io::Result<Option<u8>> {
    let (level, name, kind) = match family {
        Family::V4 => (libc::IPPROTO_IP, IP_PKTOPTIONS, libc::IP_TOS),
        Family::V6 => (libc::IPPROTO_IPV6, IPV6_2292PKTOPTIONS, libc::IPV6_TCLASS),
    };
    let mut messages = [0; 256];
    let length = option(&socket, level, name, &mut messages)?;
    Ok(traffic_class(&messages[..length.min(messages.len())], level, kind).map(|class| class >> ECN_BITS))
}

/// The traffic class among control messages (cmsg(3)).
fn traffic_class(mut messages: &[u8], level: libc::c_int, kind: libc::c_int) -> Option<u8> {
    const WORD: usize = size_of::<usize>();
    const HEADER: usize = WORD + 2 * size_of::<libc::c_int>();
    while messages.len() > HEADER {
        let length = usize::from_ne_bytes(messages[..WORD].try_into().ok()?);
        let int = |at: usize| messages.get(at..at + 4)?.try_into().ok().map(libc::c_int::from_ne_bytes);
        if (int(WORD)?, int(WORD + 4)?) == (level, kind) {
            // The kernel writes a byte or a whole number, by version.
            let first = *messages.get(HEADER)?;
            return if length >= HEADER + 4 { u8::try_from(int(HEADER)?).ok() } else { Some(first) };
        }
        let next = length.max(HEADER).next_multiple_of(WORD);
        messages = messages.get(next..)?;
    }
    None
}

/// From linux/in.h and linux/in6.h.
const IP_PKTOPTIONS: libc::c_int = 9;
const IPV6_2292PKTOPTIONS: libc::c_int = 6;

/// The field of the DSCP has two more bits.
const ECN_BITS: u32 = 2;

/// The carrying IP version: IPv6 sockets may send IPv4.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4.
    V4,
    /// IPv6.
    V6,
}

impl Family {
    fn traffic_class(self) -> (libc::c_int, libc::c_int) {
        match self {
            Family::V4 => (libc::IPPROTO_IP, libc::IP_TOS),
            Family::V6 => (libc::IPPROTO_IPV6, libc::IPV6_TCLASS),
        }
    }
}

/// The probes of an idle connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Keepalive {
    /// Silence before the first probe.
    pub idle: Duration,
    /// Time between probes.
    pub interval: Duration,
}

/// The probing of an idle connection, if any.
pub fn keepalive(socket: impl AsFd) -> io::Result<Option<Keepalive>> {
    if !sockopt::socket_keepalive(&socket)? {
        return Ok(None);
    }
    Ok(Some(Keepalive { idle: sockopt::tcp_keepidle(&socket)?, interval: sockopt::tcp_keepintvl(&socket)? }))
}

/// See [`keepalive`]. The kernel counts in whole seconds.
pub fn set_keepalive(socket: impl AsFd, keepalive: Option<Keepalive>) -> io::Result<()> {
    if let Some(Keepalive { idle, interval }) = keepalive {
        sockopt::set_tcp_keepidle(&socket, idle)?;
        sockopt::set_tcp_keepintvl(&socket, interval)?;
    }
    Ok(sockopt::set_socket_keepalive(&socket, keepalive.is_some())?)
}

/// Has idle connections probed (SO_KEEPALIVE, socket(7)).
pub fn probe_when_idle(socket: impl AsFd) -> io::Result<()> {
    Ok(sockopt::set_socket_keepalive(&socket, true)?)
}

/// Whether small writes are sent at once (TCP_NODELAY).
pub fn no_delay(socket: impl AsFd) -> io::Result<bool> {
    Ok(sockopt::tcp_nodelay(socket)?)
}

/// See [`no_delay`].
pub fn set_no_delay(socket: impl AsFd, on: bool) -> io::Result<()> {
    Ok(sockopt::set_tcp_nodelay(socket, on)?)
}

/// Has single messages sent at once, and again soon. Without acknowledgements a connection with fewer than four packets under way
/// waits six times for one timeout each before the pauses double (TCP_THIN_LINEAR_TIMEOUTS, tcp-thin of the kernel's documentation):
/// where a narrow way back is full of acknowledgements of data, half of the messages on it are lost.
pub fn send_messages_soon(socket: impl AsFd) -> io::Result<()> {
    set_thin_linear_timeouts(&socket, true);
    set_no_delay(&socket, true)
}

/// Whether single messages are sent again soon.
pub fn sends_messages_soon(socket: impl AsFd) -> io::Result<bool> {
    Ok(option_u32(&socket, libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS)? != 0)
}

/// Undoes [`send_messages_soon`], but for small writes, which are sent at once as before: data backs off as RFC 6298 says.
pub fn back_off_as_data(socket: impl AsFd) {
    set_thin_linear_timeouts(socket, false);
}

/// MPTCP may refuse it, and then waits as ever.
fn set_thin_linear_timeouts(socket: impl AsFd, on: bool) {
    let _ = set_option(&socket, libc::IPPROTO_TCP, libc::TCP_THIN_LINEAR_TIMEOUTS, &u32::from(on).to_ne_bytes());
}

/// Bytes that have arrived and wait to be read (FIONREAD, tcp(7)).
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(socket)?)
}

/// See [`set_unsent_bytes_max`].
pub fn unsent_bytes_max(socket: impl AsFd) -> io::Result<u32> {
    option_u32(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT)
}

/// Makes writes wait while more bytes are unsent (TCP_NOTSENT_LOWAT, tcp(7)).
pub fn set_unsent_bytes_max(socket: impl AsFd, unsent_bytes: u32) -> io::Result<()> {
    set_option(&socket, libc::IPPROTO_TCP, libc::TCP_NOTSENT_LOWAT, &unsent_bytes.to_ne_bytes())
}

/// Makes one send, up to 64 KiB, many datagrams of this payload (UDP_SEGMENT, udp(7)).
pub fn set_udp_segment_bytes(socket: impl AsFd, payload_bytes: u16) -> io::Result<()> {
    set_udp_option(&socket, libc::UDP_SEGMENT, payload_bytes.into())
}

/// Makes one receive return many datagrams alike (UDP_GRO, udp(7)).
pub fn set_udp_receive_whole(socket: impl AsFd) -> io::Result<()> {
    set_udp_option(&socket, libc::UDP_GRO, 1)
}

fn set_udp_option(socket: &impl AsFd, option: libc::c_int, value: libc::c_int) -> io::Result<()> {
    set_option(socket, libc::SOL_UDP, option, &value.to_ne_bytes())
}

pub(crate) fn set_option(socket: &impl AsFd, level: libc::c_int, option: libc::c_int, value: &[u8]) -> io::Result<()> {
    let length = libc::socklen_t::try_from(value.len()).expect("an option is small");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: the kernel reads `length` bytes, which live through the call; the descriptor is borrowed and so open.
    let result = unsafe { libc::setsockopt(fd, level, option, value.as_ptr().cast(), length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

pub(crate) fn set_option_u32(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: u32) -> io::Result<()> {
    set_option(socket, level, name, &value.to_ne_bytes())
}

pub(crate) fn option_u32(socket: &impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<u32> {
    let mut value = [0; 4];
    option(socket, level, name, &mut value)?;
    Ok(u32::from_ne_bytes(value))
}

pub(crate) fn option(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: &mut [u8]) -> io::Result<usize> {
    let mut length = libc::socklen_t::try_from(value.len()).expect("an option is small");
    let fd = std::os::fd::AsRawFd::as_raw_fd(&socket.as_fd());
    // SAFETY: the kernel writes at most `length` bytes, which live through the call, and their count into `length`;
    // the descriptor is borrowed and so open.
    let result = unsafe { libc::getsockopt(fd, level, name, value.as_mut_ptr().cast(), &raw mut length) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(length as usize) }
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn options_are_read_back_as_set() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        set_user_timeout_ms(&socket, 12_345).unwrap();
        assert_eq!(user_timeout_ms(&socket).unwrap(), 12_345);
        set_congestion_control(&socket, "reno").unwrap();
        assert_eq!(congestion_control(&socket).unwrap(), "reno");
        assert!(set_congestion_control(&socket, "no-such").is_err());
        set_unsent_bytes_max(&socket, 65_536).unwrap();
        set_max_pacing_rate(&socket, Some(12_500_000)).unwrap();
        let paced = crate::tcp_info::tcp_info(&socket).unwrap().pacing_rate_bytes_per_s;
        set_max_pacing_rate(&socket, None).unwrap();
        assert!(paced.is_none_or(|rate| rate <= 12_500_000), "{paced:?}");
        assert_eq!(max_pacing_rate(&socket).unwrap(), None);
        set_max_pacing_rate(&socket, Some(12_500_000_000)).unwrap();
        assert_eq!(max_pacing_rate(&socket).unwrap(), Some(12_500_000_000));
        assert_eq!(unsent_bytes_max(&socket).unwrap(), 65_536);
        let probes = Keepalive { idle: Duration::from_secs(15), interval: Duration::from_secs(5) };
        for keepalive_of in [Some(probes), None] {
            set_keepalive(&socket, keepalive_of).unwrap();
            assert_eq!(keepalive(&socket).unwrap(), keepalive_of);
        }
        set_no_delay(&socket, true).unwrap();
        assert!(no_delay(&socket).unwrap());
        send_messages_soon(&socket).unwrap();
        assert!(sends_messages_soon(&socket).unwrap());
        back_off_as_data(&socket);
        assert!(!sends_messages_soon(&socket).unwrap());
    }

    #[test]
    fn the_mark_that_arrives_is_that_of_the_last_packet_over_ipv6() {
        use std::io::{Read as _, Write as _};
        let Ok(listener) = TcpListener::bind("[::1]:0") else {
            crate::condition::unmet(format_args!("this host has no IPv6"));
            return;
        };
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        keep_arriving_dscp(&far, Family::V6).unwrap();
        for mark in [46, 1, 0] {
            set_dscp(&near, Family::V6, mark).unwrap();
            near.write_all(b"x").unwrap();
            far.read_exact(&mut [0]).unwrap();
            assert_eq!(arriving_dscp(&far, Family::V6).unwrap(), Some(mark));
        }
    }

    #[test]
    fn a_mark_is_read_back_in_both_families() {
        for (address, family) in [("127.0.0.1:0", Family::V4), ("[::1]:0", Family::V6)] {
            let Ok(listener) = TcpListener::bind(address) else {
                crate::condition::unmet(format_args!("this host has no {address}"));
                continue;
            };
            let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
            assert_eq!(dscp(&socket, family).unwrap(), 0);
            set_dscp(&socket, family, 1).unwrap();
            assert_eq!(dscp(&socket, family).unwrap(), 1);
            assert!(set_dscp(&socket, family, 64).is_err() || family == Family::V4, "IPv4 takes the lower bits");
        }
    }
}
