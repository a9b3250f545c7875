//! One copy job, free of flags.
//!
//! The command line and (later) the daemon's API both build a [`Job`]; past this point nobody knows flags.

use std::ffi::OsString;
use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use haul_pump::SendRoute;

use crate::event::Proof;

pub use haul_engine::paths::{Asked as AskedPaths, AskedPath};
pub use haul_engine::service::{AskedClass, ServiceClass};
pub use haul_net::way::Protocol as Transport;
pub use haul_store::{
    CVS_PATTERNS, FileList, FileListBuilder, FilterRule, ListFault, MergeFile, MergeFormat, PatternRule, ReadRule,
    RuleTraits, Sides, WriteRoute, read_rule,
};
pub use haul_wire::control::{
    AccountRule, Accounts, Backup, Cut, Drafts, Entries, ModeChange, OfReference, References, Selection, Wish, Wishes,
};

/// A copy job: any number of sources, one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The sources. All live at one place (`sources[i].place` are all equal).
    pub sources: Vec<Endpoint>,
    /// The target.
    pub target: Endpoint,
    /// Further hosts of the end that is not here, with the same files as the first one; at most [`MAX_MOVERS`](haul_wire::limits::MAX_MOVERS).
    pub movers: Vec<Far>,
    /// Only these paths (relative to the single source directory), when given (`--files-from`).
    pub files_from: Option<Arc<FileList>>,
    /// The selection: which entries are copied, and how faithfully.
    pub selection: Selection,
    /// The way the bytes travel.
    pub carriage: Carriage,
    /// How the system's ssh program is called.
    pub ssh: SshOptions,
}

impl Job {
    /// The paths of all sources, as they were typed.
    pub fn source_paths(&self) -> Vec<Vec<u8>> {
        self.sources.iter().map(|source| source.path.clone()).collect()
    }
}

/// A path at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The machine.
    pub place: Place,
    /// The path there, as typed: a trailing slash means the contents, a remote `~/` the home directory. Remote sources
    /// may contain wildcards, expanded at the far side if no file has that literal name.
    pub path: Vec<u8>,
}

/// Where a tree lives. A new kind is a variant of [`Here`] or [`Far`]: every match then has to say what becomes of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The copy's own process reads or writes the tree.
    Here(Here),
    /// Another haul reads or writes it, on another machine.
    Far(Far),
}

/// A tree that the process of the copy reads or writes by itself.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    /// The file systems of this machine.
    Disk,
    /// A file of `bytes` zeros, made where the copy is started. Only a source; the path is empty.
    Zero {
        /// Its size.
        bytes: u64,
    },
    /// A recording striped over directories, read as one file where the copy is started. Only a source; the path is
    /// that of its index.
    Stripes {
        /// Where its stripes are looked for, in any order.
        directories: Vec<PathBuf>,
    },
    /// A tree at a host that speaks SFTP, where no haul runs. The copy's own process reads or writes it through the
    /// system's `ssh` program.
    Sftp {
        /// Login name, when given.
        user: Option<String>,
        /// Host name or alias; never empty, never starting with a dash.
        host: String,
        /// Port from `sftp://host:port/`; overrides `-P`.
        port: Option<u16>,
    },
    /// Files and directories of a web server. A target only with WebDAV; the path is that of the URL, with its query.
    Web(WebServer),
    /// A tree at a server of FTP. The path begins where the server starts, unless a slash stands in front.
    Ftp(FtpServer),
    /// A tree at a server of GridFTP whose control connections go through the system's `ssh` program. Its data does not.
    SshFtp {
        /// Login name, when given.
        user: Option<String>,
        /// Host name or alias; never empty, never starting with a dash.
        host: String,
        /// Port from `sshftp://host:port/`; overrides `-P`.
        port: Option<u16>,
    },
    /// Objects of a store that speaks S3. The path is a key, or a beginning of keys; empty: the whole bucket.
    S3 {
        /// The name of the bucket.
        bucket: String,
    },
    /// Nowhere: bytes that arrive where the copy is started are verified and discarded. Only a target; the path is
    /// empty.
    Null,
}

/// A web server, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebServer {
    /// `https` or `davs`; otherwise `http` or `dav`.
    pub is_tls: bool,
    /// It speaks WebDAV (`dav`, `davs`): it lists its directories by that, and can be a target.
    pub is_dav: bool,
    /// A name or an address, without brackets, in lower case.
    pub host: String,
    /// The port, also where it is the usual one.
    pub port: u16,
    /// The login that was typed in the URL.
    pub login: Option<WebLogin>,
}

/// A server of FTP, and who we are to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtpServer {
    /// `ftps`: nothing goes in clear, not even if the server offers no TLS.
    pub is_tls: bool,
    /// `gsiftp`: it speaks GridFTP, without certificates.
    pub is_grid: bool,
    /// A name or an address, without brackets, in lower case.
    pub host: String,
    /// The port, also where it is the usual one.
    pub port: u16,
    /// The login that was typed in the URL.
    pub login: Option<WebLogin>,
}

impl FtpServer {
    /// The port of `ftp`, and that of `ftps`, where TLS begins with the first byte.
    pub fn usual_port(is_tls: bool) -> u16 {
        if is_tls { 990 } else { 21 }
    }

    /// The port of `gsiftp`.
    pub const GRID_PORT: u16 = 2811;
}

/// A user's name and password. They are never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct WebLogin {
    /// The user's name.
    pub user: String,
    /// The password; empty if there is none.
    pub password: String,
}

impl fmt::Debug for WebLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebLogin(...)")
    }
}

/// A machine where another haul takes part, and the way to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Far {
    /// A host reached through the system's `ssh` program, which interprets `host` (aliases of `~/.ssh/config` work).
    Ssh {
        /// Login name, when given.
        user: Option<String>,
        /// Host name or alias; never empty, never starting with a dash.
        host: String,
        /// Port from `ssh://host:port/`; overrides `-P`.
        port: Option<u16>,
    },
    /// A `haul serve` daemon.
    Haul {
        /// Host name or address.
        host: String,
        /// TCP port.
        port: u16,
    },
}

/// The way the bytes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carriage {
    /// Number of data connections; `None` chooses by the path.
    pub lanes: Option<u16>,
    /// Upper bound of the payload rate in bytes per second.
    pub rate_bytes_per_s: Option<u64>,
    /// TLS 1.3 cipher; `None` takes what both CPUs do well.
    pub cipher: Option<Cipher>,
    /// Do not encrypt the data connections (`--cipher none`): others on the way can read, but not change them.
    pub clear: bool,
    /// Compress data on the wire (`-z`).
    pub compress: bool,
    /// Ports the listening side may use for the lanes.
    pub port_range: Option<(u16, u16)>,
    /// Give up when nothing arrives from the peer for this long.
    pub timeout: Duration,
    /// Route a host-to-host copy through this machine (`-3`).
    pub through_here: bool,
    /// Carry the lanes inside further ssh sessions without trying direct connections.
    pub lanes_over_ssh: bool,
    /// Address family, when forced with `-4` or `-6`.
    pub family: Option<Family>,
    /// Congestion control asked for by name; `None` chooses by the path.
    pub congestion_control: Option<String>,
    /// Bytes that one lane may have under way; `None` follows from the path.
    pub window_bytes: Option<u64>,
    /// Which paths through the network the lanes use.
    pub paths: AskedPaths,
    /// The protocol that carries the lanes.
    pub transport: Transport,
    /// How the sender gets bytes from a file into a connection; `None` takes what is cheapest.
    pub route: Option<SendRoute>,
    /// How the receiver writes large files; `None` measures, where there is a choice.
    pub write_route: Option<WriteRoute>,
    /// The request to a network that others use, too.
    pub service: Service,
    /// The target takes the bytes of a file from front to back only. It follows from the target.
    pub in_order: bool,
}

/// The request to a network that others use, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The class of the data connections.
    pub class: AskedClass,
    /// While the job has this rate, it asks for no priority.
    pub floor_bytes_per_s: Option<u64>,
    /// The time by which the job shall be done.
    pub deadline: Option<SystemTime>,
}

/// IPv4 or IPv6.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// IPv4 only.
    V4,
    /// IPv6 only.
    V6,
}

impl Family {
    /// Whether an address is of this family.
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.to_canonical().is_ipv4(),
            Self::V6 => address.to_canonical().is_ipv6(),
        }
    }
}

/// TLS 1.3 cipher suites by their short names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cipher {
    /// TLS_AES_128_GCM_SHA256
    Aes128Gcm,
    /// TLS_AES_256_GCM_SHA384
    Aes256Gcm,
    /// TLS_CHACHA20_POLY1305_SHA256
    Chacha20Poly1305,
}

impl From<Cipher> for haul_net::Cipher {
    fn from(cipher: Cipher) -> Self {
        match cipher {
            Cipher::Aes128Gcm => Self::Aes128Gcm,
            Cipher::Aes256Gcm => Self::Aes256Gcm,
            Cipher::Chacha20Poly1305 => Self::Chacha20Poly1305,
        }
    }
}

/// How the system's ssh program is called, and what runs at the far side.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SshOptions {
    /// The program (`-S`); default `ssh`.
    pub program: Option<OsString>,
    /// `-P`
    pub port: Option<u16>,
    /// `-i`, repeated
    pub identities: Vec<PathBuf>,
    /// `-F`
    pub config: Option<PathBuf>,
    /// `-J`
    pub jump: Option<String>,
    /// `-o`, repeated
    pub options: Vec<OsString>,
    /// Log in anew, and keep no login for the next copy to the same host.
    pub fresh_login: bool,
    /// Path of `haul` at the far side; no copy of ours is put there then.
    pub remote_program: Option<String>,
    /// For `haul://` places: the identity key file, default `~/.config/haul/id_ed25519`.
    pub haul_identity: Option<PathBuf>,
    /// For `haul://` places: the known-hosts file, default `~/.config/haul/known_hosts`.
    pub haul_known_hosts: Option<PathBuf>,
}

impl Default for Carriage {
    fn default() -> Self {
        Self {
            lanes: None,
            rate_bytes_per_s: None,
            cipher: None,
            clear: false,
            compress: false,
            port_range: None,
            timeout: DEFAULT_TIMEOUT,
            through_here: false,
            lanes_over_ssh: false,
            family: None,
            congestion_control: None,
            window_bytes: None,
            paths: AskedPaths::Auto,
            transport: Transport::Tcp,
            route: None,
            write_route: None,
            service: Service::default(),
            in_order: false,
        }
    }
}

/// A peer that is silent for this long counts as dead. Pings go out every quarter of it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Place {
    /// Whether no other machine is needed to get there.
    pub fn is_here(&self) -> bool {
        self.far().is_none()
    }

    /// How files are cut that are copied there. A store of objects takes at most 10,000 parts, all but the last of at least 5 MiB: 8 MiB
    /// is the next power of two, so that each part is a whole subtree of the file's BLAKE3 tree.
    pub fn cut(&self) -> Cut {
        const OF_STORES: Cut = Cut::new(8 << 20, 10_000).expect("a rule that layouts can follow");
        match self {
            Self::Here(Here::S3 { .. }) => OF_STORES,
            Self::Here(_) | Self::Far(_) => Cut::USUAL,
        }
    }

    /// The place over ssh that this one is reached like; `None`: no login of ssh leads there.
    pub fn login(&self) -> Option<Far> {
        match self {
            Self::Here(Here::Sftp { user, host, port } | Here::SshFtp { user, host, port }) => {
                Some(Far::Ssh { user: user.clone(), host: host.clone(), port: *port })
            }
            Self::Here(_) => None,
            Self::Far(far) => Some(far.clone()),
        }
    }

    /// The other machine; `None`: this one is enough.
    pub fn far(&self) -> Option<&Far> {
        match self {
            Self::Here(_) => None,
            Self::Far(far) => Some(far),
        }
    }
}

impl Here {
    /// What is proved of a tree that was read from this end, and hashed by this process. Where a store keeps sums, the copy compares them,
    /// and says so itself.
    pub fn proof_of_reading(&self) -> Proof {
        match self {
            Self::Disk | Self::Zero { .. } | Self::Stripes { .. } | Self::Null => Proof::BothEnds,
            Self::Sftp { .. } => Proof::AsRead,
            Self::Web(_) | Self::Ftp(_) | Self::SshFtp { .. } | Self::S3 { .. } => Proof::AsSent,
        }
    }
}

impl From<Here> for Place {
    fn from(here: Here) -> Self {
        Self::Here(here)
    }
}

impl From<Far> for Place {
    fn from(far: Far) -> Self {
        Self::Far(far)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Here(here) => here.fmt(f),
            Self::Far(far) => far.fmt(f),
        }
    }
}

impl fmt::Display for Here {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Disk => f.write_str("this machine"),
            Self::Zero { bytes } => write!(f, "zero:{bytes}"),
            Self::Stripes { .. } => f.write_str("stripes:"),
            Self::Sftp { user, host, port } | Self::SshFtp { user, host, port } => {
                f.write_str(if matches!(self, Self::Sftp { .. }) { "sftp://" } else { "sshftp://" })?;
                user.iter().try_for_each(|user| write!(f, "{user}@"))?;
                // RFC 3986: an address with colons stands in brackets.
                if host.contains(':') {
                    write!(f, "[{host}]")?
                } else {
                    f.write_str(host)?
                }
                port.iter().try_for_each(|port| write!(f, ":{port}"))
            }
            Self::Web(server) => server.fmt(f),
            Self::Ftp(server) => server.fmt(f),
            Self::S3 { bucket } => write!(f, "s3://{bucket}"),
            Self::Null => f.write_str("null:"),
        }
    }
}

impl fmt::Display for WebServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual_port) = match (self.is_tls, self.is_dav) {
            (true, false) => ("https", 443),
            (false, false) => ("http", 80),
            (true, true) => ("davs", 443),
            (false, true) => ("dav", 80),
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port == usual_port {
            true => write!(f, "{scheme}://{host}"),
            false => write!(f, "{scheme}://{host}:{}", self.port),
        }
    }
}

impl fmt::Display for FtpServer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (scheme, usual_port) = match (self.is_grid, self.is_tls) {
            (true, _) => ("gsiftp", Self::GRID_PORT),
            (false, true) => ("ftps", Self::usual_port(true)),
            (false, false) => ("ftp", Self::usual_port(false)),
        };
        let host = if self.host.contains(':') { format!("[{}]", self.host) } else { self.host.clone() };
        match self.port == usual_port {
            true => write!(f, "{scheme}://{host}"),
            false => write!(f, "{scheme}://{host}:{}", self.port),
        }
    }
}

impl fmt::Display for Far {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ssh { user: Some(user), host, .. } => write!(f, "{user}@{host}"),
            Self::Ssh { user: None, host, .. } => f.write_str(host),
            // RFC 3986: an address with colons stands in brackets.
            Self::Haul { host, port } if host.contains(':') => write!(f, "haul://[{host}]:{port}"),
            Self::Haul { host, port } => write!(f, "haul://{host}:{port}"),
        }
    }
}
