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
    use proptest::collection::vec;
    use proptest::prelude::any;
    use proptest::sample::Index;

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

    /// A step of a sender; each connection takes them in this order.
    #[derive(Clone, Copy, Debug)]
    enum Step {
        Open,
        Says(Header),
    }

    /// The steps of each connection of a sender that keeps the rules: blocks, an end on the last one or behind it, and on one connection the
    /// count, at any place.
    fn steps_of_sender(blocks: &[u8], ends_with_data: &[bool], counting: Index, at: Index) -> Vec<Vec<Step>> {
        let counting = counting.index(blocks.len());
        let connections = blocks.iter().zip(ends_with_data).enumerate();
        let all = connections.map(|(number, (count, ends_with_data))| {
            let data = |at: u8| Header { flags: 0, count: 9, offset: 100 * u64::from(at) };
            let mut says: Vec<Header> = (0..*count).map(data).collect();
            match says.last_mut().filter(|_| *ends_with_data) {
                Some(last) => last.flags |= ENDS,
                None => says.push(Header { flags: ENDS, count: 0, offset: 0 }),
            }
            if number == counting {
                let (told, at) = (blocks.len() as u64, at.index(says.len() + 1));
                match says.get_mut(at) {
                    Some(end) if end.count == 0 => (end.flags, end.offset) = (COUNTS | ENDS, told),
                    _ => says.insert(at.min(says.len() - 1), Header { flags: COUNTS, count: 0, offset: told }),
                }
            }
            std::iter::once(Step::Open).chain(says.into_iter().map(Step::Says)).collect()
        });
        all.collect()
    }

    proptest::proptest! {
        #[test]
        fn in_any_order_all_is_there_at_the_last_end_and_not_before(
            connections in vec((0..6_u8, any::<bool>()), 1..=8),
            (counting, at) in any::<(Index, Index)>(),
            order in vec(any::<Index>(), 64),
        ) {
            let (blocks, ends_with_data): (Vec<u8>, Vec<bool>) = connections.into_iter().unzip();
            let mut waiting = steps_of_sender(&blocks, &ends_with_data, counting, at);
            let mut account = StripeAccount::new(8);
            for turn in order.iter().cycle() {
                assert!(!account.is_complete(), "before the last end");
                let number = turn.index(waiting.len());
                match waiting[number].remove(0) {
                    Step::Open => account.open().unwrap(),
                    Step::Says(header) => assert_eq!(account.enter(header).unwrap().ends, header.has(ENDS)),
                }
                waiting.retain(|steps| !steps.is_empty());
                if waiting.is_empty() {
                    break;
                }
            }
            assert!(account.is_complete(), "all has been said");
            assert!(account.open().is_err(), "nobody comes behind the end");
        }
    }
}
