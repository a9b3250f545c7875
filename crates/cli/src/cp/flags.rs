//! The flags of `haul cp`; `job.rs` turns them into a job.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use haul_job::job::WriteRoute;
use haul_job::rate;
use haul_job::timetable::{Timetable, parse_timetable};
use haul_pump::SendRoute;

use crate::cp::batch::flags::BatchFlag;
use crate::cp::detach::flags::GoesOn;
use crate::cp::help::{CP_SHORT_HELP, cp_long_help, first_six};
use crate::cp::omitted_flags::OmittedFlags;
use crate::cp::retry;
use crate::cp::rsync_flags::{RsyncDrafts, RsyncLines, RsyncRules, RsyncStops};
use crate::cp::service_flags::ServiceFlags;
use crate::far_side::flags::{Connections, Reach};
use crate::flags::headings::{REACH, SAID, TRAVEL, WHAT, WRITE};
use crate::flags::values::{CipherName, send_route, whole, write_route};

/// `haul cp`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, override_usage = "haul cp [OPTIONS] SRC... DST\n       haul cp [OPTIONS] --batch FILE", after_long_help = cp_long_help(), args_override_self = true)]
#[command(before_help = first_six(), after_help = CP_SHORT_HELP)]
pub struct Cp {
    /// Sources, then the target: PATH, [USER@]HOST:PATH, ssh://[USER@]HOST[:PORT]/PATH, haul://HOST[:PORT]/PATH, sftp://[USER@]HOST/PATH, ftp://[USER@]HOST/PATH, s3://BUCKET/KEY, - (a stream)
    // job.rs checks the count: `-h` alone must reach the help.
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
    #[arg(long, overrides_with = "no_owner", help_heading = WHAT)]
    pub owner: bool,
    /// Group (part of -a); a user who is not root at the target keeps the groups that this user belongs to
    #[arg(short = 'g', long, overrides_with = "no_group", help_heading = WHAT)]
    pub group: bool,
    /// Also set-user-id, set-group-id and sticky bits (part of -a). All other permissions are kept anyway; with -p it is a
    /// failure if they cannot be set, because the target's entry belongs to another user
    #[arg(short = 'p', long, overrides_with = "no_perms", help_heading = WHAT)]
    pub perms: bool,
    #[command(flatten)]
    pub omitted: OmittedFlags,
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
    /// Send all of a file that differs. Without this flag the target looks at what stands there, and only the rest is
    /// sent; between two paths of one host files are sent whole
    #[arg(short = 'W', long, help_heading = WRITE)]
    pub whole_file: bool,
    /// Look at what stands at the target also between two paths of one host
    #[arg(long, overrides_with = "whole_file", help_heading = WRITE)]
    pub no_whole_file: bool,
    /// Copy of a file that grows meanwhile what was there when it was listed, verified as any other. Without this flag it
    /// is copied again, and fails in the end. For files that are only appended to: logs, recordings
    #[arg(long, help_heading = WRITE)]
    pub growing: bool,
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
    /// At most this rate, with its unit: 500Mbit, 10Gbit, 100MB, 100MiB (bits and bytes per second). By the time of day
    /// here: "08:00-18:00 200Mbit, else 5Gbit"
    #[arg(long, value_name = "RATE", value_parser = parse_timetable, allow_hyphen_values = true)]
    #[arg(conflicts_with_all = ["bwlimit", "scp_limit"], help_heading = TRAVEL)]
    pub rate: Option<Timetable>,
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
    /// Times are kept anyway; with -t it is a failure if they cannot be set, because the target's entry belongs to another user
    #[arg(short = 't', long, overrides_with = "no_times", help_heading = HABITS)]
    pub times: bool,
    /// Received data is always kept, and the next run continues it
    #[arg(long, help_heading = HABITS)]
    pub partial: bool,
    /// Symbolic links are always copied as links, unless -L
    #[arg(long, hide = true)]
    pub links: bool,
    /// Missing directories of the target are always made
    #[arg(long, hide = true)]
    pub mkpath: bool,
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

/// The kernel's counters end at 1 GiB (RFC 7323); below a few packets a connection stands still.
const MIN_WINDOW_BYTES: u64 = 4 << 10;
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

const MAX_TIMEOUT_S: u64 = 86_400;

const HABITS: &str = "Accepted for habit, always on";
