//! The flags of `haul probe`.

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::far_side::flags::{Connections, Reach};
use crate::flags::headings::SAID;

/// `haul probe`
#[derive(Debug, Args)]
#[command(after_help = PROBE_HELP, override_usage = "haul probe [OPTIONS] HOST")]
pub struct Probe {
    /// The far side: [USER@]HOST, ssh://[USER@]HOST[:PORT] or haul://HOST[:PORT]
    #[arg(value_name = "HOST", value_hint = ValueHint::Hostname)]
    pub host: OsString,
    /// Send this long each way: 1 to 60
    #[arg(long, value_name = "SECONDS", default_value = "5", value_parser = clap::value_parser!(u16).range(1..=60))]
    #[arg(allow_hyphen_values = true)]
    pub time: u16,
    /// Measure each service class in turn (background, normal, priority), and whether its mark arrives; three times as
    /// long, with a login for each
    #[arg(long)]
    pub classes: bool,
    #[command(flatten)]
    pub connections: Connections,
    #[command(flatten)]
    pub reach: Reach,
    /// One JSON object on standard output
    #[arg(long, help_heading = SAID)]
    pub json: bool,
    /// Say nothing on standard error but errors
    #[arg(short = 'q', long, help_heading = SAID)]
    pub quiet: bool,
}

const PROBE_HELP: &str = "\
Both ends send meaningless data, one after the other, as fast as a copy would,
and throw away the received data. Others on the path notice it like a copy.
Nothing is written to a disk at either end. A daemon allows this to every key
of its list, also to a read-only key.";
