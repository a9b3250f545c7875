//! What was asked for: one job, free of flags, ready to be carried out.
//!
//! The command line and (later) the daemon's API both build a [`Job`]; past this point nobody knows flags.

use std::ffi::OsString;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use haul_pump::SendRoute;

pub use haul_engine::paths::{Asked as AskedPaths, AskedPath};
pub use haul_engine::service::{AskedClass, ServiceClass};
pub use haul_net::way::Protocol as Transport;
pub use haul_store::{
    CVS_PATTERNS, FileList, FileListBuilder, FilterRule, ListFault, MergeFile, MergeFormat, PatternRule, ReadRule,
    RuleTraits, Sides, WriteRoute, read_rule,
};
pub use haul_wire::control::{AccountRule, Accounts, Backup, Drafts, Entries, ModeChange, OfReference, References};

/// One copy job: any number of sources, one target.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Job {
    /// Where the data comes from. All sources live at one place (`sources[i].place` are all equal).
    pub sources: Vec<Endpoint>,
    /// Where it goes.
    pub target: Endpoint,
    /// Further hosts of the end that is not here, with the same files as the first one; at most [`MAX_MOVERS`](haul_wire::limits::MAX_MOVERS).
    pub movers: Vec<Place>,
    /// What is copied and how faithfully.
    pub selection: Selection,
    /// How the bytes travel.
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
    /// The path there, as typed: a trailing slash means "the contents of", a remote `~/` means the home directory.
    /// Remote sources may contain shell-style wildcards, expanded at the far side when no file has that literal name.
    pub path: Vec<u8>,
}

/// Where a tree lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Place {
    /// This machine.
    Local,
    /// A file of so many zeros, made where the copy is started. Only a source; the path is empty.
    Zero {
        /// Its size.
        bytes: u64,
    },
    /// A recording that is striped over directories, read as one file where the copy is started. Only a source; the path is that of its index.
    Stripes {
        /// Where its stripes are looked for, in any order.
        directories: Vec<PathBuf>,
    },
    /// Nowhere: what arrives where the copy is started is verified and let go. Only a target; the path is empty.
    Null,
    /// Reached through the system's `ssh` program, which interprets `host` (aliases of `~/.ssh/config` work).
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

/// What is copied and how faithfully.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Selection {
    /// Filter rules in the order given, rsync's meaning: the first that matches decides.
    pub rules: Vec<FilterRule>,
    /// Only these paths (relative to the single source directory), when given (`--files-from`).
    pub files_from: Option<Arc<FileList>>,
    /// Follow symbolic links at the source instead of copying them (`-L`).
    pub follow_links: bool,
    /// Owner (root at the target only; ignored with a word otherwise).
    pub owner: bool,
    /// Group; who is not root at the target can give files to its own groups only, and is told of others.
    pub group: bool,
    /// Set-user-id, set-group-id and sticky bits, as rsync's `-p`; all other permissions are always kept.
    pub special_bits: bool,
    /// Owners and groups by their numbers, not by their names.
    pub numeric_ids: bool,
    /// Keep hard links between files of the job (`-H`).
    pub hard_links: bool,
    /// Extended attributes of the `user.` namespace (and `trusted.`/`security.` when root) (`-X`).
    pub xattrs: bool,
    /// POSIX ACLs (`-A`).
    pub acls: bool,
    /// Recreate holes. True by default: only data is sent; the target gets holes where the source has them.
    pub sparse: bool,
    /// Delete what the source does not have (`--delete`).
    pub delete: bool,
    /// Of those, so many at most; the others stay and count as failed (`--max-delete`).
    pub max_delete: Option<u64>,
    /// Compare by content instead of size and modification time (`-c`, `--checksum`).
    pub checksum: bool,
    /// Skip files that are newer at the target (`-u`).
    pub update: bool,
    /// Skip files that exist at the target.
    pub ignore_existing: bool,
    /// Also delete what the rules exclude.
    pub delete_excluded: bool,
    /// Changes of modes, in their order.
    pub chmod: Vec<ModeChange>,
    /// Keep what is replaced or deleted under another name.
    pub backup: Option<Backup>,
    /// Trees beside the target that may have a file already.
    pub references: Option<References>,
    /// Who owns what a user of the source owns; the first that matches counts (`owner` must be asked for).
    pub user_map: Vec<AccountRule>,
    /// The same for groups.
    pub group_map: Vec<AccountRule>,
    /// Make nothing that does not exist at the target.
    pub existing: bool,
    /// Compare by size alone.
    pub size_only: bool,
    /// Send files also where size and time are equal.
    pub ignore_times: bool,
    /// Replace a directory with all that is in it where a file or link comes, also without `delete`.
    pub force: bool,
    /// Leave out files that are larger than this.
    pub max_size_bytes: Option<u64>,
    /// Leave out files that are smaller than this.
    pub min_size_bytes: Option<u64>,
    /// Do not enter directories of another file system than that of the source they belong to.
    pub one_file_system: bool,
    /// Remove each file and link of the source once the target has it; directories stay.
    pub remove_source_files: bool,
    /// Tell of each entry in what it differed ([`Event::Item`](crate::Event::Item)).
    pub itemise: bool,
    /// Which entries of the sources come, beyond the rules.
    pub entries: Entries,
    /// Where data stands until its file has its name.
    pub drafts: Drafts,
    /// Files only grow: one that is not shorter at the target stays (`--append-verify`).
    pub append: bool,
    /// Times that differ by so many seconds are equal, as with rsync's `--modify-window`; less than 0: to the nanosecond.
    /// `None`: to the nanosecond, or to the second where the target keeps no more.
    pub modify_window_s: Option<i32>,
    /// Say what would be done; change nothing (`-n`).
    pub dry_run: bool,
    /// Write into the final file instead of a temporary one (`--inplace`).
    pub inplace: bool,
    /// Do not continue partial files of an earlier run; start them over.
    pub no_resume: bool,
    /// Flush files and directories before they count as copied. True by default.
    pub flush: bool,
    /// Read each chunk back from the target's medium, past the page cache, before its file counts as copied; needs `flush`.
    pub verify_disk: bool,
    /// True: what an earlier run left counts as its journal says. False: it is read and hashed again before it gets its name.
    pub trust_journal: bool,
    /// Whether missing parent directories of the target are made (true by default, like `mkdir -p`).
    pub make_target: bool,
}

/// How the bytes travel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Carriage {
    /// Number of data connections; `None` chooses by the path.
    pub lanes: Option<u16>,
    /// Upper bound of the payload rate in bytes per second.
    pub rate_bytes_per_s: Option<u64>,
    /// TLS 1.3 cipher; `None` takes what both CPUs do well.
    pub cipher: Option<Cipher>,
    /// Do not encrypt the data connections (`--cipher none`): who listens can read, but not change what arrives.
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
    /// What carries the lanes.
    pub transport: Transport,
    /// How the sender gets bytes from a file into a connection; `None` takes what is cheapest.
    pub route: Option<SendRoute>,
    /// How the receiver writes large files; `None` measures, where there is a choice.
    pub write_route: Option<WriteRoute>,
    /// What is asked of a network that others use, too.
    pub service: Service,
}

/// What is asked of a network that others use, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Service {
    /// The class of the data connections.
    pub class: AskedClass,
    /// While the job has this rate, it asks for no priority.
    pub floor_bytes_per_s: Option<u64>,
    /// When the job shall be done.
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
    /// Whether an address is of it.
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

impl Default for Selection {
    fn default() -> Self {
        Self {
            rules: Vec::new(),
            files_from: None,
            follow_links: false,
            owner: false,
            group: false,
            special_bits: false,
            numeric_ids: false,
            hard_links: false,
            xattrs: false,
            acls: false,
            sparse: true,
            delete: false,
            max_delete: None,
            checksum: false,
            update: false,
            ignore_existing: false,
            delete_excluded: false,
            chmod: Vec::new(),
            backup: None,
            references: None,
            user_map: Vec::new(),
            group_map: Vec::new(),
            existing: false,
            size_only: false,
            ignore_times: false,
            force: false,
            max_size_bytes: None,
            min_size_bytes: None,
            one_file_system: false,
            remove_source_files: false,
            itemise: false,
            entries: Entries::default(),
            drafts: Drafts::default(),
            append: false,
            modify_window_s: None,
            dry_run: false,
            inplace: false,
            no_resume: false,
            flush: true,
            verify_disk: false,
            trust_journal: false,
            make_target: true,
        }
    }
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
        }
    }
}

/// A peer that says nothing for this long is taken for dead. Pings go out every quarter of it.
pub const DEFAULT_TIMEOUT: Duration = Duration::from_secs(60);

impl Place {
    /// True when no other machine is needed to get there.
    pub fn is_here(&self) -> bool {
        matches!(self, Place::Local | Place::Zero { .. } | Place::Stripes { .. } | Place::Null)
    }
}

impl std::fmt::Display for Place {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Place::Local => f.write_str("this machine"),
            Place::Zero { bytes } => write!(f, "zero:{bytes}"),
            Place::Stripes { .. } => f.write_str("stripes:"),
            Place::Null => f.write_str("null:"),
            Place::Ssh { user: Some(user), host, .. } => write!(f, "{user}@{host}"),
            Place::Ssh { user: None, host, .. } => f.write_str(host),
            // RFC 3986: an address with colons stands in brackets.
            Place::Haul { host, port } if host.contains(':') => write!(f, "haul://[{host}]:{port}"),
            Place::Haul { host, port } => write!(f, "haul://{host}:{port}"),
        }
    }
}
