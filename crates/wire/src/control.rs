//! The messages of the control channel.
//!
//! ```text
//!   initiator                    agent
//!       <--- AgentHello ----------          who I am, where my lanes can be reached
//!       ---- Start --------------->         your role, the job, the peer's key
//!       ---- Listed ... ---------->         (when it sends, and only what is on a list)
//!       ---- Dial ---------------->         (when the agent is the side that connects the lanes)
//!       ---- Rate ---------------->         (when it sends, and the limit of the rate changes)
//!
//!   sender                       receiver
//!       ---- Begin --------------->
//!       <--- Named ----------------         (when a single file gets another name)
//!       ---- Items ... ----------->         the manifest streams
//!       ---- DeleteNothing ------->         (when it is not all that the sources hold)
//!       <--- Standing ... ---------         (pieces of a file that differs, before its answer: see `standing.rs`)
//!       <--- Answers, Outcomes ----         what is wanted; what became of each item
//!       <--- Receipts -------------         chunks that verified (their data came over the lanes)
//!       <--- Again, Repair --------         chunks that did not, on their way or at the target
//!       <--- Void -----------------         a chunk that two lanes brought, and of which neither counts
//!       ---- Counted ------------->         how much there is, as far as a count has come
//!       <--- ReadAgain ------------         how much of what an earlier run left was read
//!       ---- Withdraw ------------>         a wanted file changed or cannot be read
//!       ---- EndOfManifest ------->
//!       <--- Summary --------------         everything resolved and flushed
//!       ---- Bye ----------------->
//!
//!   and where several hosts are one end: see `movers.rs`
//!
//!   about a place: see `place.rs`
//!
//!   between two jobs of a session, each side on its own
//!       ---- JobEnd ------------->         also after Abort; Start may follow at once
//!       <--- JobEnd --------------
//!       ---- Leave --------------->         (the initiator) no further job
//!
//!   in a probe, first there (the initiator sends), then back
//!       ---- ProbeSent ----------->         time is over; its lanes carry nothing more
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

/// A message on the control channel.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Control {
    /// Agent to initiator, first.
    AgentHello(AgentHello),
    /// Initiator to agent: take this role.
    Start(Box<Start>),
    /// Initiator to agent: connect this many lanes to the peer at one of these addresses.
    Dial(Dial),
    /// Agent to initiator: no lane could be connected.
    DialFailed {
        /// The reason for each address.
        why: String,
    },
    /// Agent to initiator: lanes are connected.
    Dialled {
        /// The number of lanes.
        lanes: u16,
        /// Smallest connect time, which is the path's RTT, in microseconds.
        rtt_us: u32,
    },
    /// Initiator to agent: this key may bring lanes, too (the initiator relays them).
    Admit {
        /// Ed25519 public key.
        key: [u8; 32],
    },
    /// Sender to the side that connects the lanes: this many in all would be faster on this path.
    WantLanes {
        /// Number of the path.
        path: u16,
        /// The number of lanes.
        lanes: u16,
    },
    /// Sender to receiver, about once a second: the present path, for observers.
    PathNow(PathNow),
    /// Sender to receiver: the sources are open.
    Begin {
        /// The job is one file that may get a new name at the target.
        single_file: bool,
    },
    /// Sender to receiver: the next manifest items, numbered on from the last.
    Items(#[serde(deserialize_with = "manifest::batch")] Vec<PackedItem>),
    /// Sender to receiver: only retries follow (see [`Control::Withdraw`]).
    EndOfManifest,
    /// Sender to receiver: an item that was asked for cannot be sent as announced.
    Withdraw(Withdraw),
    /// Receiver to sender: send these.
    Answers(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Answer>),
    /// Receiver to sender: chunks verified.
    Receipts(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Receipt>),
    /// Receiver to sender: the chunk did not verify; send it again.
    Again {
        /// Manifest index.
        index: u64,
        /// Chunk number.
        chunk: u32,
    },
    /// Receiver to sender: the outcomes of items.
    Outcomes(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Outcome>),
    /// Either way: a notice for the user.
    Notice(Notice),
    /// Either way: this lane ended before its time.
    LaneLost {
        /// The lane's number.
        lane: u16,
    },
    /// Receiver to sender: all items are resolved and flushed.
    Summary(ReceiverSummary),
    /// Sender to receiver: agreed, good-bye.
    Bye(SenderSummary),
    /// The sending side of a probe: the time is over.
    ProbeSent(ProbeSent),
    /// The receiving side of a probe, in answer.
    ProbeArrived(ProbeArrived),
    /// Either way: the job ends here. Number and form never change (see [`crate::codec::encode_refusal`]).
    Abort(Abort),
    /// Either way: I am alive. Pings are not counted among the messages.
    Ping {
        /// Messages of the other end that have arrived here, in order and without a gap.
        received: u64,
        /// On the link where this end speaks: 1, plus one for each move to another link. On all others: 0.
        turn: u32,
        /// When it was sent, in microseconds of this end's clock, which began at any time.
        sent_us: u64,
    },
    /// Receiver to sender: this chunk does not stand at the target as verified; send it again, despite its receipt or
    /// if it was not asked for.
    Repair {
        /// Manifest index.
        index: u64,
        /// Chunk number.
        chunk: u32,
    },
    /// Initiator to agent, behind a [`Start`] that says so: the next paths of the list, relative to the source. The
    /// last message has none.
    Listed(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<Vec<u8>>),
    /// Receiver to sender, before any outcome: the single file gets this name.
    Named(RelPath),
    /// Sender to receiver, now and then: the findings of a count of the sources, which runs ahead of the items.
    Counted(Counted),
    /// Receiver to sender, now and then: the data of earlier runs that was read and compared since the session began.
    ReadAgain {
        /// The number of bytes, which never decreases.
        bytes: u64,
    },
    /// Sender to receiver: nothing may be deleted from here on, because not all sources could be listed.
    DeleteNothing,
    /// Either way: nothing gets through on this path. Its lanes are cut; the side that connects lanes tries it again.
    PathLost {
        /// Number of the path.
        path: u16,
    },
    /// Agent to initiator: its interfaces have these new addresses.
    Addresses(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")] Vec<Address>),
    /// Receiver to sender: what a lane brings of a chunk does not count.
    Void(Void),
    /// Leader to initiator to mover: the file that stands beneath the open target, if it is the same tree.
    SharedRoot(SharedRoot),
    /// Mover to initiator: it found that file.
    SameRoot,
    /// Leader to initiator to mover, before the item is asked for: its chunks may be written here.
    OpenDraft(OpenDraft),
    /// Initiator to mover: write no more of this item.
    CloseDraft {
        /// Manifest index.
        index: u64,
    },
    /// Mover to initiator to leader: chunks that it wrote, verified and flushed.
    Moved(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_BATCH_ITEMS>")] Vec<MovedChunk>),
    /// Between the hosts of a sending end.
    OfMover {
        /// Number of the mover's path.
        path: u16,
        /// The message.
        word: MoverWord,
    },
    /// Either way, if a place was asked: see [`crate::place`].
    Place(PlaceWord),
    /// Either way, last of a job that [others may follow](Start::stays): later messages are of the next job.
    JobEnd {
        /// All lanes of this side came to the end of the job, or were not used. Otherwise none of them carries the next
        /// job.
        lanes: bool,
    },
    /// Initiator to agent, between two jobs: no other one follows.
    Leave,
    /// Receiver to sender: pieces of the file that stands at the target.
    Standing(Standing),
    /// Initiator to a sending agent: the limit of the rate from now on.
    Rate {
        /// Payload bytes per second; `None`: there is no limit.
        bytes_per_s: Option<u64>,
    },
    /// Sender to the side that connects the lanes: larger segments do not arrive on this path. [`Control::PathLost`] follows.
    SmallerSegments {
        /// Number of the path.
        path: u16,
        /// New connections announce this as their largest segment (RFC 9293, section 3.7.1).
        segment_bytes: u16,
    },
    /// Sender to receiver, now and then from [`Control::EndOfManifest`] on: what its [`Control::Bye`] would say by now. The sender
    /// promises that nothing it has yet to say decides how the job ends: a receiver that has everything need not wait for the Bye.
    Findings(SenderSummary),
}

/// The first message of an agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AgentHello {
    /// Program version, for messages only.
    pub version: String,
    /// Ed25519 public key of its lanes.
    pub key: [u8; 32],
    /// TCP port of its listener; 0 if it cannot listen where others reach it.
    pub port: u16,
    /// TCP port of its listener for lanes that arrive on its own host, inside ssh sessions.
    pub relay_port: u16,
    /// Addresses of its interfaces.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")]
    pub addresses: Vec<Address>,
    /// The address at which sshd was reached.
    pub ssh_server: Option<Address>,
    /// The client address that sshd saw.
    pub ssh_client: Option<Address>,
    /// The number of processors that it may use.
    pub cpus: u16,
    /// Its processor is fast at AES-GCM.
    pub fast_aes: bool,
    /// The limits of one connection at its host.
    pub limits: HostLimits,
}

/// Gives an agent its role.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Start {
    /// Random name of this end of the session, for lanes that come here.
    pub session: [u8; 16],
    /// Random name of the other end, for lanes that are dialled from here: both ends of a copy may stand in one daemon,
    /// at one port.
    pub peer_session: [u8; 16],
    /// Public key of the side that brings the lanes or is reached by them.
    pub peer_key: [u8; 32],
    /// The key is the initiator's own: its holder may bring further links of this control channel.
    pub links: bool,
    /// Another job in the same role may follow on this session, with its own `Start`, which names the same ends and
    /// keys.
    pub stays: bool,
    /// The number of the job on this session, greater than that of the one before. The ends of lanes name it
    /// ([`UnitKind::JobEnd`](crate::lane::UnitKind::JobEnd)).
    pub job: u64,
    /// Sender or receiver.
    pub role: Role,
    /// The selection: which entries are copied, and how faithfully.
    pub selection: Selection,
    /// The part of the sources that is asked for.
    pub listed: Listed,
    /// Asks for the hash of kept files, too: a manifest is wanted, or their hashes are to be checked.
    pub hash_kept: bool,
    /// The way the bytes travel.
    pub carriage: Carriage,
}

/// The part of its sources that a sender is asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Listed {
    /// All of the sources.
    #[default]
    Nothing,
    /// Only paths of a list, which come in [`Control::Listed`].
    Paths,
    /// Only paths of a list; a directory means all beneath it.
    Trees,
}

/// The way the bytes travel.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Carriage {
    /// Upper bound of the payload rate, bytes per second.
    pub rate_bytes_per_s: Option<u64>,
    /// Acceptable TLS ciphers, best first: 1 AES-128-GCM, 2 AES-256-GCM, 3 ChaCha20-Poly1305.
    pub ciphers: Vec<u8>,
    /// Lanes become clear after their hello: their data is authenticated and verified, but everybody can read it.
    pub clear: bool,
    /// Compress on the wire.
    pub compress: bool,
    /// Silence after which the peer counts as dead, in milliseconds.
    pub timeout_ms: u32,
    /// Congestion control, if asked for by name.
    pub congestion_control: Option<String>,
    /// Bytes that one lane may have under way, if the user says so.
    pub window_bytes: Option<u64>,
    /// Number of lanes, if the user says so.
    pub lanes: Option<u16>,
    /// The sender's route from a file into a connection, if the user says so: 1 splice, 2 sendfile, 3 splice by
    /// io_uring, 4 mmap, 5 copy, 6 copy by io_uring; else none.
    pub route: Option<u8>,
    /// The receiver's way to write large files, if the user says so: 1 past the page cache, 2 through it; else none.
    pub write_route: Option<u8>,
    /// The findings of an earlier job about this path, in this direction.
    pub path: Option<KnownPath>,
    /// The number of other hosts of the far end that may write into the drafts of this receiver, or send for this
    /// sender.
    pub movers: u16,
    /// Processors of the smaller of the two hosts, as the initiator knows them; 0: unknown.
    pub cpus: u16,
    /// The request to a network that others use, too.
    pub service: Service,
    /// How files are cut: the target's rule.
    pub cut: Cut,
    /// The target takes the bytes of a file from front to back only: one lane brings all of it, in order.
    pub in_order: bool,
}

/// Asks an agent to bring the lanes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Dial {
    /// Addresses of the peer, best first.
    #[serde(deserialize_with = "bounded::at_most::<_, _, MAX_CANDIDATES>")]
    pub candidates: Vec<Candidate>,
    /// Number of lanes; 0 leaves it to the agent's rule.
    pub lanes: u16,
    /// Lanes may run over several paths at once.
    pub several_paths: bool,
    /// Time after which to give up, in milliseconds.
    pub timeout_ms: u32,
}

/// Says what to send of an item.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// Manifest index.
    pub index: u64,
    /// The data to send.
    pub wanted: Wanted,
}

/// The findings of a count of the sources so far, for a waiting user. They promise nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counted {
    /// Regular files.
    pub files: u64,
    /// Their data in bytes, without holes as far as their sizes show them.
    pub data_bytes: u64,
    /// The share of the sources seen, in millionths; [`Counted::WHOLE_PPM`]: all.
    pub share_ppm: u32,
}

impl Counted {
    /// All of the sources.
    pub const WHOLE_PPM: u32 = 1_000_000;
    /// The least share that lets the whole be judged: 1 %.
    const TELLING_PPM: u32 = 10_000;

    /// Whether the count is complete.
    pub fn is_whole(&self) -> bool {
        self.share_ppm >= Self::WHOLE_PPM
    }

    /// Extrapolates a figure to the whole: `found` was counted in the share that was seen. Of too small a share it
    /// returns `found` itself.
    pub fn whole(&self, found: u64) -> u64 {
        if self.share_ppm < Self::TELLING_PPM || self.is_whole() {
            return found;
        }
        u64::try_from(u128::from(found) * u128::from(Self::WHOLE_PPM) / u128::from(self.share_ppm)).unwrap_or(u64::MAX)
    }
}

/// The data to send of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Wanted {
    /// All data.
    All,
    /// Only the BLAKE3: the file is kept, and [`Start::hash_kept`].
    Hash,
    /// These ranges of chunks, ascending and not touching: an earlier run verified the rest.
    Chunks(#[serde(deserialize_with = "bounded::at_most::<_, _, MAX_RANGES>")] Vec<ChunkRange>),
}

/// The proof that a chunk is verified at the far side.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Receipt {
    /// Manifest index.
    pub index: u64,
    /// Chunk number.
    pub chunk: u32,
    /// Its bytes of data that came, without holes.
    pub data_bytes: u64,
    /// Its bytes that stood at the target already.
    pub matched_bytes: u64,
}

/// A wanted item that cannot be sent as announced.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Withdraw {
    /// Manifest index.
    pub index: u64,
    /// The failed act and its cause.
    pub why: String,
    /// The kind of failure.
    pub kind: FailureKind,
    /// The item in its new state, which takes the next manifest index.
    pub retry: Option<PackedItem>,
}

/// Why entries were not deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Withheld {
    /// The source has nothing to copy, as a disk that is not mounted.
    SourceIsEmpty,
    /// They are more than half of what stood at the target.
    MoreThanHalf {
        /// So many stood there.
        of: u64,
    },
}

/// A notice for the user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Notice {
    /// An entry was deleted at the target (or would be).
    Deleted {
        /// Its path.
        path: Vec<u8>,
        /// The entry was a directory.
        is_directory: bool,
    },
    /// An act on an entry failed; the entry's outcome is another matter.
    Failed {
        /// Its path.
        path: Vec<u8>,
        /// The failed act and its cause.
        why: String,
    },
    /// Entries were not deleted, because nobody has insisted on it.
    Withheld {
        /// The directory that they stand in.
        path: Vec<u8>,
        /// How many.
        entries: u64,
        /// Why.
        why: Withheld,
    },
    /// Something was left out.
    Skipped {
        /// Its path.
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
        /// The subject of the choice.
        what: String,
        /// The choice.
        choice: String,
        /// Why.
        reason: String,
    },
}

impl Control {
    /// Refuses a message that decodes but exceeds what honest peers send. Sequences ended at their limits before;
    /// manifest items are checked when they are unpacked.
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
