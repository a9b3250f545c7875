//! `haul mkdir`: makes directories.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_transfer::place::Verb;

use crate::far_side::flags::Reach;
use crate::places::changes::Changes;
use crate::places::help::PATHS_HELP;
use crate::places::question::{Asked, FAILED, run_on};

/// `haul mkdir`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Mkdir {
    /// Directories to make
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Also the directories above; one that exists is fine
    #[arg(short = 'p', long)]
    pub parents: bool,
    /// Name each directory that was made
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

pub fn run(typed: &Mkdir) -> ExitCode {
    let asked = Asked { verb: Verb::Make { parents: typed.parents }, json: false, reach: &typed.reach };
    run_on(&typed.paths, asked, &mut Changes::new(typed.verbose, false), FAILED)
}
