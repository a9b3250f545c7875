//! The lab measures its links against the values asked for.
//!
//! Probes run over one direction at a time; of a segment, between its first two hosts. Single datagrams give the delay, a
//! stream at half the rate the loss, a flood rate and queue, several floods fairness. Both ends read one clock.

mod compare;
mod grid;
mod table;

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::limits;
use crate::plan::{Plan, WireKind};
use crate::shape::{Chance, Purpose};
use crate::topology::{DirectionSpec, Topology};
use crate::units::{Rate, Time};

pub use compare::Comparison;
pub use grid::{Grid, GridCell};
pub use table::{Figure, Row, Table};

use table::LOSS_SIGMAS;

/// The cost of a calibration.
#[derive(Clone, Copy, Debug)]
pub struct Effort {
    /// Probes of one stream; figures that need more are left out.
    pub most_packets: u64,
    /// A flood's rate by the link's. More fills the queue with fewer packets, for more processor time.
    pub flood: f64,
    /// The delay is this quantile of single packets' delays.
    pub delay_quantile: f64,
}

impl Effort {
    /// Our emulator, where packets cost only time.
    pub const EMULATED: Effort = Effort { most_packets: u64::MAX, flood: 1.2, delay_quantile: 0.5 };
    /// A guest whose clock stands still while it computes.
    pub const VIRTUAL: Effort =
        Effort { most_packets: limits::MAX_PROBES_IN_VIRTUAL_TIME, flood: 2.0, delay_quantile: 0.5 };
    /// A guest in real time, whose timers wait until it may run: the quickest tenth of the packets gives the delay.
    pub const UML: Effort = Effort { most_packets: limits::MAX_PROBES_IN_GUEST, flood: 1.2, delay_quantile: 0.1 };
}

/// Measures every link.
///
/// `fault` tells why measurements since its last call are invalid. Fails with [`io::ErrorKind::Interrupted`] once
/// `interrupted` is set.
pub fn run(
    topology: &Topology,
    plan: &Plan,
    hosts: &Hosts,
    effort: Effort,
    fault: &dyn Fn() -> Option<String>,
    interrupted: &Arc<AtomicBool>,
) -> io::Result<Table> {
    let mut table = Table::default();
    let _ = fault();
    for wire in &plan.wires {
        let medium = Medium::of(topology, wire.kind);
        for (from, spec) in medium.directions.iter().enumerate() {
            let end = |end: usize| {
                let (host, device) = wire.ends[end];
                (plan.hosts[host].name.clone(), plan.hosts[host].devices[device].v4)
            };
            let ((sender, _), (receiver, address)) = (end(from), end(1 - from));
            let link_name = format!("{} {sender} to {receiver}", wire.name);
            let mtu = medium.mtu;
            let direction = Direction { hosts, sender, receiver, address, link_name, mtu, effort, interrupted };
            direction.measure(spec, &medium, &mut table)?;
        }
    }
    table.fault = fault();
    Ok(table)
}

struct Medium {
    directions: [DirectionSpec; 2],
    rtt: Time,
    mtu: u32,
    has_large_segments: bool,
    has_queue: bool,
}

impl Medium {
    fn of(topology: &Topology, kind: WireKind) -> Medium {
        match kind {
            WireKind::Link(index) => {
                let link = &topology.links[index];
                let has_large_segments = link.has_large_segments();
                let directions = [link.forth(), link.back()];
                Medium { directions, rtt: link.rtt(), mtu: link.mtu, has_large_segments, has_queue: true }
            }
            WireKind::Segment(index) => {
                let segment = &topology.segments[index];
                let (rate, delay, queue) = (Some(segment.rate), Some(segment.delay), segment.queue);
                let way = DirectionSpec { rate, delay, queue, ..DirectionSpec::default() };
                let rtt = Time(segment.delay.0 * 2);
                let directions = [way.clone(), way];
                Medium { directions, rtt, mtu: segment.mtu, has_large_segments: false, has_queue: false }
            }
        }
    }
}

struct Direction<'a> {
    hosts: &'a Hosts,
    sender: String,
    receiver: String,
    address: Ipv4Addr,
    link_name: String,
    mtu: u32,
    effort: Effort,
    interrupted: &'a Arc<AtomicBool>,
}

#[derive(Clone, Debug, Default)]
struct Heard {
    sent: u64,
    received: u64,
    payload_bytes: usize,
    /// One-way delays by arrival, at most [`limits::MAX_PROBES_KEPT`].
    delays: Vec<Duration>,
    /// Time and packets after a quarter of the stream's time.
    steady: (Duration, u64),
}

#[derive(Clone, Copy)]
struct Stream {
    rate: Option<Rate>,
    gap: Duration,
    time: Duration,
    payload_bytes: usize,
    at_once: usize,
    /// Gaps have random lengths: one of equal streams would always find the queue full.
    random: Option<u64>,
}

impl Direction<'_> {
    fn measure(&self, spec: &DirectionSpec, medium: &Medium, table: &mut Table) -> io::Result<()> {
        let large = medium.has_large_segments;
        // Probes are best effort, which has its own queue.
        let parts = if spec.diffserv.is_some() { limits::DIFFSERV_QUEUES } else { 1 };
        let queue_bytes = spec.queue_bytes(medium.rtt) / parts;
        let asked_delay = spec.delay.unwrap_or_default().0;
        let jitter = spec.jitter.unwrap_or_default().0;
        let single =
            Stream { rate: None, gap: SINGLE_GAP, time: SINGLE_TIME, payload_bytes: 32, at_once: 1, random: None };
        let heard = self.probe(&single, asked_delay + jitter)?;
        let typical = quantile(&heard.delays, self.effort.delay_quantile);
        let sending = spec.rate.map_or(Duration::ZERO, |rate| rate.time_of(32 + UDP_AND_IP_BYTES + FRAMING_BYTES));
        let expected = asked_delay + jitter / 2 + sending;
        let allowed = DELAY_TOLERANCE + jitter / 10 + spec.spread.unwrap_or_default().0 / 5;
        let [expected_s, typical_s, allowed_s] = [expected, typical, allowed].map(|time| time.as_secs_f64());
        self.row(table, Figure::Delay, [expected_s, typical_s, allowed_s], &heard);

        let asked_loss = expected_loss(spec);
        if asked_loss > 0.0 {
            self.loss(spec, asked_loss, table)?;
        }
        if let Some(rate) = spec.rate {
            let heard = self.flood(rate, large, asked_delay + jitter, queue_bytes)?;
            let wire = (heard.payload_bytes as u64 + UDP_AND_IP_BYTES + FRAMING_BYTES) * 8;
            let (time, packets) = heard.steady;
            // Randomly lost packets used the wire, too.
            let carried = (packets * wire) as f64 / (1.0 - asked_loss).max(0.01);
            let measured = carried / time.as_secs_f64().max(1e-9);
            let asked = rate.bits_per_s() as f64;
            // With few packets, random loss deviates from its share.
            let by_chance = LOSS_SIGMAS * (asked_loss / (1.0 - asked_loss).max(0.01) / packets.max(1) as f64).sqrt();
            self.row(table, Figure::Rate, [asked, measured, asked * (RATE_TOLERANCE + by_chance)], &heard);

            let fill = self.fill_time(rate, queue_bytes);
            if medium.has_queue && self.flood_time(rate, queue_bytes) >= fill.mul_f64(LEAST_FILLING) {
                let longer = spec.spread.unwrap_or_default().0.mul_f64(NORMAL_WAITED);
                let waited = full_queue(&heard.delays).saturating_sub(expected + longer);
                let (asked, measured) = (queue_bytes as f64, rate.bytes_in(waited) as f64);
                let slack = (2 * u64::from(self.mtu) * if large { 44 } else { 1 }) as f64;
                self.row(table, Figure::Queue, [asked, measured, asked * QUEUE_TOLERANCE + slack], &heard);
            }
            self.fairness(rate, large, asked_delay + jitter, queue_bytes, table)?;
        }
        Ok(())
    }

    fn loss(&self, spec: &DirectionSpec, asked: f64, table: &mut Table) -> io::Result<()> {
        let wanted = (20.0 / asked).clamp(2_000.0, MOST_LOSS_PROBES);
        let gap = match spec.rate {
            Some(rate) => rate.time_of(2 * (LOSS_PAYLOAD_BYTES as u64 + UDP_AND_IP_BYTES + FRAMING_BYTES)),
            None => Duration::ZERO,
        };
        let gap = gap.max(LEAST_LOSS_GAP);
        let wanted = wanted.min(self.effort.most_packets as f64);
        let time = gap.mul_f64(wanted).min(LONGEST_LOSS_TIME);
        let stream = Stream { rate: None, gap, time, payload_bytes: LOSS_PAYLOAD_BYTES, at_once: 1, random: None };
        let heard = self.probe(&stream, spec.delay.unwrap_or_default().0)?;
        let measured = 1.0 - heard.received as f64 / heard.sent.max(1) as f64;
        // Losses in a row count as one.
        let length = spec.burst.map_or(1.0, |burst| burst.length);
        let sigma = (asked * (1.0 - asked) * length / heard.sent.max(1) as f64).sqrt();
        self.row(table, Figure::Loss, [asked, measured, LOSS_SIGMAS * sigma], &heard);
        Ok(())
    }

    /// At 1.2 times the rate, a flood needs five times the queue's own time to fill it.
    fn fill_time(&self, rate: Rate, queue_bytes: u64) -> Duration {
        rate.time_of(queue_bytes).div_f64(self.effort.flood - 1.0)
    }

    fn flood_time(&self, rate: Rate, queue_bytes: u64) -> Duration {
        (self.fill_time(rate, queue_bytes) * 2).clamp(SHORTEST_FLOOD, LONGEST_FLOOD).min(self.longest(rate))
    }

    fn longest(&self, rate: Rate) -> Duration {
        rate.time_of(u64::from(self.mtu)).div_f64(self.effort.flood).mul_f64(self.effort.most_packets as f64)
    }

    fn flood(&self, rate: Rate, large: bool, delay: Duration, queue_bytes: u64) -> io::Result<Heard> {
        let stream = self.full_packets(rate, self.effort.flood, large, self.flood_time(rate, queue_bytes));
        self.probe(&stream, delay + rate.time_of(queue_bytes))
    }

    fn full_packets(&self, rate: Rate, share: f64, large: bool, time: Duration) -> Stream {
        let payload_bytes = self.mtu as usize - UDP_AND_IP_BYTES as usize;
        let at_once = if large { (64_000 / payload_bytes).max(1) } else { 1 };
        let rate = Rate::from_bits_per_s((rate.bits_per_s() as f64 * share) as u64);
        Stream { rate, gap: Duration::ZERO, time, payload_bytes, at_once, random: None }
    }

    /// Jain's fairness index of floods. `None` if they would not fill the queue.
    fn fairness(
        &self,
        rate: Rate,
        large: bool,
        delay: Duration,
        queue_bytes: u64,
        table: &mut Table,
    ) -> io::Result<()> {
        let latest = delay + rate.time_of(queue_bytes);
        let time = FAIR_TIME.max(latest * 10).min(LONGEST_FLOOD).min(self.longest(rate));
        if time < self.fill_time(rate, queue_bytes).mul_f64(LEAST_FILLING) {
            return Ok(());
        }
        let stream = self.full_packets(rate, self.effort.flood / FAIR_FLOODS as f64, large, time);
        let heard = std::thread::scope(|scope| {
            let floods: Vec<_> = (0..FAIR_FLOODS)
                .map(|number| Stream { random: Some(number as u64), ..stream })
                .map(|stream| scope.spawn(move || self.probe(&stream, latest)))
                .collect();
            let heard = floods.into_iter().map(|flood| flood.join().expect("a probe does not panic"));
            heard.collect::<io::Result<Vec<Heard>>>()
        })?;
        let shares: Vec<f64> = heard.iter().map(|heard| heard.received as f64).collect();
        let (sum, squares) =
            shares.iter().fold((0.0, 0.0), |(sum, squares), share| (sum + share, squares + share * share));
        let index = sum * sum / (shares.len() as f64 * squares).max(f64::MIN_POSITIVE);
        let all = Heard {
            sent: heard.iter().map(|heard| heard.sent).sum(),
            received: heard.iter().map(|heard| heard.received).sum(),
            ..Heard::default()
        };
        self.row(table, Figure::Fairness, [1.0, index, 1.0 - LEAST_FAIR], &all);
        Ok(())
    }

    fn probe(&self, stream: &Stream, latest: Duration) -> io::Result<Heard> {
        let socket = self.hosts.enter(&self.receiver, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        // The kernel grants rmem_max; a lab host must not force more as root.
        drop(haul_sys::socket::set_receive_buffer_bytes(&socket, PROBE_BUFFER_BYTES));
        if stream.at_once > 1 {
            haul_sys::socket::set_udp_receive_whole(&socket)?;
        }
        let target = SocketAddr::V4(SocketAddrV4::new(self.address, socket.local_addr()?.port()));
        let clock = Instant::now();
        let done = Arc::new(AtomicBool::new(false));
        let (stream_here, stop) = (*stream, Arc::clone(&done));
        let listener = std::thread::Builder::new()
            .name("probe".into())
            .spawn(move || listen(&socket, &stream_here, clock, &stop))?;
        let (stream_there, interrupted) = (*stream, Arc::clone(self.interrupted));
        // Other streams may leave this host at the same time.
        let sender = self.hosts.enter(&self.sender, move || {
            std::thread::Builder::new()
                .name("probe".into())
                .spawn(move || send(target, &stream_there, clock, &interrupted))
        })?;
        let sent = sender.join().expect("sending does not panic");
        if !self.interrupted.load(Ordering::Relaxed) {
            std::thread::sleep(latest + SETTLE);
        }
        done.store(true, Ordering::Relaxed);
        let mut heard = listener.join().expect("listening does not panic")?;
        heard.sent = sent?;
        match self.interrupted.load(Ordering::Relaxed) {
            true => Err(io::ErrorKind::Interrupted.into()),
            false => Ok(heard),
        }
    }

    fn row(&self, table: &mut Table, figure: Figure, numbers: [f64; 3], heard: &Heard) {
        table.rows.push(Row::new(&self.link_name, figure, numbers, [heard.sent, heard.received]));
    }
}

fn send(target: SocketAddr, stream: &Stream, clock: Instant, interrupted: &AtomicBool) -> io::Result<u64> {
    let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
    socket.connect(target)?;
    if stream.at_once > 1 {
        let bytes = u16::try_from(stream.payload_bytes).map_err(io::Error::other)?;
        haul_sys::socket::set_udp_segment_bytes(&socket, bytes)?;
    }
    let wire = (stream.payload_bytes as u64 + UDP_AND_IP_BYTES + FRAMING_BYTES) * stream.at_once as u64;
    let gap = stream.rate.map_or(stream.gap, |rate| rate.time_of(wire));
    let mut payload = vec![0; stream.payload_bytes * stream.at_once];
    let mut chance = stream.random.map(|seed| Chance::new(seed, Purpose::Traffic));
    let start = Instant::now();
    let (mut due, mut sent) = (Duration::ZERO, 0);
    while due < stream.time && !interrupted.load(Ordering::Relaxed) {
        let now = start.elapsed();
        if due > now {
            std::thread::sleep(due - now);
            continue;
        }
        if stream.rate.is_none() {
            due = catch_up(due, now, gap);
        }
        let stamp = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        for probe in payload.chunks_mut(stream.payload_bytes) {
            probe[..8].copy_from_slice(&stamp);
        }
        // A full device queue refuses the probe: it was never sent.
        if socket.send(&payload).is_ok() {
            sent += stream.at_once as u64;
        }
        due += match &mut chance {
            Some(chance) => gap.mul_f64(chance.up_to(2000) as f64 / 1000.0),
            None => gap,
        };
    }
    Ok(sent)
}

/// The next send time; missed probes are skipped.
fn catch_up(due: Duration, now: Duration, gap: Duration) -> Duration {
    due.max(now.saturating_sub(gap * MOST_CAUGHT_UP))
}

fn listen(socket: &UdpSocket, stream: &Stream, clock: Instant, done: &AtomicBool) -> io::Result<Heard> {
    let mut heard = Heard { payload_bytes: stream.payload_bytes, ..Heard::default() };
    let mut buffer = vec![0; 64 * 1024];
    let (mut first, mut from) = (None, None);
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    while !done.load(Ordering::Relaxed) {
        let read = match socket.recv(&mut buffer) {
            Ok(read) => read,
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => continue,
            Err(error) => return Err(error),
        };
        let now = clock.elapsed();
        let Some(stamp) = buffer[..read].first_chunk::<8>() else { continue };
        heard.received += (read / stream.payload_bytes).max(1) as u64;
        if heard.delays.len() < limits::MAX_PROBES_KEPT {
            heard.delays.push(now.saturating_sub(Duration::from_nanos(u64::from_le_bytes(*stamp))));
        }
        // The queue fills during the first quarter.
        let begin = *first.get_or_insert(now);
        if now - begin > stream.time / 4 {
            let (since, before) = *from.get_or_insert((now, heard.received));
            heard.steady = (now - since, heard.received - before);
        }
    }
    Ok(heard)
}

/// In the second half most packets wait behind a full queue; the machine delayed the slowest few.
fn full_queue(delays: &[Duration]) -> Duration {
    quantile(&delays[delays.len() / 2..], WAITED)
}

fn quantile(delays: &[Duration], share: f64) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// Sums losses alone, in bursts, or by damage that the checksum shows.
fn expected_loss(spec: &DirectionSpec) -> f64 {
    let shares = [spec.loss, spec.burst.map(|burst| burst.loss), spec.corrupt];
    1.0 - shares.into_iter().flatten().map(|share| 1.0 - share.share()).product::<f64>()
}

const DELAY_TOLERANCE: Duration = Duration::from_micros(200);
const RATE_TOLERANCE: f64 = 0.01;
const QUEUE_TOLERANCE: f64 = 0.05;
/// A flood of this many filling times shows a queue's length: a fifth of its second half's arrivals have waited behind a full
/// queue (22 % at twice the rate, 34 % at 1.2 times), and [`full_queue`] needs a tenth.
const LEAST_FILLING: f64 = 1.25;

const WAITED: f64 = 0.9;
/// Standard deviations of [`WAITED`] above the mean of a normal distribution.
const NORMAL_WAITED: f64 = 1.2816;

/// The least index of equal floods. Four with 22, 24, 26 and 28 % have 0.992.
const LEAST_FAIR: f64 = 0.98;
const FAIR_FLOODS: usize = 4;
const FAIR_TIME: Duration = Duration::from_millis(1500);

const SINGLE_GAP: Duration = Duration::from_millis(5);
const SINGLE_TIME: Duration = Duration::from_millis(1000);
const LOSS_PAYLOAD_BYTES: usize = 200;
/// More missed packets at once would overflow the queue and look like losses.
const MOST_CAUGHT_UP: u32 = 16;
const LEAST_LOSS_GAP: Duration = Duration::from_micros(20);
const LONGEST_LOSS_TIME: Duration = Duration::from_secs(10);
const MOST_LOSS_PROBES: f64 = 500_000.0;
const SHORTEST_FLOOD: Duration = Duration::from_millis(1500);
const LONGEST_FLOOD: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_millis(100);
const PROBE_BUFFER_BYTES: usize = 4 << 20;
const UDP_AND_IP_BYTES: u64 = 28;
const FRAMING_BYTES: u64 = limits::WIRE_OVERHEAD_BYTES as u64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sender_that_was_held_up_sends_a_few_packets_at_once_and_keeps_its_pace() {
        let gap = Duration::from_millis(1);
        let due = catch_up(gap, Duration::from_secs(1), gap);
        assert_eq!(due, Duration::from_secs(1) - 16 * gap);
        assert_eq!(catch_up(5 * gap, 6 * gap, gap), 5 * gap, "one packet late");
    }
}
