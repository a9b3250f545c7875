//! `haul ls`: a listing as ls(1) prints it, one entry a line.

use std::ops::ControlFlow;

use haul_transfer::place::{Facts, Kind, Told};
use jiff::Timestamp;
use jiff::tz::TimeZone;

use super::flags::Ls;
use super::names::shown;
use super::paper::Paper;
use super::words::{self, EntryLine};
use super::{Printer, Whereabouts, figures};
use crate::json_text;

/// Rows that are held to make their columns equally wide: a row takes some 200 bytes. In a larger directory the columns grow on the
/// way, and no total stands above them.
const ROWS_HELD: usize = 16 << 10;

pub struct Listing<'a> {
    typed: &'a Ls,
    /// Directories have their name above them.
    has_headings: bool,
    now: Timestamp,
    zone: TimeZone,
    at: Whereabouts,
    /// Something was printed already.
    begun: bool,
    /// The rows are those of a directory, all of them so far.
    in_directory: bool,
    rows: Vec<(Vec<u8>, Facts)>,
    widths: [usize; 6],
}

impl<'a> Listing<'a> {
    pub fn new(typed: &'a Ls, has_headings: bool) -> Self {
        Self {
            typed,
            has_headings,
            now: Timestamp::now(),
            zone: TimeZone::system(),
            at: Whereabouts::default(),
            begun: false,
            in_directory: false,
            rows: Vec::new(),
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
            return paper.put(json_text::line(&line).as_bytes());
        }
        let name = match path.rsplit(|byte| *byte == b'/').next() {
            None | Some(b"") => self.at.full(b""),
            Some(name) => name.to_vec(),
        };
        match facts {
            Some(facts) => {
                self.rows.push((name, facts));
                if self.rows.len() < ROWS_HELD {
                    return ControlFlow::Continue(());
                }
                self.in_directory = false;
                self.print_rows(paper)
            }
            None => {
                self.begun = true;
                paper.line(&shown(&name, paper.at_terminal))
            }
        }
    }

    fn flush(&mut self, paper: &mut Paper) -> ControlFlow<()> {
        if std::mem::take(&mut self.in_directory) && self.typed.long && !self.typed.json {
            let bytes =
                self.rows.iter().map(|(_, facts)| facts.blocks.saturating_mul(512)).fold(0, u64::saturating_add);
            paper.line(format!("total {}", self.size(bytes, true)).as_bytes())?;
        }
        self.print_rows(paper)
    }

    fn print_rows(&mut self, paper: &mut Paper) -> ControlFlow<()> {
        let rows = std::mem::take(&mut self.rows);
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

    /// Mode, links, owner, group, size, time.
    fn cells(&self, facts: &Facts) -> [Vec<u8>; 6] {
        let numeric = self.typed.numeric_uid_gid;
        let size = match facts.kind {
            Kind::BlockDevice | Kind::CharacterDevice => format!("{}, {}", facts.special.0, facts.special.1),
            _ => self.size(facts.size, false),
        };
        [
            words::mode(facts).into_bytes(),
            facts.links.to_string().into_bytes(),
            shown(&words::account(&facts.owner, facts.uid, numeric), true),
            shown(&words::account(&facts.group, facts.gid, numeric), true),
            size.into_bytes(),
            figures::listed(facts.modified, self.now, &self.zone).into_bytes(),
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
                let name = crate::printable::printable(self.at.full(b""));
                super::say(&format!("note: a directory in {name} has too many entries to be sorted"));
                ControlFlow::Continue(())
            }
            _ => ControlFlow::Continue(()),
        }
    }

    fn end(&mut self, paper: &mut Paper, _is_whole: bool) -> ControlFlow<()> {
        self.flush(paper)
    }
}
