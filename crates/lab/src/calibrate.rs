//! The lab measures itself: what was asked of each link, what is, and how far apart they are.
//!
//! Each direction of each link, one after the other, with our own probes between the two hosts at its ends:
//! single datagrams for the delay, a stream at half the rate for the loss, a flood for rate and queue, several floods at once
//! for fairness. Both ends read one clock, so delays are one-way.

use std::fmt::Write as _;
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
use crate::units::{Rate, Size, Time};

/// What was found, a row for each figure.
#[derive(Clone, Debug, Default)]
pub struct Table {
    rows: Vec<Row>,
    fault: Option<String>,
}

/// One figure of one direction.
#[derive(Clone, Debug)]
struct Row {
    link: String,
    figure: &'static str,
    asked: String,
    measured: String,
    off: String,
    holds: bool,
}

impl Table {
    /// Whether every figure is as near as promised, and nothing disturbed the measurement.
    pub fn holds(&self) -> bool {
        self.fault.is_none() && self.rows.iter().all(|row| row.holds)
    }

    /// As Markdown, with a verdict as the last line.
    pub fn text(&self) -> String {
        let mut text = String::from("| link | figure | asked | measured | off by | |\n|---|---|---|---|---|---|\n");
        for row in &self.rows {
            let Row { link, figure, asked, measured, off, holds } = row;
            let holds = if *holds { "ok" } else { "**off**" };
            let _ = writeln!(text, "| {link} | {figure} | {asked} | {measured} | {off} | {holds} |");
        }
        let verdict = match (&self.fault, self.holds()) {
            (Some(fault), _) => format!("invalid: {fault}"),
            (None, true) => "calibrated: the lab is what was asked for".to_owned(),
            (None, false) => "invalid: the lab is not what was asked for".to_owned(),
        };
        let _ = writeln!(text, "\n{verdict}");
        text
    }
}

/// Measures every link.
///
/// `fault` says why what was measured since it was last asked must not be believed. A stream of probes has at most
/// `most_packets`; what cannot be seen with so few is left out.
pub fn run(
    topology: &Topology,
    plan: &Plan,
    hosts: &Hosts,
    most_packets: u64,
    fault: &dyn Fn() -> Option<String>,
) -> io::Result<Table> {
    let mut table = Table::default();
    // What happened while the lab was made does not count.
    let _ = fault();
    for wire in &plan.wires {
        let WireKind::Link(index) = wire.kind else { continue };
        let link = &topology.links[index];
        for (from, spec) in [(0, link.forth()), (1, link.back())] {
            let end = |end: usize| {
                let (host, device) = wire.ends[end];
                (plan.hosts[host].name.clone(), plan.hosts[host].devices[device].v4)
            };
            let ((sender, _), (receiver, address)) = (end(from), end(1 - from));
            let link_name = format!("{} {sender} to {receiver}", wire.name);
            let direction = Direction { hosts, sender, receiver, address, link_name, mtu: link.mtu, most_packets };
            direction.measure(&spec, spec.queue_bytes(link.rtt()), link.has_large_segments(), &mut table)?;
        }
    }
    table.fault = fault();
    Ok(table)
}

struct Direction<'a> {
    hosts: &'a Hosts,
    sender: String,
    receiver: String,
    address: Ipv4Addr,
    link_name: String,
    mtu: u32,
    most_packets: u64,
}

/// What arrived of a stream of probes.
#[derive(Clone, Debug, Default)]
struct Heard {
    sent: u64,
    received: u64,
    payload_bytes: usize,
    /// One way, in the order of arrival; at most [`limits::MAX_PROBES_KEPT`].
    delays: Vec<Duration>,
    /// Between the arrivals at a quarter of the time and at its end, and the packets in between.
    steady: (Duration, u64),
}

/// How probes are sent.
#[derive(Clone, Copy)]
struct Stream {
    rate: Option<Rate>,
    /// Instead of a rate.
    gap: Duration,
    time: Duration,
    payload_bytes: usize,
    /// Datagrams of one send.
    at_once: usize,
    /// Gaps of random length with the same mean: equal streams would otherwise march in step, and one of them always be the
    /// one that finds the queue full.
    random: Option<u64>,
}

impl Direction<'_> {
    fn measure(&self, spec: &DirectionSpec, queue_bytes: u64, large: bool, table: &mut Table) -> io::Result<()> {
        let asked_delay = spec.delay.unwrap_or_default().0;
        let jitter = spec.jitter.unwrap_or_default().0;
        let single =
            Stream { rate: None, gap: SINGLE_GAP, time: SINGLE_TIME, payload_bytes: 32, at_once: 1, random: None };
        let heard = self.probe(&single, asked_delay + jitter)?;
        let median = median(&heard.delays);
        let sending = spec.rate.map_or(Duration::ZERO, |rate| rate.time_of(32 + UDP_AND_IP_BYTES + FRAMING_BYTES));
        let expected = asked_delay + jitter / 2 + sending;
        let off = median.abs_diff(expected);
        let allowed = DELAY_TOLERANCE + jitter / 10;
        self.row(table, "delay", Time(expected), Time(median), Time(off), !heard.delays.is_empty() && off <= allowed);

        let asked_loss = expected_loss(spec);
        if asked_loss > 0.0 {
            self.loss(spec, asked_loss, table)?;
        }
        if let Some(rate) = spec.rate
            && spec.diffserv.is_none()
        {
            let heard = self.flood(rate, large, asked_delay + jitter, queue_bytes)?;
            let wire = (heard.payload_bytes as u64 + UDP_AND_IP_BYTES + FRAMING_BYTES) * 8;
            let (time, packets) = heard.steady;
            // What was lost on purpose had its time on the wire.
            let carried = (packets * wire) as f64 / (1.0 - asked_loss).max(0.01);
            let measured = carried / time.as_secs_f64().max(1e-9);
            let off = measured / rate.bits_per_s() as f64 - 1.0;
            let measured = Rate::from_bits_per_s(measured as u64).map_or("nothing".into(), |rate| rate.to_string());
            self.row(table, "rate", rate, measured, format!("{:+.2} %", off * 100.0), off.abs() <= RATE_TOLERANCE);

            let waited = full_queue(&heard.delays).saturating_sub(expected);
            let measured = Size { bytes: rate.bytes_in(waited) };
            let off = measured.bytes as f64 / queue_bytes.max(1) as f64 - 1.0;
            let slack = (2 * u64::from(self.mtu) * if large { 44 } else { 1 }) as f64 / queue_bytes.max(1) as f64;
            let holds = off.abs() <= QUEUE_TOLERANCE + slack;
            let latest = asked_delay + jitter + rate.time_of(queue_bytes);
            if self.flood_time(rate, queue_bytes) >= rate.time_of(queue_bytes) * 5 {
                self.row(
                    table,
                    "queue",
                    Size { bytes: queue_bytes },
                    measured,
                    format!("{:+.1} %", off * 100.0),
                    holds,
                );
            }
            self.fairness(rate, large, latest, table)?;
        }
        Ok(())
    }

    fn loss(&self, spec: &DirectionSpec, asked: f64, table: &mut Table) -> io::Result<()> {
        // Enough packets to see twenty losses, within bounds.
        let wanted = (20.0 / asked).clamp(2_000.0, MOST_LOSS_PROBES);
        let gap = match spec.rate {
            Some(rate) => rate.time_of(2 * (LOSS_PAYLOAD_BYTES as u64 + UDP_AND_IP_BYTES + FRAMING_BYTES)),
            None => Duration::ZERO,
        };
        let gap = gap.max(LEAST_LOSS_GAP);
        let wanted = wanted.min(self.most_packets as f64);
        let time = gap.mul_f64(wanted).min(LONGEST_LOSS_TIME);
        let stream = Stream { rate: None, gap, time, payload_bytes: LOSS_PAYLOAD_BYTES, at_once: 1, random: None };
        let heard = self.probe(&stream, spec.delay.unwrap_or_default().0)?;
        let measured = 1.0 - heard.received as f64 / heard.sent.max(1) as f64;
        // Three standard deviations; losses that come together count as one each.
        let length = spec.burst.map_or(1.0, |burst| burst.length);
        let sigma = (asked * (1.0 - asked) * length / heard.sent.max(1) as f64).sqrt();
        let holds = (measured - asked).abs() <= 3.0 * sigma;
        let off = format!("{:+.1} sigma of {} packets", (measured - asked) / sigma, heard.sent);
        self.row(table, "loss", format!("{asked:.2e}"), format!("{measured:.2e}"), off, holds);
        Ok(())
    }

    /// A fifth too much fills the queue in five times its own time.
    fn flood_time(&self, rate: Rate, queue_bytes: u64) -> Duration {
        let fill = rate.time_of(queue_bytes) * 5;
        (fill * 2).clamp(SHORTEST_FLOOD, LONGEST_FLOOD).min(self.longest(rate))
    }

    /// The time of as many packets as there may be.
    fn longest(&self, rate: Rate) -> Duration {
        rate.time_of(u64::from(self.mtu) * 5 / 6).mul_f64(self.most_packets as f64)
    }

    fn flood(&self, rate: Rate, large: bool, delay: Duration, queue_bytes: u64) -> io::Result<Heard> {
        let payload_bytes = self.mtu as usize - UDP_AND_IP_BYTES as usize;
        let at_once = if large { (64_000 / payload_bytes).max(1) } else { 1 };
        let fill = rate.time_of(queue_bytes) * 5;
        let time = self.flood_time(rate, queue_bytes);
        let more = Rate::from_bits_per_s(rate.bits_per_s().saturating_mul(6) / 5);
        let stream = Stream { rate: more, gap: Duration::ZERO, time, payload_bytes, at_once, random: None };
        self.probe(&stream, delay + fill)
    }

    /// Several floods share the link: R. Jain's index of what each got, 1 when all got the same.
    fn fairness(&self, rate: Rate, large: bool, latest: Duration, table: &mut Table) -> io::Result<()> {
        let payload_bytes = self.mtu as usize - UDP_AND_IP_BYTES as usize;
        let at_once = if large { (64_000 / payload_bytes).max(1) } else { 1 };
        let each = Rate::from_bits_per_s(rate.bits_per_s() * 6 / 5 / FAIR_FLOODS as u64);
        let time = FAIR_TIME.max(latest * 10).min(LONGEST_FLOOD).min(self.longest(rate));
        let stream = Stream { rate: each, gap: Duration::ZERO, time, payload_bytes, at_once, random: None };
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
        let off = format!("{FAIR_FLOODS} floods of {rate} x 0.3");
        self.row(table, "fairness", format!("> {LEAST_FAIR}"), format!("{index:.4}"), off, index > LEAST_FAIR);
        Ok(())
    }

    /// Sends a stream and waits until nothing comes any more.
    fn probe(&self, stream: &Stream, latest: Duration) -> io::Result<Heard> {
        let socket = self.hosts.enter(&self.receiver, || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)))?;
        // The kernel grants what rmem_max allows; as root it may be forced, which a host of a lab must not.
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
        let stream_there = *stream;
        // A thread of its own, since others may send from this host at the same time.
        let sender = self.hosts.enter(&self.sender, move || {
            std::thread::Builder::new().name("probe".into()).spawn(move || send(target, &stream_there, clock))
        })?;
        let sent = sender.join().expect("sending does not panic");
        std::thread::sleep(latest + SETTLE);
        done.store(true, Ordering::Relaxed);
        let mut heard = listener.join().expect("listening does not panic")?;
        heard.sent = sent?;
        Ok(heard)
    }

    fn row(
        &self,
        table: &mut Table,
        figure: &'static str,
        asked: impl ToString,
        measured: impl ToString,
        off: impl ToString,
        holds: bool,
    ) {
        let (asked, measured, off) = (asked.to_string(), measured.to_string(), off.to_string());
        table.rows.push(Row { link: self.link_name.clone(), figure, asked, measured, off, holds });
    }
}

/// Sends probes, each with the time at which it left; how many.
fn send(target: SocketAddr, stream: &Stream, clock: Instant) -> io::Result<u64> {
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
    while due < stream.time {
        let now = start.elapsed();
        if due > now {
            std::thread::sleep(due - now);
            continue;
        }
        let stamp = u64::try_from(clock.elapsed().as_nanos()).unwrap_or(u64::MAX).to_le_bytes();
        for probe in payload.chunks_mut(stream.payload_bytes) {
            probe[..8].copy_from_slice(&stamp);
        }
        // A full device queue refuses it: the packet was never sent.
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
        // The first quarter is left out: the queue is not full yet.
        let begin = *first.get_or_insert(now);
        if now - begin > stream.time / 4 {
            let (since, before) = *from.get_or_insert((now, heard.received));
            heard.steady = (now - since, heard.received - before);
        }
    }
    Ok(heard)
}

fn median(delays: &[Duration]) -> Duration {
    quantile(delays, 0.5)
}

/// The delay behind a full queue: most of the second half of a flood waits that long, the longest few were late besides.
fn full_queue(delays: &[Duration]) -> Duration {
    quantile(&delays[delays.len() / 2..], 0.9)
}

fn quantile(delays: &[Duration], share: f64) -> Duration {
    let mut sorted = delays.to_vec();
    sorted.sort_unstable();
    let at = ((sorted.len() as f64 * share) as usize).min(sorted.len().saturating_sub(1));
    sorted.get(at).copied().unwrap_or_default()
}

/// Share of packets that do not arrive: lost alone, in bursts, or changed so that the checksum fails.
fn expected_loss(spec: &DirectionSpec) -> f64 {
    let shares = [spec.loss, spec.burst.map(|burst| burst.loss), spec.corrupt];
    1.0 - shares.into_iter().flatten().map(|share| 1.0 - share.share()).product::<f64>()
}

/// As the issue of the lab asks.
const DELAY_TOLERANCE: Duration = Duration::from_micros(200);
/// As the issue of the lab asks.
const RATE_TOLERANCE: f64 = 0.01;
const QUEUE_TOLERANCE: f64 = 0.05;

/// Jain's index that equal floods through one queue must reach; 4 with shares of 22, 24, 26 and 28 % have 0.992.
const LEAST_FAIR: f64 = 0.98;
const FAIR_FLOODS: usize = 4;
const FAIR_TIME: Duration = Duration::from_millis(1500);

const SINGLE_GAP: Duration = Duration::from_millis(5);
const SINGLE_TIME: Duration = Duration::from_millis(1000);
const LOSS_PAYLOAD_BYTES: usize = 200;
const LEAST_LOSS_GAP: Duration = Duration::from_micros(20);
const LONGEST_LOSS_TIME: Duration = Duration::from_secs(10);
const MOST_LOSS_PROBES: f64 = 500_000.0;
const SHORTEST_FLOOD: Duration = Duration::from_millis(1500);
const LONGEST_FLOOD: Duration = Duration::from_secs(20);
const SETTLE: Duration = Duration::from_millis(100);
const PROBE_BUFFER_BYTES: usize = 4 << 20;
const UDP_AND_IP_BYTES: u64 = 28;
const FRAMING_BYTES: u64 = limits::WIRE_OVERHEAD_BYTES as u64;
