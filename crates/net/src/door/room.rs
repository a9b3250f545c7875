//! The guests at a door, from acceptance until they have said what they want. In a full room an old guest has to leave.
//!
//! Were newcomers refused, an attacker could hold all seats and retake each at its deadline. A handshake needs a few round
//! trips; an older guest is silent, or will knock again.
//!
//! ```text
//! its source is full    -> the oldest guest of that source leaves, if it had its time (YOUNG)
//! the room is full      -> of sources with as many guests as the newcomer's: the one with most loses its oldest that had its time
//!                          else, of sources with more guests: the one with most loses its oldest
//! no guest may leave    -> the newcomer is not let in
//! ```
//! So a flood displaces itself, not sources with fewer guests. Among equals young guests stay, else no handshake would end.
//! FreeBSD's kernel does likewise ("the bucket is full, toss the oldest element", `tcp_syncache.c`).

use std::cmp::Reverse;
use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use crate::transport::ShutdownHandle;

/// The most guests, and how long each is safe.
#[derive(Clone, Copy, Debug)]
pub struct Space {
    /// Guests of all sources.
    pub guests: usize,
    /// The time before its own source, or one with as many guests, may displace a guest.
    pub young: Duration,
}

pub(super) struct Room {
    space: Space,
    /// The oldest comes first.
    guests: BTreeMap<u64, Guest>,
    by_source: HashMap<IpAddr, usize>,
    /// Displaced guests whose threads still run.
    leaving: HashMap<u64, IpAddr>,
    next_number: u64,
}

/// A source waits while more than a quarter of its bound are leaving.
const LEAVING_PART: usize = 4;

struct Guest {
    source: IpAddr,
    door: u64,
    since: Instant,
    connection: ShutdownHandle,
    is_admitted: bool,
}

pub(super) struct Newcomer {
    pub(super) source: IpAddr,
    pub(super) most_of_source: usize,
    pub(super) connection: ShutdownHandle,
    pub(super) door: u64,
}

impl Guest {
    /// Whether it may have to leave: not once its hello was read.
    fn can_be_shown_out(&self) -> bool {
        self.connection.has_deadline()
    }

    fn had_its_time(&self, space: Space, now: Instant) -> bool {
        now.saturating_duration_since(self.since) >= space.young
    }
}

impl Room {
    pub(super) fn of(space: Space) -> Room {
        Room { space, guests: BTreeMap::new(), by_source: HashMap::new(), leaving: HashMap::new(), next_number: 0 }
    }

    /// Counts a connection until [`Room::leaves`], if there is room. Examining some hundred guests takes microseconds.
    pub(super) fn enters(&mut self, newcomer: Newcomer, now: Instant) -> Option<u64> {
        let (space, Newcomer { source, most_of_source, connection, door }) = (self.space, newcomer);
        // Leaving guests may hold as many threads again. Most end at once; of one source, few may take longer.
        let leaving = self.leaving.values().filter(|leaving| **leaving == source).count();
        if most_of_source == 0 || leaving > most_of_source / LEAVING_PART || self.leaving.len() >= space.guests {
            return None;
        }
        if self.by_source.get(&source).is_some_and(|count| *count >= most_of_source) {
            let oldest = self.guests.iter().find(|(_, guest)| guest.source == source && guest.can_be_shown_out());
            let (&number, _) = oldest.filter(|(_, guest)| guest.had_its_time(space, now))?;
            self.show_out(number);
        } else if self.guests.len() >= space.guests {
            self.show_out(self.most_crowding(source, space, now)?);
        }
        self.next_number += 1;
        self.guests.insert(self.next_number, Guest { source, door, since: now, connection, is_admitted: false });
        *self.by_source.entry(source).or_default() += 1;
        Some(self.next_number)
    }

    /// Picks the guest to leave, by the rules above: of the fullest source the oldest. Young guests are spared, because an
    /// honest job may have more lanes than many strangers have connections each.
    fn most_crowding(&self, newcomer: IpAddr, space: Space, now: Instant) -> Option<u64> {
        let mut counts = HashMap::from([(newcomer, 1)]);
        for guest in self.guests.values().filter(|guest| guest.can_be_shown_out()) {
            *counts.entry(guest.source).or_insert(0) += 1;
        }
        let of_newcomer = counts[&newcomer];
        let count = |guest: &Guest| counts.get(&guest.source).copied().unwrap_or(0);
        let oldest_of_most = |may_go: &dyn Fn(&Guest) -> bool| {
            let guests = self.guests.iter().filter(|(_, guest)| guest.can_be_shown_out() && may_go(guest));
            guests.max_by_key(|(number, guest)| (count(guest), Reverse(**number))).map(|(number, _)| *number)
        };
        oldest_of_most(&|guest| guest.had_its_time(space, now) && count(guest) >= of_newcomer)
            .or_else(|| oldest_of_most(&|guest| count(guest) > of_newcomer))
    }

    fn show_out(&mut self, number: u64) {
        if let Some(guest) = self.remove(number) {
            guest.connection.shutdown();
            self.leaving.insert(number, guest.source);
        }
    }

    /// Notes an admission. False: the caller had to leave meanwhile.
    pub(super) fn is_admitted(&mut self, number: u64) -> bool {
        let Some(guest) = self.guests.get_mut(&number) else { return false };
        guest.is_admitted = true;
        true
    }

    pub(super) fn leaves(&mut self, number: u64) {
        if self.remove(number).is_none() {
            self.leaving.remove(&number);
        }
    }

    pub(super) fn close(&self, door: u64) {
        let greeted = self.guests.values().filter(|guest| guest.door == door && !guest.is_admitted);
        greeted.for_each(|guest| guest.connection.shutdown());
    }

    fn remove(&mut self, number: u64) -> Option<Guest> {
        let guest = self.guests.remove(&number)?;
        if let Some(count) = self.by_source.get_mut(&guest.source) {
            *count -= 1;
            if *count == 0 {
                self.by_source.remove(&guest.source);
            }
        }
        Some(guest)
    }

    #[cfg(test)]
    pub(super) fn count(&self) -> usize {
        assert_eq!(self.by_source.values().sum::<usize>(), self.guests.len());
        self.guests.len() + self.leaving.len()
    }
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;
    use crate::stream::Stream;

    const SPACE: Space = Space { guests: 12, young: Duration::from_secs(1) };
    const OF_SOURCE: usize = 3;

    struct House {
        room: Room,
        connections: BTreeMap<u64, (Stream, Stream)>,
        start: Instant,
    }

    impl House {
        fn new() -> House {
            House { room: Room::of(SPACE), connections: BTreeMap::new(), start: Instant::now() }
        }

        fn at(&self, ms: u64) -> Instant {
            self.start + Duration::from_millis(ms)
        }

        fn knock(&mut self, source: u8, ms: u64) -> Option<u64> {
            let gone: Vec<u64> = self.room.leaving.keys().copied().collect();
            gone.iter().for_each(|number| self.room.leaves(*number));
            let pair = Stream::plain_pair().unwrap();
            pair.0.set_deadline(Some(Duration::from_secs(600))).unwrap();
            let (handle, now) = (pair.0.shutdown_handle(), self.at(ms));
            let number = self.room.enters(newcomer(source, handle), now)?;
            self.connections.insert(number, pair);
            Some(number)
        }

        fn is_there(&self, number: u64) -> bool {
            let there = self.room.guests.contains_key(&number);
            assert_eq!(there, !self.connections[&number].1.has_input(), "who is shown out is told so: {number}");
            there
        }

        fn of(&self, source: u8) -> usize {
            self.room.guests.values().filter(|guest| guest.source == address(source)).count()
        }
    }

    fn newcomer(source: u8, connection: ShutdownHandle) -> Newcomer {
        Newcomer { source: address(source), most_of_source: OF_SOURCE, connection, door: 0 }
    }

    fn address(number: u8) -> IpAddr {
        Ipv4Addr::new(192, 0, 2, number).into()
    }

    #[test]
    fn who_holds_all_there_is_makes_room_for_who_takes_less() {
        let mut house = House::new();
        let held: Vec<u64> = (0..12).map(|at| house.knock(1 + at / 3, 0).unwrap()).collect();
        let honest = house.knock(9, 0).expect("nobody keeps it out, however young they are");
        assert!(!house.is_there(held[0]), "the oldest of those who have most");
        for round in 0..1_000 {
            let source = [1, 2, 3, 4, 11, 12, 13][round % 7];
            house.knock(source, 10 * round as u64);
            assert!(house.is_there(honest), "displaced in round {round}");
        }
        assert!(house.connections.len() > 100, "they get in, each at the cost of one of theirs");
    }

    #[test]
    fn who_is_at_work_is_spared_while_others_only_sit_there() {
        let mut house = House::new();
        let held: Vec<u64> = (1..=9).map(|source| house.knock(source, 0).unwrap()).collect();
        let lanes: Vec<u64> = (0..3).map(|at| house.knock(20, 2_000 + at).unwrap()).collect();
        for (at, stranger) in (31..=38).enumerate() {
            assert!(house.knock(stranger, 2_100).is_some());
            assert!(!house.is_there(held[at]) && lanes.iter().all(|lane| house.is_there(*lane)), "{stranger}");
        }
    }

    #[test]
    fn who_lets_all_of_its_own_be_shown_out_keeps_nobody_else_out() {
        let mut house = House::new();
        let mut numbers = Vec::new();
        for second in 0..100 {
            let pair = Stream::plain_pair().unwrap();
            pair.0.set_deadline(Some(Duration::from_secs(600))).unwrap();
            let caller = newcomer(1 + (second % 4) as u8, pair.0.shutdown_handle());
            let entered = house.room.enters(caller, house.at(2_000 * second));
            numbers.extend(entered);
            house.connections.extend(entered.map(|number| (number, pair)));
        }
        let pair = Stream::plain_pair().unwrap();
        pair.0.set_deadline(Some(Duration::from_secs(600))).unwrap();
        let leaving = house.room.leaving.len();
        assert!(
            (1..=4).all(|of| house.room.leaving.values().filter(|source| **source == address(of)).count() <= 2),
            "{leaving}"
        );
        assert!(house.room.enters(newcomer(9, pair.0.shutdown_handle()), house.at(300_000)).is_some());
    }

    #[test]
    fn within_a_source_the_oldest_makes_room_when_it_had_its_time() {
        let mut house = House::new();
        let held: Vec<u64> = (0..3).map(|at| house.knock(1, at).unwrap()).collect();
        assert_eq!(house.knock(1, 999), None, "all are at work");
        let honest = house.knock(1, 1_000).expect("the first had its time");
        assert!(!house.is_there(held[0]) && house.is_there(held[1]) && house.is_there(honest));
        let again = [house.knock(1, 1_010), house.knock(1, 1_011)];
        assert!(again.iter().all(Option::is_some) && held.iter().all(|number| !house.is_there(*number)));
        assert_eq!(house.knock(1, 1_999), None);
        assert!(house.is_there(honest));
        assert_eq!(house.of(1), OF_SOURCE);
    }

    #[test]
    fn among_equals_nobody_is_shown_out_before_its_time() {
        let mut house = House::new();
        let held: Vec<u64> = (1..=12).map(|source| house.knock(source, 0).unwrap()).collect();
        assert_eq!(house.knock(13, 999), None);
        assert!(house.knock(13, 1_000).is_some());
        assert!(!house.is_there(held[0]) && house.is_there(held[1]));
    }

    #[test]
    fn who_has_said_what_it_wants_is_never_shown_out() {
        let mut house = House::new();
        let held: Vec<u64> = (0..3).map(|_| house.knock(1, 0).unwrap()).collect();
        assert!(held.iter().all(|number| house.room.is_admitted(*number)));
        house.connections[&held[0]].0.set_deadline(None).unwrap();
        assert!(house.knock(1, 5_000).is_some());
        assert!(house.is_there(held[0]) && !house.is_there(held[1]), "a key alone says nothing");
        assert!(!house.room.is_admitted(held[1]), "it was shown out before");
        house.connections.values().for_each(|(near, _)| near.set_deadline(None).unwrap());
        assert_eq!(house.knock(1, 60_000), None);
    }

    #[test]
    fn all_are_counted_until_their_thread_ends() {
        let mut house = House::new();
        let pair = Stream::plain_pair().unwrap();
        pair.0.set_deadline(Some(Duration::from_secs(600))).unwrap();
        let mut numbers = Vec::new();
        for second in 0..1_000 {
            let (handle, now) = (pair.0.shutdown_handle(), house.at(1_000 * second));
            numbers.extend(house.room.enters(newcomer(1, handle), now));
        }
        let most = OF_SOURCE + OF_SOURCE / LEAVING_PART + 1;
        assert_eq!(house.room.count(), most, "threads have an end while none notices that it was shown out");
        numbers.iter().for_each(|number| house.room.leaves(*number));
        assert_eq!(house.room.count(), 0);
        assert!(house.room.by_source.is_empty());
    }
}
