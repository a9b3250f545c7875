//! The messages of the control channel.
//!
//! ```text
//!   initiator                    agent
//!       <--- AgentHello ----------          who I am, where my lanes can be reached
//!       ---- Start --------------->         your role, the job, the peer's key
//!       ---- Listed ... ---------->         (to a sender, with a list)
//!       ---- Dial ---------------->         (when the agent connects the lanes)
//!       ---- Rate ---------------->         (to a sender, when the limit changes)
//!
//!   sender                       receiver
//!       ---- Begin --------------->
//!       <--- Named ----------------
//!       ---- Items ... ----------->         the manifest streams
//!       ---- DeleteNothing ------->
//!       <--- Standing ... ---------         before the answer: see `standing.rs`
//!       <--- Answers, Outcomes ----         what is wanted; what became of each item
//!       <--- Receipts -------------
//!       <--- Again, Repair --------         chunks wrong on their way, or at the target
//!       <--- Void -----------------
//!       ---- Counted ------------->
//!       <--- ReadAgain, Gathers ---
//!       ---- Withdraw ------------>
//!       ---- EndOfManifest ------->
//!       <--- Summary --------------
//!       ---- Bye ----------------->
//!
//!   several hosts as one end: see `movers.rs`
//!
//!   between two jobs of a session, each side on its own
//!       ---- JobEnd ------------->         also after Abort; Start may follow at once
//!       <--- JobEnd --------------
//!       ---- Leave --------------->         (the initiator) no further job
//!
//!   in a probe, first there (the initiator sends), then back
//!       ---- ProbeSent ----------->         its lanes carry nothing more
//!       <--- ProbeArrived ---------
//! ```

use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};

pub use crate::abort::{Abort, AbortFault};
pub use crate::address::{Address, Candidate};
use crate::bounded;
pub use crate::chunk_range::ChunkRange;
pub use crate::cut::Cut;
use crate::fault::CodecFault;
pub use crate::filter_rule::{FilterRule, Merge, MergeFormat, Sides};
use crate::limits::{
    MAX_BATCH_ITEMS, MAX_CANDIDATES, MAX_LANES, MAX_PATH_BYTES, MAX_PATHS, MAX_RANGES, MAX_SPEC_ITEMS, MAX_TEXT_BYTES,
    MIN_SEGMENT_BYTES,
};
use crate::manifest::{self, PackedItem};
pub use crate::mode_change::ModeChange;
pub use crate::movers::{ChunkProof, MovedChunk, MoverWord, OpenDraft, Portion, SharedRoot};
pub use crate::outcome::{Brought, Changes, FailureKind, LeftOut, Outcome, OutcomeKind};
use crate::path::RelPath;
use crate::place::PlaceWord;
pub use crate::probe::{ProbeArrived, ProbeSent};
pub use crate::role::Role;
pub use crate::rsync_rules::{AccountRule, Accounts, Backup, Drafts, Entries, OfReference, References, Wish, Wishes};
pub use crate::selection::Selection;
use crate::service::CODE_POINTS;
pub use crate::service::{AskedClass, Service};
pub use crate::standing::{Piece, Standing};
use crate::summary::{HostLimits, KnownPath, PathNow};
pub use crate::summary::{LaneTime, ReceiverSummary, SenderSummary, Void};

/// A message. Where no diagram of this crate shows who sends it, the comment does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// The first message.
    AgentHello(AgentHello),
    /// Take this role.
    Start(Box<Start>),
    /// Connect this many lanes.
    Dial(Dial),
    /// Agent to initiator: no lane could be connected.
    DialFailed {
        /// The reason for each address.
        why: String,
    },
    /// Agent to initiator: lanes are connected.
    Dialled {
        /// Their number.
        lanes: u16,
        /// Smallest connect time (RTT), in microseconds.
        rtt_us: u32,
    },
    /// Initiator to agent: this key may bring lanes, too.
    Admit {
        /// Ed25519 public key.
        key: [u8; 32],
    },
    /// Sender to dialling side: this many lanes would be faster.
    WantLanes {
        /// Number of the path.
        path: u16,
        /// Number of lanes.
        lanes: u16,
    },
    /// Sender to receiver, each second, for observers.
    PathNow(PathNow),
    /// The sources are open.
    Begin {
        /// One file, perhaps renamed.
        single_file: bool,
    },
    /// The next manifest items.
    Items(#[serde(deserialize_with = "manifest::batch")] Vec<PackedItem>),
    /// Only retries follow ([`Control::Withdraw`]).
    EndOfManifest,
    /// A wanted item cannot be sent as announced.
    Withdraw(Withdraw),
    /// Send these.
    Answers(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Answer>),
    /// Chunks verified.
    Receipts(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Receipt>),
    /// Not verified: send it again.
    Again {
        /// Manifest index.
        index: u64,
        /// Chunk number.
        chunk: u32,
    },
    /// Outcomes of items.
    Outcomes(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Outcome>),
    /// Either way: for the user.
    Notice(Notice),
    /// Either way: this lane ended early.
    LaneLost {
        /// The lane's number.
        lane: u16,
    },
    /// All is resolved and flushed.
    Summary(ReceiverSummary),
    /// Good-bye.
    Bye(SenderSummary),
    /// The time is over.
    ProbeSent(ProbeSent),
    /// The answer.
    ProbeArrived(ProbeArrived),
    /// Either way: the job ends. Number and form never change ([`crate::codec::encode_refusal`]).
    Abort(Abort),
    /// Either way: I am alive. Uncounted among messages.
    Ping {
        /// Messages that arrived without a gap.
        received: u64,
        /// On the link where this end speaks: 1, plus one for each move; elsewhere 0.
        turn: u32,
        /// When sent, in microseconds since any start.
        sent_us: u64,
    },
    /// A chunk does not stand as verified: send it (again).
    Repair {
        /// Manifest index.
        index: u64,
        /// Chunk number.
        chunk: u32,
    },
    /// The next paths of a list, relative to the source; none: the end.
    Listed(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Vec<u8>>),
    /// The single file's new name, before any outcome.
    Named(RelPath),
    /// A count's findings, ahead of the items.
    Counted(Counted),
    /// Earlier runs' data, read and compared in this session.
    ReadAgain {
        /// Bytes, never decreasing.
        bytes: u64,
    },
    /// The receiver lets data gather before each read, so that acknowledgements come so much later.
    Gathers {
        /// Microseconds.
        us: u32,
    },
    /// Asks to delete nothing: some sources could not be listed.
    DeleteNothing,
    /// Either way: this path is cut, and dialled again.
    PathLost {
        /// Number of the path.
        path: u16,
    },
    /// Agent to initiator: new addresses of its interfaces.
    Addresses(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")] Vec<Address>),
    /// A lane's data of a chunk does not count.
    Void(Void),
    /// The file beneath the open target, if it is the same tree.
    SharedRoot(SharedRoot),
    /// The mover found the file.
    SameRoot,
    /// A mover may write the item's chunks; said before it is asked for.
    OpenDraft(OpenDraft),
    /// Write no more of it.
    CloseDraft {
        /// Manifest index.
        index: u64,
    },
    /// Chunks written, verified and flushed.
    Moved(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<MovedChunk>),
    /// Between hosts of a sending end.
    OfMover {
        /// The mover's path.
        path: u16,
        /// The message.
        word: MoverWord,
    },
    /// Either way: see [`crate::place`].
    Place(PlaceWord),
    /// The last message of a job that [others may follow](Start::stays).
    JobEnd {
        /// Lanes of this side came to the job's end, or were unused; else none carries the next job.
        lanes: bool,
    },
    /// No job follows.
    Leave,
    /// Pieces of the target's file.
    Standing(Standing),
    /// The new limit of the rate.
    Rate {
        /// Payload per second; `None`: no limit.
        bytes_per_s: Option<u64>,
    },
    /// Sender to dialling side: larger segments do not arrive. [`Control::PathLost`] follows.
    SmallerSegments {
        /// Number of the path.
        path: u16,
        /// The largest that new connections announce (RFC 9293, section 3.7.1).
        segment_bytes: u16,
    },
    /// Sender to receiver, from [`Control::EndOfManifest`] on: what [`Control::Bye`] would say. The job's end depends on no later
    /// word, so a complete receiver need not wait.
    Findings(SenderSummary),
}

/// An agent's first message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Only for messages.
    pub version: String,
    /// Ed25519 key of its lanes.
    pub key: [u8; 32],
    /// TCP port of the listener; 0: unreachable.
    pub port: u16,
    /// TCP port for lanes that arrive on its host, inside ssh.
    pub relay_port: u16,
    /// Addresses of interfaces.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")]
    pub addresses: Vec<Address>,
    /// The address where sshd was reached.
    pub ssh_server: Option<Address>,
    /// The client address that sshd saw.
    pub ssh_client: Option<Address>,
    /// Usable processors.
    pub cpus: u16,
    /// Whether AES-GCM is fast there.
    pub fast_aes: bool,
    /// One connection's limits there.
    pub limits: HostLimits,
}

/// Gives an agent its role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Random name for lanes that come here.
    pub session: [u8; 16],
    /// Random name for lanes dialled from here: both ends may share a daemon's port.
    pub peer_session: [u8; 16],
    /// Public key of the lanes' other side.
    pub peer_key: [u8; 32],
    /// The key is the initiator's: its holder may bring further links.
    pub links: bool,
    /// Further jobs may follow: a `Start` of the same role, ends and keys.
    pub stays: bool,
    /// The job's growing number, as at the ends of lanes ([`UnitKind::JobEnd`](crate::lane::UnitKind::JobEnd)).
    pub job: u64,
    /// The role.
    pub role: Role,
    /// The selection.
    pub selection: Selection,
    /// The wanted part.
    pub listed: Listed,
    /// Hashes of kept files are wanted, too, for a manifest or a check.
    pub hash_kept: bool,
    /// How the bytes travel.
    pub carriage: Carriage,
}

/// The wanted part of the sources.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listed {
    /// All.
    #[default]
    Nothing,
    /// Paths of a list ([`Control::Listed`]).
    Paths,
    /// Paths, with all beneath them.
    Trees,
}

/// How the bytes travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carriage {
    /// Bound of the payload, bytes per second.
    pub rate_bytes_per_s: Option<u64>,
    /// Acceptable TLS ciphers, best first: 1 AES-128-GCM, 2 AES-256-GCM, 3 ChaCha20-Poly1305.
    pub ciphers: Vec<u8>,
    /// Lanes become clear after their hello: authenticated and verified, but readable.
    pub clear: bool,
    /// Compress.
    pub compress: bool,
    /// A dead peer's silence, in milliseconds.
    pub timeout_ms: u32,
    /// Asked congestion control.
    pub congestion_control: Option<String>,
    /// Asked window of a lane.
    pub window_bytes: Option<u64>,
    /// Asked number of lanes.
    pub lanes: Option<u16>,
    /// Asked route from file to connection: 1 splice, 2 sendfile, 3 splice by io_uring, 4 mmap, 5 copy, 6 copy by io_uring; else
    /// none.
    pub route: Option<u8>,
    /// Asked way to write large files: 1 past the page cache, 2 through it; else none.
    pub write_route: Option<u8>,
    /// An earlier job's findings, in this direction.
    pub path: Option<KnownPath>,
    /// Other far hosts that may write this receiver's drafts, or send for this sender.
    pub movers: u16,
    /// The smaller host's processors; 0: unknown.
    pub cpus: u16,
    /// The request to the network.
    pub service: Service,
    /// The target's cut.
    pub cut: Cut,
    /// The target takes files from front to back only: one lane brings each.
    pub in_order: bool,
}

/// Makes an agent bring lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dial {
    /// The peer's addresses, best first.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")]
    pub candidates: Vec<Candidate>,
    /// Lanes; 0: by rule.
    pub lanes: u16,
    /// Several paths are allowed.
    pub several_paths: bool,
    /// Patience, in milliseconds.
    pub timeout_ms: u32,
}

/// Says what to send of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Manifest index.
    pub index: u64,
    /// The wanted data.
    pub wanted: Wanted,
}

/// A count's findings for a waiting user, without promise.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Regular files.
    pub files: u64,
    /// Their bytes, without known holes.
    pub data_bytes: u64,
    /// Share of the sources seen, in millionths.
    pub share_ppm: u32,
}

impl Counted {
    /// All sources.
    pub const WHOLE_PPM: u32 = 1_000_000;
    /// 1 % tells of the whole.
    const TELLING_PPM: u32 = 10_000;

    /// Whether all is counted.
    pub fn is_whole(&self) -> bool {
        self.share_ppm >= Self::WHOLE_PPM
    }

    /// Extrapolates to the whole, except from too little.
    pub fn whole(&self, found: u64) -> u64 {
        if self.share_ppm < Self::TELLING_PPM || self.is_whole() {
            return found;
        }
        u64::try_from(u128::from(found) * u128::from(Self::WHOLE_PPM) / u128::from(self.share_ppm)).unwrap_or(u64::MAX)
    }
}

/// The wanted data of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// All data.
    All,
    /// A kept file's BLAKE3, for [`Start::hash_kept`].
    Hash,
    /// Ascending ranges that do not touch: an earlier run verified the rest.
    Chunks(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_RANGES>")] Vec<ChunkRange>),
}

/// Proof of a verified chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// Bytes that came, without holes.
    pub data_bytes: u64,
    /// Bytes that stood there.
    pub matched_bytes: u64,
}

/// An item that cannot be sent as announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdraw {
    /// Manifest index.
    pub index: u64,
    /// Act and cause.
    pub why: String,
    /// Kind of failure.
    pub kind: FailureKind,
    /// The new state, with the next manifest index.
    pub retry: Option<PackedItem>,
}

/// Why nothing was deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withheld {
    /// An empty source, like an unmounted disk.
    SourceIsEmpty,
    /// More than half of the target's.
    MoreThanHalf {
        /// Entries there.
        of: u64,
    },
}

/// A notice for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// An entry was (or would be) deleted.
    Deleted {
        /// Path.
        path: Vec<u8>,
        /// A directory.
        is_directory: bool,
    },
    /// An act failed, whatever the outcome.
    Failed {
        /// Path.
        path: Vec<u8>,
        /// Act and cause.
        why: String,
    },
    /// Entries stayed, because nobody insisted.
    Withheld {
        /// Their directory.
        path: Vec<u8>,
        /// How many.
        entries: u64,
        /// Why.
        why: Withheld,
    },
    /// Something was left out.
    Skipped {
        /// Path.
        path: Vec<u8>,
        /// Why.
        why: String,
    },
    /// A warning.
    Warning {
        /// One line.
        text: String,
    },
    /// An automatic choice.
    Chose {
        /// The subject.
        what: String,
        /// The choice.
        choice: String,
        /// Why.
        reason: String,
    },
}

impl Control {
    /// Refuses what honest peers never send. Sequences are checked in decoding, manifest items in unpacking.
    pub fn check_limits(&self) -> Result<(), CodecFault> {
        let within = |ok: bool, what: &'static str| if ok { Ok(()) } else { Err(CodecFault::Limit(what)) };
        let short = |text: &str| text.len() <= MAX_TEXT_BYTES;
        let short_too = |text: &Option<String>| text.as_deref().is_none_or(short);
        match self {
            Control::Outcomes(outcomes) => {
                let texts_fit = |outcome: &Outcome| match &outcome.result {
                    OutcomeKind::Failed { why, .. } => short(why),
                    _ => true,
                };
                within(outcomes.iter().all(texts_fit), "outcomes")
            }
            Control::AgentHello(hello) => within(short(&hello.version) && hello.limits.is_within_limits(), "host"),
            Control::Named(name) => within(!name.is_root() && !name.as_bytes().contains(&b'/'), "name"),
            Control::WantLanes { path, lanes } => within(*path < MAX_PATHS && *lanes <= MAX_LANES, "lanes"),
            Control::SmallerSegments { path, segment_bytes } => {
                within(*path < MAX_PATHS && *segment_bytes >= MIN_SEGMENT_BYTES, "segments")
            }
            Control::PathLost { path } => within(*path < MAX_PATHS, "path"),
            Control::PathNow(now) => within(now.path < MAX_PATHS && now.mark < CODE_POINTS, "path"),
            Control::Bye(summary) | Control::Findings(summary) => within(summary.is_within_limits(), "summary"),
            Control::ProbeSent(sent) => within(sent.sender.is_within_limits(), "summary"),
            Control::Dial(dial) => within(dial.lanes <= MAX_LANES, "lanes"),
            Control::Start(start) => {
                let selection = &start.selection;
                let paths = start.role.paths()?;
                let known_fits = start.carriage.path.as_ref().is_none_or(KnownPath::is_within_limits);
                within(known_fits && short_too(&start.carriage.congestion_control), "path")?;
                within(paths + selection.rules.len() <= MAX_SPEC_ITEMS, "paths and rules")
            }
            Control::DialFailed { why } => within(short(why), "reason"),
            Control::Withdraw(withdraw) => within(short(&withdraw.why), "reason"),
            Control::Abort(abort) => {
                within(short(&abort.what) && short_too(&abort.cause) && short_too(&abort.hint), "reason")
            }
            Control::Notice(notice) => within(
                match notice {
                    Notice::Deleted { .. } | Notice::Withheld { .. } => true,
                    Notice::Failed { why, .. } | Notice::Skipped { why, .. } => short(why),
                    Notice::Warning { text } => short(text),
                    Notice::Chose { what, choice, reason } => short(what) && short(choice) && short(reason),
                },
                "notice",
            ),
            Control::Place(word) => word.check_limits(),
            Control::SharedRoot(root) => within(root.path.len() <= MAX_PATH_BYTES, "path"),
            Control::OpenDraft(draft) => within(draft.path.len() <= MAX_PATH_BYTES, "path"),
            Control::OfMover { word, .. } => within(word.is_within_limits(), "path"),
            Control::Standing(standing) => within(standing.is_within_limits(), "pieces"),
            Control::SameRoot
            | Control::CloseDraft { .. }
            | Control::Moved(_)
            | Control::JobEnd { .. }
            | Control::Leave
            | Control::Items(_)
            | Control::Answers(_)
            | Control::Receipts(_)
            | Control::Listed(_)
            | Control::Dialled { .. }
            | Control::Admit { .. }
            | Control::Begin { .. }
            | Control::EndOfManifest
            | Control::Again { .. }
            | Control::Void(_)
            | Control::LaneLost { .. }
            | Control::Summary(_)
            | Control::ProbeArrived(_)
            | Control::Repair { .. }
            | Control::Counted(_)
            | Control::ReadAgain { .. }
            | Control::Gathers { .. }
            | Control::Rate { .. }
            | Control::DeleteNothing
            | Control::Addresses(_)
            | Control::Ping { .. } => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use proptest::prelude::*;

    use super::*;
    use crate::codec;
    use crate::limits::MAX_PROBE_MS;
    use crate::summary::PathSummary;

    #[test]
    fn a_message_survives_the_wire() {
        let message = Control::Outcomes(vec![Outcome::of(300, OutcomeKind::Copied { blake3: [3; 32] })]);
        let mut bytes = Vec::new();
        codec::encode(&message, &mut bytes).unwrap();
        let length = codec::decode_length(bytes[..4].try_into().unwrap()).unwrap();
        assert_eq!(length, bytes.len() - 4);
        assert_eq!(codec::decode(&bytes[4..]), Ok(message));
    }

    #[test]
    fn bytes_left_over_and_wild_lengths_are_refused() {
        let mut bytes = Vec::new();
        codec::encode(&Control::EndOfManifest, &mut bytes).unwrap();
        bytes.push(0);
        assert_eq!(codec::decode(&bytes[4..]), Err(CodecFault::Trailing));
        for length in [0, u32::MAX, (1 << 20) + 1] {
            assert_eq!(codec::decode_length(length.to_be_bytes()), Err(CodecFault::Length(length)));
        }
    }

    fn start(role: Role, carriage: Carriage) -> Control {
        let (session, peer_session, peer_key) = ([1; 16], [3; 16], [2; 32]);
        let (selection, listed, hash_kept) = (Selection::default(), Listed::Nothing, false);
        let (links, stays, job) = (true, false, 1);
        Control::Start(Box::new(Start {
            session,
            peer_session,
            peer_key,
            links,
            stays,
            job,
            role,
            selection,
            listed,
            hash_kept,
            carriage,
        }))
    }

    #[test]
    fn a_probe_has_its_longest_time_and_names_of_bounded_length() {
        let decoded = |message: &Control| {
            let mut bytes = Vec::new();
            codec::encode(message, &mut bytes).unwrap();
            codec::decode(&bytes[4..]).map(drop)
        };
        let start = |time_ms| start(Role::Probe { time_ms }, Carriage::default());
        for (time_ms, result) in [
            (0, Err(CodecFault::Limit("time of a probe"))),
            (1, Ok(())),
            (MAX_PROBE_MS, Ok(())),
            (MAX_PROBE_MS + 1, Err(CodecFault::Limit("time of a probe"))),
            (u32::MAX, Err(CodecFault::Limit("time of a probe"))),
        ] {
            assert_eq!(decoded(&start(time_ms)), result, "{time_ms} ms");
        }
        let mut sent = ProbeSent::default();
        assert_eq!(decoded(&Control::ProbeSent(sent.clone())), Ok(()));
        sent.sender.path.congestion_control = "x".repeat(MAX_TEXT_BYTES + 1);
        assert_eq!(decoded(&Control::ProbeSent(sent)), Err(CodecFault::Limit("summary")));
        assert_eq!(decoded(&Control::ProbeArrived(ProbeArrived::default())), Ok(()));
    }

    #[test]
    fn what_a_peer_knows_of_a_path_has_the_name_of_a_congestion_control_and_no_more() {
        let decoded = |congestion_control: &str, lanes| {
            let known = KnownPath { congestion_control: congestion_control.into(), lanes, ..KnownPath::default() };
            let carriage = Carriage { path: Some(known.clone()), ..Carriage::default() };
            let start = start(Role::Receiver { target: Vec::new() }, carriage);
            let path = PathSummary { known: Some(known), ..PathSummary::default() };
            let bye = SenderSummary { path, ..SenderSummary::default() };
            [start, Control::Bye(bye)].map(|message| {
                let mut bytes = Vec::new();
                codec::encode(&message, &mut bytes).unwrap();
                codec::decode(&bytes[4..]).is_ok()
            })
        };
        for name in ["reno", "bbr", "dctcp-reno", "bpf_cubic", "a23456789012345"] {
            assert_eq!(decoded(name, MAX_LANES), [true; 2], "{name}");
        }
        for name in ["", "a234567890123456", "Cubic", "bbr\nto 192.0.2.0/24", "b br", "b\u{e9}"] {
            assert_eq!(decoded(name, 8), [false; 2], "{name:?}");
        }
        assert_eq!(decoded("bbr", MAX_LANES + 1), [false; 2]);
    }

    proptest! {
        #[test]
        fn any_bytes_decode_or_are_refused(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
            let _ = codec::decode(&bytes);
        }
    }
}
