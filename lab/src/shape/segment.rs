//! A half-duplex Ethernet that several stations share: CSMA/CD as in IEEE 802.3, for 10 to 100 Mbit/s.
//!
//! Wait until the medium is free -> begin. Alone: all others wait, and the frame arrives. Not alone: collide, stop,
//! wait a random number of slots, try again.
//!
//! - Waiting stations begin when the medium is free, so two always collide once.
//! - Stations that begin within one propagation delay do not hear each other, and collide. That delay is the segment's, at
//!   most half a slot (256 bit times), as collisions could not be detected beyond; the rest delays the arrival. 1 ms at 10
//!   Mbit/s means 25.6 us on the wire.
//! - After the n-th collision a station waits 0 to 2^min(n, 10) - 1 slots of 512 bit times; after the 16th it gives up.
//!
//! Simplifications: Stations are equally far apart. A collision takes a propagation delay from the last beginning, preamble
//! and jam (96 bit times), and a gap (96). A frame arrives after its gap; short ones are not padded. Only collisions and full
//! queues lose frames. A successful sender begins again at zero and wins more often (capture effect). Seven stations that
//! always send wait up to seconds and give up one frame in forty; at 40 % of the rate, none.

use std::time::Duration;

use super::chance::{Chance, Purpose};
use super::counters::Counters;
use super::fifo::{Fifo, Waiting};
use super::flight::Flight;
use super::payload::{Nanos, Payload};
use crate::limits;
use crate::topology::SegmentSpec;
use crate::units::Rate;

/// A shared medium and its stations.
#[derive(Clone, Debug)]
pub struct Segment<P> {
    rate: Rate,
    delay: Duration,
    /// Time in which stations do not hear another's beginning.
    deaf_time: Duration,
    slot: Duration,
    now: Nanos,
    stations: Vec<Station<P>>,
    free_at: Nanos,
    flight: Flight<Frame<P>>,
    chance: Chance,
    counters: Counters,
}

#[derive(Clone, Debug)]
struct Station<P> {
    /// The frame being tried; others wait behind it.
    trying: Option<Waiting<Frame<P>>>,
    queue: Fifo<Frame<P>>,
    ready_at: Nanos,
    collisions: u32,
}

#[derive(Clone, Debug)]
struct Frame<P> {
    from: usize,
    to: Option<usize>,
    packet: P,
}

impl<P: Payload> Segment<P> {
    /// Stations are numbered as the hosts.
    pub fn new(spec: &SegmentSpec, seed: u64) -> Segment<P> {
        let slot = spec.rate.time_of(SLOT_BYTES);
        let queue = match spec.queue {
            Some(queue) => queue.bytes,
            None => spec.rate.bytes_in(limits::DEFAULT_QUEUE_TIME),
        };
        let station = || Station {
            trying: None,
            queue: Fifo::new(queue.min(limits::MAX_QUEUE_BYTES)),
            ready_at: Nanos::ZERO,
            collisions: 0,
        };
        Segment {
            rate: spec.rate,
            delay: spec.delay.0,
            deaf_time: spec.delay.0.min(slot / 2),
            slot,
            now: Nanos::ZERO,
            stations: spec.hosts.iter().map(|_| station()).collect(),
            free_at: Nanos::ZERO,
            flight: Flight::new(limits::MAX_IN_FLIGHT_PACKETS),
            chance: Chance::new(seed, Purpose::Backoff),
            counters: Counters::default(),
        }
    }

    /// Gives a station a packet for another, or all, after all events up to `now`; an earlier time counts as the last call's.
    ///
    /// # Panics
    /// There is no such station.
    pub fn offer(&mut self, now: Nanos, station: usize, to: Option<usize>, packet: P) {
        let now = self.contend_until(now);
        self.counters.offered += 1;
        let wire_bytes = packet.wire_bytes();
        let frame = Waiting { item: Frame { from: station, to, packet }, wire_bytes, since: now };
        let station = &mut self.stations[station];
        if station.trying.is_none() {
            station.trying = Some(frame);
            station.ready_at = station.ready_at.max(now);
        } else if station.queue.push(frame) {
            self.counters.waiting_bytes_max = self.counters.waiting_bytes_max.max(station.queue.bytes());
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Call [`Segment::advance`] by then; no packet is due before, possibly none then.
    pub fn next_at(&self) -> Option<Nanos> {
        let begun = self.next_beginning().map(|begin| begin.after(self.delay));
        [begun, self.flight.next_at()].into_iter().flatten().min()
    }

    /// Returns all packets due, in order: exact time, hearing station, packet.
    pub fn advance(&mut self, now: Nanos, out: &mut impl FnMut(Nanos, usize, P)) {
        let now = self.now.max(now);
        loop {
            let due = self.flight.next_at().unwrap_or(Nanos(u64::MAX));
            let begin = self.next_beginning();
            if let Some(begin) = begin.filter(|begin| begin.after(self.deaf_time) <= due.min(now)) {
                self.contend(begin);
            } else if let Some(arrival) = self.flight.pop(now) {
                self.deliver(arrival.at, arrival.item, out);
            } else {
                break;
            }
        }
        self.now = now;
    }

    /// The counters up to the last call.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets waiting, in transmission or in flight.
    pub fn packets_inside(&self) -> usize {
        let waiting = self.stations.iter().map(|station| station.queue.len() + usize::from(station.trying.is_some()));
        waiting.sum::<usize>() + self.flight.len()
    }

    fn contend_until(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        while let Some(begin) = self.next_beginning().filter(|begin| begin.after(self.deaf_time) <= self.now) {
            self.contend(begin);
        }
        self.now
    }

    fn next_beginning(&self) -> Option<Nanos> {
        self.stations.iter().filter_map(|station| station.begins_at(self.free_at)).min()
    }

    /// Decides a beginning one propagation delay later, when all stations that have not heard it have begun.
    fn contend(&mut self, begin: Nanos) {
        let deaf_until = begin.after(self.deaf_time);
        let (mut first, mut last_begin, mut count) = (None, begin, 0);
        for (number, station) in self.stations.iter().enumerate() {
            if let Some(at) = station.begins_at(self.free_at).filter(|&at| at == begin || at < deaf_until) {
                count += 1;
                last_begin = last_begin.max(at);
                first = first.or(Some(number));
            }
        }
        match (count, first) {
            (1, Some(station)) => self.transmit(begin, station),
            _ => self.collide(begin, last_begin),
        }
    }

    fn transmit(&mut self, begin: Nanos, number: usize) {
        let station = &mut self.stations[number];
        let Some(frame) = station.trying.take() else { return };
        self.free_at = begin.after(self.rate.time_of(frame.wire_bytes));
        station.try_next(self.free_at);
        self.counters.wire_bytes_sent += frame.wire_bytes;
        self.counters.waiting_time_max = self.counters.waiting_time_max.max(begin.since(frame.since));
        let due = self.free_at.after(self.delay);
        let fits = self.flight.push(due, None, frame.item, frame.wire_bytes, limits::MAX_IN_FLIGHT_BYTES);
        self.counters.overflowed += u64::from(!fits);
    }

    /// Colliding stations notice, jam, and choose when to try again.
    fn collide(&mut self, begin: Nanos, last_begin: Nanos) {
        self.counters.collisions += 1;
        let deaf_until = begin.after(self.deaf_time);
        let jammed_until = last_begin.after(self.deaf_time).after(self.rate.time_of(PREAMBLE_AND_JAM_BYTES));
        for station in &mut self.stations {
            if station.begins_at(self.free_at).is_none_or(|at| at != begin && at >= deaf_until) {
                continue;
            }
            station.collisions += 1;
            if station.collisions >= limits::MAX_ATTEMPTS_ON_SEGMENT {
                self.counters.gave_up += 1;
                station.try_next(jammed_until);
                continue;
            }
            let doublings = station.collisions.min(limits::MAX_BACKOFF_DOUBLINGS);
            let slots = self.chance.up_to((1 << doublings) - 1);
            station.ready_at = jammed_until.after(self.slot * u32::try_from(slots).unwrap_or(u32::MAX));
        }
        self.free_at = jammed_until.after(self.rate.time_of(GAP_BYTES));
    }

    fn deliver(&mut self, at: Nanos, frame: Frame<P>, out: &mut impl FnMut(Nanos, usize, P)) {
        let Frame { from, to, packet } = frame;
        if to.is_none() {
            self.counters.duplicated += (self.stations.len() as u64).saturating_sub(2);
        }
        let mut hand_out = |station: usize, packet: P| {
            self.counters.delivered += 1;
            self.counters.ip_bytes_delivered += u64::from(packet.ip_bytes());
            out(at, station, packet);
        };
        if let Some(to) = to {
            return hand_out(to, packet);
        }
        let mut hearers = (0..self.stations.len()).filter(|&station| station != from);
        let last = hearers.next_back();
        for station in hearers {
            hand_out(station, packet.clone());
        }
        if let Some(last) = last {
            hand_out(last, packet);
        }
    }
}

impl<P> Station<P> {
    /// When it begins, if it has a frame and no station is earlier.
    fn begins_at(&self, free_at: Nanos) -> Option<Nanos> {
        self.trying.as_ref().map(|_| self.ready_at.max(free_at))
    }

    fn try_next(&mut self, now: Nanos) {
        self.trying = self.queue.pop();
        self.ready_at = now;
        self.collisions = 0;
    }
}

/// 512 bit times: twice the longest delay at which collisions are detected.
const SLOT_BYTES: u64 = 64;
/// 64 bit times of preamble; with 32 of jam, all stations notice.
const PREAMBLE_AND_JAM_BYTES: u64 = 12;
/// 96 bit times of silence.
const GAP_BYTES: u64 = 12;

#[cfg(test)]
mod tests {
    use super::super::packet::{Packet, ms, us};
    use super::*;
    use proptest::prelude::*;

    fn segment(stations: usize, more: &str) -> Segment<Packet> {
        let hosts: Vec<String> = (0..stations).map(|number| format!("'h{number}'")).collect();
        let text = format!("name = 'lan'\nrate = '10Mbit'\nhosts = [{}]\n{more}", hosts.join(","));
        Segment::new(&toml::from_str(&text).unwrap(), 1)
    }

    fn heard(segment: &mut Segment<Packet>, until: Nanos) -> Vec<(Nanos, usize, u64)> {
        let mut heard = Vec::new();
        segment.advance(until, &mut |at, station, packet: Packet| heard.push((at, station, packet.id)));
        heard
    }

    #[test]
    fn one_alone_has_the_whole_rate() {
        let mut lan = segment(2, "delay = '1ms'");
        for id in 0..3 {
            lan.offer(ms(5), 0, Some(1), Packet::new(id, 1000));
        }
        let at = |nth: u64| Nanos(ms(5).0 + nth * 830_400 + 1_000_000);
        assert_eq!(heard(&mut lan, ms(100)), [(at(1), 1, 0), (at(2), 1, 1), (at(3), 1, 2)]);
        assert_eq!(lan.counters().collisions, 0);
        assert_eq!(lan.counters().waiting_time_max, Duration::from_nanos(2 * 830_400));
    }

    #[test]
    fn all_others_hear_a_broadcast() {
        let mut lan = segment(4, "");
        lan.offer(ms(0), 2, None, Packet::new(7, 1000));
        let hearers: Vec<usize> = heard(&mut lan, ms(1)).into_iter().map(|(_, station, _)| station).collect();
        assert_eq!(hearers, [0, 1, 3]);
        let counters = lan.counters();
        assert_eq!((counters.offered, counters.duplicated, counters.delivered), (1, 2, 3));
    }

    #[test]
    fn two_that_do_not_hear_each_other_collide_and_then_both_pass() {
        // 1 ms is longer than a wire can be: stations are deaf for 25.6 us.
        for (later_us, collide) in [(0, true), (25, true), (26, false), (800, false)] {
            let mut lan = segment(3, "delay = '1ms'");
            lan.offer(us(100), 0, Some(2), Packet::new(0, 1000));
            lan.offer(us(100 + later_us), 1, Some(2), Packet::new(1, 1000));
            let arrivals = heard(&mut lan, ms(50));
            assert_eq!(arrivals.len(), 2, "{later_us}");
            assert_eq!(lan.counters().collisions > 0, collide, "{later_us}");
            if !collide {
                assert_eq!(arrivals[1].0.since(arrivals[0].0), Duration::from_nanos(830_400), "it waits its turn");
            }
        }
    }

    #[test]
    fn many_waiting_stations_share_the_medium_fairly_and_use_most_of_it() {
        // R. Metcalfe and D. Boggs (1976) expect 1.7 slots of contention on the longest wire: 830 of 918 us, 0.90. Back-off
        // does better: others pause longer.
        for (delay, least, most) in [("0", 0.96, 0.995), ("26us", 0.92, 0.985)] {
            let mut lan = segment(7, &format!("delay = '{delay}'"));
            let mut by_sender = [0u32; 7];
            for tick in 0..60_000u64 {
                for station in 0..7usize {
                    lan.offer(ms(tick), station, Some((station + 1) % 7), Packet::new(station as u64, 1000));
                }
                for (_, _, sender) in heard(&mut lan, ms(tick + 1)) {
                    by_sender[sender as usize] += 1;
                }
            }
            let utilisation = lan.counters().wire_bytes_sent as f64 * 8.0 / 10e6 / 60.0;
            assert!((least..most).contains(&utilisation), "{delay}: {utilisation}");
            let mean = f64::from(by_sender.iter().sum::<u32>()) / 7.0;
            assert!(by_sender.iter().all(|&one| (f64::from(one) / mean - 1.0).abs() < 0.2), "{by_sender:?}");
            assert!(lan.counters().dropped > 0 && lan.counters().waiting_bytes_max <= 125_000, "100 ms of the rate");
        }
    }

    #[test]
    fn light_load_hardly_collides() {
        // Seven turns of 1 ms: 83 % used, without collisions.
        let mut lan = segment(7, "");
        for tick in 0..7000u64 {
            lan.offer(ms(tick), (tick % 7) as usize, None, Packet::new(tick, 1000));
        }
        assert_eq!(heard(&mut lan, ms(8000)).len(), 7000 * 6);
        assert_eq!(lan.counters().collisions, 0);
    }

    #[test]
    fn at_two_fifths_of_the_rate_frames_collide_and_none_is_given_up() {
        let mut lan = segment(7, "delay = '1ms'");
        let mut chance = Chance::new(1, Purpose::Jitter);
        let mut offers: Vec<(Nanos, usize)> = Vec::new();
        for station in 0..7 {
            for round in 0..2000 {
                offers.push((Nanos(ms(round * 14).0 + chance.up_to(14_000_000)), station));
            }
        }
        offers.sort_unstable();
        for &(at, station) in &offers {
            lan.offer(at, station, Some((station + 1) % 7), Packet::new(0, 1000));
        }
        heard(&mut lan, ms(30_000));
        let counters = lan.counters();
        assert_eq!((counters.delivered, counters.gave_up, counters.dropped), (14_000, 0, 0));
        assert!((500..5000).contains(&counters.collisions), "{}", counters.collisions);
        assert!(counters.waiting_time_max < Duration::from_millis(50), "{:?}", counters.waiting_time_max);
    }

    #[test]
    fn a_frame_that_always_collides_is_given_up() {
        // 64 stations with full queues: some frame collides sixteen times.
        let mut lan = segment(64, "queue = '100kB'");
        for id in 0..50 * 64 {
            lan.offer(ms(0), id % 64, Some((id + 1) % 64), Packet::new(id as u64, 1000));
        }
        heard(&mut lan, ms(10_000));
        let counters = lan.counters();
        assert!(counters.gave_up > 0, "{counters:?}");
        assert_eq!(counters.delivered + counters.gave_up, 50 * 64);
        assert_eq!((lan.packets_inside(), lan.next_at()), (0, None));
    }

    proptest! {
        #[test]
        fn a_late_emulator_changes_nothing_and_no_frame_is_forgotten(
            delay_us in 0u64..2000,
            offers in proptest::collection::vec((0u64..3_000_000, 0usize..4, 0usize..5, 40u32..1500), 1..60),
        ) {
            let more = format!("delay = '{delay_us}us'\nqueue = '8kB'");
            let (mut prompt, mut late) = (segment(4, &more), segment(4, &more));
            let (mut from_prompt, mut now) = (Vec::new(), Nanos::ZERO);
            for (id, &(gap, station, to, bytes)) in offers.iter().enumerate() {
                let until = Nanos(now.0 + gap);
                while let Some(at) = prompt.next_at().filter(|&at| at <= until) {
                    prop_assert!(at >= now, "time goes on");
                    now = at;
                    from_prompt.extend(heard(&mut prompt, now));
                }
                now = until;
                for lan in [&mut prompt, &mut late] {
                    lan.offer(now, station, (to < 4).then_some(to), Packet::new(id as u64, bytes));
                }
                let counters = late.counters();
                prop_assert_eq!(
                    counters.offered + counters.duplicated,
                    counters.delivered + counters.vanished() + late.packets_inside() as u64
                );
            }
            from_prompt.extend(heard(&mut prompt, ms(100_000)));
            prop_assert!(from_prompt.windows(2).all(|pair| pair[0].0 <= pair[1].0));
            prop_assert_eq!(from_prompt, heard(&mut late, ms(100_000)));
            prop_assert_eq!(prompt.counters(), late.counters());
        }
    }
}
