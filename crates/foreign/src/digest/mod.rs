//! Sums of content that servers give, in the fields of four generations, and the same sums of what was read.

pub(crate) mod adler32_parts;
pub(crate) mod fields;
pub(crate) mod hasher;

use haul_store::SumKind;

/// The sum that a server gives of the whole content of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Digest {
    /// Its kind.
    pub kind: SumKind,
    /// As many bytes as a sum of this kind has.
    pub value: Vec<u8>,
}

impl Digest {
    /// `None`: no sum of this kind has so many bytes.
    pub fn new(kind: SumKind, value: Vec<u8>) -> Option<Digest> {
        (value.len() == bytes_of(kind)).then_some(Digest { kind, value })
    }
}

/// How many bytes a sum has.
pub(crate) fn bytes_of(kind: SumKind) -> usize {
    match kind {
        SumKind::Adler32 => 4,
        SumKind::Md5 => 16,
        SumKind::Sha1 => 20,
        SumKind::Sha256 => 32,
        SumKind::Sha512 => 64,
    }
}
