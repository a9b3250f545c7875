//! One direction of a link, from the sender's queue to the receiver's door.
//!
//! Take what is offered -> police it -> let it wait -> transmit it -> draw its fate -> hand it out when it is due.
//!
//! Ends of transmissions and due packets have exact times, and `advance` handles them in order, even when called late.

use super::counters::Counters;
use super::fate::Fates;
use super::fifo::Waiting;
use super::flight::Flight;
use super::payload::{Nanos, Payload};
use super::queue::Queue;
use super::transmitter::Transmitter;
use crate::limits;
use crate::topology::{DirectionSpec, EventSpec};
use crate::units::{Probability, Rate, Time};

/// One direction.
#[derive(Clone, Debug)]
pub struct Direction<P> {
    spec: DirectionSpec,
    rtt: Time,
    now: Nanos,
    is_down: bool,
    queue: Queue<P>,
    transmitter: Transmitter<P>,
    fates: Fates,
    flight: Flight<P>,
    counters: Counters,
}

/// An event's changes; `None` keeps a value.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct LinkChange {
    /// True: the cable is pulled at the sender's end.
    ///
    /// New packets and the one in transmission are lost. Packets in flight arrive. Waiting ones go when the link is up again:
    /// a driver's ring keeps its packets, while the kernel above discards new ones.
    pub down: Option<bool>,
    /// The rate from the next packet on; a default queue follows.
    pub rate: Option<Rate>,
    /// The delay for transmissions that end from now on. Packets still wait for those in front.
    pub delay: Option<Time>,
    /// The loss of single packets; bursts go on.
    pub loss: Option<Probability>,
}

impl From<&EventSpec> for LinkChange {
    fn from(event: &EventSpec) -> LinkChange {
        // A pulled cable carries nothing; the emulator tells its devices.
        let down = event.down.or(event.unplugged);
        LinkChange { down, rate: event.rate, delay: event.delay, loss: event.loss }
    }
}

impl<P: Payload> Direction<P> {
    /// `rtt` is the link's, for default queues. Each direction needs its own seed; neighbouring numbers will do.
    pub fn new(spec: &DirectionSpec, rtt: Time, seed: u64) -> Direction<P> {
        Direction {
            rtt,
            now: Nanos::ZERO,
            is_down: false,
            queue: Queue::new(spec, rtt),
            transmitter: Transmitter::new(spec.rate),
            fates: Fates::new(spec, seed),
            flight: Flight::new(limits::MAX_IN_FLIGHT_PACKETS),
            counters: Counters::default(),
            spec: spec.clone(),
        }
    }

    /// Lets a packet arrive after all events up to `now`; an earlier time counts as the last call's.
    ///
    /// Call [`Direction::advance`] about as often, or due packets fill the room in flight.
    pub fn offer(&mut self, now: Nanos, packet: P) {
        let now = self.transmit_until(now);
        self.counters.offered += 1;
        if self.is_down {
            self.counters.lost_down += 1;
            return;
        }
        if !self.queue.police(now, &packet) {
            self.counters.policed += 1;
            return;
        }
        let wire_bytes = packet.wire_bytes();
        let frame = Waiting { item: packet, wire_bytes, since: now };
        if self.transmitter.is_idle() {
            self.transmit(now, frame);
        } else if self.queue.push(frame) {
            self.counters.waiting_bytes_max = self.counters.waiting_bytes_max.max(self.queue.bytes());
        } else {
            self.counters.dropped += 1;
        }
    }

    /// Call [`Direction::advance`] by then; no packet is due before, possibly none then.
    pub fn next_at(&self) -> Option<Nanos> {
        let transmitted = self.transmitter.end().map(|end| end.after(self.fates.delay()));
        [transmitted, self.flight.next_at()].into_iter().flatten().min()
    }

    /// Returns all packets due, in order, with exact times.
    pub fn advance(&mut self, now: Nanos, out: &mut impl FnMut(Nanos, P)) {
        let now = self.now.max(now);
        loop {
            let due = self.flight.next_at().unwrap_or(Nanos(u64::MAX));
            if let Some(end) = self.transmitter.end().filter(|&end| end <= due.min(now)) {
                self.finish_transmission(end);
            } else if let Some(arrival) = self.flight.pop(now) {
                self.counters.delivered += 1;
                self.counters.reordered += u64::from(arrival.was_overtaken);
                self.counters.ip_bytes_delivered += u64::from(arrival.item.ip_bytes());
                out(arrival.at, arrival.item);
            } else {
                break;
            }
        }
        self.now = now;
    }

    /// Changes the link at this time.
    pub fn change(&mut self, now: Nanos, change: &LinkChange) {
        let now = self.transmit_until(now);
        if let Some(rate) = change.rate {
            self.spec.rate = Some(rate);
            self.transmitter.set_rate(rate);
            self.queue.resize(now, &self.spec, self.rtt);
        }
        if let Some(delay) = change.delay {
            self.fates.set_delay(delay);
        }
        if let Some(loss) = change.loss {
            self.fates.set_loss(loss);
        }
        if let Some(is_down) = change.down {
            self.is_down = is_down;
            match is_down {
                true => self.counters.lost_down += u64::from(self.transmitter.take().is_some()),
                false => self.transmit_next(now),
            }
        }
    }

    /// The counters up to the last call.
    pub fn counters(&self) -> Counters {
        self.counters
    }

    /// Packets waiting, in transmission or in flight.
    pub fn packets_inside(&self) -> usize {
        self.queue.len() + usize::from(!self.transmitter.is_idle()) + self.flight.len()
    }

    /// Wire bytes that wait.
    pub fn waiting_bytes(&self) -> u64 {
        self.queue.bytes()
    }

    fn transmit_until(&mut self, now: Nanos) -> Nanos {
        self.now = self.now.max(now);
        while let Some(end) = self.transmitter.end().filter(|&end| end <= self.now) {
            self.finish_transmission(end);
        }
        self.now
    }

    fn finish_transmission(&mut self, end: Nanos) {
        if let Some(frame) = self.transmitter.take() {
            self.counters.wire_bytes_sent += frame.wire_bytes;
            self.send_off(end, frame);
        }
        self.transmit_next(end);
    }

    fn transmit_next(&mut self, now: Nanos) {
        if self.transmitter.is_idle()
            && let Some(frame) = self.queue.pop()
        {
            self.transmit(now, frame);
        }
    }

    /// Without a rate, the transmission ends at once for the next call.
    fn transmit(&mut self, now: Nanos, frame: Waiting<P>) {
        self.counters.waiting_time_max = self.counters.waiting_time_max.max(now.since(frame.since));
        self.transmitter.start(now, frame);
    }

    fn send_off(&mut self, now: Nanos, frame: Waiting<P>) {
        let Waiting { item: mut packet, wire_bytes, .. } = frame;
        let Some(fate) = self.fates.next() else {
            self.counters.lost += 1;
            return;
        };
        if let Some(nth) = fate.flipped_bit {
            packet.flip_bit(nth);
            self.counters.corrupted += 1;
        }
        let copy = fate.is_duplicated.then(|| packet.clone());
        let due = now.after(fate.delay);
        // Without a rate, this alone limits the bytes in flight.
        let most_bytes = match self.spec.rate {
            Some(_) => limits::MAX_IN_FLIGHT_BYTES,
            None => limits::UNLIMITED_LINK_QUEUE_BYTES,
        };
        self.counters.duplicated += u64::from(copy.is_some());
        for packet in [Some(packet), copy].into_iter().flatten() {
            let fits = self.flight.push(due, fate.held_back, packet, wire_bytes, most_bytes);
            self.counters.overflowed += u64::from(!fits);
        }
    }
}
