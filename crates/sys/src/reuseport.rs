//! Several listeners on one port, chosen by the client's address: `SO_REUSEPORT` with a classic BPF program; without, by a
//! hash.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd as _};

use crate::socket::set_option_u32;

/// Lets this user's sockets share the port. Call it before listening; after the bind the port was free.
pub fn share(socket: impl AsFd) -> io::Result<()> {
    set_option_u32(&socket, libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
}

/// Sends clients of a network to one listener.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Row {
    /// The network's first address.
    pub network: IpAddr,
    /// The bits that its addresses have in common.
    pub length: u8,
    /// The listener's number; 0 listened first.
    pub listener: u16,
}

/// An IPv6 row takes 13 of a program's 4,096 instructions.
pub const MAX_ROWS: usize = 256;

/// Chooses the listener by the first row that matches, else the first one; replaces earlier rows. `socket` is any listener,
/// without MPTCP.
pub fn choose_by_source(socket: impl AsFd, rows: &[Row]) -> io::Result<()> {
    if rows.len() > MAX_ROWS {
        return Err(io::Error::from(io::ErrorKind::InvalidInput));
    }
    let mut program = program(rows);
    let head = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
    let (fd, name) = (socket.as_fd().as_raw_fd(), libc::SO_ATTACH_REUSEPORT_CBPF);
    // SAFETY: the kernel reads the struct and the `len` instructions behind it, which live through the call; the descriptor is
    // borrowed and so open.
    let result = unsafe {
        libc::setsockopt(fd, libc::SOL_SOCKET, name, (&raw const head).cast(), size_of_val(&head) as libc::socklen_t)
    };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// ```text
/// version of IP -> rows of IPv4 -> 0
///               -> rows of IPv6 -> 0
/// ```
fn program(rows: &[Row]) -> Vec<libc::sock_filter> {
    let of_family = |is_v4: bool| {
        let rows = rows.iter().filter(move |row| row.network.is_ipv4() == is_v4);
        rows.flat_map(checks).chain([give(0)]).collect::<Vec<_>>()
    };
    let (v4, v6) = (of_family(true), of_family(false));
    let past_v4 = instruction(JUMP, 0, 0, v4.len() as u32);
    let which =
        [instruction(LOAD_BYTE, 0, 0, HEADER), instruction(AND, 0, 0, 0xf0), instruction(IS, 1, 0, 0x40), past_v4];
    which.into_iter().chain(v4).chain(v6).collect()
}

/// A row that does not match goes on behind it.
fn checks(row: &Row) -> Vec<libc::sock_filter> {
    let (first, words) = match row.network {
        IpAddr::V4(ip) => (SOURCE_V4, vec![ip.to_bits()]),
        IpAddr::V6(ip) => (SOURCE_V6, [96, 64, 32, 0].map(|shift| (ip.to_bits() >> shift) as u32).to_vec()),
    };
    let mut program = Vec::new();
    let mut left = u32::from(row.length);
    for (at, word) in words.into_iter().enumerate().take_while(|(at, _)| u32::from(row.length) > 32 * *at as u32) {
        program.push(instruction(LOAD_WORD, 0, 0, first + 4 * at as u32));
        if left < 32 {
            program.push(instruction(AND, 0, 0, !(u32::MAX >> left)));
        }
        program.push(instruction(IS, 0, 0, word));
        left = left.saturating_sub(32);
    }
    program.push(give(row.listener));
    let len = program.len();
    for (at, instruction) in program.iter_mut().enumerate().filter(|(_, instruction)| instruction.code == IS) {
        instruction.jf = (len - at - 1) as u8;
    }
    program
}

fn give(listener: u16) -> libc::sock_filter {
    instruction(RETURN, 0, 0, listener.into())
}

fn instruction(code: u16, jt: u8, jf: u8, k: u32) -> libc::sock_filter {
    libc::sock_filter { code, jt, jf, k }
}

/// `SKF_NET_OFF`: the IP header, wherever the data begins.
const HEADER: u32 = 0xfff0_0000;
/// RFC 791, 3.1.
const SOURCE_V4: u32 = HEADER + 12;
/// RFC 8200, 3.
const SOURCE_V6: u32 = HEADER + 8;

/// From `linux/bpf_common.h`.
const LOAD_WORD: u16 = 0x20;
const LOAD_BYTE: u16 = 0x30;
const AND: u16 = 0x54;
const IS: u16 = 0x15;
const JUMP: u16 = 0x05;
const RETURN: u16 = 0x06;

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, Ipv6Addr};

    use super::*;

    fn run(program: &[libc::sock_filter], source: IpAddr) -> u32 {
        let mut header = [0u8; 40];
        match source {
            IpAddr::V4(ip) => {
                header[0] = 0x45;
                header[12..16].copy_from_slice(&ip.octets());
            }
            IpAddr::V6(ip) => {
                header[0] = 0x60;
                header[8..24].copy_from_slice(&ip.octets());
            }
        }
        let (mut at, mut a) = (0usize, 0u32);
        loop {
            let one = program[at];
            at += 1;
            let here = one.k.wrapping_sub(HEADER) as usize;
            match one.code {
                LOAD_BYTE => a = header[here].into(),
                LOAD_WORD => a = u32::from_be_bytes(header[here..here + 4].try_into().unwrap()),
                AND => a &= one.k,
                IS => at += usize::from(if a == one.k { one.jt } else { one.jf }),
                JUMP => at += one.k as usize,
                RETURN => return one.k,
                other => panic!("{other:#x}"),
            }
        }
    }

    fn row(network: &str, length: u8, listener: u16) -> Row {
        Row { network: network.parse().unwrap(), length, listener }
    }

    #[test]
    fn the_first_row_that_holds_chooses() {
        let rows = [
            row("10.1.2.3", 32, 3),
            row("10.0.0.0", 9, 1),
            row("2001:db8:1::", 49, 2),
            row("2001:db8::", 32, 4),
            row("::1", 128, 5),
            row("0.0.0.0", 0, 6),
        ];
        let program = program(&rows);
        for (source, listener) in [
            ("10.1.2.3", 3),
            ("10.1.2.4", 1),
            ("10.127.255.255", 1),
            ("10.128.0.0", 6),
            ("203.0.113.7", 6),
            ("2001:db8:1:7fff::1", 2),
            ("2001:db8:1:8000::1", 4),
            ("2001:db9::", 0),
            ("::1", 5),
            ("::2", 0),
        ] {
            assert_eq!(run(&program, source.parse().unwrap()), listener, "{source}");
        }
        assert_eq!(run(&super::program(&[]), Ipv4Addr::LOCALHOST.into()), 0);
    }

    #[test]
    fn the_longest_program_is_one_that_the_kernel_takes() {
        let whole = Row { network: Ipv6Addr::LOCALHOST.into(), length: 127, listener: 1 };
        assert!(program(&[whole; MAX_ROWS]).len() <= 4096);
        let socket = std::net::TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
        let refused = choose_by_source(&socket, &[whole; MAX_ROWS + 1]).unwrap_err();
        assert_eq!(refused.kind(), io::ErrorKind::InvalidInput);
    }
}
