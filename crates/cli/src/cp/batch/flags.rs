//! `haul cp --batch`

use std::ffi::OsString;

use clap::{Args, ValueHint};

use crate::flags::headings::WHAT;

/// Many copies in one command.
#[derive(Clone, Debug, Default, Args)]
pub struct BatchFlag {
    /// Run many copies, one a line of FILE: SRC... DST, quoted as in a shell; '#' begins a comment ('-' is standard
    /// input). Copies between the same two ends share one login and its connections. All run, whatever becomes of one
    #[arg(long = "batch", value_name = "FILE", value_hint = ValueHint::FilePath, help_heading = WHAT)]
    #[arg(conflicts_with_all = ["files_from", "manifest_out", "stripe_dir", "detach"])]
    pub batch: Option<OsString>,
}
