//! Flags of `haul tune`.

use std::path::PathBuf;

use clap::{Args, ValueEnum, ValueHint};

use haul_job::rate;

/// `haul tune`
#[derive(Debug, Args)]
#[command(after_help = TUNE_HELP)]
pub struct Tune {
    /// The rate to reach, with its unit: 10Gbit, 500MB; without this flag, the rate of the fastest device that is up,
    /// or 10Gbit
    #[arg(long, value_name = "RATE", value_parser = rate::parse_rate, allow_hyphen_values = true)]
    pub rate: Option<u64>,
    /// The round trip to the far side, with its unit, as ping shows it: 228ms, 1.5s, 80us; 100ms without this flag
    #[arg(long, value_name = "TIME", value_parser = rate::parse_rtt_us, allow_hyphen_values = true)]
    pub rtt: Option<u64>,
    /// Also measure the disk of DIR: at most 1 GiB and 3 s each way, in a file without a name
    #[arg(long, value_name = "DIR", value_hint = ValueHint::DirPath)]
    pub disk: Option<PathBuf>,
    /// For people, as commands, or as a file for /etc/sysctl.d
    #[arg(long, value_name = "FORMAT", default_value = "table")]
    pub format: TuneFormat,
    /// One JSON object on standard output
    #[arg(long, conflicts_with = "format")]
    pub json: bool,
    /// Apply the advice, now and for each start, all or nothing (root only)
    #[arg(long, conflicts_with = "format")]
    pub apply: bool,
    /// Restore the values from before --apply (root only)
    #[arg(long, conflicts_with_all = ["apply", "format", "rate", "rtt", "disk"])]
    pub revert: bool,
}

/// The output formats of `haul tune`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum TuneFormat {
    Table,
    Commands,
    Sysctl,
}

const TUNE_HELP: &str = "\
Run it at both ends of a path: each end sends with its own buffers and receives
with its own. --apply sets the values in the kernel and keeps them in
/etc/sysctl.d/90-haul.conf; the earlier values are saved in
/var/lib/haul/tune-before.toml until --revert. Commands for devices and
processors are only shown, for you to judge. Without root: haul tune --format
sysctl.";
