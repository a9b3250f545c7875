//! `haul clean`: what copies that died have left.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, ValueHint};
use haul_transfer::place::{Told, Verb};
use serde::Serialize;

use crate::far_side::flags::Reach;
use crate::json::line::to_line;
use crate::json::values::{Named, named};
use crate::places::figures;
use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, run_on};

/// `haul clean`
#[derive(Debug, Args)]
#[command(after_help = CLEAN_HELP)]
pub struct Clean {
    /// Directories to look through, with all beneath them
    #[arg(value_name = "DIR", required = true, value_hint = ValueHint::DirPath)]
    pub paths: Vec<OsString>,
    /// Remove what is found
    #[arg(short = 'f', long)]
    pub delete: bool,
    /// In a store also uploads of anybody, if they began this long ago: 1d or more
    #[arg(long, value_name = "AGE", value_parser = age)]
    pub older: Option<Duration>,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

const CLEAN_HELP: &str = "\
A copy that dies leaves drafts (.haul-*.part) and journals (.haul-*.journal).
The same copy goes on with them when it is run again. Drafts of a copy that
lives are locked; they are neither shown nor removed. A server of sftp has no
locks: there they are those that nobody has written for a day.
A store keeps the parts of uploads that nobody has ended. Those that a dead
copy of yours began on this host are shown; with --older 7d also those that
anybody began a week ago.";

fn age(text: &str) -> Result<Duration, String> {
    let days = match text.strip_suffix(['d', 'w']).map(str::parse::<u32>) {
        Some(Ok(count)) if text.ends_with('w') => u64::from(count) * 7,
        Some(Ok(count)) => count.into(),
        _ => return Err("an age is 7d or 2w".to_owned()),
    };
    // A large upload over a slow path takes hours, unseen from here.
    match days {
        0 => Err("younger uploads may be alive: at least 1d".to_owned()),
        days => Ok(Duration::from_secs(days * 24 * 60 * 60)),
    }
}

pub fn run(typed: &Clean) -> ExitCode {
    let others_after_s = typed.older.map(|age| age.as_secs());
    let verb = Verb::Clean { remove: typed.delete, others_after_s };
    let asked = Asked { verb, json: typed.json, reach: &typed.reach };
    let (json, removed, at) = (typed.json, typed.delete, Whereabouts::default());
    run_on(&typed.paths, asked, &mut Leftovers { json, removed, at }, FAILED)
}

struct Leftovers {
    json: bool,
    removed: bool,
    at: Whereabouts,
}

impl Printer for Leftovers {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Left { path, bytes } = told else { return ControlFlow::Continue(()) };
        if self.json {
            let (place, path) = (self.at.place_name(), named(&self.at.path(path.as_bytes())));
            return paper.put(to_line(&LeftLine { place, path, bytes, removed: self.removed }).as_bytes());
        }
        let verb: &[u8] = if self.removed { b"removed\t" } else { b"left\t" };
        let name = shown(&self.at.full(path.as_bytes()), paper.at_terminal);
        paper.line(&[verb, figures::human(bytes).as_bytes(), b"\t", &name].concat())
    }
}

#[derive(Serialize)]
struct LeftLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    path: Named,
    bytes: u64,
    removed: bool,
}
