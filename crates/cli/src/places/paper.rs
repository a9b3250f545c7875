//! Where an answer is written: standard output, until its reader has enough.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;

use haul_transfer::standard_streams::Output;

use crate::process::output;

/// Standard output, until its reader has enough.
pub struct Paper {
    out: BufWriter<Output>,
    pub at_terminal: bool,
}

impl Paper {
    pub fn new() -> Self {
        Self { out: BufWriter::new(Output), at_terminal: Output.as_fd().is_terminal() }
    }

    /// Writes it. [`ControlFlow::Break`]: nobody reads on, or it cannot be written; `output` remembers the latter.
    pub fn put(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let written = self.out.write_all(bytes);
        // Somebody reads along.
        let written = if self.at_terminal { written.and_then(|()| self.out.flush()) } else { written };
        self.note(written)
    }

    pub fn line(&mut self, line: &[u8]) -> ControlFlow<()> {
        self.put(&[line, b"\n"].concat())
    }

    pub fn flush(&mut self) -> ControlFlow<()> {
        let flushed = self.out.flush();
        self.note(flushed)
    }

    fn note(&self, result: io::Result<()>) -> ControlFlow<()> {
        let is_over = result.is_err();
        output::note(result);
        if is_over { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
