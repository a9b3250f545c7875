//! `haul df`: the space of file systems.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueHint};
use haul_transfer::place::{Space, Told, Verb};
use serde::Serialize;

use crate::far_side::flags::Reach;
use crate::json::line::to_line;
use crate::json::values::{Named, named};
use crate::places::figures;
use crate::places::help::PATHS_HELP;
use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, or_here, run_on};

/// `haul df`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = PATHS_HELP)]
pub struct Df {
    /// What lies on the file system; the current directory without any
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Sizes such as 1.5K, 234M, not blocks of 1 KiB
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

pub fn run(typed: &Df) -> ExitCode {
    let asked = Asked { verb: Verb::Space, json: typed.json, reach: &typed.reach };
    let mut table = Table { typed, at: Whereabouts::default(), has_head: false };
    run_on(&or_here(&typed.paths), asked, &mut table, FAILED)
}

struct Table<'a> {
    typed: &'a Df,
    at: Whereabouts,
    has_head: bool,
}

impl Printer for Table<'_> {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Space(space) = told else { return ControlFlow::Continue(()) };
        if self.typed.json {
            return paper.put(to_line(&self.json(&space)).as_bytes());
        }
        let name = shown(&self.at.full(b""), paper.at_terminal);
        let human = self.typed.human_readable;
        if !std::mem::replace(&mut self.has_head, true) {
            let size = if human { "Size" } else { "1K-blocks" };
            paper.line(columns(human, [size, "Used", "Available", "Use%", "IFree"], b"Path").as_slice())?;
        }
        let size = |bytes| if human { figures::human(bytes) } else { figures::kib(bytes).to_string() };
        let share = used_percent(&space).map_or("-".to_owned(), |percent| format!("{percent}%"));
        let inodes = match space.inodes {
            0 => "-".to_owned(),
            _ if human => figures::human(space.free_inodes),
            _ => space.free_inodes.to_string(),
        };
        let row = [&size(space.bytes), &size(used(&space)), &size(space.available_bytes), &share, &inodes];
        paper.line(&columns(human, row.map(String::as_str), &name))
    }
}

impl Table<'_> {
    fn json(&self, space: &Space) -> SpaceLine {
        SpaceLine {
            place: self.at.place_name(),
            path: named(&self.at.path(b"")),
            size_bytes: space.bytes,
            used_bytes: used(space),
            available_bytes: space.available_bytes,
            used_percent: used_percent(space),
            inodes: (space.inodes > 0).then_some(space.inodes),
            inodes_free: (space.inodes > 0).then_some(space.free_inodes),
        }
    }
}

fn columns(human: bool, [size, used, available, share, inodes]: [&str; 5], name: &[u8]) -> Vec<u8> {
    let row = match human {
        true => format!("{size:>5} {used:>5} {available:>9} {share:>4} {inodes:>5} "),
        false => format!("{size:>13} {used:>13} {available:>13} {share:>4} {inodes:>11} "),
    };
    [row.as_bytes(), name].concat()
}

fn used(space: &Space) -> u64 {
    space.bytes.saturating_sub(space.free_bytes)
}

/// As df: of what users may fill, rounded up. `None`: the file system has no size.
fn used_percent(space: &Space) -> Option<u64> {
    let used = u128::from(used(space));
    let all = used + u128::from(space.available_bytes);
    (all > 0).then(|| u64::try_from((used * 100).div_ceil(all)).unwrap_or(100))
}

#[derive(Serialize)]
struct SpaceLine {
    #[serde(skip_serializing_if = "Option::is_none")]
    place: Option<String>,
    #[serde(flatten)]
    path: Named,
    size_bytes: u64,
    used_bytes: u64,
    available_bytes: u64,
    used_percent: Option<u64>,
    inodes: Option<u64>,
    inodes_free: Option<u64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_only_root_may_fill_is_no_space_for_users() {
        let space = Space { bytes: 100, free_bytes: 10, available_bytes: 5, ..Space::default() };
        assert_eq!((used(&space), used_percent(&space)), (90, Some(95)), "90 of 95");
        assert_eq!(used_percent(&Space::default()), None, "as of proc");
        let odd = Space { bytes: 1, free_bytes: u64::MAX, available_bytes: u64::MAX, ..Space::default() };
        assert_eq!(used_percent(&odd), Some(0));
    }
}
