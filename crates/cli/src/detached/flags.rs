//! The flags of commands for detached copies.

use clap::Args;
use haul_job::timetable::{Timetable, parse_timetable};

/// `haul status`
#[derive(Debug, Args)]
pub struct Status {
    /// These copies alone
    #[arg(value_name = "ID")]
    pub ids: Vec<u32>,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `haul stop`
#[derive(Debug, Args)]
#[command(
    after_help = "The same 'haul cp' command goes on where it stopped.\nA second 'haul stop' ends the copy at once."
)]
pub struct Stop {
    /// The copy, as 'haul status' numbers it
    #[arg(value_name = "ID")]
    pub id: u32,
}

/// `haul wait`
#[derive(Debug, Args)]
#[command(after_help = "An interrupted 'haul wait' leaves the copies alone.

EXIT STATUS
  That of the first copy that failed; 0 if none did.")]
pub struct Wait {
    /// The copies, as 'haul status' numbers them [default: all that go on now]
    #[arg(value_name = "ID")]
    pub ids: Vec<u32>,
    /// One JSON object on standard output, as of 'haul status --json'
    #[arg(long)]
    pub json: bool,
}

/// `haul rate`
#[derive(Debug, Args)]
#[command(
    after_help = "The copy goes on with it within a second or two, also after it broke off.\nThe time of day is that of this host."
)]
pub struct Rate {
    /// The copy, as 'haul status' numbers it
    #[arg(value_name = "ID")]
    pub id: u32,
    /// At most this rate, as of 'haul cp --rate': 200Mbit, none, "08:00-18:00 200Mbit, else 5Gbit" [default: show it]
    #[arg(value_name = "RATE", value_parser = parse_timetable, allow_hyphen_values = true)]
    pub rate: Option<Timetable>,
    /// One JSON object on standard output
    #[arg(long)]
    pub json: bool,
}

/// `haul log`
#[derive(Debug, Args)]
pub struct Log {
    /// Go on with what it says, until the copy ends
    #[arg(short, long)]
    pub follow: bool,
    /// The copy, as 'haul status' numbers it
    #[arg(value_name = "ID")]
    pub id: u32,
}
