//! `haul cat`: writes files to standard output.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_transfer::place::{Told, Verb};

use crate::far_side::flags::Reach;
use crate::places::help::PATHS_HELP;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, run_on};

/// `haul cat`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Cat {
    /// Files to write, one after the other
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    #[command(flatten)]
    pub reach: Reach,
}

pub fn run(typed: &Cat) -> ExitCode {
    let asked = Asked { verb: Verb::Read, json: false, reach: &typed.reach };
    run_on(&typed.paths, asked, &mut Contents::default(), FAILED)
}

#[derive(Default)]
struct Contents {
    at: Whereabouts,
}

impl Printer for Contents {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, _told: Told, _paper: &mut Paper) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
