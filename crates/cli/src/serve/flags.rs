//! The flags of `haul serve`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use haul_job::AskedPaths;

use crate::far_side::flags::parse_own_paths;
use crate::flags::values::parse_port;

/// `haul serve`
#[derive(Debug, Args)]
#[command(after_help = SERVE_HELP)]
pub struct Serve {
    /// Address and port to listen on; [::]:7632 without this flag, which includes IPv4
    #[arg(long, value_name = "ADDR:PORT", conflicts_with = "port")]
    pub listen: Option<SocketAddr>,
    /// Port to listen on, at every address
    #[arg(long, value_name = "PORT", value_parser = parse_port, allow_hyphen_values = true)]
    pub port: Option<u16>,
    /// Addresses of this host for its clients. 'auto' is all of them. 'one' is the address that the client knows. Or a
    /// list of interfaces and addresses: eth0,10.0.1.5. Where a client cannot dial, the daemon dials from these
    #[arg(long = "paths", value_name = "auto|one|LIST", default_value = "auto", value_parser = parse_own_paths)]
    pub network_paths: AskedPaths,
    /// The daemon's own key, made if it is missing; ~/.config/haul/host_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub identity: Option<PathBuf>,
    /// Keys that may log in, each with its directory; ~/.config/haul/authorized_keys without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub authorized_keys: Option<PathBuf>,
    /// Also show directories to readers of the web, in clear; [::]:8080 without an address
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "[::]:8080")]
    pub http: Option<SocketAddr>,
    /// The same over TLS; [::]:8443 without an address
    #[arg(long, value_name = "ADDR:PORT", num_args = 0..=1, default_missing_value = "[::]:8443", requires = "certificate")]
    pub https: Option<SocketAddr>,
    /// The certificate for --https and its chain, as PEM
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub certificate: Option<PathBuf>,
    /// Its private key, as PEM; in the same file without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub certificate_key: Option<PathBuf>,
    /// The directory that anybody may read over the web
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub public: Option<PathBuf>,
    /// Whose pages a browser lets read over the web: https://viewer.example, or '*' for any; may be repeated
    #[arg(long, value_name = "ORIGIN")]
    pub cors: Vec<String>,
    /// What clients may ask of networks (service classes); /etc/haul/policy.toml without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub policy: Option<PathBuf>,
    /// Network classes: how connections of which networks are treated; /etc/haul/networks.toml without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub networks: Option<PathBuf>,
    /// Read and judge all settings, say what is wrong, and open nothing
    #[arg(long)]
    pub check: bool,
    /// Log each file of a copy, too: who, which way, its path, size, time, and how it ended
    #[arg(long)]
    pub log_files: bool,
    /// Write the log as JSON, one object a line, from its first line to its last
    #[arg(long)]
    pub json: bool,
    /// Say nothing but errors
    #[arg(short = 'q', long)]
    pub quiet: bool,
}

const SERVE_HELP: &str = "\
The list of authorised keys has one line for each key: its rights, its
directory, the key as 'haul key show' prints it at the client, and a name for
the log. Paths with spaces stand in quotes.
  ro root=/data/public ed25519:KEY bob@lab
  rw root=\"/data/new sets\" ed25519:KEY alice@laptop
'rw clear' (or 'ro clear') also allows --cipher none. For that key,
haul://HOST/x is x in that directory, and nothing outside of it can be reached.
The path after root= may not lead through a symbolic link, nor to a place of
the daemon's own key or of this list. The list is read again when it changes.
The daemon has the rights of the account that runs it: an account of its own is
better than root. As root, 'user=NAME' in a line names the account that reads
and writes the files of that key:
  rw user=alice root=/data/alice ed25519:KEY alice@laptop
'rate=500Mbit', 'sessions=4' and 'day=10T' in a line limit what all sessions of
that key do together: the rate of their data, their number (16 without the
word), and the bytes of a day (UTC).
Over --http and --https, 'token:NAME' or 'cert:SHA256' in the place of the key
lets readers in who show a token of 'haul token' or a TLS certificate. Lines
with user= count for haul:// alone.
SIGHUP has the daemon look at its files now. systemd may hold its ports: the
names of the sockets are haul, http and https.";
