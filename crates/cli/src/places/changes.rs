//! Changes of `haul mkdir`, `mv` and `rm`, told with `-v`.

use std::ops::ControlFlow;

use haul_transfer::place::Told;

use crate::places::names::shown;
use crate::places::paper::Paper;
use crate::places::question::{Printer, Whereabouts};

pub struct Changes {
    verbose: bool,
    dry_run: bool,
    at: Whereabouts,
}

impl Changes {
    pub fn new(verbose: bool, dry_run: bool) -> Self {
        Self { verbose, dry_run, at: Whereabouts::default() }
    }
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
