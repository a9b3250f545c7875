//! The bytes on a lane, from sender to receiver only.
//!
//! ```text
//!   hello | unit | unit | ... | end                         units of several jobs: ... | job ends | unit | ... | end
//!   unit  = header (20 bytes) | block | block | ... | trailer
//!   block = u32: three bits of encoding, length | bytes     at most BLOCK_BYTES of contents each
//!   trailer = u32 zero | verdict (1 byte) | 32 bytes of BLAKE3
//! ```
//! The hash is computed while the data moves, and follows it.
//!
//! If both ends were told so, a lane is clear after its hello. Then [`TAG_BYTES`] of proof follow each header, block and trailer.

use crate::PROTOCOL_VERSION;
use crate::limits::{BLOCK_BYTES, MAX_PATHS};

/// Begins a lane after the TLS handshake: `haulane2` in version 2.
pub const LANE_MAGIC: [u8; 8] = magic(LANE, PROTOCOL_VERSION);

/// Begins a daemon's control channel: `haulctl2` in version 2, filled with zeros to a lane hello's length.
pub const CONTROL_MAGIC: [u8; 8] = magic(CONTROL, PROTOCOL_VERSION);

/// Begins a further link: `haulink`, version, session, zeros.
pub const LINK_MAGIC: [u8; 8] = magic(LINK, PROTOCOL_VERSION);

const LANE: [u8; 7] = *b"haulane";
const CONTROL: [u8; 7] = *b"haulctl";
const LINK: [u8; 7] = *b"haulink";

/// Puts the version, from `1` on, in the last byte: each end knows the other's.
const fn magic(kind: [u8; 7], version: u32) -> [u8; 8] {
    assert!(version >= 1 && version <= (u8::MAX - VERSION_ZERO) as u32, "the version has one byte");
    let [a, b, c, d, e, f, g] = kind;
    [a, b, c, d, e, f, g, VERSION_ZERO + version as u8]
}

const VERSION_ZERO: u8 = b'0';

/// Bytes of a [`LaneHello`].
pub const LANE_HELLO_BYTES: usize = 8 + 16 + 2;

/// Names a new connection's session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LaneHello {
    /// The session's random name.
    pub session: [u8; 16],
    /// The lane's number, with its path: see [`path_of`].
    pub lane: u16,
}

/// The low byte of a lane's number.
const LANES_OF_PATH: u16 = 256;

/// A lane's path; a single one is 0.
pub const fn path_of(lane: u16) -> u16 {
    lane / LANES_OF_PATH
}

/// A lane's index on its path.
pub const fn index_of(lane: u16) -> u16 {
    lane % LANES_OF_PATH
}

/// The lane's number.
///
/// # Panics
/// If the path is not below [`MAX_PATHS`], or the index not below 256.
pub const fn lane_of(path: u16, index: u16) -> u16 {
    assert!(path < MAX_PATHS && index < LANES_OF_PATH, "a path below 8, and an index below 256");
    path * LANES_OF_PATH + index
}

impl LaneHello {
    /// Encodes.
    pub fn encode(&self) -> [u8; LANE_HELLO_BYTES] {
        let mut out = [0; LANE_HELLO_BYTES];
        out[..8].copy_from_slice(&LANE_MAGIC);
        out[8..24].copy_from_slice(&self.session);
        out[24..].copy_from_slice(&self.lane.to_le_bytes());
        out
    }

    /// `None`: something else.
    pub fn decode(bytes: &[u8; LANE_HELLO_BYTES]) -> Option<Self> {
        if bytes[..8] != LANE_MAGIC {
            return None;
        }
        let mut session = [0; 16];
        session.copy_from_slice(&bytes[8..24]);
        let lane = u16::from_le_bytes([bytes[24], bytes[25]]);
        (path_of(lane) < MAX_PATHS).then_some(Self { session, lane })
    }
}

/// The purpose of a new connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hello {
    /// A lane of a session.
    Lane(LaneHello),
    /// A new session's control channel.
    Control,
    /// A further link.
    Link {
        /// The session's random name.
        session: [u8; 16],
    },
    /// A control channel of another version.
    OtherVersion(u32),
}

impl Hello {
    /// Encodes.
    pub fn encode(&self) -> [u8; LANE_HELLO_BYTES] {
        match self {
            Hello::Lane(lane) => lane.encode(),
            Hello::Control => Self::control(PROTOCOL_VERSION),
            Hello::Link { session } => {
                let mut out = [0; LANE_HELLO_BYTES];
                out[..8].copy_from_slice(&LINK_MAGIC);
                out[8..24].copy_from_slice(session);
                out
            }
            Hello::OtherVersion(version) => Self::control(*version),
        }
    }

    fn control(version: u32) -> [u8; LANE_HELLO_BYTES] {
        let mut out = [0; LANE_HELLO_BYTES];
        out[..8].copy_from_slice(&magic(CONTROL, version));
        out
    }

    /// `None`: something else, also another version's lane or link, which its channel's refusal precedes.
    pub fn decode(bytes: &[u8; LANE_HELLO_BYTES]) -> Option<Self> {
        if *bytes == Hello::Control.encode() {
            return Some(Hello::Control);
        }
        let other = bytes[7].checked_sub(VERSION_ZERO).map(u32::from);
        if let Some(version @ 1..) = other.filter(|version| bytes[..7] == CONTROL && *version != PROTOCOL_VERSION) {
            // That version's own affair.
            return Some(Hello::OtherVersion(version));
        }
        if bytes[..8] == LINK_MAGIC && bytes[24..] == [0; 2] {
            let mut session = [0; 16];
            session.copy_from_slice(&bytes[8..24]);
            return Some(Hello::Link { session });
        }
        LaneHello::decode(bytes).map(Hello::Lane)
    }
}

/// Bytes of a [`UnitHeader`].
pub const UNIT_HEADER_BYTES: usize = 20;

/// Kinds of units.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnitKind {
    /// A file of at most one chunk, hashed to its BLAKE3.
    Whole,
    /// A larger file's chunk, hashed to its subtree's chaining value.
    Chunk,
    /// Only the source's BLAKE3, as trailer.
    Hash,
    /// The end of the lane.
    End,
    /// The end of the job numbered by the index.
    JobEnd,
    /// A chunk without data or hash: a hole, with the whole blocks of 64 MiB around it.
    Hole,
}

/// Header of a unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnitHeader {
    /// The kind.
    pub kind: UnitKind,
    /// Manifest index.
    pub index: u64,
    /// Chunk; 0 for whole files.
    pub chunk: u32,
}

impl UnitHeader {
    /// Encodes.
    pub fn encode(&self) -> [u8; UNIT_HEADER_BYTES] {
        let mut out = [0; UNIT_HEADER_BYTES];
        out[0] = match self.kind {
            UnitKind::Whole => 1,
            UnitKind::Chunk => 2,
            UnitKind::Hash => 3,
            UnitKind::End => 4,
            UnitKind::JobEnd => 6,
            UnitKind::Hole => 5,
        };
        out[4..8].copy_from_slice(&self.chunk.to_le_bytes());
        out[8..16].copy_from_slice(&self.index.to_le_bytes());
        out
    }

    /// `None`: unknown kind, or reserved bytes set.
    pub fn decode(bytes: &[u8; UNIT_HEADER_BYTES]) -> Option<Self> {
        let kind = match bytes[0] {
            1 => UnitKind::Whole,
            2 => UnitKind::Chunk,
            3 => UnitKind::Hash,
            4 => UnitKind::End,
            6 => UnitKind::JobEnd,
            5 => UnitKind::Hole,
            _ => return None,
        };
        if bytes[1..4] != [0; 3] || bytes[16..20] != [0; 4] {
            return None;
        }
        let chunk = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
        let mut index = [0; 8];
        index.copy_from_slice(&bytes[8..16]);
        Some(Self { kind, index: u64::from_le_bytes(index), chunk })
    }
}

/// Bytes of a [`BlockHeader`].
pub const BLOCK_HEADER_BYTES: usize = 4;

/// Encodings of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoding {
    /// Contents as they are.
    Plain,
    /// zstd, with at most [`BLOCK_BYTES`] decoded.
    Zstd,
    /// A hole, as at the target: nothing follows the header.
    Zeros,
    /// [`Encoding::Plain`], in which the receiver leaves out zeros.
    PlainWithHoles,
    /// [`Encoding::Zstd`], in which the receiver leaves out zeros.
    ZstdWithHoles,
    /// A run of the target's file, whose offset follows ([`RUN_OFFSET_BYTES`], little endian).
    Standing,
}

impl Encoding {
    /// The encoding with holes.
    pub fn with_holes(self) -> Encoding {
        match self {
            Encoding::Plain => Encoding::PlainWithHoles,
            Encoding::Zstd => Encoding::ZstdWithHoles,
            Encoding::Zeros | Encoding::PlainWithHoles | Encoding::ZstdWithHoles | Encoding::Standing => self,
        }
    }

    /// Whether it is compressed.
    pub fn is_packed(self) -> bool {
        matches!(self, Encoding::Zstd | Encoding::ZstdWithHoles)
    }
}

/// Header of a block; plain zero announces the trailer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Bytes that follow; of [`Encoding::Zeros`] and [`Encoding::Standing`] the length.
    pub bytes: u32,
    /// Their encoding.
    pub encoding: Encoding,
}

impl BlockHeader {
    /// Announces the trailer.
    pub const LAST: BlockHeader = BlockHeader { bytes: 0, encoding: Encoding::Plain };

    /// Encodes.
    pub fn encode(&self) -> [u8; BLOCK_HEADER_BYTES] {
        let encoding: u32 = match self.encoding {
            Encoding::Plain => 0,
            Encoding::Zstd => 1,
            Encoding::Zeros => 2,
            Encoding::PlainWithHoles => 3,
            Encoding::ZstdWithHoles => 4,
            Encoding::Standing => 5,
        };
        (self.bytes | encoding << ENCODING_SHIFT).to_le_bytes()
    }

    /// `None`: beyond [`BLOCK_BYTES`], unknown, or empty before the last: a unit could hold any number.
    pub fn decode(bytes: [u8; BLOCK_HEADER_BYTES]) -> Option<Self> {
        let word = u32::from_le_bytes(bytes);
        let encoding = match word >> ENCODING_SHIFT {
            0 => Encoding::Plain,
            1 => Encoding::Zstd,
            2 => Encoding::Zeros,
            3 => Encoding::PlainWithHoles,
            4 => Encoding::ZstdWithHoles,
            5 => Encoding::Standing,
            _ => return None,
        };
        let bytes = word & !(7 << ENCODING_SHIFT);
        let is_none = bytes == 0 && encoding != Encoding::Plain;
        (bytes as usize <= BLOCK_BYTES && !is_none).then_some(Self { bytes, encoding })
    }
}

const ENCODING_SHIFT: u32 = 29;

/// Length of a run's offset.
pub const RUN_OFFSET_BYTES: usize = 8;

/// Length of a trailer behind its header.
pub const TRAILER_BYTES: usize = 1 + 32;

/// Length of a tag.
pub const TAG_BYTES: usize = 32;

/// How a unit ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trailer {
    /// All data was sent.
    Complete([u8; 32]),
    /// The source was unreadable or changed: the data is void. The control channel says why.
    Void,
}

impl Trailer {
    /// Encodes.
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut out = [0; TRAILER_BYTES];
        if let Trailer::Complete(hash) = self {
            out[0] = 1;
            out[1..].copy_from_slice(hash);
        }
        out
    }

    /// Decodes.
    pub fn decode(bytes: &[u8; TRAILER_BYTES]) -> Option<Self> {
        let mut hash = [0; 32];
        hash.copy_from_slice(&bytes[1..]);
        match bytes[0] {
            0 => Some(Trailer::Void),
            1 => Some(Trailer::Complete(hash)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn headers_survive_the_wire() {
        let hello = LaneHello { session: [7; 16], lane: 3 };
        assert_eq!(LaneHello::decode(&hello.encode()), Some(hello));
        for kind in [UnitKind::Whole, UnitKind::Chunk, UnitKind::Hash, UnitKind::End, UnitKind::JobEnd, UnitKind::Hole]
        {
            let header = UnitHeader { kind, index: u64::MAX - 3, chunk: 77 };
            assert_eq!(UnitHeader::decode(&header.encode()), Some(header));
        }
        let encodings = [
            Encoding::Plain,
            Encoding::Zstd,
            Encoding::Zeros,
            Encoding::PlainWithHoles,
            Encoding::ZstdWithHoles,
            Encoding::Standing,
        ];
        for encoding in encodings {
            let block = BlockHeader { bytes: BLOCK_BYTES as u32, encoding };
            assert_eq!(BlockHeader::decode(block.encode()), Some(block));
        }
        for trailer in [Trailer::Void, Trailer::Complete([9; 32])] {
            assert_eq!(Trailer::decode(&trailer.encode()), Some(trailer));
        }
    }

    #[test]
    fn a_lane_of_any_path_is_greeted_and_a_path_beyond_the_limit_is_refused() {
        for (path, index, lane) in [(0, 0, 0), (0, 255, 255), (1, 0, 256), (7, 255, 2047)] {
            assert_eq!((lane_of(path, index), path_of(lane), index_of(lane)), (lane, path, index));
            let hello = LaneHello { session: [7; 16], lane };
            assert_eq!(LaneHello::decode(&hello.encode()), Some(hello));
        }
        for lane in [2048, u16::MAX] {
            assert_eq!(LaneHello::decode(&LaneHello { session: [7; 16], lane }.encode()), None);
        }
    }

    #[test]
    fn a_greeting_says_its_version_and_only_ours_is_served() {
        assert_eq!([LANE_MAGIC[7], LINK_MAGIC[7]], [CONTROL_MAGIC[7]; 2]);
        assert_eq!(u32::from(CONTROL_MAGIC[7] - b'0'), PROTOCOL_VERSION);
        let greeted = |magic: &[u8; 8]| {
            let mut bytes = [0; LANE_HELLO_BYTES];
            bytes[..8].copy_from_slice(magic);
            Hello::decode(&bytes)
        };
        assert_eq!(greeted(&CONTROL_MAGIC), Some(Hello::Control));
        assert_eq!(greeted(b"haulctl1"), Some(Hello::OtherVersion(1)));
        assert_eq!(greeted(b"haulctl8"), Some(Hello::OtherVersion(8)));
        let link = Hello::Link { session: [7; 16] };
        assert_eq!(Hello::decode(&link.encode()), Some(link));
        assert_eq!(LaneHello::decode(&link.encode()), None);
        let mut more = link.encode();
        more[25] = 1;
        assert_eq!(Hello::decode(&more), None);
        for stranger in [b"haulane1", b"haulane8", b"haulink8", b"haulctl0", b"haulctl\0", b"SSH-2.0-"] {
            assert_eq!(greeted(stranger), None, "{stranger:?}");
        }
    }

    #[test]
    fn a_block_above_the_limit_is_refused() {
        assert_eq!(BlockHeader::decode((BLOCK_BYTES as u32 + 1).to_le_bytes()), None);
        assert_eq!(BlockHeader::decode(u32::MAX.to_le_bytes()), None);
    }

    #[test]
    fn a_block_of_nothing_is_refused_and_the_trailer_announced_by_one_word_only() {
        for (encoding, decoded) in [
            (Encoding::Plain, Some(BlockHeader::LAST)),
            (Encoding::Zstd, None),
            (Encoding::Zeros, None),
            (Encoding::PlainWithHoles, None),
        ] {
            assert_eq!(BlockHeader::decode(BlockHeader { bytes: 0, encoding }.encode()), decoded);
        }
    }

    proptest! {
        #[test]
        fn whatever_decodes_encodes_to_the_same_bytes(bytes in any::<[u8; UNIT_HEADER_BYTES]>()) {
            if let Some(header) = UnitHeader::decode(&bytes) {
                prop_assert_eq!(header.encode(), bytes);
            }
        }
    }
}
