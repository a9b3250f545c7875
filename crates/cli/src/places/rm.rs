//! `haul rm`: removes files and trees.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_transfer::place::Verb;

use crate::far_side::flags::Reach;
use crate::places::changes::Changes;
use crate::places::help::PATHS_HELP;
use crate::places::question::{Asked, FAILED, run_on};

/// `haul rm`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Rm {
    /// What to remove
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Directories too, with all that lies in them. Links in them are removed, not followed
    #[arg(short = 'r', visible_short_alias = 'R', long)]
    pub recursive: bool,
    /// Say nothing about what does not exist
    #[arg(short = 'f', long)]
    pub force: bool,
    /// Only name what would be removed
    #[arg(short = 'n', long)]
    pub dry_run: bool,
    /// Name each entry that was removed
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

pub fn run(typed: &Rm) -> ExitCode {
    let verb = Verb::Remove { trees: typed.recursive, force: typed.force, dry_run: typed.dry_run };
    let asked = Asked { verb, json: false, reach: &typed.reach };
    run_on(&typed.paths, asked, &mut Changes::new(typed.verbose, typed.dry_run), FAILED)
}
