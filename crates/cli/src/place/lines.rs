//! The answers of the other commands, line by line.

use std::ops::ControlFlow;

use haul_transfer::hash_list::format_line;
use haul_transfer::place::{Algorithm, Facts, Kind, Told};
use jiff::tz::TimeZone;

use super::flags::Du;
use super::names::shown;
use super::paper::Paper;
use super::words::{self, EntryLine, HashLine, LeftLine, UsageLine};
use super::{Printer, Whereabouts, figures};
use crate::json::{hex, named};
use crate::json_text;

/// `haul du`
pub struct Usage<'a> {
    pub typed: &'a Du,
    pub at: Whereabouts,
}

impl Printer for Usage<'_> {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Usage { path, blocks, apparent_bytes } = told else { return ControlFlow::Continue(()) };
        let disk_bytes = blocks.saturating_mul(512);
        if self.typed.json {
            let path = named(&self.at.path(path.as_bytes()));
            let line = UsageLine { place: self.at.place_name(), path, disk_bytes, apparent_bytes };
            return paper.put(json_text::line(&line).as_bytes());
        }
        let bytes = if self.typed.apparent_size || self.typed.bytes { apparent_bytes } else { disk_bytes };
        let size = match (self.typed.human_readable, self.typed.bytes) {
            (true, _) => figures::human(bytes),
            (false, true) => bytes.to_string(),
            (false, false) => figures::kib(bytes).to_string(),
        };
        let name = shown(&self.at.full(path.as_bytes()), paper.at_terminal);
        paper.line(&[size.as_bytes(), b"\t", &name].concat())
    }
}

/// `haul stat`
pub struct Looks {
    pub json: bool,
    pub zone: TimeZone,
    pub at: Whereabouts,
}

impl Printer for Looks {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Entry { facts: Some(facts), .. } = told else { return ControlFlow::Continue(()) };
        if self.json {
            let line = EntryLine::new(self.at.place_name(), &self.at.path(b""), &facts);
            return paper.put(json_text::line(&line).as_bytes());
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
    /// The lines of stat(1) behind the first.
    fn table(&self, facts: &Facts) -> String {
        let account = |name: &[u8], number| {
            let name = if name.is_empty() { "UNKNOWN".to_owned() } else { crate::printable::printable(name) };
            format!("({number:5}/{name:>8})")
        };
        let special = match facts.kind {
            Kind::BlockDevice | Kind::CharacterDevice => {
                format!("{:<5} Device type: {},{}", facts.links, facts.special.0, facts.special.1)
            }
            _ => facts.links.to_string(),
        };
        let time = |moment| figures::whole(moment, &self.zone);
        format!(
            "  Size: {:<10}\tBlocks: {:<10} IO Block: {:<6} {}\nDevice: {},{}\tInode: {:<11} Links: {special}\n\
             Access: ({:04o}/{})  Uid: {}   Gid: {}\nAccess: {}\nModify: {}\nChange: {}\n Birth: {}\n",
            facts.size,
            facts.blocks,
            facts.io_block,
            words::kind(facts),
            facts.device.0,
            facts.device.1,
            facts.inode,
            facts.mode,
            words::mode(facts),
            account(&facts.owner, facts.uid),
            account(&facts.group, facts.gid),
            time(facts.accessed),
            time(facts.modified),
            time(facts.changed),
            facts.born.map_or_else(|| "-".to_owned(), time),
        )
    }
}

/// `haul mkdir`, `mv` and `rm`: what was changed, if it is to be said.
pub struct Changes {
    pub verbose: bool,
    pub dry_run: bool,
    pub at: Whereabouts,
}

impl Printer for Changes {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        if !self.verbose && !self.dry_run {
            return ControlFlow::Continue(());
        }
        let name = |path: &[u8]| shown(path, paper.at_terminal);
        let line = match told {
            Told::Made { path } => [b"made ", &name(&self.at.other(&path))[..]].concat(),
            Told::Moved { to } => {
                [b"moved ", &name(&self.at.full(b""))[..], b" -> ", &name(&self.at.other(&to))[..]].concat()
            }
            Told::Stays { to } => {
                [b"left ", &name(&self.at.full(b""))[..], b": there is ", &name(&self.at.other(&to))[..]].concat()
            }
            Told::Removed { path } => {
                let verb: &[u8] = if self.dry_run { b"would remove " } else { b"removed " };
                [verb, &name(&self.at.full(path.as_bytes()))[..]].concat()
            }
            _ => return ControlFlow::Continue(()),
        };
        paper.line(&line)
    }
}

/// `haul hash`
pub struct Hashes {
    pub json: bool,
    /// Its name stands in each line.
    pub tag: Option<Algorithm>,
    pub at: Whereabouts,
}

impl Printer for Hashes {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Hash { path, hash, .. } = told else { return ControlFlow::Continue(()) };
        let path = self.at.path(path.as_bytes());
        if self.json {
            let line = HashLine { place: self.at.place_name(), path: named(&path), hash: hex(&hash) };
            return paper.put(json_text::line(&line).as_bytes());
        }
        paper.line(&format_line(&hash, &path, self.tag))
    }
}

/// `haul clean`
pub struct Leftovers {
    pub json: bool,
    pub removed: bool,
    pub at: Whereabouts,
}

impl Printer for Leftovers {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, told: Told, paper: &mut Paper) -> ControlFlow<()> {
        let Told::Left { path, bytes } = told else { return ControlFlow::Continue(()) };
        if self.json {
            let (place, path) = (self.at.place_name(), named(&self.at.path(path.as_bytes())));
            return paper.put(json_text::line(&LeftLine { place, path, bytes, removed: self.removed }).as_bytes());
        }
        let verb: &[u8] = if self.removed { b"removed\t" } else { b"left\t" };
        let name = shown(&self.at.full(path.as_bytes()), paper.at_terminal);
        paper.line(&[verb, figures::human(bytes).as_bytes(), b"\t", &name].concat())
    }
}

/// `haul cat`: no lines.
#[derive(Default)]
pub struct Contents {
    pub at: Whereabouts,
}

impl Printer for Contents {
    fn at(&mut self) -> &mut Whereabouts {
        &mut self.at
    }

    fn told(&mut self, _told: Told, _paper: &mut Paper) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}
