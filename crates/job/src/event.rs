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
    /// A remote end is being reached.
    Connecting {
        /// Display form of the place.
        place: String,
    },
    /// Our program is being copied to the far side, which lacks it.
    Installing {
        /// Display form of the place.
        place: String,
        /// Size of the program in bytes.
        bytes: u64,
    },
    /// An automatic choice with its reason: route of the lanes, number of lanes, cipher, congestion control, chunk size.
    Chose {
        /// The subject of the choice.
        what: Subject,
        /// The choice.
        choice: String,
        /// Why.
        reason: String,
    },
    /// The walk's totals so far; `complete` once the whole manifest is known.
    Found {
        /// Regular files found.
        files: u64,
        /// Their bytes.
        bytes: u64,
        /// Whether the totals are final.
        complete: bool,
    },
    /// Running totals, at most ten times a second.
    Progress(Progress),
    /// The path as its sender sees it now, at most once a second; only if the sender runs here.
    Path(PathNow),
    /// An entry was copied, verified and stands under its final name (or would be, in a dry run).
    Copied {
        /// Path relative to the target.
        path: Vec<u8>,
        /// File size in bytes; 0 for other entries.
        bytes: u64,
        /// The part of these that stood at the target, in the file that differed.
        bytes_matched: u64,
        /// The change that was made.
        change: Change,
    },
    /// An entry was deleted at the target (or would be).
    Deleted {
        /// Path relative to the target.
        path: Vec<u8>,
        /// True if it was a directory.
        is_directory: bool,
    },
    /// An entry was left out on purpose: special file, unsupported attribute.
    Skipped {
        /// Path relative to the target.
        path: Vec<u8>,
        /// Why.
        why: String,
    },
    /// A rule of the job leaves an entry out, or leaves the target's as it is.
    LeftOut {
        /// Path relative to the target.
        path: Vec<u8>,
        /// Which rule.
        rule: LeftOut,
    },
    /// An entry that was made or differed, with all that is known of it; only if asked for.
    Item(Box<ItemTold>),
    /// An entry could not be copied; the job goes on.
    Failed {
        /// Path relative to the target.
        path: Vec<u8>,
        /// The failed act and its cause, in one line.
        why: String,
    },
    /// The job broke off for a passing reason, and is tried again after a pause.
    Retry {
        /// The cause that broke it off, in one line.
        why: String,
        /// How long the pause is.
        pause: Duration,
        /// Time without data after which it is given up; `None`: never.
        gives_up_after: Option<Duration>,
    },
    /// The limit of the rate has changed.
    RateLimit {
        /// Bytes per second; `None`: there is no limit any more.
        bytes_per_s: Option<u64>,
    },
    /// A warning to give once: a limit of the host, a lane that died and came back.
    Warning {
        /// One line.
        text: String,
    },
    /// One line of `--manifest-out`, in the order of the manifest; sent only when asked for.
    Manifest(ManifestLine),
}

/// The change that was made to an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// Data moved.
    Data,
    /// Only metadata was brought up to date.
    Metadata,
    /// A directory, symbolic link, hard link was made.
    Made,
}

/// Running totals.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Progress {
    /// Files verified and under their final name, plus those already there.
    pub files_done: u64,
    /// The part of these that was already there.
    pub files_kept: u64,
    /// Files of the whole job, as far as is known.
    pub files_found: u64,
    /// Files without an outcome.
    pub files_left: u64,
    /// Payload bytes verified at the target in this run.
    pub bytes_moved: u64,
    /// Bytes that were already there and needed no transfer.
    pub bytes_kept: u64,
    /// The part of these that stood at the target in files that differed.
    pub bytes_matched: u64,
    /// Bytes that earlier runs left, and that were read again so far.
    pub bytes_read_again: u64,
    /// Bytes that earlier runs left, and that are not read yet.
    pub bytes_to_read_again: u64,
    /// Data of all these files in bytes; holes are none.
    pub bytes_found: u64,
    /// Data that is neither there nor given up.
    pub bytes_left: u64,
    /// The most verified data that waits for its flush and its name. Each second, and before 256 MiB wait, large files
    /// are flushed as far as they are there.
    pub bytes_to_flush: u64,
    /// Whether the totals above are final. Before that they include estimates.
    pub found_all: bool,
    /// The share of the sources that was seen, in millionths; 0: not known.
    pub seen_ppm: u32,
    /// Data connections alive.
    pub lanes: u16,
    /// Entries that failed so far.
    pub failed: u64,
    /// No byte and no word of the other end has come for so long; `None`: it speaks.
    pub no_data_for: Option<Duration>,
}

/// The path in the last second. Rates are of all lanes together; 0 means unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PathNow {
    /// The path's number in the session.
    pub path: u16,
    /// Payload rate.
    pub rate_bytes_per_s: u64,
    /// Smoothed round-trip time.
    pub rtt_us: u32,
    /// The smallest so far.
    pub rtt_min_us: u32,
    /// How long packets stand in queues.
    pub queueing_us: u32,
    /// Bytes sent again of a million bytes sent.
    pub resent_ppm: u32,
    /// Lanes that carry data.
    pub lanes: u16,
    /// The rate to which the lanes hold themselves; 0: none.
    pub pacing_bytes_per_s: u64,
    /// The cause that holds the lanes.
    pub held_by: Option<Cause>,
    /// The mark of most lanes (DSCP, RFC 2474).
    pub mark: u8,
    /// The number of lanes that have a mark other than 0.
    pub marked_lanes: u16,
    /// The bytes that the lanes carry between each pair of addresses over MPTCP, as this host sees it.
    pub subflows: Vec<Subflow>,
}

/// One name of a regular file of the manifest, with its BLAKE3 hash.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ManifestLine {
    /// Path relative to the target, as it is called there.
    pub path: Vec<u8>,
    /// Size in bytes.
    pub size: u64,
    /// Modification time: seconds since the epoch.
    pub mtime_s: i64,
    /// Modification time: nanoseconds part.
    pub mtime_ns: u32,
    /// BLAKE3 of the contents, as `b3sum` prints it.
    pub blake3: [u8; 32],
}

/// The result of a job.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// Regular files selected.
    pub files_found: u64,
    /// Files whose data moved.
    pub files_moved: u64,
    /// Files that were already there, unchanged.
    pub files_kept: u64,
    /// The part of these made at the target as hard links to files of `--link-dest`.
    pub files_linked: u64,
    /// The part of these copied at the target from a tree of `--copy-dest` or `--link-dest`.
    pub files_copied_there: u64,
    /// Directories, links and other entries made.
    pub others_made: u64,
    /// Entries deleted at the target.
    pub deleted: u64,
    /// Entries that were not deleted because nobody had insisted on so many.
    pub withheld: u64,
    /// Entries that failed.
    pub failed: u64,
    /// The part of these that vanished at the source after they had been listed.
    pub vanished: u64,
    /// The part of these whose data did not verify.
    pub unverified: u64,
    /// Entries left out on purpose.
    pub skipped: u64,
    /// Entries that a rule of the job leaves out, such as a limit of size.
    pub left_out: u64,
    /// Files and links that were removed at the source after they were copied.
    pub removed: u64,
    /// Bytes of all selected files.
    pub bytes_found: u64,
    /// Payload bytes moved and verified in this run.
    pub bytes_moved: u64,
    /// Bytes moved more than once: lanes that died, chunks that did not verify.
    pub bytes_again: u64,
    /// Bytes that were read back from the target's medium; 0 unless that was asked for.
    pub bytes_reread: u64,
    /// Chunks that did not stand at the target as verified, and were written again.
    pub chunks_repaired: u64,
    /// Bytes that earlier runs left, and that were read again and found right before their files got their names.
    pub bytes_read_again: u64,
    /// Bytes that earlier runs left, and that count by their journals, because that was asked for.
    pub bytes_trusted: u64,
    /// Data that needed no transfer: unchanged files, chunks verified by an earlier run.
    pub bytes_kept: u64,
    /// The part of these that stood at the target in files that differed.
    pub bytes_matched: u64,
    /// Holes of all files, which are not data.
    pub bytes_holes: u64,
    /// The whole job, from start to the last flush.
    pub elapsed: Duration,
    /// Time until the first lane stood: login and connecting.
    pub connected: Option<Duration>,
    /// Time until the first payload byte was verified at the target.
    pub first_byte: Option<Duration>,
    /// Time until the last payload byte was verified at the target, before flushes and final names.
    pub last_byte: Option<Duration>,
    /// Lanes used at most.
    pub lanes: u16,
    /// How the lanes went: `direct`, `direct, reversed`, `ssh`, `this machine`, `from a server`.
    pub lane_path: Option<LanePath>,
    /// TLS cipher of the lanes, or `none (this machine)`.
    pub cipher: String,
    /// The work of earlier tries of the same job. All other figures are of the last one.
    pub earlier: Earlier,
    /// The times in which nothing came from the other end, of all tries. They count from 1970.
    pub outages: Outages,
    /// BLAKE3 of the contents, if `root_files` is 1.
    pub only_blake3: Option<[u8; 32]>,
    /// BLAKE3 over the lines `<hex blake3>  <size> <path>\n` of all files in manifest order whose hash is known.
    pub root_blake3: [u8; 32],
    /// Files that the root covers. Files kept by size and time are not read, so they are not in it.
    pub root_files: u64,
    /// The end that read.
    pub source: Host,
    /// The end that wrote.
    pub target: Host,
    /// The path of the sender; of several paths, all together.
    pub path: PathSummary,
    /// The paths, one by one.
    pub paths: Vec<OnePath>,
    /// The host at the far end of each path, by its number; empty where one host is that end.
    pub hosts: Vec<(u16, String)>,
    /// Where the lanes' time went.
    pub time: Shares,
    /// The resource that limited this transfer; `None` when nothing moved.
    pub limit: Option<Limit>,
    /// The changes that would help, the best first.
    pub remedies: Vec<Remedy>,
    /// True for `--dry-run`.
    pub dry_run: bool,
    /// The first failures, at most 20, for the closing lines.
    pub failures: Vec<(Vec<u8>, String)>,
    /// The changes of the service class, in their order, at most 100.
    pub class_changes: Vec<ClassChange>,
    /// What the success proves.
    pub proof: Proof,
    /// How many files were compared with a sum that the server of the source gave; `None`: this source gives no such sums.
    pub server_sums: Option<SumCounts>,
}

impl Report {
    /// The kinds of sums if every file that moved has the one that its server gave.
    pub fn verified_by_server(&self) -> Option<Vec<SumKind>> {
        let sums = self.server_sums.filter(|sums| sums.without == 0 && sums.files() > 0)?;
        (sums.files() >= self.files_moved).then(|| sums.compared().map(|(kind, _)| kind).collect())
    }
}

/// The service class changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassChange {
    /// Since the start.
    pub at: Duration,
    /// The class from then on, for people.
    pub class: String,
    /// Why.
    pub reason: String,
}

/// What has hashed the data of a copy, and so what its success proves.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Proof {
    /// Programs of ours at both ends: what was read there is what stands here.
    #[default]
    BothEnds,
    /// One program, between two paths of its host: what was read was hashed once, in the buffer from which it was written. What is
    /// read back is compared with that hash.
    InOneBuffer,
    /// Only this host: the source's server of sftp gave the data, and it stands at the target as it was given.
    AsRead,
    /// Only this host: a web server, or a store that keeps no sum of it, sent the data, and it stands at the target as it was sent. With
    /// what the server has it was compared by its length, since the server gives no sum.
    AsSent,
    /// Nobody at the target: its server has confirmed each write, and shows the size. What is read back is proved.
    Confirmed,
    /// The source's store: what was read has the sum that the store keeps, and it stands at the target so.
    AsStored,
    /// The target's store: it has compared what arrived with the sum of what was sent.
    ByStore,
    /// Nobody at the target: its store takes no sum, and has confirmed that the objects are there.
    BySize,
}

impl Proof {
    /// Its name in reports.
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
        }
    }
}

/// The work done before the job broke off and was tried again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Earlier {
    /// Tries that broke off.
    pub tries: u32,
    /// Payload bytes that they moved. The last try finds them there.
    pub bytes_moved: u64,
    /// Their time, with the pauses after them.
    pub elapsed: Duration,
}

/// Watches a job. Called from several threads; must not block for long.
pub trait Observer: Send + Sync {
    /// One thing happened.
    fn on_event(&self, event: &Event);

    /// Whether each file's [`Event::Manifest`] line is wanted: unchanged files are then read once to hash them.
    fn wants_manifest(&self) -> bool {
        false
    }

    /// The limit of the rate at this moment, in bytes per second, of a copy that has `now` so far. Asked often.
    fn rate_limit(&self, now: Option<u64>) -> Option<u64> {
        now
    }

    /// Whether to stop. Asked often; true ends the job at the next safe point with [`crate::Fault::Interrupted`].
    fn interrupted(&self) -> bool {
        false
    }
}

/// The subject of an automatic choice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Subject {
    /// The number of lanes.
    Lanes,
    /// The cipher of the lanes.
    Cipher,
    /// The congestion control of the lanes.
    CongestionControl,
    /// How the lanes run between the hosts.
    LanePath,
    /// Which paths the lanes use.
    Paths,
    /// Whether a login over ssh is kept for the next copy, and used.
    Login,
    /// The program that runs at the far side.
    Program,
    /// How bytes go from a file into a connection.
    Route,
    /// How large files are read.
    Reading,
    /// How large files are written.
    WriteRoute,
    /// Who encrypts: this program or the kernel.
    Encryption,
    /// How the medium is read back.
    Verification,
    /// The rights that a far side keeps.
    Rights,
    /// Which of several sources with the same name.
    Sources,
    /// Where a file goes on.
    Resume,
    /// How small files are flushed.
    SmallFileFlush,
    /// The request to the network: the mark of the packets.
    Class,
    /// A subject that this version does not know.
    Other,
}

impl Subject {
    const ALL: [Self; 18] = [
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
        Self::Other,
    ];

    /// The name, in the protocol and for people.
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
            Self::Other => "other",
        }
    }

    /// The subject of this name. A peer's words are passed on only if we know them.
    pub fn named(name: &str) -> Self {
        Self::ALL.into_iter().find(|subject| subject.name() == name).unwrap_or(Self::Other)
    }
}

/// How the message of an entry ends whose directory has failed. One cause fails all that lies beneath, so front ends count
/// such entries, and name the directory.
pub const WITH_ITS_DIRECTORY: &str = "its directory could not be copied";
