//! One link with one queue, shared by flows.

use std::collections::VecDeque;

use super::flow::{Flow, MSS};

#[derive(Clone, Copy, Debug)]
pub struct Link {
    pub bytes_per_s: f64,
    pub rtt_us: u64,
    pub queue_bytes: f64,
    pub loss: f64,
    /// A token bucket in front of the queue: bytes per second, and bytes at once.
    pub policer: Option<(f64, f64)>,
}

impl Link {
    /// A queue of one bandwidth-delay product, at least 100 packets, at most the 64 MB of a large switch.
    pub fn new(mbit_per_s: f64, rtt_ms: u64) -> Self {
        let bytes_per_s = mbit_per_s * 1e6 / 8.0;
        let bdp = bytes_per_s * rtt_ms as f64 / 1e3;
        Self { bytes_per_s, rtt_us: rtt_ms * 1000, queue_bytes: bdp.clamp(150_000.0, 64e6), loss: 0.0, policer: None }
    }

    pub fn queue_ms(self, ms: f64) -> Self {
        Self { queue_bytes: self.bytes_per_s * ms / 1e3, ..self }
    }

    pub fn loss(self, loss: f64) -> Self {
        Self { loss, ..self }
    }

    /// Changes the round trip, not the queue.
    pub fn rtt_us(self, rtt_us: u64) -> Self {
        Self { rtt_us, ..self }
    }

    pub fn policer(self, mbit_per_s: f64, burst_bytes: f64) -> Self {
        Self { policer: Some((mbit_per_s * 1e6 / 8.0, burst_bytes)), ..self }
    }
}

/// What the link does with marked packets.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Marks {
    /// Marked packets are as all others.
    Ignored,
    /// Marked packets go first, up to so many bytes per second; more is dropped.
    First(f64),
    /// Marked packets have their own way, of so many bytes per second.
    Reserved(f64),
    Dropped,
}

/// Bytes of one flow that left in one step.
#[derive(Clone, Copy, Debug)]
struct Parcel {
    flow: usize,
    bytes: f64,
    acked_at_sent: f64,
}

#[derive(Clone, Debug)]
struct Batch {
    sent_us: u64,
    parcels: Vec<Parcel>,
}

#[derive(Clone, Debug)]
struct Notice {
    at_us: u64,
    sent_us: u64,
    acked: bool,
    parcels: Vec<Parcel>,
}

pub struct World {
    pub now_us: u64,
    pub step_us: u64,
    pub link: Link,
    pub flows: Vec<Flow>,
    queue: VecDeque<Batch>,
    pub queued: f64,
    notices: VecDeque<Notice>,
    lost: VecDeque<Notice>,
    /// Infinite by default.
    pub supply: f64,
    /// Start and end. What waits, waits on, and what is sent is lost.
    pub outage: Option<(u64, u64)>,
    /// The source gives all at once, so far apart; 0: evenly.
    pub supply_every_us: u64,
    pub left_bytes: f64,
    random: u64,
    pub marks: Marks,
    /// A segment is acknowledged with the next one, or after 40 ms.
    pub pairs_wait: bool,
    /// Owed losses of flows that send little in a step: they lose whole packets, with what they send next.
    pub owed: Option<Vec<f64>>,
    first: VecDeque<Batch>,
    first_queued: f64,
    tokens: f64,
    policed_tokens: f64,
}

impl World {
    pub fn new(link: Link, seed: u64) -> Self {
        Self {
            now_us: 0,
            // A round trip is a whole number of steps; otherwise all but the first would seem to meet a queue.
            step_us: link.rtt_us.div_ceil((link.rtt_us / 500).min(20).max(link.rtt_us.div_ceil(5_000))),
            link,
            flows: Vec::new(),
            queue: VecDeque::new(),
            queued: 0.0,
            notices: VecDeque::new(),
            lost: VecDeque::new(),
            supply: f64::INFINITY,
            outage: None,
            supply_every_us: 0,
            left_bytes: f64::INFINITY,
            random: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1,
            marks: Marks::Ignored,
            pairs_wait: false,
            owed: None,
            first: VecDeque::new(),
            first_queued: 0.0,
            tokens: 0.0,
            policed_tokens: link.policer.map_or(0.0, |(_, burst_bytes)| burst_bytes),
        }
    }

    pub fn queueing_us(&self) -> f64 {
        self.queued / self.link.bytes_per_s * 1e6
    }

    /// The first `ours` flows share the supply; the others have all they want.
    pub fn step(&mut self, is_ours: impl Fn(usize) -> bool) {
        self.now_us += self.step_us;
        let down_until_us = self.down_until_us();
        if down_until_us.is_none() {
            self.hear();
        }
        let parcels = self.send(is_ours);
        match down_until_us {
            // A timeout tells, once something comes through.
            Some(until_us) => self.lose_all(until_us + self.link.rtt_us, parcels),
            None => {
                let rest = self.arrive_marked(parcels);
                self.arrive(rest);
                self.serve();
            }
        }
    }

    fn down_until_us(&self) -> Option<u64> {
        let (from_us, until_us) = self.outage?;
        (from_us..until_us).contains(&self.now_us).then_some(until_us)
    }

    fn lose_all(&mut self, at_us: u64, parcels: Vec<Parcel>) {
        if !parcels.is_empty() {
            self.lost.push_back(Notice { at_us, sent_us: self.now_us, acked: false, parcels });
        }
    }

    fn hear(&mut self) {
        for list in [&mut self.notices, &mut self.lost] {
            while list.front().is_some_and(|notice| notice.at_us <= self.now_us) {
                let Some(notice) = list.pop_front() else { break };
                for parcel in notice.parcels {
                    let flow = &mut self.flows[parcel.flow];
                    if notice.acked {
                        let pair_us = if self.pairs_wait { flow.pairing_us() } else { 0.0 };
                        let rtt_us = (self.now_us - notice.sent_us) as f64 + pair_us;
                        flow.on_ack(parcel.bytes, rtt_us, parcel.acked_at_sent, self.now_us);
                    } else {
                        flow.on_loss(parcel.bytes, notice.sent_us, self.now_us);
                    }
                }
            }
        }
    }

    fn send(&mut self, is_ours: impl Fn(usize) -> bool) -> Vec<Parcel> {
        self.supply_all(is_ours);
        let mut parcels = Vec::new();
        let count = self.flows.len();
        for turn in 0..count {
            let at = (turn + (self.now_us / self.step_us) as usize) % count;
            let flow = &mut self.flows[at];
            let bytes = flow.may_send(self.now_us, self.step_us).min(flow.to_repeat + flow.unsent);
            flow.unsent -= (bytes - flow.to_repeat).max(0.0);
            let waits = flow.unsent > 1.0 && self.now_us >= flow.starts_us;
            flow.on_sent(bytes, self.now_us);
            flow.on_time(self.step_us, waits);
            if bytes > 0.0 {
                parcels.push(Parcel { flow: at, bytes, acked_at_sent: flow.acked });
            }
        }
        parcels
    }

    /// Serves lanes, each with its own unit, in turn from a slow source. A lane that waits for the source has nothing unsent, one
    /// that waits for the network nearly always something.
    fn supply_all(&mut self, is_ours: impl Fn(usize) -> bool) {
        let now_us = self.now_us;
        let takes = |flow: &Flow| flow.active && flow.starts_us <= now_us && flow.unsent < NOT_SENT_LOW_WATER;
        let lanes = (0..self.flows.len()).filter(|at| is_ours(*at) && takes(&self.flows[*at])).count();
        let every_us = self.supply_every_us.max(self.step_us);
        let is_given = self.supply.is_infinite() || now_us / every_us > (now_us - self.step_us) / every_us;
        let given = if is_given { self.supply * every_us as f64 / 1e6 } else { 0.0 };
        let share = given / lanes.max(1) as f64;
        for (at, flow) in self.flows.iter_mut().enumerate() {
            let is_endless = share.is_infinite() && self.left_bytes.is_infinite();
            if !flow.active && is_ours(at) && flow.unsent.is_finite() {
                // Somebody else takes it.
                self.left_bytes += flow.unsent;
            }
            if let Some(size) = flow.size {
                flow.unsent = (size - flow.sent + flow.resent).max(0.0);
            } else if !flow.active {
                flow.unsent = 0.0;
            } else if !is_ours(at) || is_endless {
                flow.unsent = f64::INFINITY;
            } else if takes(flow) {
                let most = if share.is_infinite() { 2.0 * NOT_SENT_LOW_WATER } else { share };
                let given = most.min(self.left_bytes);
                self.left_bytes -= given;
                flow.unsent += given;
            }
        }
    }

    /// Random losses, then the end of the queue: packets without room, drawn from all that came in this step.
    fn arrive(&mut self, mut parcels: Vec<Parcel>) {
        let mut lost: Vec<Parcel> = Vec::new();
        for parcel in &mut parcels {
            let packets = self.events(parcel.bytes / MSS * self.link.loss);
            lose(parcel, packets as f64 * MSS, &mut lost);
        }
        for parcel in &mut parcels {
            if let Some(owed) = self.owed.as_mut().and_then(|owed| owed.get_mut(parcel.flow)) {
                let bytes = owed.min(parcel.bytes);
                *owed -= bytes;
                lose(parcel, bytes, &mut lost);
            }
        }
        self.police(&mut parcels, &mut lost);
        let total: f64 = parcels.iter().map(|parcel| parcel.bytes).sum();
        let room = self.link.queue_bytes + self.link.bytes_per_s * self.step_us as f64 / 1e6 - self.queued;
        let excess = total - room;
        if excess > 0.0 {
            let packets = excess / MSS;
            if packets > 200.0 {
                for parcel in &mut parcels {
                    let share = parcel.bytes * excess / total;
                    lose(parcel, share, &mut lost);
                }
            } else {
                for _ in 0..packets.ceil() as usize {
                    let mut at = self.uniform() * total;
                    for parcel in &mut parcels {
                        at -= parcel.bytes;
                        if at <= 0.0 {
                            if let Some(owed) = &mut self.owed {
                                owed.resize(owed.len().max(parcel.flow + 1), 0.0);
                                owed[parcel.flow] += (MSS - parcel.bytes).max(0.0);
                            }
                            lose(parcel, MSS, &mut lost);
                            break;
                        }
                    }
                }
            }
        }
        if !lost.is_empty() {
            let at_us = self.now_us + self.link.rtt_us + self.queueing_us() as u64;
            self.lost.push_back(Notice { at_us, sent_us: self.now_us, acked: false, parcels: lost });
        }
        self.queued += parcels.iter().map(|parcel| parcel.bytes).sum::<f64>();
        self.queue.push_back(Batch { sent_us: self.now_us, parcels });
    }

    fn police(&mut self, parcels: &mut [Parcel], lost: &mut Vec<Parcel>) {
        let Some((bytes_per_s, burst_bytes)) = self.link.policer else { return };
        self.policed_tokens += bytes_per_s * self.step_us as f64 / 1e6;
        let total: f64 = parcels.iter().map(|parcel| parcel.bytes).sum();
        let passes = total.min(self.policed_tokens);
        self.policed_tokens = (self.policed_tokens - passes).min(burst_bytes);
        if total > passes {
            for parcel in parcels {
                let bytes = parcel.bytes * (1.0 - passes / total);
                lose(parcel, bytes, lost);
            }
        }
    }

    /// Marked packets go to a queue of their own; returns all others.
    fn arrive_marked(&mut self, parcels: Vec<Parcel>) -> Vec<Parcel> {
        let step_s = self.step_us as f64 / 1e6;
        let is_marked = |parcel: &Parcel, flows: &[Flow]| flows[parcel.flow].marked;
        let (mut marked, rest): (Vec<Parcel>, Vec<Parcel>) = match self.marks {
            Marks::Ignored => return parcels,
            Marks::First(_) | Marks::Reserved(_) | Marks::Dropped => {
                parcels.into_iter().partition(|parcel| is_marked(parcel, &self.flows))
            }
        };
        let total: f64 = marked.iter().map(|parcel| parcel.bytes).sum();
        let passes = match self.marks {
            Marks::Dropped => 0.0,
            Marks::First(bytes_per_s) => {
                // Five milliseconds of the rate may come at once.
                self.tokens = (self.tokens + bytes_per_s * step_s).min(bytes_per_s * (0.005 + step_s));
                let room = self.link.queue_bytes + self.link.bytes_per_s * step_s - self.first_queued;
                let passes = total.min(self.tokens).min(room.max(0.0));
                self.tokens -= passes;
                passes
            }
            Marks::Reserved(bytes_per_s) => {
                let room = self.link.queue_bytes + bytes_per_s * step_s - self.first_queued;
                total.min(room.max(0.0))
            }
            Marks::Ignored => total,
        };
        if total > passes {
            let (share, mut lost) = (1.0 - passes / total, Vec::new());
            for parcel in &mut marked {
                let bytes = parcel.bytes * share;
                lose(parcel, bytes, &mut lost);
            }
            let at_us = self.now_us + self.link.rtt_us;
            self.lost.push_back(Notice { at_us, sent_us: self.now_us, acked: false, parcels: lost });
        }
        self.first_queued += passes;
        self.first.push_back(Batch { sent_us: self.now_us, parcels: marked });
        rest
    }

    fn serve(&mut self) {
        let mut left = self.link.bytes_per_s * self.step_us as f64 / 1e6;
        std::mem::swap(&mut self.first, &mut self.queue);
        std::mem::swap(&mut self.first_queued, &mut self.queued);
        match self.marks {
            Marks::Reserved(bytes_per_s) => drop(self.serve_queue(bytes_per_s * self.step_us as f64 / 1e6)),
            _ => left = self.serve_queue(left),
        }
        std::mem::swap(&mut self.first, &mut self.queue);
        std::mem::swap(&mut self.first_queued, &mut self.queued);
        self.serve_queue(left);
        // Acknowledgements of both queues come back in their order.
        self.notices.make_contiguous().sort_by_key(|notice| notice.at_us);
        self.lost.make_contiguous().sort_by_key(|notice| notice.at_us);
    }

    /// Returns what the link could send beyond the queue.
    fn serve_queue(&mut self, mut left: f64) -> f64 {
        let at_us = self.now_us + self.link.rtt_us;
        while left > 0.0 {
            let Some(batch) = self.queue.front_mut() else { break };
            let total: f64 = batch.parcels.iter().map(|parcel| parcel.bytes).sum();
            let share = if total > left { left / total } else { 1.0 };
            let parcels =
                batch.parcels.iter().map(|parcel| Parcel { bytes: parcel.bytes * share, ..*parcel }).collect();
            self.notices.push_back(Notice { at_us, sent_us: batch.sent_us, acked: true, parcels });
            let served = total * share;
            self.queued = (self.queued - served).max(0.0);
            left -= served;
            if share < 1.0 {
                for parcel in &mut batch.parcels {
                    parcel.bytes *= 1.0 - share;
                }
                break;
            }
            self.queue.pop_front();
        }
        left
    }

    fn events(&mut self, mean: f64) -> u64 {
        if mean <= 0.0 {
            return 0;
        }
        if mean > 30.0 {
            return mean.round() as u64;
        }
        let (mut events, mut product) = (0, self.uniform());
        while product > (-mean).exp() && events < 1000 {
            events += 1;
            product *= self.uniform();
        }
        events
    }

    pub fn uniform(&mut self) -> f64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random >> 11) as f64 / (1u64 << 53) as f64
    }
}

fn lose(parcel: &mut Parcel, bytes: f64, lost: &mut Vec<Parcel>) {
    let bytes = bytes.min(parcel.bytes);
    if bytes > 0.0 {
        parcel.bytes -= bytes;
        lost.push(Parcel { bytes, ..*parcel });
    }
}

/// Data that waits in a far lane's send buffer (`TCP_NOTSENT_LOWAT`).
pub const NOT_SENT_LOW_WATER: f64 = 524_288.0;
