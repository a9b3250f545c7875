//! The way a socket's connection leaves this host.

use std::io::{self, IoSlice};
use std::os::fd::AsFd;

use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::socket::{option, option_u32, set_option, set_option_u32};

/// Binds a socket to a device: it sends and receives only there (SO_BINDTODEVICE, socket(7)). Needs CAP_NET_RAW before Linux
/// 5.7; since then nothing, once.
pub fn bind_to_device(socket: impl AsFd, device: &str) -> io::Result<()> {
    set_option(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, device.as_bytes())
}

/// The device of [`bind_to_device`].
pub fn bound_device(socket: impl AsFd) -> io::Result<Option<String>> {
    let mut name = [0; libc::IFNAMSIZ];
    let length = option(&socket, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, &mut name)?.min(name.len());
    let name = name[..length].split(|byte| *byte == 0).next().unwrap_or_default();
    Ok(std::str::from_utf8(name).ok().filter(|name| !name.is_empty()).map(str::to_owned))
}

/// Makes the kernel pick the port at the connect, even one in use elsewhere (IP_BIND_ADDRESS_NO_PORT, ip(7)): else an
/// address has 28,232. Call before binding port 0.
pub fn pick_port_when_connecting(socket: impl AsFd) -> io::Result<()> {
    set_option_u32(&socket, libc::IPPROTO_IP, libc::IP_BIND_ADDRESS_NO_PORT, 1)
}

/// The number of a socket's protocol, such as `IPPROTO_TCP`.
pub fn protocol(socket: impl AsFd) -> io::Result<i32> {
    option_u32(&socket, libc::SOL_SOCKET, libc::SO_PROTOCOL).map(u32::cast_signed)
}

/// Sends what fits; more follows at once, and the last packet may wait for it (MSG_MORE, send(2)).
pub fn send_with_more(socket: impl AsFd, slices: &[IoSlice<'_>]) -> io::Result<usize> {
    let flags = SendFlags::MORE | SendFlags::NOSIGNAL;
    Ok(rustix::io::retry_on_intr(|| rustix::net::sendmsg(&socket, slices, &mut SendAncillaryBuffer::default(), flags))?)
}

#[cfg(test)]
mod tests {
    use std::net::TcpListener;

    use super::*;

    #[test]
    fn a_device_is_read_back_as_set_or_refused_by_name() {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(bound_device(&socket).unwrap(), None);
        assert!(bind_to_device(&socket, "no-such-device").is_err());
        match bind_to_device(&socket, "lo") {
            Ok(()) => assert_eq!(bound_device(&socket).unwrap().as_deref(), Some("lo")),
            Err(error) => crate::condition::unmet(format_args!("sockets are bound to no device here: {error}")),
        }
        assert_eq!(protocol(&socket).unwrap(), libc::IPPROTO_TCP);
    }

    #[test]
    fn what_is_sent_before_more_arrives_with_it() {
        use std::io::{Read as _, Write as _};
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let mut near = std::net::TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let mut far = listener.accept().unwrap().0;
        let slices = [io::IoSlice::new(b"head"), io::IoSlice::new(b"er: ")];
        assert_eq!(send_with_more(&near, &slices).unwrap(), 8);
        near.write_all(b"body").unwrap();
        let mut got = [0; 12];
        far.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"header: body");
    }
}
