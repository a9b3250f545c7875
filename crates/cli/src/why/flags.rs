//! The flags of `haul why`.

use clap::Args;

/// `haul why`
#[derive(Debug, Args)]
#[command(after_help = WHY_HELP)]
pub struct Why {
    /// Which report: 1 is that of the last copy, 2 the one before
    #[arg(value_name = "N", default_value = "1", value_parser = clap::value_parser!(u16).range(1..))]
    pub nth: u16,
    /// List the reports that are kept, with their numbers
    #[arg(long, conflicts_with = "nth")]
    pub list: bool,
    /// The report as JSON, as docs/use/json.md describes it
    #[arg(long)]
    pub json: bool,
}

const WHY_HELP: &str = "\
Each 'haul cp' except a dry run keeps its report, also after a failure or an
interruption: the last 20 are in $XDG_STATE_HOME/haul (~/.local/state/haul),
readable by you alone. Reports hold names of files and hosts, but neither keys
nor passwords.";
