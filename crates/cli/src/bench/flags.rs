//! Flags of `haul bench`; the letters are those of iperf3.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};
use haul_job::rate;
use haul_pump::{ReceiveRoute, SendRoute};
use haul_workbench::bench::{BLOCK_BYTES_MAX, BLOCK_BYTES_MIN, LANES_MAX};

use crate::flags::values::{CipherName, interval, named_value, send_route, whole};

/// `haul bench`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Bench {
    /// The source of the bytes: 'zero', 'memory' (noise, as much as --size), or a file
    #[arg(long, value_name = "zero|memory|FILE", default_value = "zero", value_hint = ValueHint::FilePath)]
    pub source: OsString,
    /// The sink of the bytes: 'discard', 'memory', or a directory. The file in the directory has no name, and is gone
    /// at the end
    #[arg(long, value_name = "discard|memory|DIR", default_value = "discard", value_hint = ValueHint::DirPath)]
    pub sink: OsString,
    /// How it is sent: sendfile, splice, uring-splice, mmap, copy, uring-copy; without this flag, the cheapest way
    #[arg(long, value_name = "NAME", value_parser = send_route, conflicts_with = "zero_copy")]
    pub route: Option<SendRoute>,
    /// How it is received: splice, direct, copy; for 'discard': discard, null, copy; without this flag, the cheapest
    /// way
    #[arg(long, value_name = "NAME", value_parser = receive_route)]
    pub receive_route: Option<ReceiveRoute>,
    /// The same as --route sendfile
    #[arg(short = 'Z', long = "zerocopy")]
    pub zero_copy: bool,
    /// Bytes in one call: 4K to 64M
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "256K", value_parser = block)]
    pub length: usize,
    /// Offset of the next block: always the same, or behind the last block
    #[arg(long, value_name = "WHERE", default_value = "moving")]
    pub offset: WhichOffset,
    /// Connections, each with a thread at either end: 1 to 256
    #[arg(short = 'P', long = "lanes", visible_alias = "parallel", value_name = "N", default_value = "1")]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=i64::from(LANES_MAX)))]
    pub lanes: u16,
    /// Cipher of the connections
    #[arg(long, value_name = "NAME", default_value = "none")]
    pub cipher: CipherName,
    /// Hash each chunk at both ends (BLAKE3) and compare
    #[arg(long)]
    pub verify: bool,
    /// End after so many seconds: 1 to 86400; 10 without -n
    #[arg(short = 't', long, value_name = "SECONDS", value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub time: Option<u32>,
    /// End after so many bytes, such as 10G, rounded up to whole chunks of 4M
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = rate::parse_size, conflicts_with = "time")]
    pub bytes: Option<u64>,
    /// Seconds between two lines: 0.1 to 60
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// The accepting end sends
    #[arg(short = 'R', long)]
    pub reverse: bool,
    /// Congestion control; without it cubic or reno, as for a copy inside this host
    #[arg(short = 'C', long = "cc", visible_alias = "congestion", value_name = "NAME")]
    #[arg(value_parser = crate::flags::values::parse_congestion_control)]
    pub cc: Option<String>,
    /// Bind the sending threads to processor N, the receiving threads to M
    #[arg(short = 'A', long, value_name = "N,M", value_parser = processors)]
    pub affinity: Option<(usize, usize)>,
    /// Size of a source or sink in memory; a timed run to a disk writes a file of this size again and again
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = rate::parse_size)]
    pub size: u64,
    /// Drop the source file from the page cache first
    #[arg(long)]
    pub cold: bool,
    /// Measure only the disk below DIR: past the page cache, several blocks at once (at most -n, or 1G, and -t, or 3 s,
    /// each way)
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    #[arg(conflicts_with_all = OF_A_RUN, conflicts_with_all = ["memory", "lanes"])]
    pub disk: Option<PathBuf>,
    /// Measure only copying from memory to memory, with -P threads (for -t, or 3 s)
    #[arg(long, conflicts_with_all = OF_A_RUN, conflicts_with = "bytes")]
    pub memory: bool,
    /// One JSON object on standard output, as docs/use/json.md describes it
    #[arg(short = 'J', long)]
    pub json: bool,
}

/// `--offset`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum WhichOffset {
    Fixed,
    Moving,
}

/// Flags without meaning for the disk or memory alone.
const OF_A_RUN: [&str; 15] = [
    "source",
    "sink",
    "route",
    "receive_route",
    "zero_copy",
    "length",
    "offset",
    "cipher",
    "verify",
    "interval",
    "reverse",
    "cc",
    "affinity",
    "size",
    "cold",
];

const HELP: &str = "\
Both ends are this host, over loopback, with the connections, ciphers and
routes of a copy. A line each second shows the received bytes; the end shows
the processor time of each side for 10^9 bytes. 'haul probe' measures the path
to another host.

EXAMPLES
  haul bench                                    zeros to nowhere: the most
  haul bench --source FILE --sink DIR --verify  a file to a disk, hashed
  haul bench --source FILE --route copy -A 0,1  a processor for each side
  haul bench --disk DIR; haul bench --memory    disk and memory alone";

fn receive_route(text: &str) -> Result<ReceiveRoute, String> {
    named_value(&ReceiveRoute::ALL, text)
}

fn block(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(rate::parse_size(text)?).unwrap_or(usize::MAX);
    if (BLOCK_BYTES_MIN..=BLOCK_BYTES_MAX).contains(&bytes) { Ok(bytes) } else { Err("from 4K to 64M".to_owned()) }
}

fn processors(text: &str) -> Result<(usize, usize), String> {
    let number = |text: &str| whole(text).and_then(|n| usize::try_from(n).ok());
    let pair = text.split_once(',').and_then(|(sender, receiver)| Some((number(sender)?, number(receiver)?)));
    pair.ok_or_else(|| "two numbers of processors, such as 0,1".to_owned())
}
