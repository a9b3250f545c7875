//! `haul stat`: a file system's facts of a file, as stat(1) prints.

use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{Args, ValueHint};
use haul_transfer::place::{Facts, Kind, Told, Verb};
use jiff::tz::TimeZone;

use crate::far_side::flags::Reach;
use crate::json::line::to_line;
use crate::places::figures;
use crate::places::help::PATHS_HELP;
use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Asked, FAILED, Printer, Whereabouts, run_on};
use crate::places::words::{self, EntryLine};
use crate::text::printable::printable;

/// `haul stat`
#[derive(Debug, Args)]
#[command(after_help = PATHS_HELP)]
pub struct Stat {
    /// What to look at
    #[arg(value_name = "PATH", required = true, value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// What a link points at, instead of the link
    #[arg(short = 'L', long)]
    pub dereference: bool,
    /// A JSON object a line
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
}

pub fn run(typed: &Stat) -> ExitCode {
    let asked = Asked { verb: Verb::Stat { follow: typed.dereference }, json: typed.json, reach: &typed.reach };
    let mut looks = Looks { json: typed.json, zone: TimeZone::system(), at: Whereabouts::default() };
    run_on(&typed.paths, asked, &mut looks, FAILED)
}

struct Looks {
    json: bool,
    zone: TimeZone,
    at: Whereabouts,
}

impl Printer for Looks {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Entry { facts: Some(facts), .. } = told else { return ControlFlow::Continue(()) };
        if self.json {
            let line = EntryLine::new(self.at.place_name(), &self.at.path(b""), &facts);
            return paper.put(to_line(&line).as_bytes());
        }
        let mut name = shown(&self.at.full(b""), paper.at_terminal);
        if facts.kind == Kind::Symlink {
            name.extend(b" -> ");
            name.extend(shown(&facts.target, paper.at_terminal));
        }
        paper.put(&[b"  File: ", &name[..], b"\n", self.table(&facts).as_bytes()].concat())
    }
}

impl Looks {
    /// stat(1)'s lines behind the first; a dash for what the end does not tell.
    fn table(&self, facts: &Facts) -> String {
        let lacks = facts.lacks;
        let known = |lacks: bool, text: String| if lacks { "-".to_owned() } else { text };
        let account = |name: &[u8], number| {
            let name = if name.is_empty() { "UNKNOWN".to_owned() } else { printable(name) };
            known(lacks.owner, format!("({number:5}/{name:>8})"))
        };
        let links = known(lacks.inode, facts.links.to_string());
        let links = match facts.kind {
            Kind::BlockDevice | Kind::CharacterDevice if !lacks.inode => {
                format!("{links:<5} Device type: {},{}", facts.special.0, facts.special.1)
            }
            _ => links,
        };
        let time = |lacks: bool, moment| known(lacks, figures::whole(moment, &self.zone));
        format!(
            "  Size: {:<10}\tBlocks: {:<10} IO Block: {:<6} {}\nDevice: {}\tInode: {:<11} Links: {links}\n\
             Access: ({}/{})  Uid: {}   Gid: {}\nAccess: {}\nModify: {}\nChange: {}\n Birth: {}\n",
            known(lacks.size, facts.size.to_string()),
            known(lacks.inode, facts.blocks.to_string()),
            known(lacks.inode, facts.io_block.to_string()),
            words::kind(facts),
            known(lacks.inode, format!("{},{}", facts.device.0, facts.device.1)),
            known(lacks.inode, facts.inode.to_string()),
            known(lacks.mode, format!("{:04o}", facts.mode)),
            words::mode(facts),
            account(&facts.owner, facts.uid),
            account(&facts.group, facts.gid),
            time(lacks.accessed, facts.accessed),
            time(lacks.modified, facts.modified),
            time(lacks.inode, facts.changed),
            facts.born.map_or_else(|| "-".to_owned(), |born| time(false, born)),
        )
    }
}
