//! The kernel's figures about one TCP connection: `TCP_INFO`, read by offset. Beyond the returned length (232 bytes on Linux
//! 6.1, 280 on 6.18) fields are `None`.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// One reading. Counters run from the connection's start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TcpInfo {
    /// Time-outs in a row of the same segment.
    pub timeouts: u8,
    /// The current retransmission time-out.
    pub rto_us: u32,
    /// Largest segment sent.
    pub snd_mss_bytes: u32,
    /// The largest packet on the path, as the kernel knows it.
    pub path_mtu_bytes: u32,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// The time since data was last sent (`tcpi_last_data_sent`).
    pub silent_us: u64,
    /// The receiver's round-trip time, by time stamps, if measured.
    pub rcv_rtt_us: Option<u32>,
    /// Mean deviation of the round-trip time.
    pub rtt_var_us: u32,
    /// The end of slow start, in segments (RFC 5681).
    pub snd_ssthresh: u32,
    /// Congestion window, in segments.
    pub snd_cwnd: u32,
    /// Segments sent again.
    pub total_retrans: u32,
    /// The pacing rate in use; `u64::MAX`: none.
    pub pacing_rate_bytes_per_s: Option<u64>,
    /// The bound of it (SO_MAX_PACING_RATE); `u64::MAX`: none.
    pub max_pacing_rate_bytes_per_s: Option<u64>,
    /// Bytes the peer has acknowledged.
    pub bytes_acked: Option<u64>,
    /// Bytes received in order.
    pub bytes_received: Option<u64>,
    /// Bytes in the send buffer that were never sent.
    pub notsent_bytes: Option<u32>,
    /// The smallest round-trip time; `None` also while not measured.
    pub rtt_min_us: Option<u32>,
    /// The last sample's rate. It misleads alone: 23 Gbit/s on a flow paced to 10 Mbit/s.
    pub delivery_rate_bytes_per_s: Option<u64>,
    /// Time with data to send or unacknowledged.
    pub busy_time_us: Option<u64>,
    /// Time stopped by the receiver's window.
    pub rwnd_limited_us: Option<u64>,
    /// Time stopped by the send buffer; may be 0 in spite of it.
    pub sndbuf_limited_us: Option<u64>,
    /// Segments that arrived, also behind a gap: closing it makes no jump. Wraps around.
    pub delivered: Option<u32>,
    /// Bytes sent, with repeats.
    pub bytes_sent: Option<u64>,
    /// Bytes sent again.
    pub bytes_retrans: Option<u64>,
    /// Segments that arrived twice, only late (DSACK). Wraps around.
    pub dsack_dups: Option<u32>,
    /// The window that the peer offers.
    pub snd_wnd_bytes: Option<u32>,
    /// All timeouts, of the handshake, too (Linux 6.7). Wraps around.
    pub timeouts_total: Option<u16>,
    /// Periods from a timeout until all was acknowledged. Wraps around.
    pub timeout_recoveries: Option<u16>,
    /// Their length in all.
    pub timeout_recovery_ms: Option<u32>,
}

/// Reads the state of a TCP connection.
pub fn tcp_info(socket: impl AsFd) -> io::Result<TcpInfo> {
    let mut raw = [0u8; RAW_BYTES];
    let mut raw_len = RAW_BYTES as libc::socklen_t;
    // SAFETY: the descriptor is borrowed for the call, `raw` is writable for `raw_len` bytes, and the kernel writes at
    // most `raw_len` bytes there and the count into `raw_len`. Any bytes are valid `u8`.
    let status = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            raw.as_mut_ptr().cast(),
            &raw mut raw_len,
        )
    };
    if status != 0 {
        return Err(io::Error::last_os_error());
    }
    parse(&raw[..(raw_len as usize).min(RAW_BYTES)])
        .ok_or_else(|| io::Error::other("TCP_INFO is shorter than any Linux writes"))
}

/// Above the largest known version (280): no known field is cut.
const RAW_BYTES: usize = 512;
const RTT_MIN_UNKNOWN: u32 = u32::MAX;

/// Parses `struct tcp_info` by the offsets of `linux/tcp.h`: it only grows.
pub(crate) fn parse(raw: &[u8]) -> Option<TcpInfo> {
    let u16_at =
        |offset: usize| -> Option<u16> { Some(u16::from_ne_bytes(raw.get(offset..offset + 2)?.try_into().ok()?)) };
    let u32_at =
        |offset: usize| -> Option<u32> { Some(u32::from_ne_bytes(raw.get(offset..offset + 4)?.try_into().ok()?)) };
    let u64_at =
        |offset: usize| -> Option<u64> { Some(u64::from_ne_bytes(raw.get(offset..offset + 8)?.try_into().ok()?)) };
    Some(TcpInfo {
        timeouts: *raw.get(2)?,
        rto_us: u32_at(8)?,
        snd_mss_bytes: u32_at(16)?,
        path_mtu_bytes: u32_at(60)?,
        silent_us: u64::from(u32_at(44)?) * 1000,
        rtt_us: u32_at(68)?,
        rcv_rtt_us: u32_at(92).filter(|rtt_us| *rtt_us > 0),
        rtt_var_us: u32_at(72)?,
        snd_ssthresh: u32_at(76)?,
        snd_cwnd: u32_at(80)?,
        total_retrans: u32_at(100)?,
        pacing_rate_bytes_per_s: u64_at(104),
        max_pacing_rate_bytes_per_s: u64_at(112),
        bytes_acked: u64_at(120),
        bytes_received: u64_at(128),
        notsent_bytes: u32_at(144),
        rtt_min_us: u32_at(148).filter(|rtt_us| *rtt_us != RTT_MIN_UNKNOWN),
        delivery_rate_bytes_per_s: u64_at(160),
        busy_time_us: u64_at(168),
        rwnd_limited_us: u64_at(176),
        sndbuf_limited_us: u64_at(184),
        delivered: u32_at(192),
        bytes_sent: u64_at(200),
        bytes_retrans: u64_at(208),
        dsack_dups: u32_at(216),
        snd_wnd_bytes: u32_at(228),
        timeouts_total: u16_at(240),
        timeout_recoveries: u16_at(242),
        timeout_recovery_ms: u32_at(244),
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn counts_bytes_of_a_loopback_connection() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut near = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut far, _) = listener.accept().unwrap();
        near.write_all(&[7; 1000]).unwrap();
        far.read_exact(&mut [0; 1000]).unwrap();
        let info = tcp_info(&near).unwrap();
        assert!(info.snd_cwnd > 0 && info.snd_mss_bytes > 0, "{info:?}");
        assert!(info.snd_cwnd < info.snd_ssthresh, "it has only begun: {info:?}");
        assert!(info.path_mtu_bytes > info.snd_mss_bytes, "{info:?}");
        assert!(info.bytes_sent.is_none_or(|bytes| bytes == 1000), "{info:?}");
        assert_eq!(tcp_info(&far).unwrap().bytes_received, Some(1000));
    }

    #[test]
    fn an_old_kernel_leaves_new_fields_out() {
        let info = parse(&[1; 104]).unwrap();
        assert_eq!(info.rtt_us, 0x0101_0101);
        assert_eq!(info.bytes_acked, None);
        assert_eq!(info.snd_wnd_bytes, None);
        assert_eq!(parse(&[1; 103]), None);
    }

    #[test]
    fn a_socket_that_is_not_tcp_is_an_error() {
        let (near, _far) = std::os::unix::net::UnixStream::pair().unwrap();
        assert!(tcp_info(&near).is_err());
    }
}
