//! `haul du`: what files and trees take on their disk.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueHint};
use haul_job::Here;
use haul_transfer::place::{Told, Verb};
use serde::Serialize;

use crate::far_side::flags::Reach;
use crate::far_side::person::say;
use crate::json::line::to_line;
use crate::json::values::{Named, named};
use crate::places::figures;
use crate::places::help::PATHS_HELP;
use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, or_here, run_on};

/// `haul du`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = PATHS_HELP)]
pub struct Du {
    /// What to measure; the current directory without any
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// One line for each PATH, none for the directories beneath
    #[arg(short = 's', long)]
    pub summarize: bool,
    /// Sizes such as 1.5K, 234M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// The sizes of the files, not what they take on the disk
    #[arg(long)]
    pub apparent_size: bool,
    /// The sizes of the files, in bytes
    #[arg(short = 'b', long, conflicts_with = "human_readable")]
    pub bytes: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

pub fn run(typed: &Du) -> ExitCode {
    let asked = Asked { verb: Verb::Usage { each: !typed.summarize }, json: typed.json, reach: &typed.reach };
    run_on(&or_here(&typed.paths), asked, &mut Usage { typed, at: Whereabouts::default(), noted: None }, FAILED)
}

struct Usage<'a> {
    typed: &'a Du,
    at: Whereabouts,
    /// The user knows that this end tells sizes alone.
    noted: Option<Here>,
}

impl Printer for Usage<'_> {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Usage { path, blocks, apparent_bytes } = told else { return ControlFlow::Continue(()) };
        let asks_for_sizes = self.typed.apparent_size || self.typed.bytes;
        // Without haul, a server cannot tell what files take.
        let disk_bytes = self.at.elsewhere.is_none().then(|| blocks.saturating_mul(512));
        if self.typed.json {
            let path = named(&self.at.path(path.as_bytes()));
            let line = UsageLine { place: self.at.place_name(), path, disk_bytes, apparent_bytes };
            return paper.put(to_line(&line).as_bytes());
        }
        if let Some(end) = self.at.elsewhere.as_ref().filter(|end| !asks_for_sizes && self.noted.as_ref() != Some(*end))
        {
            say(&format!("note: {end} does not tell what files take on its disk: these are their sizes"));
            self.noted = Some(end.clone());
        }
        let bytes = disk_bytes.filter(|_| !asks_for_sizes).unwrap_or(apparent_bytes);
        let size = match (self.typed.human_readable, self.typed.bytes) {
            (true, _) => figures::human(bytes),
            (false, true) => bytes.to_string(),
            (false, false) => figures::kib(bytes).to_string(),
        };
        let name = shown(&self.at.full(path.as_bytes()), paper.at_terminal);
        paper.line(&[size.as_bytes(), b"\t", &name].concat())
    }
}

#[derive(Serialize)]
struct UsageLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    path: Named,
    #[serde(skip_serializing_if = "Option::is_none")]
    disk_bytes: Option<u64>,
    apparent_bytes: u64,
}
