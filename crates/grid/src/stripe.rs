//! Keeps account of what comes to one port over several connections: which header may come, and when all is there.
//!
//! A striped server sends one file from several hosts, each to a port of its own. All of what comes to a port is there when the sender has
//! said once over how many connections it sends there (EOF), and as many have said their end (EOD).

use crate::account::{Broken, LONGEST};
use crate::header::Header;

/// The account of one port.
#[derive(Clone, Copy, Debug)]
pub struct StripeAccount {
    /// The most connections that may come.
    most: u64,
    opened: u64,
    ended: u64,
    /// As many come, once the sender has said so.
    count: Option<u64>,
}

/// What stands behind a header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entered {
    /// Bytes of the file. None: another header, or nothing.
    pub bytes: u64,
    /// The connection carries nothing behind these bytes.
    pub ends: bool,
}

impl StripeAccount {
    /// Nothing has come. At most so many connections were asked for.
    pub fn new(most: u16) -> StripeAccount {
        StripeAccount { most: most.into(), opened: 0, ended: 0, count: None }
    }

    /// Enters a connection.
    ///
    /// # Errors
    /// It is one too many.
    pub fn open(&mut self) -> Result<(), Broken> {
        self.opened += 1;
        match self.opened > self.count.unwrap_or(self.most) {
            true => Err(Broken::StripeConnections(self.opened)),
            false => Ok(()),
        }
    }

    /// Enters the next header of a connection that has not said its end yet. Where its bytes belong is for the caller to judge.
    ///
    /// # Errors
    /// The header may not come.
    pub fn enter(&mut self, header: Header) -> Result<Entered, Broken> {
        if header.flags & !Header::KNOWN != 0 {
            return Err(Broken::Flags(header.flags));
        }
        let (counts, ends) = (header.has(Header::END_OF_FILE), header.has(Header::END_OF_DATA));
        if counts {
            match (self.count, header.count, header.offset) {
                (Some(_), ..) => return Err(Broken::SecondCount),
                (None, 1.., _) => return Err(Broken::CountWithData),
                (None, 0, count) if count < self.opened || count > self.most => {
                    return Err(Broken::StripeConnections(count));
                }
                (None, 0, count) => self.count = Some(count),
            }
        } else if header.count > 0 {
            header.offset.checked_add(header.count).filter(|end| *end <= LONGEST).ok_or(Broken::TooLong)?;
        } else if !ends && !header.has(Header::CLOSES) {
            return Err(Broken::Empty);
        }
        self.ended += u64::from(ends);
        Ok(Entered { bytes: if counts { 0 } else { header.count }, ends })
    }

    /// All connections came, and each has said its end.
    pub fn is_complete(&self) -> bool {
        self.count == Some(self.ended)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COUNTS: u8 = Header::END_OF_FILE;
    const ENDS: u8 = Header::END_OF_DATA;

    fn entered(opened: u64, headers: &[(u8, u64, u64)]) -> Result<StripeAccount, Broken> {
        let mut account = StripeAccount::new(3);
        (0..opened).try_for_each(|_| account.open())?;
        for (flags, count, offset) in headers {
            account.enter(Header { flags: *flags, count: *count, offset: *offset })?;
        }
        Ok(account)
    }

    #[test]
    fn all_is_there_when_as_many_connections_have_ended_as_were_counted() {
        assert!(entered(2, &[(0, 5, 9), (COUNTS | ENDS, 0, 2), (ENDS, 4, 0)]).unwrap().is_complete());
        assert!(entered(1, &[(COUNTS | ENDS, 0, 1)]).unwrap().is_complete(), "a stripe that has nothing to send");
        assert!(!entered(1, &[(COUNTS | ENDS, 0, 2)]).unwrap().is_complete(), "one is still on its way");
        assert!(!entered(2, &[(ENDS, 0, 0), (ENDS, 0, 0)]).unwrap().is_complete(), "nobody has counted");
    }

    #[test]
    fn what_breaks_the_rules_is_named() {
        for (opened, headers, broken) in [
            (1, vec![(0x20, 5, 0)], Broken::Flags(0x20)),
            (1, vec![(COUNTS, 0, 2), (COUNTS, 0, 2)], Broken::SecondCount),
            (1, vec![(COUNTS, 7, 1)], Broken::CountWithData),
            (1, vec![(COUNTS, 0, 0)], Broken::StripeConnections(0)),
            (2, vec![(COUNTS, 0, 1)], Broken::StripeConnections(1)),
            (1, vec![(COUNTS, 0, 1 << 60)], Broken::StripeConnections(1 << 60)),
            (1, vec![(0, u64::MAX, 1)], Broken::TooLong),
            (1, vec![(0, 0, 0)], Broken::Empty),
            (4, vec![], Broken::StripeConnections(4)),
        ] {
            assert_eq!(entered(opened, &headers).unwrap_err(), broken, "{headers:?}");
        }
        let mut counted = entered(1, &[(COUNTS, 0, 1)]).unwrap();
        assert_eq!(counted.open(), Err(Broken::StripeConnections(2)));
    }
}
