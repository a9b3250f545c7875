//! `haul ls`: a listing as of ls(1), an entry a line.

use std::cmp::Reverse;
use std::ffi::OsString;
use std::ops::ControlFlow;
use std::process::ExitCode;

use clap::{ArgAction, Args, ValueEnum, ValueHint};
use haul_transfer::place::{Facts, Kind, List, Told, Verb};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use crate::far_side::flags::Reach;
use crate::far_side::person::say;
use crate::json::line::to_line;
use crate::places::figures;
use crate::places::help::PATHS_HELP;
use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Asked, Printer, Whereabouts, or_here, run_on};
use crate::places::words::{self, EntryLine};

/// `haul ls`
#[derive(Debug, Args)]
#[command(disable_help_flag = true, after_help = PATHS_HELP)]
pub struct Ls {
    /// What to list; the current directory without any
    #[arg(value_name = "PATH", value_hint = ValueHint::AnyPath)]
    pub paths: Vec<OsString>,
    /// Kind, permissions, links, owner, group, size and time of each entry
    #[arg(short = 'l', long)]
    pub long: bool,
    /// All that lies beneath, too
    #[arg(short = 'R', long)]
    pub recursive: bool,
    /// Also names that begin with a dot; never '.' and '..'
    #[arg(short = 'a', visible_short_alias = 'A', long)]
    pub all: bool,
    /// Directories themselves, not their entries
    #[arg(short = 'd', long)]
    pub directory: bool,
    /// With -l: sizes such as 1.5K, 234M
    #[arg(short = 'h', long)]
    pub human_readable: bool,
    /// With -l: owner and group as numbers
    #[arg(short = 'n', long)]
    pub numeric_uid_gid: bool,
    /// Newest first, as of '--sort time'
    #[arg(short = 't', conflicts_with = "sort")]
    pub by_time: bool,
    /// Sort the entries of each directory by this; the largest and the newest come first (-S is the ssh program here)
    #[arg(long, value_name = "name|size|time", default_value = "name")]
    pub sort: Sort,
    /// The other way round
    #[arg(short = 'r', long)]
    pub reverse: bool,
    /// One entry a line; always so
    #[arg(short = '1', hide = true)]
    pub one: bool,
    /// A JSON object a line, with all that is known of each entry
    #[arg(long, conflicts_with_all = ["by_time", "sort", "reverse"])]
    pub json: bool,
    #[command(flatten)]
    pub reach: Reach,
    /// Show this help
    #[arg(long, action = ArgAction::Help)]
    pub help: Option<bool>,
}

/// `--sort`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Sort {
    Name,
    Size,
    Time,
}

impl Ls {
    fn sort(&self) -> Sort {
        if self.by_time { Sort::Time } else { self.sort }
    }

    /// Only names come sorted from the far side.
    fn sorts_here(&self) -> bool {
        self.sort() != Sort::Name || self.reverse
    }
}

/// ls(1)'s exit code if a named path failed.
const OPERAND_FAILED: u8 = 2;

pub fn run(typed: &Ls) -> ExitCode {
    let list = List {
        recursive: typed.recursive,
        hidden: typed.all,
        itself: typed.directory,
        facts: typed.long || typed.json || typed.sort() != Sort::Name,
    };
    let is_wild = |path: &OsString| path.to_string_lossy().contains(['*', '?', '[']);
    let has_headings = typed.recursive || typed.paths.len() > 1 || typed.paths.iter().any(is_wild);
    let asked = Asked { verb: Verb::List(list), json: typed.json, reach: &typed.reach };
    run_on(&or_here(&typed.paths), asked, &mut Listing::new(typed, has_headings), OPERAND_FAILED)
}

/// Rows held for sorting and equal columns, some 200 bytes each. A larger directory has growing columns, no total, and
/// rows sorted in parts, with a note.
const ROWS_HELD: usize = 16 << 10;

struct Listing<'a> {
    typed: &'a Ls,
    has_headings: bool,
    now: Timestamp,
    zone: TimeZone,
    at: Whereabouts,
    begun: bool,
    in_directory: bool,
    rows: Vec<(Vec<u8>, Option<Facts>)>,
    is_sorted_in_parts: bool,
    widths: [usize; 6],
}

impl<'a> Listing<'a> {
    fn new(typed: &'a Ls, has_headings: bool) -> Self {
        Self {
            typed,
            has_headings,
            now: Timestamp::now(),
            zone: TimeZone::system(),
            at: Whereabouts::default(),
            begun: false,
            in_directory: false,
            rows: Vec::new(),
            is_sorted_in_parts: false,
            widths: [0; 6],
        }
    }

    fn heading(&mut self, path: &[u8], paper: &mut Paper) -> ControlFlow<()> {
        self.flush(paper)?;
        self.widths = [0; 6];
        if self.has_headings {
            let gap: &[u8] = if self.begun { b"\n" } else { b"" };
            let name = shown(&self.at.full(path), paper.at_terminal);
            paper.put(&[gap, &name, b":\n"].concat())?;
        }
        (self.begun, self.in_directory) = (true, true);
        ControlFlow::Continue(())
    }

    fn entry(&mut self, path: &[u8], facts: Option<Facts>, paper: &mut Paper) -> ControlFlow<()> {
        if let Some(facts) = facts.as_ref().filter(|_| self.typed.json) {
            let line = EntryLine::new(self.at.place_name(), &self.at.path(path), facts);
            return paper.put(to_line(&line).as_bytes());
        }
        let name = match path.rsplit(|byte| *byte == b'/').next() {
            None | Some(b"") => self.at.full(b""),
            Some(name) => name.to_vec(),
        };
        if !self.typed.long && !self.typed.sorts_here() {
            self.begun = true;
            return paper.line(&shown(&name, paper.at_terminal));
        }
        self.rows.push((name, facts));
        if self.rows.len() < ROWS_HELD {
            return ControlFlow::Continue(());
        }
        self.in_directory = false;
        if self.typed.sorts_here() && !std::mem::replace(&mut self.is_sorted_in_parts, true) {
            say(&format!("note: a directory of more than {ROWS_HELD} entries is sorted in parts"));
        }
        self.print_rows(paper)
    }

    fn flush(&mut self, paper: &mut Paper) -> ControlFlow<()> {
        if std::mem::take(&mut self.in_directory) && self.typed.long && !self.typed.json {
            // A server without haul tells no blocks, so no total.
            if self.at.elsewhere.is_none() {
                let of_all = self.rows.iter().flat_map(|(_, facts)| facts);
                let bytes = of_all.map(|facts| facts.blocks.saturating_mul(512)).fold(0, u64::saturating_add);
                paper.line(format!("total {}", self.size(bytes, true)).as_bytes())?;
            }
        }
        self.print_rows(paper)
    }

    fn print_rows(&mut self, paper: &mut Paper) -> ControlFlow<()> {
        let mut rows = std::mem::take(&mut self.rows);
        self.sort(&mut rows);
        if !self.typed.long {
            self.begun |= !rows.is_empty();
            return rows.iter().try_for_each(|(name, _)| paper.line(&shown(name, paper.at_terminal)));
        }
        let rows: Vec<(Vec<u8>, Facts)> =
            rows.into_iter().filter_map(|(name, facts)| facts.map(|facts| (name, facts))).collect();
        let cells: Vec<[Vec<u8>; 6]> = rows.iter().map(|(_, facts)| self.cells(facts)).collect();
        for (width, column) in self.widths.iter_mut().zip(0..) {
            *width = cells.iter().map(|cells| cells[column].len()).fold(*width, usize::max);
        }
        for ((name, facts), cells) in rows.iter().zip(&cells) {
            self.begun = true;
            let mut line = Vec::new();
            for (column, (cell, width)) in cells.iter().zip(self.widths).enumerate() {
                let gap = vec![b' '; width - cell.len()];
                let is_to_the_left = matches!(column, 0 | 2 | 3 | 5);
                let (before, behind): (&[u8], &[u8]) = if is_to_the_left { (b"", &gap) } else { (&gap, b"") };
                line.extend([before, cell, behind, b" "].concat());
            }
            line.extend(shown(name, paper.at_terminal));
            if facts.kind == Kind::Symlink {
                line.extend(b" -> ");
                line.extend(shown(&facts.target, paper.at_terminal));
            }
            paper.line(&line)?;
        }
        ControlFlow::Continue(())
    }

    /// Equal times or sizes keep the names' order.
    fn sort(&self, rows: &mut [(Vec<u8>, Option<Facts>)]) {
        match self.typed.sort() {
            Sort::Name => {}
            Sort::Size => rows.sort_by_key(|(_, facts)| Reverse(facts.as_ref().map(|facts| facts.size))),
            Sort::Time => {
                rows.sort_by_key(|(_, facts)| {
                    Reverse(facts.as_ref().map(|facts| (facts.modified.s, facts.modified.ns)))
                });
            }
        }
        if self.typed.reverse {
            rows.reverse();
        }
    }

    /// Mode, links, owner, group, size, time; a question mark for what the end does not tell, as in ls(1).
    fn cells(&self, facts: &Facts) -> [Vec<u8>; 6] {
        let numeric = self.typed.numeric_uid_gid;
        let lacks = facts.lacks;
        let size = match facts.kind {
            _ if lacks.size => "?".to_owned(),
            Kind::BlockDevice | Kind::CharacterDevice => format!("{}, {}", facts.special.0, facts.special.1),
            _ => self.size(facts.size, false),
        };
        [
            words::mode(facts).into_bytes(),
            told(lacks.inode, || facts.links.to_string().into_bytes()),
            told(lacks.owner, || shown(&words::account(&facts.owner, facts.uid, numeric), true)),
            told(lacks.owner, || shown(&words::account(&facts.group, facts.gid, numeric), true)),
            size.into_bytes(),
            told(lacks.modified, || figures::listed(facts.modified, self.now, &self.zone).into_bytes()),
        ]
    }

    fn size(&self, bytes: u64, in_blocks: bool) -> String {
        match (self.typed.human_readable, in_blocks) {
            (true, _) => figures::human(bytes),
            (false, true) => figures::kib(bytes).to_string(),
            (false, false) => bytes.to_string(),
        }
    }
}

fn told(lacks: bool, text: impl FnOnce() -> Vec<u8>) -> Vec<u8> {
    if lacks { b"?".to_vec() } else { text() }
}

impl Printer for Listing<'_> {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        match told {
            Told::In { .. } if self.typed.json => ControlFlow::Continue(()),
            Told::In { path } => self.heading(path.as_bytes(), paper),
            Told::Entry { path, facts } => self.entry(path.as_bytes(), facts.map(|facts| *facts), paper),
            Told::Unsorted => {
                let name = crate::text::printable::printable(self.at.full(b""));
                say(&format!("note: a directory in {name} has too many entries to be sorted"));
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn end(&mut self, paper: &mut Paper, _is_whole: bool) -> ControlFlow<()> {
        self.flush(paper)
    }
}
