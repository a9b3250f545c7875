//! Every limit of the lab, with its arithmetic.

use std::time::Duration;

/// Hosts in one lab. Each costs a namespace and a thread; the addresses would allow 250.
pub const MAX_HOSTS: usize = 64;
/// Links and segments in one lab: the second byte of their addresses.
pub const MAX_LINKS: usize = 128;
/// Hosts on one segment: the fourth byte of their addresses.
pub const MAX_HOSTS_PER_SEGMENT: usize = 64;
/// Bytes of a host's name, so that the name fits into any message and file name.
pub const MAX_NAME_BYTES: usize = 32;
/// IPv6 needs 1280, IPv4 576. TCP with less makes no sensible experiment.
pub const MIN_MTU: u32 = 576;
/// The largest IP packet is 65,535 bytes; with its Ethernet header it must stay below 64 KiB in the device.
pub const MAX_MTU: u32 = 65_521;
/// One way. The Moon is at 1.3 s.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// A queue at one end of a link. 1 GiB is 860 ms at 10 Gbit/s.
pub const MAX_QUEUE_BYTES: u64 = 1 << 30;
/// A queue without a given size holds at least the bytes that the link carries in this time, as in home and campus
/// routers.
pub const DEFAULT_QUEUE_TIME: Duration = Duration::from_millis(100);
/// A link without a rate has no queue, so this limits the bytes in flight.
pub const UNLIMITED_LINK_QUEUE_BYTES: u64 = 256 << 20;
/// Above this rate, one packet of 1500 bytes every 6 us, segments pass whole, unless the topology says otherwise: one
/// processor hardly reads, queues and writes packets faster.
pub const LARGE_SEGMENTS_FROM_BITS_PER_S: u64 = 2_000_000_000;
/// Packets of any size in one queue: each costs memory in addition to its bytes. 2^20 packets of 1500 bytes are 12.9 s
/// at 1 Gbit/s, more than [`MAX_QUEUE_BYTES`] holds.
pub const MAX_WAITING_PACKETS: usize = 1 << 20;
/// Packets in flight in one direction: 3.5 s of 300,000 packets a second, about the most that one processor carries.
pub const MAX_IN_FLIGHT_PACKETS: usize = 1 << 20;
/// Bytes in flight in one direction. 1 GiB is 860 ms one way at 10 Gbit/s and 8.6 s at 1 Gbit/s.
pub const MAX_IN_FLIGHT_BYTES: u64 = 1 << 30;
/// Classes of DiffServ: each has an equal part of the direction's queue.
pub const DIFFSERV_QUEUES: u64 = 4;
/// EF may send this much time of its rate at once: a TCP flow marked EF needs about a round trip of its rate as a burst
/// to fill the rate. With EF at half of the link, others wait at most 25 ms for it.
pub const EF_BURST_TIME: Duration = Duration::from_millis(50);
/// The default delay of packets chosen for reordering: 12 packets of 1500 bytes pass at 150 Mbit/s, 81 at 1 Gbit/s.
pub const DEFAULT_REORDER_TIME: Duration = Duration::from_millis(1);
/// A half-duplex Ethernet drops a frame after so many collisions (IEEE 802.3, attemptLimit).
pub const MAX_ATTEMPTS_ON_SEGMENT: u32 = 16;
/// After so many collisions the range of the random pause stops doubling: at most 1023 slots, 52 ms at 10 Mbit/s (IEEE
/// 802.3, backoffLimit).
pub const MAX_BACKOFF_DOUBLINGS: u32 = 10;
/// Packets that may wait in a TUN device for the emulator: 240 ms at 1 Gbit/s. An emulator further behind is short of
/// processor time.
pub const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// One read of a device: the largest packet and its headers.
pub const DEVICE_READ_BYTES: usize = 68 * 1024;
/// Packets read from one device before due packets are sent: 64 x 12 us at 1 Gbit/s is 0.8 ms of link time, read in a
/// tenth of that time.
pub const FRAMES_AT_ONCE: usize = 64;
/// Buffers kept for reuse: enough for 100 ms at 1 Gbit/s.
pub const SPARE_BUFFERS: usize = 8192;
/// A packet sent so much after its due time is late. A time slice of another process (4 ms at HZ=250) may delay single
/// packets by more, so the number of late packets counts.
pub const LATE: Duration = Duration::from_millis(1);
/// The nice value of threads that carry packets: they have priority over the measured tools, if the rights allow it
/// (setpriority(2)).
pub const MOST_URGENT: i32 = -20;
/// Share of late packets above which a measurement is invalid.
pub const MOST_LATE_SHARE: f64 = 0.01;
/// Ports of the lab's own traffic, one for each entry: above the ports of common servers, below the ephemeral ports.
pub const FIRST_TRAFFIC_PORT: u16 = 29_000;
/// Entries of traffic in one lab: each has a port above [`FIRST_TRAFFIC_PORT`], and a thread or two.
pub const MAX_TRAFFIC: usize = 64;
/// TCP connections of one entry of traffic: a thread each.
pub const MAX_TRAFFIC_FLOWS: u16 = 256;
/// Datagrams sent between two checks of the time and of the end: some 2 ms.
pub const DATAGRAMS_AT_ONCE: usize = 1000;
/// Traffic so far behind loses the datagrams that it has not sent, and the lab reports it. A busy machine costs some
/// time slices of 4 ms.
pub const MOST_TRAFFIC_BEHIND: Duration = Duration::from_millis(200);
/// The default payload of a datagram.
pub const DEFAULT_TRAFFIC_PAYLOAD_BYTES: u64 = 1000;
/// The largest payload of a datagram: one packet of 1500 bytes.
pub const MAX_TRAFFIC_PAYLOAD_BYTES: usize = 1472;
/// Delays kept of one stream of probes: 16 bytes each.
pub const MAX_PROBES_KEPT: usize = 4_000_000;
/// The longest time for the kernel to look at a new IPv6 address; usually below a millisecond.
pub const ADDRESS_LIMIT: Duration = Duration::from_secs(5);

/// An Ethernet header: destination, source, type. The kernel counts it with every packet.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
/// Framing of a packet on the wire: 14 header, 4 check sum, 8 preamble, 12 gap.
pub const WIRE_OVERHEAD_BYTES: u32 = 38;
/// netem and htb must add this to each packet: they already count 14 of the 38 bytes of framing.
pub const NETEM_OVERHEAD_BYTES: u32 = WIRE_OVERHEAD_BYTES - ETHERNET_HEADER_BYTES;
/// Lower effort is sure of this part of the rate that EF and AF leave: 1 %, so that it never starves entirely.
pub const LOWER_EFFORT_PART: u64 = 100;
/// EF waits for at most these bytes: 16 x 1514 are 194 ms at 1 Mbit/s and 2 ms at 100 Mbit/s.
pub const EF_QUEUE_PACKETS: u64 = 16;
/// The longest late timer that a class may catch up with: 12.5 kB at 1 Gbit/s.
pub const HTB_BURST_TIME: Duration = Duration::from_micros(100);

/// A delay differs from the mean by at most so many standard deviations. One of 30,000 would differ by more.
pub const SPREADS_MOST: u32 = 4;

/// netem counts packets, not bytes: a queue gets as many full packets as hold its bytes on the wire. 14 MB at an MTU of
/// 1500 are 14,000,000 / 1538, rounded up, 9103.
pub fn netem_packets(bytes: u64, mtu: u32) -> u32 {
    let packets = bytes.div_ceil(u64::from(mtu + WIRE_OVERHEAD_BYTES));
    u32::try_from(packets).unwrap_or(u32::MAX).max(1)
}

/// Memory of a small system and its programs in a guest kernel.
pub const UML_BASE_BYTES: u64 = 1 << 30;
/// Memory for each byte that queues and links hold: 2 for packets in the kernel, and one in the buffers of each end.
pub const UML_BYTES_PER_BYTE_HELD: u64 = 4;
/// The least memory: with less, ordinary commands fail.
pub const MIN_UML_BYTES: u64 = 2 << 30;
/// The most memory. 100 Gbit/s x 100 ms hold 1.25 GB each way in links and as much in queues: 4 x 5 GB + 1 GiB are 21
/// GB.
pub const MAX_UML_BYTES: u64 = 64 << 30;
/// How often boot checks for output of the guest.
pub const UML_POLL: Duration = Duration::from_millis(10);
/// The time for the keeper of a kernel to kill the kernel and its helpers.
pub const UML_STOP_TIME: Duration = Duration::from_secs(2);
/// Bytes of the kernel's console that an error quotes.
pub const UML_CONSOLE_LINES: usize = 20;
/// The kernel cuts its command line at 2048 bytes (4096 in newer ones).
pub const MAX_UML_COMMAND_LINE_BYTES: usize = 2047;
/// Bytes copied at once between the command and its output file.
pub const UML_OUTPUT_BYTES: usize = 64 << 10;
/// How long the guest waits at the end for late output.
pub const UML_DRAIN_TIME: Duration = Duration::from_secs(2);

/// Readings of one copy: one each second for a day, 24 bytes each.
pub const MAX_INTERVALS: usize = 86_400;
/// The shortest interval; with a shorter one the reading itself would be visible.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(20);

/// Points of one experiment: more than 1000 labs, each with several tools and repetitions, take days.
pub const MAX_POINTS: usize = 1000;
/// Tools in one experiment; a longer legend is unreadable.
pub const MAX_TOOLS: usize = 32;
/// Samples of one tool at one point.
pub const MAX_REPEAT: u32 = 100;
/// The longest time of one sample.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// The longest time that others have the network before a tool: thirty losses of cubic on a full path of 228 ms.
pub const MAX_LEAD: Duration = Duration::from_secs(600);
/// Files of a data set, all in one directory. The list for a tool is then about 10 MB.
pub const MAX_FILES: u32 = 100_000;
/// Bytes of a data set; each sample needs as much again for the copy.
pub const MAX_DATA_BYTES: u64 = 1 << 40;
/// Memory that the data of an experiment must leave to programs, if the data lies in memory.
pub const LEAST_MEMORY_LEFT_BYTES: u64 = 512 << 20;
/// A server that does not listen after this time has failed. The slowest known server takes 2 s.
pub const SERVER_START_MAX: Duration = Duration::from_secs(20);
/// How often to check a server's ports while it starts: 20 s / 20 ms = 1000 checks.
pub const SERVER_LOOK_EVERY: Duration = Duration::from_millis(20);
/// The longest time of a command that prepares a server or a point: making keys, setting a sysctl.
pub const SETUP_MAX: Duration = Duration::from_secs(30);
/// How often a running tool is interrupted to check whether the user has cancelled.
pub const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Passes over all processes that stop a server's descendants before they are killed. Each pass finds the processes
/// made during the one before.
pub const FREEZE_PASSES: usize = 8;
/// Bytes of a tool's output that are kept with a failed sample.
pub const OUTPUT_TAIL_BYTES: u64 = 2000;
/// Bytes of a tool's output in which a rate is searched: iperf3 writes about 1 kB for each stream and second.
pub const OUTPUT_PARSED_BYTES: u64 = 64 << 20;
/// Bytes read at once when files are compared and made.
pub const COMPARE_BLOCK_BYTES: usize = 1 << 20;
/// Directories of results with the same date and host.
pub const MAX_RUNS_PER_DAY: u32 = 1000;
/// Eighths of the guest's memory for TCP: from where it saves, from where it is under pressure, and the most. The last
/// quarter is for programs.
pub const UML_TCP_MEMORY_EIGHTHS: [u64; 3] = [4, 5, 6];
/// Probes of one stream in a guest kernel. Each packet takes up to 100 us of real time: 3 s.
pub const MAX_PROBES_IN_GUEST: u64 = 30_000;
/// The same if the clock stands still meanwhile. A flood of twice 1 Gbit/s fills the 28.5 MB of 228 ms with 37,000
/// packets, and then shows a full queue.
pub const MAX_PROBES_IN_VIRTUAL_TIME: u64 = 60_000;
/// Labs of one grid of calibrations: 64 labs with three engines take an hour in real time.
pub const MAX_CELLS: usize = 64;
/// How often a lab may be measured again until its values are right.
pub const MAX_CALIBRATIONS: u32 = 10;
