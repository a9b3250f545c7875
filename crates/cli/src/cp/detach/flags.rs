//! Flags for copies that go on without their user.

use clap::Args;

use crate::flags::headings::SAID;

/// Flags of `haul cp`.
#[derive(Clone, Debug, Args)]
pub struct GoesOn {
    /// Go on when the terminal closes. 'haul status' shows the copy, 'haul stop' ends it, 'haul log' has what it said
    #[arg(long, conflicts_with = "dry_run", help_heading = SAID)]
    pub detach: bool,
    /// Run COMMAND at the end, with the report as JSON on its standard input. Words are split at spaces, and quotes hold
    /// them together; no shell reads it. It has one minute, and its failure changes nothing
    #[arg(long, value_name = "COMMAND", help_heading = SAID)]
    pub notify: Option<String>,
    /// Carry out the copy of this record; the other half of --detach
    #[arg(long, value_name = "ID", hide = true)]
    pub detached_as: Option<u32>,
}
