//! Every limit of the lab, with its arithmetic.

use std::time::Duration;

/// Hosts in one lab. Each costs a namespace and a thread; the addresses would allow 250.
pub const MAX_HOSTS: usize = 64;
/// Links and segments in one lab: the second byte of their addresses.
pub const MAX_LINKS: usize = 128;
/// Hosts on one segment: the fourth byte of their addresses.
pub const MAX_HOSTS_PER_SEGMENT: usize = 64;
/// Bytes of a host's name, so that it fits into any message and file name.
pub const MAX_NAME_BYTES: usize = 32;
/// IPv6 needs 1280, IPv4 576; TCP over less is no sensible experiment.
pub const MIN_MTU: u32 = 576;
/// The largest IP packet is 65,535 bytes; with its Ethernet header it must stay below 64 KiB in the device.
pub const MAX_MTU: u32 = 65_521;
/// One way; the Moon is at 1.3 s.
pub const MAX_DELAY: Duration = Duration::from_secs(30);
/// A queue at one end of a link. 1 GiB is 860 ms at 10 Gbit/s.
pub const MAX_QUEUE_BYTES: u64 = 1 << 30;
/// A queue without a given size holds at least what the link carries in this time, as home and campus routers do.
pub const DEFAULT_QUEUE_TIME: Duration = Duration::from_millis(100);
/// Without a rate nothing waits; what is in flight is bounded by this.
pub const UNLIMITED_LINK_QUEUE_BYTES: u64 = 256 << 20;
/// Above this rate segments pass whole unless the topology says otherwise: one packet of 1500 bytes every 12 us is about
/// what one processor reads, queues and writes.
pub const LARGE_SEGMENTS_FROM_BITS_PER_S: u64 = 2_000_000_000;

/// Points of one experiment: more than 1000 labs, each with several tools and repetitions, take days.
pub const MAX_POINTS: usize = 1000;
/// Tools in one experiment; a legend of more is unreadable.
pub const MAX_TOOLS: usize = 32;
/// Samples of one tool at one point.
pub const MAX_REPEAT: u32 = 100;
/// How long one sample may take.
pub const MAX_TIMEOUT: Duration = Duration::from_secs(24 * 3600);
/// Files of a data set, all in one directory; the list for a tool is then about 10 MB.
pub const MAX_FILES: u32 = 100_000;
/// Bytes of a data set; each sample needs as much again for the copy.
pub const MAX_DATA_BYTES: u64 = 1 << 40;
/// A server that does not listen after this long has failed. The slowest known one takes 2 s.
pub const SERVER_START_MAX: Duration = Duration::from_secs(20);
/// How often a server's ports are looked at while it starts: 20 s / 20 ms = 1000 looks.
pub const SERVER_LOOK_EVERY: Duration = Duration::from_millis(20);
/// A command that prepares a server or a point: making keys, setting a sysctl.
pub const SETUP_MAX: Duration = Duration::from_secs(30);
/// How often a running tool is interrupted by the question whether the user has had enough.
pub const CANCEL_LOOK_EVERY: Duration = Duration::from_millis(200);
/// Passes over all processes that stop the descendants of a server before they are killed. Each pass finds those that were
/// made during the one before; a stopped process makes none.
pub const FREEZE_PASSES: usize = 8;
/// Bytes of a tool's output that are kept with a failed sample.
pub const OUTPUT_TAIL_BYTES: u64 = 2000;
/// Bytes of a tool's output that a rate is looked for in: iperf3 writes about 1 kB for each stream and second.
pub const OUTPUT_PARSED_BYTES: u64 = 64 << 20;
/// Bytes read at a time when files are compared and made.
pub const COMPARE_BLOCK_BYTES: usize = 1 << 20;
/// Directories of results with the same date and host.
pub const MAX_RUNS_PER_DAY: u32 = 1000;
