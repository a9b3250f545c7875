//! Keeps account of one transfer: which block may come next, and when all is there.
//!
//! All of the data is there when the connection has said its end (EOD) once, and the sender has said once (EOF) that this was its only
//! connection. A closed connection says neither.

use crate::header::Header;

/// The account of a transfer that comes over one data connection, from its first byte to its last.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// Bytes that were announced so far: the next block begins here.
    announced: u64,
    has_count: bool,
    is_over: bool,
    closes: bool,
}

/// What stands behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// So many bytes of the file.
    Data(u64),
    /// Another header.
    Header,
    /// Nothing: all of the data is there.
    End,
}

/// The sender breaks the rules, or keeps one that does not hold here.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Broken {
    /// Flags that no file has.
    #[error("the server sent a block of an unknown kind (flags {0:#04x})")]
    Flags(u8),
    /// A block in another place than behind the one before.
    #[error("the server sent data out of its order: byte {came} where byte {due} was due")]
    OutOfOrder {
        /// Where the block belongs.
        came: u64,
        /// Where the next block begins.
        due: u64,
    },
    /// No file is so long.
    #[error("the server announced a block that ends behind the longest file")]
    TooLong,
    /// A second EOF.
    #[error("the server said twice over how many connections it sends")]
    SecondCount,
    /// EOF with a payload.
    #[error("the server sent data in a block that has none")]
    CountWithData,
    /// EOF with another number than 1.
    #[error("the server sends over {0} data connections, and 1 was asked for")]
    Connections(u64),
    /// EOF of a stripe with less connections than it has opened, or more than were asked for.
    #[error(
        "the server sends over {0} data connections to one port, and that is not what it has opened or was asked for"
    )]
    StripeConnections(u64),
    /// EOD without EOF.
    #[error("the server ended its data and did not say over how many connections it was sent")]
    NoCount,
    /// An empty block that says nothing.
    #[error("the server sent an empty block")]
    Empty,
    /// A block behind the end.
    #[error("the server sent a block behind its end of data")]
    BehindEnd,
}

impl Broken {
    /// The sender keeps the rules of GridFTP, and only uses more of them than was asked for.
    pub fn is_allowed_elsewhere(self) -> bool {
        matches!(
            self,
            Broken::OutOfOrder { .. } | Broken::Connections(2..) | Broken::StripeConnections(_) | Broken::NoCount
        )
    }
}

impl Account {
    /// Enters the next header.
    ///
    /// # Errors
    /// The header may not come now. Nothing that follows it counts.
    pub fn enter(&mut self, header: Header) -> Result<Next, Broken> {
        if self.is_over {
            return Err(Broken::BehindEnd);
        }
        if header.flags & !Header::KNOWN != 0 {
            return Err(Broken::Flags(header.flags));
        }
        self.closes |= header.has(Header::CLOSES);
        let ends = header.has(Header::END_OF_DATA);
        if header.has(Header::END_OF_FILE) {
            match (self.has_count, header.count, header.offset) {
                (true, ..) => return Err(Broken::SecondCount),
                (false, 1.., _) => return Err(Broken::CountWithData),
                (false, 0, 1) => self.has_count = true,
                (false, 0, connections) => return Err(Broken::Connections(connections)),
            }
        } else if header.count > 0 {
            if header.offset != self.announced {
                return Err(Broken::OutOfOrder { came: header.offset, due: self.announced });
            }
            self.announced =
                self.announced.checked_add(header.count).filter(|end| *end <= LONGEST).ok_or(Broken::TooLong)?;
        } else if !ends && !self.closes {
            return Err(Broken::Empty);
        }
        if ends {
            self.is_over = true;
            if !self.has_count {
                return Err(Broken::NoCount);
            }
        }
        Ok(match (header.has(Header::END_OF_FILE), header.count) {
            (false, 1..) => Next::Data(header.count),
            _ if ends => Next::End,
            _ => Next::Header,
        })
    }

    /// All headers are there.
    pub fn is_over(&self) -> bool {
        self.is_over
    }

    /// The connection may carry the next transfer.
    pub fn is_kept(&self) -> bool {
        self.is_over && !self.closes
    }
}

/// The largest file of Linux has 2^63 - 1 bytes.
pub(crate) const LONGEST: u64 = i64::MAX as u64;

#[cfg(test)]
mod tests {
    use super::*;

    const EOF: u8 = Header::END_OF_FILE;
    const EOD: u8 = Header::END_OF_DATA;
    const CLOSES: u8 = Header::CLOSES;

    fn enter(headers: &[(u8, u64, u64)]) -> Result<(Vec<Next>, Account), Broken> {
        let mut account = Account::default();
        let entered = headers
            .iter()
            .map(|(flags, count, offset)| account.enter(Header { flags: *flags, count: *count, offset: *offset }));
        let next = entered.collect::<Result<Vec<_>, _>>()?;
        Ok((next, account))
    }

    #[test]
    fn transfers_as_servers_send_them() {
        let globus = enter(&[(0, 262_144, 0), (0, 10, 262_144), (EOF | EOD, 0, 1)]).unwrap();
        assert_eq!(globus.0, [Next::Data(262_144), Next::Data(10), Next::End]);
        assert!(globus.1.is_kept());
        let dcache = enter(&[(0, 5, 0), (EOF | EOD | CLOSES, 0, 1)]).unwrap().1;
        assert!(dcache.is_over() && !dcache.is_kept());
        assert!(enter(&[(EOF, 0, 1), (0, 5, 0), (EOD, 3, 5)]).unwrap().1.is_over(), "the end on a block of data");
        assert!(!enter(&[(EOF, 0, 1), (0, 5, 0)]).unwrap().1.is_over(), "EOD is missing");
        assert!(enter(&[(EOF | EOD, 0, 1)]).unwrap().1.is_over(), "an empty file");
    }

    #[test]
    fn what_breaks_the_rules_is_named() {
        for (headers, broken) in [
            (vec![(0x20, 5, 0)], Broken::Flags(0x20)),
            (vec![(0x01, 5, 0)], Broken::Flags(1)),
            (vec![(0, 5, 1)], Broken::OutOfOrder { came: 1, due: 0 }),
            (vec![(0, 5, 0), (0, 5, 4)], Broken::OutOfOrder { came: 4, due: 5 }),
            (vec![(0, u64::MAX, 0)], Broken::TooLong),
            (vec![(0, LONGEST, 0), (0, u64::MAX, LONGEST)], Broken::TooLong),
            (vec![(EOF, 0, 1), (EOF | EOD, 0, 1)], Broken::SecondCount),
            (vec![(EOF, 7, 1)], Broken::CountWithData),
            (vec![(EOF, 0, 0)], Broken::Connections(0)),
            (vec![(EOF | EOD, 0, 1 << 60)], Broken::Connections(1 << 60)),
            (vec![(0, 5, 0), (EOD, 0, 0)], Broken::NoCount),
            (vec![(0, 0, 0)], Broken::Empty),
            (vec![(EOF | EOD, 0, 1), (0, 5, 0)], Broken::BehindEnd),
        ] {
            assert_eq!(enter(&headers).unwrap_err(), broken, "{headers:?}");
        }
    }

    proptest::proptest! {
        #[test]
        fn whatever_comes_data_has_no_gap_and_one_end(headers: Vec<(u8, u16, u64)>) {
            let (mut account, mut at, mut ends) = (Account::default(), 0_u64, 0);
            for (flags, count, offset) in headers {
                let count = u64::from(count);
                // Half of the headers are those that may come.
                let offset = if offset % 2 == 0 { at } else { offset };
                let flags = if offset % 3 == 0 { flags & Header::KNOWN } else { flags };
                let Ok(next) = account.enter(Header { flags, count, offset }) else { break };
                if let Next::Data(bytes) = next {
                    assert_eq!((offset, count), (at, bytes));
                    at += bytes;
                }
                ends += u32::from(account.is_over());
            }
            assert!(ends <= 1);
        }
    }
}
