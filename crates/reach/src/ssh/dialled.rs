//! Dials the connection on which ssh then speaks (ssh_config(5), ProxyCommand with ProxyUseFdpass).
//!
//! ssh leaves Nagle's algorithm on while it logs in, so the second of two packets waits for an acknowledgement: 1.2 round trips
//! of a login. Our connection sends messages at once, and again soon; all else is as in ssh.
//!
//! ```text
//!   haul -> ssh -> the user's shell -> haul dial HOST PORT: connects, hands the connection to ssh over standard output, ends
//! ```
//! ssh dials where the user's configuration says how hosts are reached.

use std::ffi::OsString;
use std::io;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use haul_net::dial::{Family, resolve};
use haul_sys::hand_over::hand_over;
use haul_sys::socket::{probe_when_idle, send_messages_soon};
use haul_sys::standard_streams::Output;

use super::resolved::Resolved;

/// A connection to dial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dialled {
    /// The host in ssh's configuration.
    pub host: String,
    /// The port.
    pub port: u16,
    /// The version of IP in ssh's configuration.
    pub family: Option<Family>,
    /// Limit to connect.
    pub timeout: Option<Duration>,
    /// Whether the kernel asks for a sign of life.
    pub keepalive: bool,
}

/// The options that make ssh take our connection; `None`: ssh dials.
pub(super) fn options(resolved: &Resolved, timeout: Option<Duration>) -> Option<(Vec<OsString>, Dialled)> {
    let (program, dialled) = own_program().zip(Dialled::of(resolved, timeout))?;
    let Dialled { host, port, family, timeout, keepalive } = &dialled;
    let mut command = format!("ProxyCommand={program} dial");
    match family {
        Some(Family::V4) => command.push_str(" -4"),
        Some(Family::V6) => command.push_str(" -6"),
        None => {}
    }
    if let Some(timeout) = timeout {
        command.push_str(&format!(" --timeout-s {}", timeout.as_secs().max(1)));
    }
    if *keepalive {
        command.push_str(" --keepalive");
    }
    command.push_str(&format!(" -- {host} {port}"));
    Some((vec![command.into(), "ProxyUseFdpass=yes".into()], dialled))
}

impl Dialled {
    fn of(resolved: &Resolved, timeout: Option<Duration>) -> Option<Self> {
        let is_usual = |(name, usual): (&str, &str)| resolved.value(name).is_none_or(|value| value == usual);
        // With a proxy ssh compares no address, canonicalizes no name, and tries once.
        let all_usual = [
            ("bindaddress", ""),
            ("bindinterface", ""),
            ("canonicalizehostname", "false"),
            ("checkhostip", "no"),
            ("connectionattempts", "1"),
            ("hostbasedauthentication", "no"),
            ("knownhostscommand", ""),
        ];
        if resolved.is_indirect() || !all_usual.into_iter().all(is_usual) {
            return None;
        }
        let host = resolved.value("hostname").filter(|host| is_plain(host.as_bytes()))?.to_owned();
        let family = match resolved.value("addressfamily")? {
            "any" => None,
            "inet" => Some(Family::V4),
            "inet6" => Some(Family::V6),
            _ => return None,
        };
        let typed = resolved.value("connecttimeout").and_then(|seconds| seconds.parse().ok());
        let timeout = typed.map(Duration::from_secs).or(timeout);
        let port = resolved.value("port")?.parse().ok()?;
        Some(Self { host, port, family, timeout, keepalive: resolved.is_set("tcpkeepalive") })
    }

    /// Connects, and hands over at standard output.
    ///
    /// # Errors
    /// ssh's own words.
    pub fn hand_to_ssh(&self) -> Result<(), String> {
        let addresses = self.resolved()?;
        let handed = self.connect(&addresses).and_then(|stream| hand_over(Output.as_fd(), stream.as_fd()));
        handed.map_err(|error| self.not_connected(&error))
    }

    fn resolved(&self) -> Result<Vec<SocketAddr>, String> {
        let host = &self.host;
        resolve(host, self.port, self.family).map_err(|error| {
            let is_for_now = error.to_string().contains(NO_ANSWER_NOW);
            format!("ssh: Could not resolve hostname {host}: {}", if is_for_now { NO_ANSWER_NOW } else { UNKNOWN })
        })
    }

    fn not_connected(&self, error: &io::Error) -> String {
        format!("ssh: connect to host {} port {}: {}", self.host, self.port, words(error))
    }

    /// Tries again for ssh's words: where a login is kept, ssh throws away its proxy command's.
    pub(super) fn why_not(&self) -> Option<String> {
        let again = Self { timeout: Some(self.timeout.unwrap_or(AGAIN_MOST).min(AGAIN_MOST)), ..self.clone() };
        let connected = again
            .resolved()
            .and_then(|addresses| again.connect(&addresses).map(drop).map_err(|error| again.not_connected(&error)));
        connected.err()
    }

    fn connect(&self, addresses: &[SocketAddr]) -> io::Result<TcpStream> {
        let end = self.timeout.map(|timeout| Instant::now() + timeout);
        let mut why = io::Error::from(io::ErrorKind::TimedOut);
        for address in addresses {
            let connected = match end.map(|end| end.saturating_duration_since(Instant::now())) {
                None => TcpStream::connect(address),
                Some(Duration::ZERO) => break,
                Some(left) => TcpStream::connect_timeout(address, left),
            };
            match connected {
                Ok(stream) => {
                    send_messages_soon(&stream)?;
                    if self.keepalive {
                        probe_when_idle(&stream)?;
                    }
                    return Ok(stream);
                }
                Err(error) => why = error,
            }
        }
        Err(why)
    }
}

/// A host that did not answer the first time does not answer now.
const AGAIN_MOST: Duration = Duration::from_secs(2);

fn words(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::TimedOut => "Connection timed out".to_owned(),
        _ => {
            let text = error.to_string();
            text.split(" (os error").next().unwrap_or(&text).to_owned()
        }
    }
}

fn own_program() -> Option<String> {
    let path = std::fs::read_link("/proc/self/exe").ok()?;
    let path = std::str::from_utf8(path.as_os_str().as_bytes()).ok().filter(|path| is_plain(path.as_bytes()))?;
    std::fs::metadata(path).is_ok().then(|| path.to_owned())
}

fn is_plain(word: &[u8]) -> bool {
    let is_plain = |letter: &u8| letter.is_ascii_alphanumeric() || b"/._-+:".contains(letter);
    !word.is_empty() && !word.starts_with(b"-") && word.iter().all(is_plain)
}

/// gai_strerror(3).
const UNKNOWN: &str = "Name or service not known";
const NO_ANSWER_NOW: &str = "Temporary failure in name resolution";

#[cfg(test)]
mod tests {
    use super::*;

    const USUAL: &str = "hostname h.example\nport 22\naddressfamily any\ntcpkeepalive yes\nconnectionattempts 1\n\
        canonicalizehostname false\ncheckhostip no\nhostbasedauthentication no\nproxycommand none\n";

    fn of(more: &str) -> Option<Dialled> {
        let resolved = Resolved { settings: format!("{more}{USUAL}"), ..Resolved::default() };
        Dialled::of(&resolved, Some(Duration::from_secs(60)))
    }

    #[test]
    fn ssh_dials_by_itself_where_the_user_says_how_hosts_are_reached() {
        let usual = of("").unwrap();
        assert_eq!((usual.host.as_str(), usual.port, usual.family, usual.keepalive), ("h.example", 22, None, true));
        for setting in [
            "proxyjump gate",
            "proxycommand nc %h %p",
            "bindaddress 10.0.0.1",
            "bindinterface eth1",
            "canonicalizehostname always",
            "checkhostip yes",
            "connectionattempts 3",
            "hostbasedauthentication yes",
            "knownhostscommand /usr/bin/keys",
            "hostname $(id)",
            "hostname -oX",
            "hostname a;b",
            "addressfamily odd",
            "port x",
        ] {
            assert_eq!(of(&format!("{setting}\n")), None, "{setting}");
        }
        let mine = of("addressfamily inet6\nconnecttimeout 7\ntcpkeepalive no\nhostname fe80::1\n").unwrap();
        assert_eq!((mine.family, mine.timeout), (Some(Family::V6), Some(Duration::from_secs(7))));
        assert!(!mine.keepalive);
    }

    #[test]
    fn a_failure_is_said_in_the_words_of_ssh() {
        let refused = io::Error::from_raw_os_error(111);
        assert_eq!(words(&refused), "Connection refused");
        assert_eq!(words(&io::Error::new(io::ErrorKind::TimedOut, "connection timed out")), "Connection timed out");
    }
}
