//! The header in front of each block: a byte of flags, the number of bytes that follow, and where in the file they belong.

/// The bytes of a header: flags (1), count (8), offset (8), with the highest byte first.
pub const HEADER_BYTES: usize = 17;

/// A header as it came. Its numbers are those of the peer: [`Account`](crate::Account) says whether they may be believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// What the block is, as the flags below.
    pub flags: u8,
    /// The bytes that follow.
    pub count: u64,
    /// Where they belong. With [`Header::END_OF_FILE`]: how many data connections the sender has opened.
    pub offset: u64,
}

impl Header {
    /// The sender names the number of its data connections.
    pub const END_OF_FILE: u8 = 0x40;
    /// The last block of this connection.
    pub const END_OF_DATA: u8 = 0x08;
    /// The sender closes the connection behind this block. Without it, the next transfer may use the connection again.
    pub const CLOSES: u8 = 0x04;
    /// Flags that a file of bytes can have. The others are ends of records, data that the sender doubts, and marks in place of data.
    pub(crate) const KNOWN: u8 = Self::END_OF_FILE | Self::END_OF_DATA | Self::CLOSES;

    /// Reads a header.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Header {
        let number = |at: usize| bytes[at..at + 8].iter().fold(0, |number: u64, byte| number << 8 | u64::from(*byte));
        Header { flags: bytes[0], count: number(1), offset: number(9) }
    }

    /// Writes a header.
    pub fn encode(self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[0] = self.flags;
        bytes[1..9].copy_from_slice(&self.count.to_be_bytes());
        bytes[9..].copy_from_slice(&self.offset.to_be_bytes());
        bytes
    }

    pub(crate) fn has(self, flag: u8) -> bool {
        self.flags & flag != 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_written_as_servers_write_it() {
        let header = Header { flags: Header::END_OF_FILE | Header::END_OF_DATA, count: 0, offset: 1 };
        assert_eq!(header.encode(), [0x48, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
        let data = Header { flags: 0, count: 262_144, offset: 1 << 40 };
        assert_eq!(data.encode()[..9], [0, 0, 0, 0, 0, 0, 4, 0, 0]);
        assert_eq!(data.encode()[9..], [0, 0, 1, 0, 0, 0, 0, 0]);
    }

    proptest::proptest! {
        #[test]
        fn what_is_written_is_read(flags: u8, count: u64, offset: u64) {
            let header = Header { flags, count, offset };
            assert_eq!(Header::decode(&header.encode()), header);
        }
    }
}
