//! Every limit of the lab, with its arithmetic.

use std::time::Duration;

/// Each costs a namespace and a thread; addresses would allow 250.
pub const MAX_HOSTS: usize = 64;
/// The second byte of their addresses.
pub const MAX_LINKS: usize = 128;
/// The fourth byte of their addresses.
pub const MAX_HOSTS_PER_SEGMENT: usize = 64;
/// A name must fit into any message and file name.
pub const MAX_NAME_BYTES: usize = 32;
/// IPv6 needs 1280, IPv4 576. TCP with less is no sensible experiment.
pub const MIN_MTU: u32 = 576;
/// The largest IP packet has 65,535 bytes; with its Ethernet header it must fit 64 KiB.
pub const MAX_MTU: u32 = 65_521;
/// One way; the Moon is at 1.3 s.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// A queue of 1 GiB is 860 ms at 10 Gbit/s.
pub const MAX_QUEUE_BYTES: u64 = 1 << 30;
/// A default queue holds at least the bytes of this time, as in home and campus routers.
pub const DEFAULT_QUEUE_TIME: Duration = Duration::from_millis(100);
/// Limits the bytes in flight of a link without rate and queue.
pub const UNLIMITED_LINK_QUEUE_BYTES: u64 = 256 << 20;
/// Segments pass whole above this rate by default: one processor hardly carries 1500 bytes each 6 us.
pub const LARGE_SEGMENTS_FROM_BITS_PER_S: u64 = 2_000_000_000;
/// Packets cost memory, too. 2^20 of 1500 bytes are 12.9 s at 1 Gbit/s, more than [`MAX_QUEUE_BYTES`].
pub const MAX_WAITING_PACKETS: usize = 1 << 20;
/// Each direction: 3.5 s of 300,000 packets a second, about the most of one processor.
pub const MAX_IN_FLIGHT_PACKETS: usize = 1 << 20;
/// Each direction: 1 GiB is 860 ms one way at 10 Gbit/s.
pub const MAX_IN_FLIGHT_BYTES: u64 = 1 << 30;
/// Each has an equal part of the queue.
pub const DIFFSERV_QUEUES: u64 = 4;
/// A TCP flow marked EF needs a burst of a round trip. At half of the link, others wait at most 25 ms for it.
pub const EF_BURST_TIME: Duration = Duration::from_millis(50);
/// Default delay for reordering: 12 packets of 1500 bytes pass at 150 Mbit/s, 81 at 1 Gbit/s.
pub const DEFAULT_REORDER_TIME: Duration = Duration::from_millis(1);
/// Collisions after which Ethernet drops a frame (IEEE 802.3, attemptLimit).
pub const MAX_ATTEMPTS_ON_SEGMENT: u32 = 16;
/// Collisions after which the pause's range stops doubling: 1023 slots, 52 ms at 10 Mbit/s (IEEE 802.3, backoffLimit).
pub const MAX_BACKOFF_DOUBLINGS: u32 = 10;
/// 240 ms at 1 Gbit/s. An emulator further behind is short of processor time.
pub const DEVICE_QUEUE_PACKETS: u32 = 20_000;
/// The largest packet and its headers.
pub const DEVICE_READ_BYTES: usize = 68 * 1024;
/// Packets read before sending: 64 x 12 us at 1 Gbit/s is 0.8 ms of link time, read in a tenth.
pub const FRAMES_AT_ONCE: usize = 64;
/// Enough for 100 ms at 1 Gbit/s.
pub const SPARE_BUFFERS: usize = 8192;
/// A later packet counts as late. Another process's time slice (4 ms at HZ=250) may delay some.
pub const LATE: Duration = Duration::from_millis(1);
/// Threads that carry packets go before the tools, if rights allow (setpriority(2)).
pub const MOST_URGENT: i32 = -20;
/// Share of late packets that makes a measurement invalid.
pub const MOST_LATE_SHARE: f64 = 0.01;
/// Above common servers' ports, below the ephemeral ones.
pub const FIRST_TRAFFIC_PORT: u16 = 29_000;
/// Each has a port above [`FIRST_TRAFFIC_PORT`], and a thread or two.
pub const MAX_TRAFFIC: usize = 64;
/// TCP connections of one entry, a thread each.
pub const MAX_TRAFFIC_FLOWS: u16 = 256;
/// Datagrams between two checks of time and end: some 2 ms.
pub const DATAGRAMS_AT_ONCE: usize = 1000;
/// Traffic further behind loses datagrams. A busy machine costs slices of 4 ms.
pub const MOST_TRAFFIC_BEHIND: Duration = Duration::from_millis(200);
/// Payload of a datagram by default.
pub const DEFAULT_TRAFFIC_PAYLOAD_BYTES: u64 = 1000;
/// One packet of 1500 bytes.
pub const MAX_TRAFFIC_PAYLOAD_BYTES: usize = 1472;
/// Delays kept of one stream, 16 bytes each.
pub const MAX_PROBES_KEPT: usize = 4_000_000;
/// The kernel usually looks at an IPv6 address within a millisecond.
pub const ADDRESS_LIMIT: Duration = Duration::from_secs(5);

/// Destination, source and type, counted by the kernel with every packet.
pub const ETHERNET_HEADER_BYTES: u32 = 14;
/// Framing on the wire: 14 header, 4 check sum, 8 preamble, 12 gap.
pub const WIRE_OVERHEAD_BYTES: u32 = 38;
/// netem and htb already count 14 of the 38 bytes.
pub const NETEM_OVERHEAD_BYTES: u32 = WIRE_OVERHEAD_BYTES - ETHERNET_HEADER_BYTES;
/// Lower effort surely gets 1 % of what EF and AF leave, so it never starves entirely.
pub const LOWER_EFFORT_PART: u64 = 100;
/// 16 x 1514 bytes are 194 ms at 1 Mbit/s and 2 ms at 100 Mbit/s.
pub const EF_QUEUE_PACKETS: u64 = 16;
/// The lateness that a class may catch up with: 12.5 kB at 1 Gbit/s.
pub const HTB_BURST_TIME: Duration = Duration::from_micros(100);

/// Standard deviations of a delay; one of 30,000 would differ by more.
pub const SPREADS_MOST: u32 = 4;

/// Full packets that hold these wire bytes, for netem. 14 MB at an MTU of 1500: 14,000,000 / 1538, rounded up, 9103.
pub fn netem_packets(bytes: u64, mtu: u32) -> u32 {
    let packets = bytes.div_ceil(u64::from(mtu + WIRE_OVERHEAD_BYTES));
    u32::try_from(packets).unwrap_or(u32::MAX).max(1)
}

/// Memory of a small system in a guest kernel.
pub const UML_BASE_BYTES: u64 = 1 << 30;
/// Memory for each byte held: 2 for packets in the kernel, one in each end's buffers.
pub const UML_BYTES_PER_BYTE_HELD: u64 = 4;
/// With less, ordinary commands fail.
pub const MIN_UML_BYTES: u64 = 2 << 30;
/// 100 Gbit/s x 100 ms hold 1.25 GB each way in links and as much in queues: 4 x 5 GB + 1 GiB are 21 GB.
pub const MAX_UML_BYTES: u64 = 64 << 30;
/// How often boot checks the guest's output.
pub const UML_POLL: Duration = Duration::from_millis(10);
/// Time to kill the kernel and its helpers.
pub const UML_STOP_TIME: Duration = Duration::from_secs(2);
/// Console lines that an error quotes.
pub const UML_CONSOLE_LINES: usize = 20;
/// The kernel cuts its command line at 2048 bytes (newer: 4096).
pub const MAX_UML_COMMAND_LINE_BYTES: usize = 2047;
/// Bytes copied at once to the output file.
pub const UML_OUTPUT_BYTES: usize = 64 << 10;
/// How long the guest waits for late output.
pub const UML_DRAIN_TIME: Duration = Duration::from_secs(2);

/// One each second for a day, 24 bytes each.
pub const MAX_INTERVALS: usize = 86_400;
/// Shorter intervals would show the reading itself.
pub const LEAST_INTERVAL: Duration = Duration::from_millis(20);

/// 1000 labs with several tools and repetitions take days.
pub const MAX_POINTS: usize = 1000;
/// A longer legend is unreadable.
pub const MAX_TOOLS: usize = 32;
/// Samples of one tool at one point.
pub const MAX_REPEAT: u32 = 100;
/// The longest sample.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Thirty losses of cubic on a full path of 228 ms.
pub const MAX_LEAD: Duration = Duration::from_secs(600);
/// One directory; the list for a tool is about 10 MB.
pub const MAX_FILES: u32 = 100_000;
/// Each sample needs as much again for the copy.
pub const MAX_DATA_BYTES: u64 = 1 << 40;
/// Memory left to programs, if the data lies in memory.
pub const LEAST_MEMORY_LEFT_BYTES: u64 = 512 << 20;
/// The slowest known server takes 2 s to listen.
pub const SERVER_START_MAX: Duration = Duration::from_secs(20);
/// Checks of a starting server's ports: 20 s / 20 ms = 1000.
pub const SERVER_LOOK_EVERY: Duration = Duration::from_millis(20);
/// Time for a preparing command: making keys, setting a sysctl.
pub const SETUP_MAX: Duration = Duration::from_secs(30);
/// How often a running tool's wait checks for the user's end.
pub const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Passes that stop a server's descendants before killing, each for those made during the last.
pub const FREEZE_PASSES: usize = 8;
/// Output kept with a failed sample.
pub const OUTPUT_TAIL_BYTES: u64 = 2000;
/// Output searched for a rate: iperf3 writes about 1 kB for each stream and second.
pub const OUTPUT_PARSED_BYTES: u64 = 64 << 20;
/// Bytes read at once in making and comparing files.
pub const COMPARE_BLOCK_BYTES: usize = 1 << 20;
/// Directories of results with one date and host.
pub const MAX_RUNS_PER_DAY: u32 = 1000;
/// The guest's memory for TCP: saving, pressure, the most. The last quarter is for programs.
pub const UML_TCP_MEMORY_EIGHTHS: [u64; 3] = [4, 5, 6];
/// Probes of one stream: up to 100 us of real time each, 3 s.
pub const MAX_PROBES_IN_GUEST: u64 = 30_000;
/// Probes while the clock stands still. Twice 1 Gbit/s fill the 28.5 MB of 228 ms with 37,000 packets.
pub const MAX_PROBES_IN_VIRTUAL_TIME: u64 = 60_000;
/// 64 labs with three engines take an hour in real time.
pub const MAX_CELLS: usize = 64;
/// Measurements of a lab until its values are right.
pub const MAX_CALIBRATIONS: u32 = 10;
