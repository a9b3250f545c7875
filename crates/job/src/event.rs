//! The events of a running job, for observers: progress bar, JSON lines, log.

use std::time::Duration;

use haul_engine::attribute::{Cause, Limit, Shares};
use haul_engine::outage::Outages;
use haul_engine::remedy::{Host, LanePath, Remedy};
use haul_store::{SumCounts, SumKind};
use haul_wire::summary::{OnePath, PathSummary, Subflow};

use crate::item::{ItemTold, LeftOut};

/// An event. Paths are relative to the target, any bytes.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// An end is being reached.
    Connecting {
        /// The place, for people.
        place: String,
    },
    /// The far side lacks our program, which is copied.
    Installing {
        /// The place, for people.
        place: String,
        /// Bytes of the program.
        bytes: u64,
    },
    /// An automatic choice.
    Chose {
        /// The subject.
        what: Subject,
        /// The choice.
        choice: String,
        /// The reason.
        reason: String,
    },
    /// The walk's totals so far.
    Found {
        /// Regular files.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Whether the totals are final.
        complete: bool,
    },
    /// Running totals, at most ten a second.
    Progress(Progress),
    /// The path as a sender here sees it, each second.
    Path(PathNow),
    /// An entry stands verified under its final name (or would).
    Copied {
        /// The path.
        path: Vec<u8>,
        /// Bytes of a file; otherwise 0.
        bytes: u64,
        /// The bytes found at the target.
        bytes_matched: u64,
        /// The change.
        change: Change,
    },
    /// An entry was deleted (or would be).
    Deleted {
        /// The path.
        path: Vec<u8>,
        /// Whether it was a directory.
        is_directory: bool,
    },
    /// An entry was left out: special file, unsupported attribute.
    Skipped {
        /// The path.
        path: Vec<u8>,
        /// The reason.
        why: String,
    },
    /// A rule leaves an entry out, or the target's as it is.
    LeftOut {
        /// The path.
        path: Vec<u8>,
        /// The rule.
        rule: LeftOut,
    },
    /// An entry that was made or differed, if asked for.
    Item(Box<ItemTold>),
    /// An entry failed; the job goes on.
    Failed {
        /// The path.
        path: Vec<u8>,
        /// The act and its cause.
        why: String,
    },
    /// The job broke off, and is tried again.
    Retry {
        /// The cause.
        why: String,
        /// The time until then.
        pause: Duration,
        /// The longest silence; `None`: no limit.
        gives_up_after: Option<Duration>,
    },
    /// The limit of the rate has changed.
    RateLimit {
        /// Bytes per second; `None`: no limit.
        bytes_per_s: Option<u64>,
    },
    /// A warning, given once.
    Warning {
        /// One line.
        text: String,
    },
    /// A line of `--manifest-out`, if asked for.
    Manifest(ManifestLine),
}

/// The change to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data moved.
    Data,
    /// Only metadata changed.
    Metadata,
    /// A directory or a link was made.
    Made,
}

/// Running totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files under their final name.
    pub files_done: u64,
    /// Files that were already there.
    pub files_kept: u64,
    /// Files of the job so far.
    pub files_found: u64,
    /// Files without an outcome.
    pub files_left: u64,
    /// Payload bytes verified in this run.
    pub bytes_moved: u64,
    /// Bytes that needed no transfer.
    pub bytes_kept: u64,
    /// Bytes that stood at the target in differing files.
    pub bytes_matched: u64,
    /// Bytes of earlier runs, read again.
    pub bytes_read_again: u64,
    /// Bytes of earlier runs, to read again.
    pub bytes_to_read_again: u64,
    /// Bytes of all files, without holes.
    pub bytes_found: u64,
    /// Bytes neither there nor given up.
    pub bytes_left: u64,
    /// Verified bytes that wait for flush and name. Large files are flushed each second, and before 256 MiB wait.
    pub bytes_to_flush: u64,
    /// Whether the totals are final, not estimates.
    pub found_all: bool,
    /// The seen share in millionths; 0: unknown.
    pub seen_ppm: u32,
    /// Live data connections.
    pub lanes: u16,
    /// Failed entries.
    pub failed: u64,
    /// The silence; `None`: the end speaks.
    pub no_data_for: Option<Duration>,
}

/// The path in the last second; 0: unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathNow {
    /// The number in the session.
    pub path: u16,
    /// Payload rate.
    pub rate_bytes_per_s: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// The smallest round-trip time.
    pub rtt_min_us: u32,
    /// Time of packets in queues.
    pub queueing_us: u32,
    /// Bytes sent again, of a million.
    pub resent_ppm: u32,
    /// Lanes that carry data.
    pub lanes: u16,
    /// The lanes' own rate; 0: none.
    pub pacing_bytes_per_s: u64,
    /// The cause that holds the lanes.
    pub held_by: Option<Cause>,
    /// The mark (DSCP, RFC 2474) of most.
    pub mark: u8,
    /// Lanes with a mark.
    pub marked_lanes: u16,
    /// The bytes between address pairs over MPTCP.
    pub subflows: Vec<Subflow>,
}

/// A file's name, with its hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestLine {
    /// Path at the target.
    pub path: Vec<u8>,
    /// Size in bytes.
    pub size: u64,
    /// Modified, in seconds since the epoch.
    pub mtime_s: i64,
    /// Nanoseconds of that time.
    pub mtime_ns: u32,
    /// BLAKE3, as `b3sum` prints it.
    pub blake3: [u8; 32],
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Regular files selected.
    pub files_found: u64,
    /// Files whose data moved.
    pub files_moved: u64,
    /// Files already there, unchanged.
    pub files_kept: u64,
    /// Kept files linked to `--link-dest`.
    pub files_linked: u64,
    /// Moved files copied from reference trees.
    pub files_copied_there: u64,
    /// Moved files that went from server to server, past this host.
    pub files_between_servers: u64,
    /// Other entries made.
    pub others_made: u64,
    /// Entries deleted.
    pub deleted: u64,
    /// Entries above the limit, not deleted.
    pub withheld: u64,
    /// Failed entries.
    pub failed: u64,
    /// Failed entries that vanished.
    pub vanished: u64,
    /// Failed entries that did not verify.
    pub unverified: u64,
    /// Entries left out on purpose.
    pub skipped: u64,
    /// Entries left out by rules.
    pub left_out: u64,
    /// Entries removed at the source.
    pub removed: u64,
    /// Bytes of selected files.
    pub bytes_found: u64,
    /// Verified payload bytes of this run.
    pub bytes_moved: u64,
    /// Bytes moved again: lost lanes, bad chunks.
    pub bytes_again: u64,
    /// Bytes read back, if asked for.
    pub bytes_reread: u64,
    /// Chunks that did not stand as verified.
    pub chunks_repaired: u64,
    /// Bytes of earlier runs, found right.
    pub bytes_read_again: u64,
    /// Bytes of earlier runs, trusted by the journal, as asked.
    pub bytes_trusted: u64,
    /// Bytes without transfer: unchanged files, old chunks.
    pub bytes_kept: u64,
    /// Bytes that stood in differing files.
    pub bytes_matched: u64,
    /// The holes.
    pub bytes_holes: u64,
    /// Time until the last flush.
    pub elapsed: Duration,
    /// Time until the first lane stood.
    pub connected: Option<Duration>,
    /// Time until the first payload was verified.
    pub first_byte: Option<Duration>,
    /// Time until the last payload, before flush and name.
    pub last_byte: Option<Duration>,
    /// Most lanes.
    pub lanes: u16,
    /// The way of the lanes.
    pub lane_path: Option<LanePath>,
    /// TLS cipher, or `none (this machine)`.
    pub cipher: String,
    /// Earlier tries, which no other figure counts.
    pub earlier: Earlier,
    /// Silences in all tries, from 1970.
    pub outages: Outages,
    /// BLAKE3 of a single file.
    pub only_blake3: Option<[u8; 32]>,
    /// BLAKE3 over the lines `<hex blake3>  <size> <path>\n` of all known hashes, in manifest order.
    pub root_blake3: [u8; 32],
    /// Files in the root; those kept by size and time are not read.
    pub root_files: u64,
    /// The reading end.
    pub source: Host,
    /// The writing end.
    pub target: Host,
    /// All paths of the sender together.
    pub path: PathSummary,
    /// Each path.
    pub paths: Vec<OnePath>,
    /// The far host of each of several paths.
    pub hosts: Vec<(u16, String)>,
    /// The lanes' time.
    pub time: Shares,
    /// The limiting resource; `None` if nothing moved.
    pub limit: Option<Limit>,
    /// Helpful changes, best first.
    pub remedies: Vec<Remedy>,
    /// Whether nothing changed (`--dry-run`).
    pub dry_run: bool,
    /// The first failures, at most 20.
    pub failures: Vec<(Vec<u8>, String)>,
    /// The first 100 changes of class.
    pub class_changes: Vec<ClassChange>,
    /// The proof of the data.
    pub proof: Proof,
    /// Comparisons with sums of the source's server, if it gives any.
    pub server_sums: Option<SumCounts>,
}

impl Report {
    /// The kinds of sums, if every moved file has one.
    pub fn verified_by_server(&self) -> Option<Vec<SumKind>> {
        let sums = self.server_sums.filter(|sums| sums.without == 0 && sums.files() > 0)?;
        (sums.files() >= self.files_moved).then(|| sums.compared().map(|(kind, _)| kind).collect())
    }
}

/// A change of the service class.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassChange {
    /// Time since the start.
    pub at: Duration,
    /// The new class, for people.
    pub class: String,
    /// The reason.
    pub reason: String,
}

/// The proof, by who hashed the data.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Our programs at both ends hashed.
    #[default]
    BothEnds,
    /// One program hashed, in the buffer between read and write. What is read back is compared.
    InOneBuffer,
    /// Our host hashed what the source's sftp server gave.
    AsRead,
    /// Our host hashed what a web server, or a store without a sum, sent; the source is compared by length alone.
    AsSent,
    /// The target's server confirmed writes without a hash, and shows the size. What is read back is proved.
    Confirmed,
    /// The sum of the source's store matches, and the data stands so.
    AsStored,
    /// The target's store compared a sum.
    ByStore,
    /// The target's store takes no sum, and confirmed the objects.
    BySize,
    /// Two servers have the same sum, of which one sent to the other. This host saw no data.
    ByBothServers,
}

impl Proof {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::BothEnds => "both_ends",
            Self::InOneBuffer => "in_one_buffer",
            Self::AsRead => "as_read",
            Self::AsSent => "as_sent",
            Self::Confirmed => "confirmed",
            Self::AsStored => "as_stored",
            Self::ByStore => "by_store",
            Self::BySize => "by_size",
            Self::ByBothServers => "by_both_servers",
        }
    }
}

/// The work of earlier tries.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Broken-off tries.
    pub tries: u32,
    /// Payload, found by the last try.
    pub bytes_moved: u64,
    /// Duration, with pauses.
    pub elapsed: Duration,
}

/// Watches a job from several threads, without blocking for long.
pub trait Observer: Send + Sync {
    /// Takes an event.
    fn on_event(&self, event: &Event);

    /// Whether [`Event::Manifest`] lines are wanted, for which unchanged files are read.
    fn wants_manifest(&self) -> bool {
        false
    }

    /// The present limit in bytes per second, of a copy that has `now`. Asked often.
    fn rate_limit(&self, now: Option<u64>) -> Option<u64> {
        now
    }

    /// Whether to end soon with [`crate::Fault::Interrupted`]. Asked often.
    fn interrupted(&self) -> bool {
        false
    }
}

/// The subject of an automatic choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// Number of lanes.
    Lanes,
    /// Cipher of the lanes.
    Cipher,
    /// Congestion control.
    CongestionControl,
    /// Way of the lanes.
    LanePath,
    /// Paths of the lanes.
    Paths,
    /// Whether a login is kept and used.
    Login,
    /// Program at the far side.
    Program,
    /// Route from file to connection.
    Route,
    /// Reading of large files.
    Reading,
    /// Writing of large files.
    WriteRoute,
    /// Encryption by this program or the kernel.
    Encryption,
    /// Reading back.
    Verification,
    /// Rights of a far side.
    Rights,
    /// Choice among sources of one name.
    Sources,
    /// Where a file goes on.
    Resume,
    /// Flush of small files.
    SmallFileFlush,
    /// Mark of packets.
    Class,
    /// How often arriving data is acknowledged.
    Acknowledgements,
    /// Unknown to this version.
    Other,
}

impl Subject {
    const ALL: [Self; 19] = [
        Self::Lanes,
        Self::Cipher,
        Self::CongestionControl,
        Self::LanePath,
        Self::Paths,
        Self::Login,
        Self::Program,
        Self::Route,
        Self::Reading,
        Self::WriteRoute,
        Self::Encryption,
        Self::Verification,
        Self::Rights,
        Self::Sources,
        Self::Resume,
        Self::SmallFileFlush,
        Self::Class,
        Self::Acknowledgements,
        Self::Other,
    ];

    /// The name in protocol and reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Lanes => "lanes",
            Self::Cipher => "cipher",
            Self::CongestionControl => "congestion control",
            Self::LanePath => "lane path",
            Self::Paths => "paths",
            Self::Login => "login",
            Self::Program => "program",
            Self::Route => "route",
            Self::Reading => "reading",
            Self::WriteRoute => "write route",
            Self::Encryption => "encryption",
            Self::Verification => "verification",
            Self::Rights => "rights",
            Self::Sources => "sources",
            Self::Resume => "resume",
            Self::SmallFileFlush => "flush of small files",
            Self::Class => "class",
            Self::Acknowledgements => "acknowledgements",
            Self::Other => "other",
        }
    }

    /// Finds a known subject; other words of a peer are not passed on.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|subject| subject.name() == name).unwrap_or(Self::Other)
    }
}

/// The end of a message about an entry whose directory failed. Front ends count these, and name the directory.
pub const WITH_ITS_DIRECTORY: &str = "its directory could not be copied";
