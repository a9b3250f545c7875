//! `haul mv`: renames files and directories on one host.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_job::{Error, Fault};
use haul_transfer::place::Verb;

use crate::far_side::endpoint::one_host;
use crate::far_side::flags::Reach;
use crate::places::changes::Changes;
use crate::places::help::PATHS_HELP;
use crate::places::question::{Asked, FAILED, run_on};
use crate::process::ending;

/// `haul mv`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP, override_usage = "haul mv [OPTIONS] PATH... NEW")]
pub struct Mv {
    /// What to move, then its new name or the directory to move it into; all at one place
    #[arg(value_name = "PATH", required = true, num_args = 2.., value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Leave what has the new name already; without this flag a file there is replaced, as mv does it
    #[arg(short = 'n', long)]
    pub no_clobber: bool,
    /// Replace what has the new name; always so
    #[arg(short = 'f', long, hide = true, conflicts_with = "no_clobber")]
    pub force: bool,
    /// Name each entry that was moved
    #[arg(short = 'v', long)]
    pub verbose: bool,
    #[command(flatten)]
    pub reach: Reach,
}

pub fn run(typed: &Mv) -> ExitCode {
    match new_name(&typed.paths) {
        Ok((paths, to)) => {
            let verb = Verb::Move { to, keep: typed.no_clobber };
            let asked = Asked { verb, json: false, reach: &typed.reach };
            run_on(paths, asked, &mut Changes::new(typed.verbose, false), FAILED)
        }
        Err(error) => ending::failed(&error, false),
    }
}

fn new_name(paths: &[OsString]) -> Result<(&[OsString], Vec<u8>), Error> {
    let (to, from) = paths.split_last().expect("clap asks for two");
    let to = one_host(to)?;
    for path in from {
        let place = one_host(path)?.place;
        if place != to.place {
            let what = format!("mv gives new names on one host, and these are on two: {place}, {}", to.place);
            return Err(Error::new(Fault::Usage, what).try_this("haul cp copies; then haul rm -r the source"));
        }
    }
    Ok((from, to.path))
}
