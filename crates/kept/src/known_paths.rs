//! Keeps what earlier jobs found of this host's paths, where the next job begins.
//!
//! ```text
//!   ~/.local/state/haul/paths      one line for each path, the one used last at the end:
//!   to 10.99.1.0/24 via 10.99.1.0/24 rtt_us 228120 bytes_per_s 117500000 lanes 14 loss_ppm 0 cc cubic
//! ```
//! A path is a direction and two networks, whose hosts share the way. The file is only advice.
//!
//! The peer's network comes from an address that a lane reached, or that we looked up for the name that ssh connects to. A host
//! behind a jump host or a proxy has no such address. An address that the far side claims is never used: it could ask for facts
//! about other networks, and write them. A far sender may lie, so values of no honest peer are dropped. A line that we cannot
//! have written goes with the next write.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};

use haul_engine::path::AUTO_LANES_MAX;
use haul_engine::plan::NEAR_RTT_US;
use haul_net::dial;
use haul_wire::summary::KnownPath;

use crate::own_files;
use crate::surroundings::Surroundings;

/// The path unused for the longest time goes first.
const MAX_PATHS: usize = 256;

/// A line has two networks of 22 bytes, five numbers of 20 digits and a name of 15: 256 lines of 250 bytes are 62 KiB.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Lanes begin with the known rate, and look for more: 1 Mbit/s is reached soon.
const CAPACITY_BYTES_PER_S_MIN: u64 = 125_000;

/// 1 Tbit/s: ten times the fastest port of a host.
const CAPACITY_BYTES_PER_S_MAX: u64 = 125_000_000_000;

/// Nearer paths need no memory.
const RTT_US_MIN: u32 = NEAR_RTT_US;

/// By way of the Moon it is 2.6 s.
const RTT_US_MAX: u32 = 10_000_000;

/// Providers announce no longer prefixes (RFC 4632; /48 is a site, RFC 6177): one way leads to all hosts.
const V4_PREFIX_BITS: u32 = 24;
const V6_PREFIX_BITS: u32 = 48;

/// The data's direction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Data leaves here.
    To,
    /// Data comes here.
    From,
}

/// A path's name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PathName(String);

impl PathName {
    /// Names the path to a peer. `None`: on this host, or no route.
    pub fn towards(peer: IpAddr, direction: Direction) -> Option<Self> {
        let local = dial::local_address_towards(peer.to_canonical()).ok()?;
        Self::between(local, peer, direction)
    }

    /// Names the path between addresses. `None`: both of this host.
    pub fn between(ours: IpAddr, peer: IpAddr, direction: Direction) -> Option<Self> {
        let (ours, peer) = (ours.to_canonical(), peer.to_canonical());
        (ours != peer && !peer.is_loopback()).then(|| Self::named(ours, peer, direction))
    }

    fn named(ours: IpAddr, peer: IpAddr, direction: Direction) -> Self {
        let direction = match direction {
            Direction::To => "to",
            Direction::From => "from",
        };
        Self(format!("{direction} {} via {}", prefix(peer), prefix(ours)))
    }
}

/// A user's known paths.
#[derive(Clone, Debug, Default)]
pub struct KnownPaths(Option<PathBuf>);

impl KnownPaths {
    /// Opens them.
    pub fn of(surroundings: &Surroundings) -> Self {
        Self(surroundings.state.as_ref().map(|directory| directory.join("paths")))
    }

    /// Facts about the path to a peer.
    pub fn towards(&self, peer: IpAddr, direction: Direction) -> Option<KnownPath> {
        find_in(self.0.as_ref()?, &PathName::towards(peer, direction)?)
    }

    /// Facts about the path between addresses.
    pub fn between(&self, ours: IpAddr, peer: IpAddr, direction: Direction) -> Option<KnownPath> {
        find_in(self.0.as_ref()?, &PathName::between(ours, peer, direction)?)
    }

    /// Keeps findings, if the host permits.
    pub fn keep(&self, path: &PathName, known: &KnownPath) {
        if let Some(file) = &self.0 {
            let _ = write(file, path, known);
        }
    }
}

/// Whether a path can be like this.
pub fn is_sound(known: &KnownPath) -> bool {
    known.is_within_limits()
        && (RTT_US_MIN..=RTT_US_MAX).contains(&known.rtt_min_us)
        && (CAPACITY_BYTES_PER_S_MIN..=CAPACITY_BYTES_PER_S_MAX).contains(&known.capacity_bytes_per_s)
        && (1..=AUTO_LANES_MAX).contains(&known.lanes)
        && known.random_loss_ppm <= 1_000_000
}

fn find_in(file: &Path, path: &PathName) -> Option<KnownPath> {
    read(file).iter().rev().find_map(|line| parse(line.strip_prefix(path.0.as_str())?))
}

fn read(file: &Path) -> Vec<String> {
    let text = own_files::read(file, MAX_FILE_BYTES).ok().and_then(|bytes| String::from_utf8(bytes).ok());
    ours(&text.unwrap_or_default()).map(str::to_owned).collect()
}

fn ours(text: &str) -> impl Iterator<Item = &str> {
    text.lines().filter(|line| line.find(FIRST_WORD).is_some_and(|at| parse(&line[at..]).is_some()))
}

/// Checks a write, for the fuzz targets.
#[cfg(feature = "testing")]
pub fn survive_the_disk(text: &str) {
    for ours in ours(text) {
        let at = ours.find(FIRST_WORD).expect("ours has it");
        let known = parse(&ours[at..]).expect("ours is one");
        assert!(is_sound(&known));
        assert_eq!(parse(&line(&known)), Some(known));
    }
}

/// Two jobs that end at once may lose a line.
fn write(file: &Path, path: &PathName, known: &KnownPath) -> io::Result<()> {
    let known = KnownPath { lanes: known.lanes.min(AUTO_LANES_MAX), ..known.clone() };
    if !is_sound(&known) {
        return Err(io::ErrorKind::InvalidData.into());
    }
    let mut lines = read(file);
    lines.retain(|line| !line.starts_with(&path.0));
    lines.push(format!("{}{}", path.0, line(&known)));
    let lines = &lines[lines.len().saturating_sub(MAX_PATHS)..];
    own_files::write_whole(file, (lines.join("\n") + "\n").as_bytes())
}

const FIRST_WORD: &str = " rtt_us ";

fn line(known: &KnownPath) -> String {
    format!(
        "{FIRST_WORD}{} bytes_per_s {} lanes {} loss_ppm {} cc {}",
        known.rtt_min_us, known.capacity_bytes_per_s, known.lanes, known.random_loss_ppm, known.congestion_control
    )
}

fn parse(text: &str) -> Option<KnownPath> {
    let mut words = text.split_whitespace();
    let mut value = |name: &str| words.next().filter(|word| *word == name).and_then(|_| words.next());
    let known = KnownPath {
        rtt_min_us: value("rtt_us")?.parse().ok()?,
        capacity_bytes_per_s: value("bytes_per_s")?.parse().ok()?,
        lanes: value("lanes")?.parse().ok()?,
        random_loss_ppm: value("loss_ppm")?.parse().ok()?,
        congestion_control: value("cc")?.to_owned(),
    };
    (words.next().is_none() && is_sound(&known)).then_some(known)
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
    use std::fs;

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
        PathName::between(IpAddr::from([10, 0, 0, 7]), IpAddr::from(peer), direction).unwrap()
    }

    #[test]
    fn a_line_is_read_as_it_was_written() {
        assert_eq!(parse(&line(&known(14))), Some(known(14)));
        for broken in ["", " rtt_us x", " rtt_us 1 bytes_per_s 2 lanes 70000 loss_ppm 0 cc bbr", " lanes 3"] {
            assert_eq!(parse(broken), None, "{broken}");
        }
    }

    #[test]
    fn what_no_honest_peer_says_is_neither_kept_nor_read() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        let (path, other) = (path([192, 0, 2, 1], Direction::From), path([198, 51, 100, 7], Direction::To));
        let forged = format!("bbr\n{}{}", other.0, line(&known(8)));
        let ones: [&dyn Fn(&mut KnownPath); 9] = [
            &|known| known.congestion_control = forged.clone(),
            &|known| known.congestion_control = "x".repeat(4096),
            &|known| known.congestion_control.clear(),
            &|known| known.capacity_bytes_per_s = 1,
            &|known| known.capacity_bytes_per_s = u64::MAX,
            &|known| known.rtt_min_us = 1,
            &|known| known.rtt_min_us = u32::MAX,
            &|known| known.lanes = 0,
            &|known| known.random_loss_ppm = 1_000_001,
        ];
        for spoil in ones {
            let mut known = known(14);
            spoil(&mut known);
            assert!(write(&file, &path, &known).is_err(), "{known:?}");
            assert!(!is_sound(&known) && parse(&line(&known)).is_none(), "{known:?}");
            assert_eq!((find_in(&file, &path), find_in(&file, &other)), (None, None), "{known:?}");
        }
        write(&file, &path, &known(256)).unwrap();
        assert_eq!(find_in(&file, &path), Some(known(AUTO_LANES_MAX)));
    }

    #[test]
    fn lines_that_are_not_ours_are_passed_over_and_go() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("paths");
        let (path, other) = (path([192, 0, 2, 1], Direction::To), path([192, 0, 3, 1], Direction::To));
        let slow = line(&KnownPath { capacity_bytes_per_s: 1, ..known(8) });
        fs::write(&file, format!("nonsense\n{}{slow}\n{}{} more\n", path.0, path.0, line(&known(8)))).unwrap();
        assert_eq!(find_in(&file, &path), None);
        write(&file, &other, &known(3)).unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), format!("{}{}\n", other.0, line(&known(3))));
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
