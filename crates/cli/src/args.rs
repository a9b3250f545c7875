//! The command line as typed: every flag once, with its help. `job.rs` turns it into a job.
//!
//! Help, man page and completions are made from these definitions.

use std::ffi::OsString;
use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum, ValueHint};
use haul_job::AskedPaths;
use haul_job::job::WriteRoute;
use haul_pump::SendRoute;

use crate::batch_flag::BatchFlag;
use crate::bench::flags::{Bench, send_route, write_route};
use crate::complete::flags::CompleteArgs;
use crate::config_flags::ConfigArgs;
use crate::cp_help::{CP_SHORT_HELP, cp_long_help};
use crate::detached::flags::{GoesOn, Log, Status, Stop};
use crate::headings::{SAID, WHAT, WRITE};
use crate::networks::NetworkFlags;
use crate::place::flags::{AlgorithmName, DiffArgs, PlaceCommand};
pub use crate::reach::{CipherName, Connections, PortRange, Reach, parse_port};
use crate::reach::{REACH, TRAVEL, parse_own_paths, parse_port_range, whole};
use crate::record::flags::Record;
use crate::rsync_rules::{RsyncDrafts, RsyncLines, RsyncRules, RsyncStops};
use crate::service::ServiceFlags;
use crate::token::TokenArgs;
use crate::tune::flags::Tune;
use crate::{rate, retry};

/// Moves large data sets between machines: as simply as scp, at the speed of the wire.
#[derive(Debug, Parser)]
#[command(name = "haul", version, long_version = LONG_VERSION, max_term_width = 100, subcommand_required = true)]
#[command(arg_required_else_help = true, before_help = crate::examples::first_six(), after_help = "See 'haul cp --help' for copying, the main use.")]
pub struct Typed {
    #[command(subcommand)]
    pub command: Command,
}

#[derive(Debug, Subcommand)]
pub enum Command {
    /// Copies files and trees between machines, encrypted, verified, resumable
    Cp(Box<Cp>),
    #[command(flatten)]
    Place(PlaceCommand),
    /// Shows the copies that go on by themselves: how far they are, and how they ended
    Status(Status),
    /// Stops a copy that goes on by itself
    Stop(Stop),
    /// Prints what a copy that goes on by itself has said
    Log(Log),
    /// Shows what limited the last copy, where its time went, and what would help
    Why(Why),
    /// Checks a tree against a manifest written by 'haul cp --manifest-out'
    Verify(Box<Verify>),
    /// Shows what a copy of A to B would do: what is new, changed, extra; changes nothing
    Diff(Box<DiffArgs>),
    /// Makes and shows the key that haul:// connections use
    Key(Key),
    /// Offers directories to haul://host/path, on one port and without ssh
    Serve(Serve),
    /// Makes a token, with which a program reads a directory of a daemon over the web
    Token(TokenArgs),
    /// Shows the network classes of this host, and how connections of an address are treated
    Networks(NetworkFlags),
    /// Measures what the path to a host carries, both ways, and says what would help; copies nothing
    Probe(Box<Probe>),
    /// Measures how fast each way of moving bytes is on this host, and what it costs
    Bench(Box<Bench>),
    /// Records a stream into a file, past the page cache, and says whether the disk kept up
    Record(Record),
    /// Shows what this host should be set to for a rate and a round trip, and why; sets it on request
    Tune(Tune),
    /// The far side of a copy; started over ssh, never by hand
    #[command(hide = true)]
    Agent(Agent),
    /// Shows the settings of ~/.config/haul/config.toml, and where each comes from
    Config(ConfigArgs),
    /// Writes the completions for a shell to standard output
    Completions(Completions),
    /// How a word may go on: the completions of the shells ask it
    #[command(hide = true)]
    Complete(CompleteArgs),
    /// Writes the manual pages, made from the same definitions as this help
    #[command(hide = true)]
    Man(Man),
}

/// `haul cp`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, override_usage = "haul cp [OPTIONS] SRC... DST\n       haul cp [OPTIONS] --batch FILE", after_long_help = cp_long_help(), args_override_self = true)]
#[command(before_help = crate::examples::first_six(), after_help = CP_SHORT_HELP)]
pub struct Cp {
    /// Sources, then the target: PATH, [USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH, haul://HOST[:PORT]/PATH, - (a stream)
    // job.rs checks the count: `-h` alone must reach the help, and the message can name both sources and target.
    #[arg(value_name = "SRC... DST", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,

    // ---- What is copied ----
    /// Archive mode as in rsync, -rlptgoD: also owner and group, when the target runs as root (devices and FIFOs with -D alone)
    #[arg(short = 'a', long, help_heading = WHAT)]
    pub archive: bool,
    /// Leave out what matches; rsync's patterns, and the first rule that matches decides
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true, help_heading = WHAT)]
    pub exclude: Vec<OsString>,
    /// Keep what matches, whatever a later --exclude says
    #[arg(long, value_name = "PATTERN", allow_hyphen_values = true, help_heading = WHAT)]
    pub include: Vec<OsString>,
    /// Read exclude patterns from FILE, one a line ('-' is standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = WHAT)]
    pub exclude_from: Vec<OsString>,
    /// Read include patterns from FILE, one a line ('-' is standard input)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = WHAT)]
    pub include_from: Vec<OsString>,
    /// Copy only the paths listed in FILE, relative to the one source directory ('-' is standard input). As in rsync, a
    /// directory is copied without its contents; 'dir/' adds its entries, and -r adds everything below
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = WHAT)]
    pub files_from: Option<OsString>,
    /// The lists above are separated by NUL bytes instead of newlines
    #[arg(short = '0', long, help_heading = WHAT)]
    pub from0: bool,
    #[command(flatten)]
    pub batch: BatchFlag,
    /// Delete entries of the target that the source directories do not have. Also replace an entry of another type: a
    /// file where a directory comes, a directory where a file comes
    #[arg(long, conflicts_with = "files_from", help_heading = WHAT)]
    pub delete: bool,
    /// With --delete, remove at most so many entries; the others stay and count as failed
    #[arg(long, value_name = "N", requires = "delete", help_heading = WHAT)]
    pub max_delete: Option<u64>,
    #[command(flatten)]
    pub rules: RsyncRules,
    #[command(flatten)]
    pub drafts: RsyncDrafts,
    /// Copy what symbolic links point to, instead of the links
    #[arg(short = 'L', long, help_heading = WHAT)]
    pub copy_links: bool,
    /// Owner, when the target runs as root (part of -a)
    #[arg(long, help_heading = WHAT)]
    pub owner: bool,
    /// Group (part of -a); a user who is not root at the target keeps the groups that this user belongs to
    #[arg(short = 'g', long, help_heading = WHAT)]
    pub group: bool,
    /// Also set-user-id, set-group-id and sticky bits (part of -a); all other permissions are always kept
    #[arg(short = 'p', long, help_heading = WHAT)]
    pub perms: bool,
    /// Copy owners and groups by their numbers, not by their names
    #[arg(long, help_heading = WHAT)]
    pub numeric_ids: bool,
    /// Keep hard links between the files of this copy
    #[arg(short = 'H', long, help_heading = WHAT)]
    pub hard_links: bool,
    /// Extended attributes
    #[arg(short = 'X', long, help_heading = WHAT)]
    pub xattrs: bool,
    /// Access control lists
    #[arg(short = 'A', long, help_heading = WHAT)]
    pub acls: bool,
    /// Recreate holes of sparse files; always on (-S is the ssh program, as in scp)
    #[arg(long, help_heading = WHAT)]
    pub sparse: bool,
    /// Write the holes of sparse files as zeros
    #[arg(long, conflicts_with = "sparse", help_heading = WHAT)]
    pub no_sparse: bool,
    /// Show the changes, and make none
    #[arg(short = 'n', long, help_heading = WHAT)]
    pub dry_run: bool,

    // ---- How it is written ----
    /// Write into the final file instead of a temporary one; the file is incomplete until the end. After an
    /// interruption the same command finishes it, also with -u and --ignore-existing. A file with several hard links is
    /// replaced all the same
    #[arg(long, help_heading = WRITE)]
    pub inplace: bool,
    /// Start over instead of continuing what an earlier run left unfinished
    #[arg(long, help_heading = WRITE)]
    pub no_resume: bool,
    /// Trust the journal of an unfinished earlier run, and do not read its data again. Without this flag the data is
    /// read and hashed beside the copy, because anybody may have written to it since
    #[arg(long, help_heading = WRITE)]
    pub trust_journal: bool,
    /// Do not wait until the target's storage holds the data; a power cut can then lose files reported as copied
    #[arg(long, help_heading = WRITE)]
    pub no_flush: bool,
    /// Where data is verified. 'wire' compares BLAKE3 of the bytes read with BLAKE3 of the bytes received. 'disk' also
    /// reads each file back from the target's medium, past the page cache, before the file gets its name; damaged
    /// chunks are sent again
    #[arg(long, value_name = "WHERE", default_value = "wire", help_heading = WRITE)]
    pub verify: VerifyWhere,
    /// Directories with the stripes of stripes:INDEX; repeat the flag for each directory, in any order
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath, help_heading = WRITE)]
    pub stripe_dir: Vec<PathBuf>,
    /// Write path, size, time and BLAKE3 of every file to FILE, for 'haul verify' ('-' is standard output)
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath, conflicts_with = "dry_run", help_heading = WRITE)]
    pub manifest_out: Option<PathBuf>,

    // ---- How it travels ----
    /// At most this rate, with its unit: 500Mbit, 10Gbit, 100MB, 100MiB (bits and bytes per second)
    #[arg(long, value_name = "RATE", value_parser = rate::parse_rate, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["bwlimit", "scp_limit"], help_heading = TRAVEL)]
    pub rate: Option<u64>,
    /// At most this rate, as in rsync: KiB/s, or with a suffix K M G; 0 is no limit
    #[arg(long, value_name = "RATE", value_parser = parse_bwlimit, allow_hyphen_values = true)]
    #[arg(conflicts_with = "scp_limit", help_heading = TRAVEL)]
    pub bwlimit: Option<BwLimit>,
    /// At most this rate, as in scp: kbit/s
    #[arg(short = 'l', value_name = "KBIT", value_parser = rate::parse_scp_limit, allow_hyphen_values = true)]
    #[arg(help_heading = TRAVEL)]
    pub scp_limit: Option<u64>,
    #[command(flatten)]
    pub service: ServiceFlags,
    #[command(flatten)]
    pub connections: Connections,
    /// Bytes in flight on a data connection, such as 64M. 'auto' follows the path, and the hosts limit both
    #[arg(long, value_name = "SIZE|auto", default_value = "auto", value_parser = parse_window, allow_hyphen_values = true)]
    #[arg(help_heading = TRAVEL)]
    pub window: Window,
    /// Cipher of the data connections; without this flag, one that is fast on both CPUs. With 'none' everybody on the
    /// way can read the data; a change there is still found. A daemon has to allow 'none'
    #[arg(long, value_name = "NAME", help_heading = TRAVEL)]
    pub cipher: Option<CipherName>,
    /// How the sender gets bytes from a file into a connection: sendfile, splice, uring-splice, mmap, copy, uring-copy.
    /// A way that the kernel refuses is reported once, and replaced by copy. Over TLS, all but copy need a kernel with
    /// TLS (modprobe tls)
    #[arg(long, value_name = "NAME", value_parser = send_route, conflicts_with = "compress", help_heading = TRAVEL)]
    pub route: Option<SendRoute>,
    /// How the receiver writes large files: direct (past the page cache of its host) or copy (through the page cache).
    /// Without this flag, a short trial on that file system decides
    #[arg(long, value_name = "NAME", value_parser = write_route, help_heading = TRAVEL)]
    pub write_route: Option<WriteRoute>,
    /// Compress the data on its way
    #[arg(short = 'z', visible_short_alias = 'C', long, help_heading = TRAVEL)]
    pub compress: bool,
    /// Send the data through further ssh sessions, without trying direct connections
    #[arg(long, help_heading = TRAVEL)]
    pub lanes_over_ssh: bool,
    /// Send a copy between two remote hosts through this machine instead of directly
    #[arg(short = '3', help_heading = TRAVEL)]
    pub through_here: bool,
    /// Give up when the peer is silent for this long: 1 to 86400, 60 without this flag
    #[arg(long, value_name = "SECONDS", value_parser = parse_timeout, allow_hyphen_values = true, help_heading = TRAVEL)]
    pub timeout: Option<u64>,
    /// Try again when the network, the far side or the login is lost. Gives up after this time without data: 90s, 10m,
    /// 2h, forever, or 0. Without this flag it is 10m, and a host that was never reached is tried once
    #[arg(long, value_name = "TIME", value_parser = retry::parse, allow_hyphen_values = true, help_heading = TRAVEL)]
    pub retry: Option<retry::Patience>,

    // ---- How the far side is reached ----
    #[command(flatten)]
    pub reach: Reach,

    // ---- What is said ----
    /// Say nothing but errors
    #[arg(short = 'q', long, help_heading = SAID)]
    pub quiet: bool,
    /// Name each path as it is copied, and the choices made
    #[arg(short = 'v', long, action = clap::ArgAction::Count, help_heading = SAID)]
    pub verbose: u8,
    /// Events as JSON, one object a line, on standard output
    #[arg(long, help_heading = SAID)]
    pub json: bool,
    /// Add a line each second: bytes moved, lanes, round trip and queues of the path, and what limits the copy right
    /// now
    #[arg(long, conflicts_with_all = ["quiet", "json"], help_heading = SAID)]
    pub live: bool,
    /// Show progress as lines, even when standard error is not a terminal
    #[arg(long, help_heading = SAID)]
    pub progress: bool,
    /// Show no progress bar
    #[arg(long, conflicts_with = "progress", help_heading = SAID)]
    pub no_progress: bool,
    #[command(flatten)]
    pub lines: RsyncLines,
    #[command(flatten)]
    pub stops: RsyncStops,
    /// Show the whole help
    #[arg(long, action = clap::ArgAction::HelpLong, help_heading = SAID)]
    pub help: Option<bool>,
    /// Alone, show the short help; otherwise accepted and ignored, as rsync's -h
    #[arg(short = 'h', help_heading = SAID)]
    pub human_readable: bool,

    #[command(flatten)]
    pub goes_on: GoesOn,

    /// Do not read ~/.config/haul/config.toml
    #[arg(long, help_heading = REACH)]
    pub no_config: bool,

    // ---- Habits ----
    #[command(flatten)]
    pub habits: Habits,
}

/// Flags of scp and rsync for things that haul always does.
#[derive(Debug, Args)]
pub struct Habits {
    /// Directories are always copied with their contents, except those that --files-from lists
    #[arg(short = 'r', long, help_heading = HABITS)]
    pub recursive: bool,
    /// Times are always kept
    #[arg(short = 't', long, help_heading = HABITS)]
    pub times: bool,
    /// Received data is always kept, and the next run continues it
    #[arg(long, help_heading = HABITS)]
    pub partial: bool,
    /// Symbolic links are always copied as links, unless -L
    #[arg(long, hide = true)]
    pub links: bool,
    /// Files are always sent whole
    #[arg(short = 'W', long, hide = true)]
    pub whole_file: bool,
    /// Missing directories of the target are always made
    #[arg(long, hide = true)]
    pub mkpath: bool,
}

/// `haul why`
#[derive(Debug, Args)]
#[command(after_help = WHY_HELP)]
pub struct Why {
    /// Which report: 1 is that of the last copy, 2 the one before
    #[arg(value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub nth: u16,
    /// List the reports that are kept, with their numbers
    #[arg(long, conflicts_with = "nth")]
    pub list: bool,
    /// The report as JSON, as docs/json.md describes it
    #[arg(long)]
    pub json: bool,
}

const WHY_HELP: &str = "\
Each 'haul cp' except a dry run keeps its report, also after a failure or an
interruption: the last 20 are in $XDG_STATE_HOME/haul (~/.local/state/haul),
readable by you alone. Reports hold names of files and hosts, but neither keys
nor passwords.";

/// `haul verify`
#[derive(Debug, Args)]
#[command(after_help = VERIFY_HELP)]
pub struct Verify {
    /// A list of hashes, '-' for standard input; or a bag (a directory with bagit.txt)
    #[arg(value_name = "LIST", value_hint = ValueHint::AnyPath)]
    pub list: OsString,
    /// The directory that the names of the list begin in, here, at a host or at a daemon; '.' without it
    #[arg(value_name = "ROOT", value_hint = ValueHint::AnyPath)]
    pub root: Option<OsString>,
    /// Also name files that the list does not have; always so for the payload of a bag
    #[arg(long)]
    pub extra: bool,
    /// The hash of lines that do not name theirs. Without this flag: what the number of digits says, and for 64
    /// digits whichever of SHA-256 and BLAKE3 the first files have
    #[arg(short = 'a', long, value_name = "NAME")]
    pub algorithm: Option<AlgorithmName>,
    /// Say nothing but what differs
    #[arg(short = 'q', long)]
    pub quiet: bool,
    /// A JSON object a line: each difference, then the totals
    #[arg(long)]
    pub json: bool,
    /// Show no progress bar
    #[arg(long)]
    pub no_progress: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const VERIFY_HELP: &str = "\
Lists: those of 'haul cp --manifest-out', of 'haul hash', b3sum, md5sum,
sha1sum, sha256sum and sha512sum (with --tag, too), and the manifests of a bag
(BagIt). The format is told by the list. A tree at another host is read there;
only names and hashes travel.

Examples:
  haul verify SHA256SUMS                  files of this directory
  haul verify list host:data              files beneath data at another host
  haul verify host:bag                    a bag with all its manifests
  haul hash data | haul verify - host:    the same tree at a host

Exit status: 0 all files match, 25 some differ or the list is damaged, 11 it
cannot be read.";

/// `haul key`
#[derive(Debug, Args)]
pub struct Key {
    #[command(subcommand)]
    pub action: KeyAction,
}

#[derive(Debug, Subcommand)]
pub enum KeyAction {
    /// Makes a new key
    Generate(KeyGenerate),
    /// Shows the public half, as it goes into the daemon's list of authorised keys
    Show(KeyFile),
    /// Adds a daemon's key to the list of known hosts
    Trust(Trust),
}

#[derive(Debug, Args)]
pub struct KeyGenerate {
    /// The key file; ~/.config/haul/id_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
    /// Replace an existing key; hosts that know the old key will not accept the new one
    #[arg(long)]
    pub force: bool,
}

#[derive(Debug, Args)]
pub struct Trust {
    /// The daemon, as it is named in haul://HOST:PORT/path
    #[arg(value_name = "HOST[:PORT]", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    /// Its key, as 'haul serve' prints it: ed25519: and 64 hexadecimal digits
    #[arg(value_name = "KEY")]
    pub key: String,
    /// The list; ~/.config/haul/known_hosts without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub known_hosts: Option<PathBuf>,
    /// Replace another key of the same daemon
    #[arg(long)]
    pub replace: bool,
}

#[derive(Debug, Args)]
pub struct KeyFile {
    /// The key file; ~/.config/haul/id_ed25519 without this flag
    #[arg(long, value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: Option<PathBuf>,
}

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
    /// Write the log as JSON, one object a line
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

/// `haul probe`
#[derive(Debug, Args)]
#[command(after_help = PROBE_HELP, override_usage = "haul probe [OPTIONS] HOST")]
pub struct Probe {
    /// The far side: [USER@]HOST, ssh://[USER@]HOST[:PORT] or haul://HOST[:PORT]
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    /// Send this long each way: 1 to 60
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=60))]
    #[arg(allow_hyphen_values = true)]
    pub time: u16,
    /// Measure each service class in turn (background, normal, priority), and whether its mark arrives; three times as
    /// long, with a login for each
    #[arg(long)]
    pub classes: bool,
    #[command(flatten)]
    pub connections: Connections,
    #[command(flatten)]
    pub reach: Reach,
    /// One JSON object on standard output
    #[arg(long, help_heading = SAID)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(short = 'q', long, help_heading = SAID)]
    pub quiet: bool,
}

const PROBE_HELP: &str = "\
Both ends send meaningless data, one after the other, as fast as a copy would,
and throw away the received data. Others on the path notice it like a copy.
Nothing is written to a disk at either end. A daemon allows this to every key
of its list, also to a read-only key.";

/// `haul agent`
#[derive(Debug, Args)]
pub struct Agent {
    /// Ports for the lanes
    #[arg(long, value_name = "FIRST-LAST", value_parser = parse_port_range)]
    pub port_range: Option<PortRange>,
    /// Carry one lane between standard input/output and this local port
    #[arg(long, value_name = "PORT", value_parser = parse_port)]
    pub relay: Option<u16>,
    /// Name the version of the protocol and end
    #[arg(long)]
    pub protocol: bool,
    /// Keep the hooks of a session
    #[arg(long, conflicts_with = "relay")]
    pub hooks: bool,
    /// Where --hooks keeps its records
    #[arg(long, value_name = "DIR", requires = "hooks")]
    pub state: Option<PathBuf>,
    /// The policies that name the hooks
    #[arg(long, value_name = "FILE", requires = "hooks")]
    pub policy: Vec<PathBuf>,
}

#[derive(Debug, Args)]
pub struct Completions {
    /// The shell
    pub shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub struct Man {
    /// Write one page per command into this directory, instead of all to standard output
    #[arg(value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub directory: Option<PathBuf>,
}

/// A rule or a list of rules, in the order typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Filter {
    /// `--include` or `--exclude`
    Rule { include: bool, pattern: OsString },
    /// `--include-from` or `--exclude-from`
    File { include: bool, file: OsString },
    /// `--filter`
    Written(OsString),
}

impl Typed {
    /// The command line as typed, without settings of a file, and the filters of `cp`.
    #[cfg(test)]
    pub fn parse_from(args: impl IntoIterator<Item = OsString>) -> Result<(Self, Vec<Filter>), clap::Error> {
        use clap::{CommandFactory as _, FromArgMatches as _};
        let matches = Self::command().try_get_matches_from(args)?;
        let filters = matches.subcommand_matches("cp").map(filters_in_order).unwrap_or_default();
        Ok((Self::from_arg_matches(&matches)?, filters))
    }
}

/// The filters as typed. Their order decides which one wins.
pub fn filters_in_order(matches: &clap::ArgMatches) -> Vec<Filter> {
    let mut found = Vec::new();
    type Meant = fn(OsString) -> Filter;
    let kinds: [(&str, Meant); 5] = [
        ("exclude", |pattern| Filter::Rule { include: false, pattern }),
        ("include", |pattern| Filter::Rule { include: true, pattern }),
        ("exclude_from", |file| Filter::File { include: false, file }),
        ("include_from", |file| Filter::File { include: true, file }),
        ("filter", Filter::Written),
    ];
    for (id, filter) in kinds {
        let indices = matches.indices_of(id).into_iter().flatten();
        let values = matches.get_many::<OsString>(id).into_iter().flatten().cloned();
        found.extend(indices.zip(values).map(|(index, value)| (index, filter(value))));
    }
    found.sort_by_key(|(index, _)| *index);
    found.into_iter().map(|(_, filter)| filter).collect()
}

/// `--window`; `None` is `auto`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Window(pub Option<u64>);

/// `--bwlimit`; `None` is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BwLimit(pub Option<u64>);

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum VerifyWhere {
    Wire,
    Disk,
}

/// The kernel's counters end at 1 GiB (RFC 7323). A connection with less than a few packets stands still.
const MIN_WINDOW_BYTES: u64 = 4 << 10;
/// See [`MIN_WINDOW_BYTES`].
const MAX_WINDOW_BYTES: u64 = 1 << 30;

fn parse_window(text: &str) -> Result<Window, String> {
    if text == "auto" {
        return Ok(Window(None));
    }
    match rate::parse_size(text)? {
        size if (MIN_WINDOW_BYTES..=MAX_WINDOW_BYTES).contains(&size) => Ok(Window(Some(size))),
        _ => Err("from 4K to 1G, or auto".to_owned()),
    }
}

fn parse_timeout(text: &str) -> Result<u64, String> {
    match whole(text) {
        Some(seconds) if (1..=MAX_TIMEOUT_S).contains(&seconds) => Ok(seconds),
        _ => Err(format!("a number of seconds from 1 to {MAX_TIMEOUT_S}")),
    }
}

fn parse_bwlimit(text: &str) -> Result<BwLimit, String> {
    rate::parse_bwlimit(text).map(BwLimit)
}

/// One day.
const MAX_TIMEOUT_S: u64 = 86_400;

/// What `haul --version` says after the name: version, commit, machine, protocol.
const LONG_VERSION: &str =
    concat!(env!("CARGO_PKG_VERSION"), " (", env!("HAUL_COMMIT"), ", ", env!("HAUL_TARGET"), ")");

const HABITS: &str = "Accepted for habit, always on";
