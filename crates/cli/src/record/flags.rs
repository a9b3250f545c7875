//! Flags of `haul record`.

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Args, ValueHint};
use haul_job::rate;
use haul_workbench::record::{BUFFER_BYTES_MAX, BUFFER_BYTES_UNIT, BUFFERS_MAX};

use crate::flags::values::interval;

/// `haul record`
#[derive(Debug, Args)]
#[command(after_help = HELP)]
pub struct Record {
    /// The file to record to; it must not be there yet
    #[arg(value_name = "FILE", value_hint = ValueHint::FilePath)]
    pub file: PathBuf,
    /// Record the first TCP connection to this address instead of standard input; the connection is not encrypted, and
    /// anybody who reaches the address can make it
    #[arg(long, value_name = "ADDR:PORT")]
    pub listen: Option<SocketAddr>,
    /// Stripe the recording over directories, one buffer each in turn; name one directory for each disk. FILE is then
    /// not written: FILE.stripes is the index, and 'haul cp --stripe-dir DIR... stripes:FILE.stripes DST' reads the
    /// recording as one file
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub stripe_dir: Vec<PathBuf>,
    /// Reserve this much space first
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = rate::parse_size)]
    pub reserve: u64,
    /// End after so many bytes; without this flag, with the stream
    #[arg(short = 'n', long, value_name = "SIZE", value_parser = rate::parse_size)]
    pub bytes: Option<u64>,
    /// Buffers between stream and disk: 2 to 1024
    #[arg(long, value_name = "N", default_value = "64")]
    #[arg(value_parser = clap::value_parser!(u16).range(2..=BUFFERS_MAX as i64))]
    pub buffers: u16,
    /// Size of each buffer: a multiple of 64K up to 64M
    #[arg(short = 'l', long, value_name = "SIZE", default_value = "4M", value_parser = buffer)]
    pub length: usize,
    /// Seconds between two lines: 0.1 to 60
    #[arg(short = 'i', long, value_name = "SECONDS", default_value = "1", value_parser = interval)]
    pub interval: f64,
    /// One JSON object on standard output, as docs/use/json.md describes it
    #[arg(short = 'J', long)]
    pub json: bool,
}

fn buffer(text: &str) -> Result<usize, String> {
    let bytes = usize::try_from(rate::parse_size(text)?).unwrap_or(usize::MAX);
    let fits = bytes > 0 && bytes <= BUFFER_BYTES_MAX && bytes.is_multiple_of(BUFFER_BYTES_UNIT);
    if fits { Ok(bytes) } else { Err("a multiple of 64K up to 64M".to_owned()) }
}

const HELP: &str = "\
The buffers bridge pauses of the disk: 64 buffers of 4 MiB carry 300 MB/s over
a pause of 0.9 s. When no buffer is free, the stream is held up: that is an
overrun. Overruns are counted, and the exit status is then 23. The recording is
still whole if the stream could wait; otherwise data is missing.

A striped recording is hashed as it comes, which takes a sixth of a second of
processor time for 1 GB. haul cp compares the hash, also when it copies to
null:. Flushed data is entered into FILE.stripes every two seconds, so that
much of an interrupted recording can be read. A failed flush is reported at
once, and the recording goes on. But the exit status is then 11: the disk may
have lost some of the data.

EXAMPLES
  haul record --listen 10.0.0.1:5000 --reserve 100G scan.vdif
  instrument | haul record -n 10G scan.vdif
  instrument | haul record \\
      --stripe-dir /disk1 --stripe-dir /disk2 scan.vdif
  haul cp --stripe-dir /disk1 --stripe-dir /disk2 \\
      stripes:scan.vdif.stripes host-b:/data/";
