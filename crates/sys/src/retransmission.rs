//! The time-outs of a connection's retransmission. Older kernels refuse with `ENOPROTOOPT`; all round up to jiffies (1 to 10
//! ms).

use std::io;
use std::os::fd::AsFd;
use std::time::Duration;

use crate::socket::{option_u32, set_option_u32};

/// Largest retransmission timeout (Linux 6.15).
pub fn rto_max(socket: impl AsFd) -> io::Result<Duration> {
    option_u32(&socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS).map(|ms| Duration::from_millis(ms.into()))
}

/// See [`rto_max`]; 1 to 120 s.
pub fn set_rto_max(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    set_option_u32(&socket, libc::IPPROTO_TCP, TCP_RTO_MAX_MS, whole(timeout.as_millis()))
}

/// Smallest retransmission timeout (Linux 6.16).
pub fn rto_min(socket: impl AsFd) -> io::Result<Duration> {
    option_u32(&socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US).map(|us| Duration::from_micros(us.into()))
}

/// See [`rto_min`]; two jiffies to 200 ms (Linux 6.18). Larger floors are the route's: `rto_min` of ip-route(8).
pub fn set_rto_min(socket: impl AsFd, timeout: Duration) -> io::Result<()> {
    set_option_u32(&socket, libc::IPPROTO_TCP, TCP_RTO_MIN_US, whole(timeout.as_micros()))
}

/// Longest delay of an acknowledgement (Linux 6.16).
pub fn delayed_ack_max(socket: impl AsFd) -> io::Result<Duration> {
    option_u32(&socket, libc::IPPROTO_TCP, TCP_DELACK_MAX_US).map(|us| Duration::from_micros(us.into()))
}

/// See [`delayed_ack_max`]; two jiffies to 200 ms.
pub fn set_delayed_ack_max(socket: impl AsFd, delay: Duration) -> io::Result<()> {
    set_option_u32(&socket, libc::IPPROTO_TCP, TCP_DELACK_MAX_US, whole(delay.as_micros()))
}

fn whole(number: u128) -> u32 {
    u32::try_from(number).unwrap_or(i32::MAX as u32)
}

/// From `linux/tcp.h`.
const TCP_RTO_MAX_MS: libc::c_int = 44;
const TCP_RTO_MIN_US: libc::c_int = 45;
const TCP_DELACK_MAX_US: libc::c_int = 46;

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;
    use crate::condition::unmet;

    #[test]
    fn timeouts_are_read_back_as_set_or_refused_by_an_older_kernel() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let socket = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let ms = Duration::from_millis;
        let refused = |error: io::Error| assert_eq!(error.raw_os_error(), Some(libc::ENOPROTOOPT), "{error}");
        match set_rto_max(&socket, ms(5_000)) {
            Ok(()) => assert_eq!(rto_max(&socket).unwrap(), ms(5_000)),
            Err(error) => {
                refused(error);
                unmet("this kernel has no TCP_RTO_MAX_MS");
            }
        }
        match set_rto_min(&socket, ms(40)).and_then(|()| set_delayed_ack_max(&socket, ms(80))) {
            Ok(()) => {
                assert!((ms(40)..ms(50)).contains(&rto_min(&socket).unwrap()));
                assert!((ms(80)..ms(90)).contains(&delayed_ack_max(&socket).unwrap()));
                assert!(set_rto_min(&socket, Duration::MAX).is_err() && set_delayed_ack_max(&socket, ms(0)).is_err());
            }
            Err(error) => {
                refused(error);
                unmet("this kernel has no TCP_RTO_MIN_US");
            }
        }
    }
}
