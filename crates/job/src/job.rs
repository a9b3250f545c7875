//! One copy job, free of flags: the command line and (later) the daemon's API build a [`Job`].

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

/// A copy job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// The sources, all at one place.
    pub sources: Vec<Endpoint>,
    /// The target.
    pub target: Endpoint,
    /// Further hosts of the far end; at most [`MAX_MOVERS`](haul_wire::limits::MAX_MOVERS).
    pub movers: Vec<Far>,
    /// The only paths (`--files-from`).
    pub files_from: Option<Arc<FileList>>,
    /// Which entries are copied, and how faithfully.
    pub selection: Selection,
    /// The way the bytes travel.
    pub carriage: Carriage,
    /// Calls of ssh.
    pub ssh: SshOptions,
}

impl Job {
    /// The sources' paths, as typed.
    pub fn source_paths(&self) -> Vec<Vec<u8>> {
        self.sources.iter().map(|source| source.path.clone()).collect()
    }
}

/// A path at a place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Endpoint {
    /// The machine.
    pub place: Place,
    /// The path as typed: a trailing slash means the contents, a remote `~/` the home directory. The far side expands wildcards
    /// if no file has that literal name.
    pub path: Vec<u8>,
}

/// Where a tree lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// The copy's own process reads or writes.
    Here(Here),
    /// A haul on another machine does.
    Far(Far),
}

/// A tree of this process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Here {
    /// Local file systems.
    Disk,
    /// A file of `bytes` zeros; only a source, with an empty path.
    Zero {
        /// The size.
        bytes: u64,
    },
    /// A recording striped over directories, read as one file; only a source. The path is that of its index.
    Stripes {
        /// Directories of stripes, in any order.
        directories: Vec<PathBuf>,
    },
    /// A tree at an SFTP host, through the system's `ssh`.
    Sftp {
        /// Login name.
        user: Option<String>,
        /// Host name or alias; never empty, never starting with a dash.
        host: String,
        /// Port from the URL; overrides `-P`.
        port: Option<u16>,
    },
    /// A web server; a target only with WebDAV. The path is that of the URL, with its query.
    Web(WebServer),
    /// A server of FTP. The path begins where the server starts, or at a slash.
    Ftp(FtpServer),
    /// A server of GridFTP. The system's `ssh` carries control, not data.
    SshFtp {
        /// Login name.
        user: Option<String>,
        /// Host name or alias, as for SFTP.
        host: String,
        /// Port from the URL; overrides `-P`.
        port: Option<u16>,
    },
    /// Objects of an S3 store. The path is a key or its beginning; empty: the bucket.
    S3 {
        /// The bucket.
        bucket: String,
    },
    /// Nowhere: arriving bytes are verified and discarded; only a target, with an empty path.
    Null,
}

/// A web server and our login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebServer {
    /// `https` or `davs`; otherwise `http` or `dav`.
    pub is_tls: bool,
    /// Whether it lists by WebDAV, and can be a target.
    pub is_dav: bool,
    /// Name or address, without brackets, in lower case.
    pub host: String,
    /// The port, even a usual one.
    pub port: u16,
    /// The login of the URL.
    pub login: Option<WebLogin>,
}

/// A server of FTP and our login.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FtpServer {
    /// `ftps`: nothing goes in clear, even if the server offers no TLS.
    pub is_tls: bool,
    /// `gsiftp`: GridFTP without certificates.
    pub is_grid: bool,
    /// Name or address, as for the web.
    pub host: String,
    /// The port, even a usual one.
    pub port: u16,
    /// The login of the URL.
    pub login: Option<WebLogin>,
}

impl FtpServer {
    /// The port of `ftp` or `ftps`.
    pub fn usual_port(is_tls: bool) -> u16 {
        if is_tls { 990 } else { 21 }
    }

    /// `gsiftp`.
    pub const GRID_PORT: u16 = 2811;
}

/// A name and a password, never printed.
#[derive(Clone, PartialEq, Eq)]
pub struct WebLogin {
    /// The user.
    pub user: String,
    /// The password, maybe empty.
    pub password: String,
}

impl fmt::Debug for WebLogin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("WebLogin(...)")
    }
}

/// A machine with another haul.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Far {
    /// A host or alias for the system's `ssh`.
    Ssh {
        /// Login name.
        user: Option<String>,
        /// Host name or alias; never empty, never starting with a dash.
        host: String,
        /// Port from the URL; overrides `-P`.
        port: Option<u16>,
    },
    /// A daemon (`haul serve`).
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
    /// Data connections; `None` chooses.
    pub lanes: Option<u16>,
    /// Highest payload rate in bytes per second.
    pub rate_bytes_per_s: Option<u64>,
    /// TLS 1.3 cipher; `None` chooses.
    pub cipher: Option<Cipher>,
    /// Whether data goes unencrypted (`--cipher none`): others can read, not change it.
    pub clear: bool,
    /// Compression (`-z`).
    pub compress: bool,
    /// Ports for the lanes.
    pub port_range: Option<(u16, u16)>,
    /// Longest silence of the peer.
    pub timeout: Duration,
    /// Whether data goes through here (`-3`).
    pub through_here: bool,
    /// Whether lanes go inside ssh sessions at once.
    pub lanes_over_ssh: bool,
    /// Forced address family (`-4`, `-6`).
    pub family: Option<Family>,
    /// Congestion control; `None` chooses.
    pub congestion_control: Option<String>,
    /// Bytes under way on a lane; `None` chooses.
    pub window_bytes: Option<u64>,
    /// Paths of the lanes.
    pub paths: AskedPaths,
    /// Protocol of the lanes.
    pub transport: Transport,
    /// Route from file to connection; `None` chooses.
    pub route: Option<SendRoute>,
    /// Writing of large files; `None` measures.
    pub write_route: Option<WriteRoute>,
    /// The request to a shared network.
    pub service: Service,
    /// Whether files go front to back.
    pub in_order: bool,
}

/// The request to a shared network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// Class of the lanes.
    pub class: AskedClass,
    /// The rate that makes priority unnecessary.
    pub floor_bytes_per_s: Option<u64>,
    /// The deadline.
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
    /// Whether an address belongs to this family.
    pub fn has(self, address: IpAddr) -> bool {
        match self {
            Self::V4 => address.to_canonical().is_ipv4(),
            Self::V6 => address.to_canonical().is_ipv6(),
        }
    }
}

/// TLS 1.3 cipher suites.
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

/// Calls of ssh, and the far program.
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
    /// Whether to log in anew and keep no login.
    pub fresh_login: bool,
    /// Path of `haul` there; nothing is installed.
    pub remote_program: Option<String>,
    /// Identity key of `haul://` places, default `~/.config/haul/id_ed25519`.
    pub haul_identity: Option<PathBuf>,
    /// Known hosts of `haul://` places, default `~/.config/haul/known_hosts`.
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

/// Silence after which a peer counts as dead. Pings go out every quarter of it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Place {
    /// Whether this machine is enough.
    pub fn is_here(&self) -> bool {
        self.far().is_none()
    }

    /// The cut of files copied there. A store takes at most 10,000 parts, all but the last of at least 5 MiB: with 8 MiB, the
    /// next power of two, each part is a whole BLAKE3 subtree.
    pub fn cut(&self) -> Cut {
        const OF_STORES: Cut = Cut::new(8 << 20, 10_000).expect("a rule that layouts can follow");
        match self {
            Self::Here(Here::S3 { .. }) => OF_STORES,
            Self::Here(_) | Self::Far(_) => Cut::USUAL,
        }
    }

    /// The ssh login that leads there, if any.
    pub fn login(&self) -> Option<Far> {
        match self {
            Self::Here(Here::Sftp { user, host, port } | Here::SshFtp { user, host, port }) => {
                Some(Far::Ssh { user: user.clone(), host: host.clone(), port: *port })
            }
            Self::Here(_) => None,
            Self::Far(far) => Some(far.clone()),
        }
    }

    /// The other machine, if needed.
    pub fn far(&self) -> Option<&Far> {
        match self {
            Self::Here(_) => None,
            Self::Far(far) => Some(far),
        }
    }
}

impl Here {
    /// The proof of a tree that this process read here and hashed. The copy itself compares sums of a store.
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
            Self::Haul { host, port } if host.contains(':') => write!(f, "haul://[{host}]:{port}"),
            Self::Haul { host, port } => write!(f, "haul://{host}:{port}"),
        }
    }
}
