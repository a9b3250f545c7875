//! Others' traffic: constant and on/off datagrams, greedy TCP connections.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, Shutdown, SocketAddr, SocketAddrV4, TcpListener, TcpStream, UdpSocket};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::hosts::Hosts;
use crate::limits;
use crate::plan::Plan;
use crate::shape::{Chance, Purpose};
use crate::topology::{Topology, TrafficSpec};
use crate::units::{Rate, Size};

/// Traffic that flows until dropped.
pub struct Traffic {
    stop: Arc<AtomicBool>,
    streams: Vec<Stream>,
    tcp_bytes: Vec<Arc<AtomicU64>>,
    threads: Vec<JoinHandle<io::Result<()>>>,
}

struct Stream {
    name: String,
    fell_behind: Arc<AtomicBool>,
}

impl Traffic {
    /// Starts a topology's traffic.
    pub fn start(topology: &Topology, plan: &Plan, hosts: &Hosts) -> io::Result<Traffic> {
        let (streams, tcp_bytes, threads) = Default::default();
        let mut traffic = Traffic { stop: Arc::default(), streams, tcp_bytes, threads };
        for (number, spec) in topology.traffic.iter().enumerate() {
            let port = limits::FIRST_TRAFFIC_PORT + u16::try_from(number).unwrap_or(0);
            let (from, to) = spec.ends();
            let Some(address) = plan.host(to).and_then(|host| host.devices.first()).map(|device| device.v4) else {
                continue;
            };
            let target = SocketAddr::V4(SocketAddrV4::new(address, port));
            match spec {
                TrafficSpec::Udp { rate, packet, dscp, .. } => {
                    traffic.sink(hosts, to, port)?;
                    let fell_behind = traffic.watch(from, to, *rate);
                    let payload_bytes = payload(*packet);
                    let stream = Datagrams { target, rate: *rate, payload_bytes, dscp: *dscp, fell_behind };
                    traffic.run(hosts, from, move |stop| stream.send_until(stop))?;
                }
                TrafficSpec::OnOff { rate, on, off, packet, .. } => {
                    traffic.sink(hosts, to, port)?;
                    let fell_behind = traffic.watch(from, to, *rate);
                    let payload_bytes = payload(*packet);
                    let stream = Datagrams { target, rate: *rate, payload_bytes, dscp: 0, fell_behind };
                    let mut chance = Chance::new(topology.seed ^ u64::from(port), Purpose::Traffic);
                    let (on, off) = (on.0, off.0);
                    traffic.run(hosts, from, move |stop| stream.send_on_and_off(stop, on, off, &mut chance))?;
                }
                TrafficSpec::Tcp { flows, .. } => {
                    let listener = hosts.enter(to, move || TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)))?;
                    let flows = *flows;
                    let bytes = Arc::<AtomicU64>::default();
                    traffic.tcp_bytes.push(Arc::clone(&bytes));
                    traffic.run(hosts, to, move |stop| swallow_streams(&listener, flows, &bytes, stop))?;
                    for _ in 0..flows {
                        traffic.run(hosts, from, move |stop| pour(target, stop))?;
                    }
                }
            }
        }
        Ok(traffic)
    }

    /// Why measurements since the last call had too little traffic beside them.
    pub fn fault(&self) -> Option<String> {
        let mut late = self.streams.iter().filter(|stream| stream.fell_behind.swap(false, Ordering::Relaxed));
        let name = late.next()?.name.clone();
        // Asking all makes their answers belong to this call.
        late.for_each(drop);
        Some(format!("{name} could not be sent: the rate is too high for the datagrams of this machine"))
    }

    /// Bytes of all TCP connections so far, if any.
    pub fn tcp_bytes(&self) -> Option<u64> {
        let all = self.tcp_bytes.iter().map(|bytes| bytes.load(Ordering::Relaxed));
        (!self.tcp_bytes.is_empty()).then(|| all.sum())
    }

    fn watch(&mut self, from: &str, to: &str, rate: Rate) -> Arc<AtomicBool> {
        let fell_behind = Arc::new(AtomicBool::new(false));
        let name = format!("traffic of {rate} from {from} to {to}");
        self.streams.push(Stream { name, fell_behind: Arc::clone(&fell_behind) });
        fell_behind
    }

    /// Without a receiver, the host answers each datagram with an ICMP error.
    fn sink(&mut self, hosts: &Hosts, host: &str, port: u16) -> io::Result<()> {
        let socket = hosts.enter(host, move || UdpSocket::bind((Ipv4Addr::UNSPECIFIED, port)))?;
        socket.set_read_timeout(Some(STOP_CHECK))?;
        self.run(hosts, host, move |stop| {
            let mut buffer = [0; 2048];
            while !stop.load(Ordering::Relaxed) {
                let _ = socket.recv(&mut buffer);
            }
            Ok(())
        })
    }

    fn run(
        &mut self,
        hosts: &Hosts,
        host: &str,
        work: impl FnOnce(&AtomicBool) -> io::Result<()> + Send + 'static,
    ) -> io::Result<()> {
        let stop = Arc::clone(&self.stop);
        let spawn = move || std::thread::Builder::new().name("traffic".into()).spawn(move || work(&stop));
        self.threads.push(hosts.enter(host, spawn)?);
        Ok(())
    }
}

impl Drop for Traffic {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

struct Datagrams {
    target: SocketAddr,
    rate: Rate,
    payload_bytes: usize,
    dscp: u8,
    fell_behind: Arc<AtomicBool>,
}

impl Datagrams {
    fn socket(&self) -> io::Result<UdpSocket> {
        let socket = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0))?;
        if self.dscp != 0 {
            rustix::net::sockopt::set_ip_tos(&socket, self.dscp << 2)?;
        }
        socket.connect(self.target)?;
        Ok(socket)
    }

    fn send_until(&self, stop: &AtomicBool) -> io::Result<()> {
        let socket = self.socket()?;
        self.send_for(&socket, Duration::MAX, stop);
        Ok(())
    }

    fn send_on_and_off(&self, stop: &AtomicBool, on: Duration, off: Duration, chance: &mut Chance) -> io::Result<()> {
        let socket = self.socket()?;
        while !stop.load(Ordering::Relaxed) {
            self.send_for(&socket, exponential(on, chance), stop);
            let until = Instant::now() + exponential(off, chance);
            while !stop.load(Ordering::Relaxed) && Instant::now() < until {
                pause(until.saturating_duration_since(Instant::now()).min(STOP_CHECK));
            }
        }
        Ok(())
    }

    /// Sends due datagrams each millisecond, and of missed ones the last [`limits::MOST_TRAFFIC_BEHIND`].
    fn send_for(&self, socket: &UdpSocket, time: Duration, stop: &AtomicBool) {
        let payload = vec![0; self.payload_bytes];
        let each = self.rate.time_of((self.payload_bytes + UDP_AND_IP_BYTES) as u64);
        let start = Instant::now();
        let mut due = Duration::ZERO;
        while start.elapsed() < time && !stop.load(Ordering::Relaxed) {
            let now = start.elapsed();
            if now.saturating_sub(due) > limits::MOST_TRAFFIC_BEHIND {
                self.fell_behind.store(true, Ordering::Relaxed);
                due = now;
            }
            for _ in 0..limits::DATAGRAMS_AT_ONCE {
                if due > now {
                    pause(due.saturating_sub(start.elapsed()).max(TICK));
                    break;
                }
                // A full device queue loses the packet, as for any sender.
                let _ = socket.send(&payload);
                due += each;
            }
        }
    }
}

/// Exponential with this mean, cut at ten times the mean.
fn exponential(mean: Duration, chance: &mut Chance) -> Duration {
    const STEPS: u64 = 1 << 32;
    let share = (chance.up_to(STEPS - 1) + 1) as f64 / STEPS as f64;
    mean.mul_f64((-share.ln()).min(10.0))
}

fn payload(packet: Option<Size>) -> usize {
    let bytes = packet.map_or(limits::DEFAULT_TRAFFIC_PAYLOAD_BYTES, |size| size.bytes);
    usize::try_from(bytes).unwrap_or(usize::MAX).clamp(1, limits::MAX_TRAFFIC_PAYLOAD_BYTES)
}

fn swallow_streams(listener: &TcpListener, flows: u16, bytes: &AtomicU64, stop: &AtomicBool) -> io::Result<()> {
    listener.set_nonblocking(true)?;
    let mut streams: Vec<TcpStream> = Vec::new();
    let mut buffer = vec![0; 256 * 1024];
    while !stop.load(Ordering::Relaxed) {
        if streams.len() < usize::from(flows)
            && let Ok((stream, _)) = listener.accept()
        {
            stream.set_nonblocking(true)?;
            streams.push(stream);
        }
        let mut any = false;
        for stream in &mut streams {
            let read = stream.read(&mut buffer).unwrap_or(0);
            bytes.fetch_add(read as u64, Ordering::Relaxed);
            any |= read > 0;
        }
        if !any {
            pause(TICK);
        }
    }
    Ok(())
}

fn pour(target: SocketAddr, stop: &AtomicBool) -> io::Result<()> {
    let mut stream = TcpStream::connect_timeout(&target, CONNECT_LIMIT)?;
    stream.set_write_timeout(Some(STOP_CHECK))?;
    let block = vec![0; 64 * 1024];
    while !stop.load(Ordering::Relaxed) {
        match stream.write(&block) {
            Ok(_) => {}
            Err(error) if matches!(error.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut) => {}
            Err(error) => return Err(error),
        }
    }
    stream.shutdown(Shutdown::Both)
}

fn pause(time: Duration) {
    std::thread::sleep(time);
}

const UDP_AND_IP_BYTES: usize = 28;
const STOP_CHECK: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_millis(1);
const CONNECT_LIMIT: Duration = Duration::from_secs(60);
