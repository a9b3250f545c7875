//! Multipath TCP (RFC 8684): one connection over several paths (*subflows*). Without it at peer or network, a socket *falls
//! back* to plain TCP. Structures: `linux/mptcp.h`.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd as _};

use crate::socket::{option, option_u32};
use crate::tcp_info::{self, TcpInfo};

/// The protocol of an MPTCP socket (IPPROTO_MPTCP).
pub const PROTOCOL: i32 = libc::IPPROTO_MPTCP;

/// Whether MPTCP is in use: by TCP_IS_MPTCP, on older kernels by MPTCP_INFO, which falls silent after a fall-back.
pub fn is_in_use(socket: impl AsFd) -> io::Result<bool> {
    match option_u32(&socket, libc::IPPROTO_TCP, TCP_IS_MPTCP) {
        Ok(is) => Ok(is != 0),
        Err(error) if error.raw_os_error() == Some(libc::ENOPROTOOPT) => Ok(tells_of_paths(socket)),
        Err(error) => Err(error),
    }
}

/// Whether the kernel reports paths (MPTCP_INFO, Linux 5.16); false after a fall-back.
pub fn tells_of_paths(socket: impl AsFd) -> bool {
    option(&socket, SOL_MPTCP, MPTCP_INFO, &mut [0; INFO_BYTES]).is_ok()
}

/// One path of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Subflow {
    /// The address of this end.
    pub local: SocketAddr,
    /// The address of the other end.
    pub remote: SocketAddr,
    /// TCP's figures about it.
    pub info: TcpInfo,
}

/// The subflows (MPTCP_SUBFLOW_ADDRS and MPTCP_TCPINFO, Linux 5.16); none after a fall-back. Stable addresses make them as
/// good as MPTCP_FULL_INFO of Linux 6.5.
pub fn subflows(socket: impl AsFd) -> io::Result<Vec<Subflow>> {
    for _ in 0..MAX_TRIES {
        let before = addresses(&socket)?;
        let infos = records(&socket, MPTCP_TCPINFO, TCP_INFO_BYTES, tcp_info::parse)?;
        if addresses(&socket)? == before && before.len() == infos.len() {
            let both = before.into_iter().zip(infos);
            return Ok(both.map(|((local, remote), info)| Subflow { local, remote, info }).collect());
        }
    }
    Err(io::Error::new(io::ErrorKind::Interrupted, "the subflows of the connection changed while they were read"))
}

/// Data that no subflow has taken yet (SIOCOUTQNSD, Linux 5.17).
pub fn unsent_bytes(socket: impl AsFd) -> io::Result<u32> {
    let mut bytes: libc::c_int = 0;
    // SAFETY: the descriptor is borrowed and so open; the kernel writes one `int` into `bytes`.
    let status = unsafe { libc::ioctl(socket.as_fd().as_raw_fd(), SIOCOUTQNSD, &raw mut bytes) };
    if status < 0 { Err(io::Error::last_os_error()) } else { Ok(u32::try_from(bytes).unwrap_or(0)) }
}

fn addresses(socket: &impl AsFd) -> io::Result<Vec<(SocketAddr, SocketAddr)>> {
    records(socket, MPTCP_SUBFLOW_ADDRS, 2 * ADDRESS_BYTES, |record| {
        Some((address(record.get(..ADDRESS_BYTES)?)?, address(record.get(ADDRESS_BYTES..)?)?))
    })
}

/// Reads one record for each subflow, behind `struct mptcp_subflow_data`: its size, the number of subflows, a record's size
/// in the kernel and here. Records stand as far apart as the last, which the kernel lowers to its own.
fn records<T>(
    socket: &impl AsFd,
    name: libc::c_int,
    record_bytes: usize,
    parse: impl Fn(&[u8]) -> Option<T>,
) -> io::Result<Vec<T>> {
    let mut raw = vec![0; HEADER_BYTES + MAX_SUBFLOWS * record_bytes];
    raw[..4].copy_from_slice(&(HEADER_BYTES as u32).to_ne_bytes());
    raw[12..16].copy_from_slice(&(record_bytes as u32).to_ne_bytes());
    let length = option(socket, SOL_MPTCP, name, &mut raw)?.min(raw.len());
    part(&raw[..length], parse)
        .ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "the kernel tells it otherwise"))
}

fn part<T>(raw: &[u8], parse: impl Fn(&[u8]) -> Option<T>) -> Option<Vec<T>> {
    let number = |offset: usize| raw.get(offset..offset + 4)?.try_into().ok().map(u32::from_ne_bytes);
    let (count, record_bytes) = (number(4)? as usize, number(12)? as usize);
    if record_bytes == 0 {
        return None;
    }
    raw.get(HEADER_BYTES..)?.chunks_exact(record_bytes).take(count.min(MAX_SUBFLOWS)).map(parse).collect()
}

/// A socket address: family, port, address (ip(7), ipv6(7)).
fn address(raw: &[u8]) -> Option<SocketAddr> {
    let family = u16::from_ne_bytes(raw.get(..2)?.try_into().ok()?);
    let port = u16::from_be_bytes(raw.get(2..4)?.try_into().ok()?);
    let ip: IpAddr = match libc::c_int::from(family) {
        libc::AF_INET => Ipv4Addr::from(<[u8; 4]>::try_from(raw.get(4..8)?).ok()?).into(),
        libc::AF_INET6 => Ipv6Addr::from(<[u8; 16]>::try_from(raw.get(8..24)?).ok()?).into(),
        _ => return None,
    };
    Some(SocketAddr::new(ip.to_canonical(), port))
}

/// From `linux/tcp.h`, `linux/socket.h` and `linux/mptcp.h`.
const TCP_IS_MPTCP: libc::c_int = 43;
const SOL_MPTCP: libc::c_int = 284;
const MPTCP_INFO: libc::c_int = 1;
const MPTCP_TCPINFO: libc::c_int = 2;
const MPTCP_SUBFLOW_ADDRS: libc::c_int = 3;
const SIOCOUTQNSD: libc::Ioctl = 0x894B;

const HEADER_BYTES: usize = 16;
const ADDRESS_BYTES: usize = 128;
const TCP_INFO_BYTES: usize = 512;
const INFO_BYTES: usize = 8;
/// The kernel's path manager allows 8 more (MPTCP_PM_ADDR_MAX, `net/mptcp/protocol.h`).
const MAX_SUBFLOWS: usize = 32;
/// Subflows change within seconds: a few tries suffice.
const MAX_TRIES: u32 = 3;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_that_are_cut_or_malformed_are_told_apart_from_records() {
        let mut raw = vec![0; HEADER_BYTES];
        raw[4] = 2;
        raw[12] = 8;
        raw.extend([1, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0]);
        let first = |record: &[u8]| record.first().copied();
        assert_eq!(part(&raw, first), Some(vec![1, 2]));
        assert_eq!(part(&raw[..HEADER_BYTES + 8], first), Some(vec![1]), "fewer than were announced");
        for end in 0..HEADER_BYTES {
            assert_eq!(part(&raw[..end], first), None);
        }
        raw[12] = 0;
        assert_eq!(part(&raw, first), None, "records without a length have no end");
    }

    #[test]
    fn addresses_are_read_in_both_families() {
        let mut raw = [0; ADDRESS_BYTES];
        raw[..2].copy_from_slice(&(libc::AF_INET as u16).to_ne_bytes());
        raw[2..8].copy_from_slice(&[0x1f, 0x90, 192, 0, 2, 1]);
        assert_eq!(address(&raw), Some("192.0.2.1:8080".parse().unwrap()));
        raw[..2].copy_from_slice(&(libc::AF_INET6 as u16).to_ne_bytes());
        raw[4..].fill(0);
        raw[23] = 1;
        assert_eq!(address(&raw), Some("[::1]:8080".parse().unwrap()));
        raw[0] = 0xff;
        assert_eq!(address(&raw), None);
        assert_eq!(address(&raw[..3]), None);
    }
}
