//! The two buffers of a connection, which bound its bytes under way.

use std::io;
use std::net::TcpStream;

use haul_sys::socket;

use super::distance::Distance;
use super::granted::Applied;
use crate::host;

/// Asks for buffers of this window, where the operator raised `wmem_max` and not `tcp_wmem`. A send buffer grows by itself
/// to `tcp_wmem`; a requested one may have twice `wmem_max` (socket(7)): through 10 Gbit/s x 50 ms, one connection then
/// carried 906 instead of 470 Mbit/s. Receive buffers stay with the kernel.
pub(super) fn apply_buffers(
    stream: &TcpStream,
    window_bytes: Option<u64>,
    class: Option<Distance>,
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
    if class != Some(Distance::Far) || asked_max.saturating_mul(2) <= grown_max {
        return Vec::new();
    }
    let granted = socket::set_send_buffer_bytes(stream, usize::try_from(asked_max).unwrap_or(usize::MAX))
        .and_then(|()| socket::send_buffer_bytes(stream))
        .map(|bytes| format!("{bytes} bytes"));
    let reason = format!("the kernel would let it grow to {grown_max} bytes (tcp_wmem) only");
    vec![applied("send buffer", &format!("{asked_max} bytes"), granted, reason)]
}

struct Buffer {
    what: &'static str,
    settings: [&'static str; 2],
    asked_max: Option<u64>,
    grown_max: Option<u64>,
    set: fn(&TcpStream, usize) -> io::Result<usize>,
}

impl Buffer {
    /// A request is cut to its bound, and ends the kernel's tuning (socket(7), tcp(7)). If tuning goes further, a request
    /// would narrow the window. The kernel grants it twice, half for book-keeping.
    fn ask(&self, stream: &TcpStream, window_bytes: u64) -> Applied {
        let asked = format!("{window_bytes} bytes");
        let [request_setting, growth_setting] = self.settings;
        let most = self.asked_max.map(|most| most.min(window_bytes).saturating_mul(2));
        if let (Some(most), Some(grown)) = (most, self.grown_max)
            && most < grown.min(window_bytes.saturating_mul(2))
        {
            let granted = Ok(format!("at most {grown} bytes"));
            let reason = format!(
                "left to the kernel: its own tuning ({growth_setting}) goes further than a request ({request_setting})"
            );
            return Applied {
                refused: grown < window_bytes.saturating_mul(2),
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
            refused: falls_short,
            falls_short,
            ..applied(self.what, &asked, granted.map(|bytes| format!("{} bytes", bytes / 2)), reason)
        }
    }
}

fn applied(what: &'static str, asked: &str, granted: io::Result<String>, reason: impl Into<String>) -> Applied {
    Applied {
        what,
        asked: asked.to_owned(),
        granted: granted.unwrap_or_else(|error| format!("unchanged: {error}")),
        reason: reason.into(),
        refused: false,
        falls_short: false,
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
        let far = Some(Distance::Far);
        assert_eq!(apply_buffers(&stream, None, far, &limits(212_992, 4 << 20)), []);
        assert_eq!(apply_buffers(&stream, None, Some(Distance::Near), &limits(4 << 20, 4 << 20)), []);
        assert_eq!(apply_buffers(&stream, None, far, &limits(4 << 20, 4 << 20))[0].what, "send buffer");
    }
}
