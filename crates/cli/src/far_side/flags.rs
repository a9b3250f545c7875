//! Flags of several commands for reaching the far side and for data connections.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use haul_job::{AskedPath, AskedPaths, DeviceName, MAX_PATHS, Transport};

use crate::flags::headings::{REACH, TRAVEL};
use crate::flags::values::{PortRange, parse_congestion_control, parse_port, parse_port_range, whole};

/// Data connections.
#[derive(Clone, Debug, Args)]
pub struct Connections {
    /// Data connections: 1 to 256, or 'auto' for what the path needs
    #[arg(long, value_name = "N|auto", default_value = "auto", value_parser = parse_lanes, allow_hyphen_values = true)]
    #[arg(help_heading = TRAVEL)]
    pub lanes: Lanes,
    /// Paths through the network: 'auto' for every path that is of use, 'one', or interfaces and addresses of this
    /// host, with commas, such as eth0,eth1 or 10.0.1.5=192.0.2.7 (from, to)
    #[arg(long = "paths", value_name = "auto|one|LIST", default_value = "auto", value_parser = parse_paths)]
    #[arg(help_heading = TRAVEL)]
    pub network_paths: AskedPaths,
    /// What carries the data connections: 'tcp', or 'mptcp' where a network allows one connection only
    #[arg(long, value_name = "tcp|mptcp", default_value = "tcp", help_heading = TRAVEL)]
    pub transport: TransportName,
    /// Congestion control of the data connections, such as bbr or cubic
    #[arg(long, value_name = "NAME", value_parser = parse_congestion_control, help_heading = TRAVEL)]
    pub cc: Option<String>,
    /// Ports the listening side may use for data, such as 50000-50010
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_port_range, allow_hyphen_values = true)]
    #[arg(help_heading = TRAVEL)]
    pub port_range: Option<PortRange>,
}

/// How the far side is reached.
#[derive(Clone, Debug, Args)]
pub struct Reach {
    /// Port of the ssh server
    #[arg(short = 'P', value_name = "PORT", value_parser = parse_port, allow_hyphen_values = true, help_heading = REACH)]
    pub port: Option<u16>,
    /// Identity file for ssh; may be repeated
    #[arg(short = 'i', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REACH)]
    pub ssh_identity: Vec<PathBuf>,
    /// Configuration file for ssh
    #[arg(short = 'F', value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REACH)]
    pub ssh_config: Option<PathBuf>,
    /// Jump host for ssh
    #[arg(short = 'J', value_name = "HOST", value_hint = ValueHint::Hostname, value_parser = parse_jump, help_heading = REACH)]
    pub jump: Option<String>,
    /// Option for ssh, such as StrictHostKeyChecking=yes; may be repeated
    #[arg(short = 'o', value_name = "OPTION", help_heading = REACH)]
    pub ssh_option: Vec<OsString>,
    /// The ssh program
    #[arg(short = 'S', value_name = "PROGRAM", value_hint = ValueHint::CommandName, help_heading = REACH)]
    pub ssh_program: Option<OsString>,
    /// The ssh program with options, as in rsync: -e 'ssh -p 2222 -i key'
    #[arg(short = 'e', long, value_name = "COMMAND", allow_hyphen_values = true, conflicts_with = "ssh_program")]
    #[arg(help_heading = REACH)]
    pub rsh: Option<String>,
    /// IPv4 only
    #[arg(short = '4', long, conflicts_with = "ipv6", help_heading = REACH)]
    pub ipv4: bool,
    /// IPv6 only
    #[arg(short = '6', long, help_heading = REACH)]
    pub ipv6: bool,
    /// Log in anew for each copy. Without this flag a login to a host is kept for a minute after a copy, for the next one
    #[arg(long, help_heading = REACH)]
    pub no_keep_login: bool,
    /// Path of haul at the far side; without it haul puts a copy of itself there
    #[arg(long, value_name = "PATH", help_heading = REACH)]
    pub haul_path: Option<String>,
    /// Key for haul:// addresses; ~/.config/haul/id_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REACH)]
    pub identity: Option<PathBuf>,
    /// Known hosts for haul:// addresses; ~/.config/haul/known_hosts without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = REACH)]
    pub known_hosts: Option<PathBuf>,
}

/// `--lanes`; `None` is `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lanes(pub Option<u16>);

/// `--transport`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TransportName {
    Tcp,
    Mptcp,
}

impl From<TransportName> for Transport {
    fn from(name: TransportName) -> Self {
        match name {
            TransportName::Tcp => Self::Tcp,
            TransportName::Mptcp => Self::Mptcp,
        }
    }
}

fn parse_lanes(text: &str) -> Result<Lanes, String> {
    if text == "auto" {
        return Ok(Lanes(None));
    }
    match whole(text) {
        Some(n) if (1..=u64::from(MAX_LANES)).contains(&n) => Ok(Lanes(Some(n as u16))),
        _ => Err(format!("a number from 1 to {MAX_LANES}, or auto")),
    }
}

/// An interface's name cannot look like an address: the kernel allows no colon, and nobody calls one 10.0.0.1.
fn parse_paths(text: &str) -> Result<AskedPaths, String> {
    let path = |word: &str| match word.split_once('=') {
        Some((local, remote)) => Some(AskedPath::Pair(local.parse().ok()?, remote.parse().ok()?)),
        None => match word.parse() {
            Ok(local) => Some(AskedPath::Local(local)),
            Err(_) => word.parse::<DeviceName>().ok().map(|name| AskedPath::Interface(name.as_str().to_owned())),
        },
    };
    let list = || {
        let found: Option<Vec<AskedPath>> = text.split(',').map(path).collect();
        found.filter(|list| list.len() <= usize::from(MAX_PATHS))
    };
    match text {
        "auto" => Ok(AskedPaths::Auto),
        "one" => Ok(AskedPaths::One),
        _ => list().map(AskedPaths::List).ok_or_else(|| {
            format!(
                "auto, one, or up to {MAX_PATHS} of: an interface (eth0), an address of this host (10.0.1.5), or a pair \
                 (10.0.1.5=192.0.2.7), with commas"
            )
        }),
    }
}

/// A daemon cannot name its clients' addresses.
pub fn parse_own_paths(text: &str) -> Result<AskedPaths, String> {
    let asked = parse_paths(text)?;
    match &asked {
        AskedPaths::List(list) if list.iter().any(|path| matches!(path, AskedPath::Pair(..))) => {
            Err("interfaces (eth0) and addresses (10.0.1.5) of this host only: clients have addresses of their own"
                .to_owned())
        }
        _ => Ok(asked),
    }
}

pub fn parse_jump(text: &str) -> Result<String, String> {
    let bad = text.is_empty() || text.starts_with('-') || text.chars().any(|c| c.is_control() || c.is_whitespace());
    if bad {
        Err("a host as ssh takes it: [user@]host[:port], several with commas".to_owned())
    } else {
        Ok(text.to_owned())
    }
}

/// More lanes help no path, and each costs a thread and two buffers at both ends.
pub const MAX_LANES: u16 = 256;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_is_set_to_its_own_interfaces_and_addresses_and_not_to_those_of_its_clients() {
        let list = AskedPaths::List(vec![AskedPath::Interface("eth0".into()), AskedPath::Local([10, 0, 1, 5].into())]);
        assert_eq!(parse_own_paths("eth0,10.0.1.5"), Ok(list));
        assert_eq!((parse_own_paths("auto"), parse_own_paths("one")), (Ok(AskedPaths::Auto), Ok(AskedPaths::One)));
        assert!(parse_own_paths("10.0.1.5=192.0.2.7").unwrap_err().contains("clients have addresses of their own"));
        assert!(parse_own_paths("eth0,").is_err());
    }
}
