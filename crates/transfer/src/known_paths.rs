//! What earlier jobs found of the paths of this host, so that the next one begins where the last one ended.
//!
//! ```text
//!   ~/.local/state/haul/paths      one line for each path, the one used last at the end:
//!   to 10.99.1.0/24 via 10.99.1.0/24 rtt_us 228120 bytes_per_s 117500000 lanes 14 loss_ppm 0 cc cubic
//! ```
//! A path is a direction, the peer's network and ours: hosts of one network share the way to it. It is advice and nothing more: a file
//! that is missing or that nobody can read means that nothing is known.

use std::fs::{self, DirBuilder};
use std::io::{self, Read as _, Write as _};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::PathBuf;

use haul_net::dial;
use haul_wire::limits::MAX_TEXT_BYTES;
use haul_wire::summary::KnownPath;

use crate::remote;

/// Paths that are kept; the one not used for longest goes first.
const MAX_PATHS: usize = 256;

/// Longest file that is read: lines are about 120 bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Hosts of one such network share their way to it: what providers announce at the least (RFC 4632; /48 is a site, RFC 6177).
const V4_PREFIX_BITS: u32 = 24;
/// See [`V4_PREFIX_BITS`].
const V6_PREFIX_BITS: u32 = 48;

/// Which way the data goes, seen from this host.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    To,
    From,
}

/// One path.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct PathName(String);

impl PathName {
    /// The path between this host and a peer. `None` when the peer is this host, or no route leads to it.
    pub(crate) fn towards(peer: IpAddr, direction: Direction) -> Option<Self> {
        let ours = dial::local_address_towards(peer).ok()?;
        (ours != peer && !peer.is_loopback()).then(|| Self::between(ours, peer, direction))
    }

    fn between(ours: IpAddr, peer: IpAddr, direction: Direction) -> Self {
        let direction = match direction {
            Direction::To => "to",
            Direction::From => "from",
        };
        Self(format!("{direction} {} via {}", prefix(peer), prefix(ours)))
    }
}

/// What is known of a path.
pub(crate) fn find(path: &PathName) -> Option<KnownPath> {
    let lines = read(&file()?);
    lines.iter().rev().find_map(|line| parse(line.strip_prefix(path.0.as_str())?))
}

/// Keeps what a job found. A host that does not let us only forgets.
pub(crate) fn keep(path: &PathName, known: &KnownPath) {
    if let Some(file) = file() {
        let _ = write(&file, path, known);
    }
}

fn file() -> Option<PathBuf> {
    let state = std::env::var_os("XDG_STATE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let state = state.or_else(|| remote::home().map(|home| home.join(".local/state")))?;
    Some(state.join("haul").join("paths"))
}

fn read(file: &PathBuf) -> Vec<String> {
    let mut text = String::new();
    let read = fs::File::open(file).and_then(|file| file.take(MAX_FILE_BYTES).read_to_string(&mut text));
    if read.is_err() {
        return Vec::new();
    }
    text.lines().map(str::to_owned).collect()
}

/// Under another name first: two jobs that end at once may lose a line, never the file.
fn write(file: &PathBuf, path: &PathName, known: &KnownPath) -> io::Result<()> {
    let dir = file.parent().ok_or(io::ErrorKind::NotFound)?;
    DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    let mut lines = read(file);
    lines.retain(|line| !line.starts_with(&path.0));
    lines.push(format!("{}{}", path.0, line(known)));
    let lines = &lines[lines.len().saturating_sub(MAX_PATHS)..];
    let temporary = dir.join(format!("paths.{}", std::process::id()));
    let mut out = fs::OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&temporary)?;
    out.write_all((lines.join("\n") + "\n").as_bytes())?;
    fs::rename(&temporary, file)
}

fn line(known: &KnownPath) -> String {
    format!(
        " rtt_us {} bytes_per_s {} lanes {} loss_ppm {} cc {}",
        known.rtt_min_us, known.capacity_bytes_per_s, known.lanes, known.random_loss_ppm, known.congestion_control
    )
}

fn parse(text: &str) -> Option<KnownPath> {
    let mut words = text.split_whitespace();
    let mut value = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
    Some(KnownPath {
        rtt_min_us: value("rtt_us")?.parse().ok()?,
        capacity_bytes_per_s: value("bytes_per_s")?.parse().ok()?,
        lanes: value("lanes")?.parse().ok()?,
        random_loss_ppm: value("loss_ppm")?.parse().ok()?,
        congestion_control: value("cc").filter(|name| name.len() <= MAX_TEXT_BYTES)?.to_owned(),
    })
}

fn prefix(address: IpAddr) -> String {
    match address.to_canonical() {
        IpAddr::V4(address) => {
            let bits = u32::from(address) & (u32::MAX << (32 - V4_PREFIX_BITS));
            format!("{}/{V4_PREFIX_BITS}", Ipv4Addr::from(bits))
        }
        IpAddr::V6(address) => {
            let bits = u128::from(address) & (u128::MAX << (128 - V6_PREFIX_BITS));
            format!("{}/{V6_PREFIX_BITS}", Ipv6Addr::from(bits))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(lanes: u16) -> KnownPath {
        KnownPath {
            rtt_min_us: 228_120,
            capacity_bytes_per_s: 117_500_000,
            lanes,
            random_loss_ppm: 3,
            congestion_control: "bbr".into(),
        }
    }

    fn path(peer: [u8; 4], direction: Direction) -> PathName {
        PathName::between(IpAddr::from([10, 0, 0, 7]), IpAddr::from(peer), direction)
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        assert_eq!(parse(&line(&known(14))), Some(known(14)));
        for broken in ["", " rtt_us x", " rtt_us 1 bytes_per_s 2 lanes 70000 loss_ppm 0 cc bbr", " lanes 3"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn hosts_of_one_network_share_a_path_and_directions_do_not() {
        assert_eq!(path([192, 0, 2, 1], Direction::To), path([192, 0, 2, 200], Direction::To));
        assert_ne!(path([192, 0, 2, 1], Direction::To), path([192, 0, 3, 1], Direction::To));
        assert_ne!(path([192, 0, 2, 1], Direction::To), path([192, 0, 2, 1], Direction::From));
        assert_eq!(PathName::towards(IpAddr::from([127, 0, 0, 1]), Direction::To), None);
    }

    #[test]
    fn the_last_word_on_a_path_counts_and_the_file_stays_small() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("deep/paths");
        for lanes in 1..=2 {
            write(&file, &path([192, 0, 2, 1], Direction::To), &known(lanes)).unwrap();
        }
        assert_eq!(read(&file).len(), 1);
        for third in 0..=255 {
            write(&file, &path([10, 1, third, 1], Direction::To), &known(3)).unwrap();
        }
        let lines = read(&file);
        assert_eq!(lines.len(), MAX_PATHS);
        assert!(!lines.iter().any(|line| line.contains("192.0.2.0/24")), "the one not used for longest");
        assert!(lines[255].starts_with("to 10.1.255.0/24 via 10.0.0.0/24 rtt_us 228120"), "{}", lines[255]);
    }
}
