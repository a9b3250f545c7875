//! Sums of content that servers give, in fields of four generations, and the same sums of what was read.

pub(crate) mod adler32_parts;
pub(crate) mod fields;
pub(crate) mod hasher;

use haul_store::SumKind;

/// A server's sum of a file's whole content.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// The kind.
    pub kind: SumKind,
    /// The bytes of the sum, as many as the kind has.
    pub value: Vec<u8>,
}

impl Digest {
    /// `None`: the kind has another number of bytes.
    pub fn new(kind: SumKind, value: Vec<u8>) -> Option<Digest> {
        (value.len() == bytes_of(kind)).then_some(Digest { kind, value })
    }
}

pub(crate) fn bytes_of(kind: SumKind) -> usize {
    match kind {
        SumKind::Adler32 => 4,
        SumKind::Md5 => 16,
        SumKind::Sha1 => 20,
        SumKind::Sha256 => 32,
        SumKind::Sha512 => 64,
    }
}
