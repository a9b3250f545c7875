//! Standard output of an answer, until its reader has enough.

use std::io::{self, BufWriter, IsTerminal as _, Write as _};
use std::ops::ControlFlow;
use std::os::fd::AsFd as _;

use haul_transfer::standard_streams::Output;

use crate::process::output;

pub struct Paper {
    out: BufWriter<Output>,
    pub at_terminal: bool,
}

impl Paper {
    pub fn new() -> Self {
        Self { out: BufWriter::new(Output), at_terminal: Output.as_fd().is_terminal() }
    }

    /// [`ControlFlow::Break`]: the reader has enough, or a write failed, which `output` remembers.
    pub fn put(&mut self, bytes: &[u8]) -> ControlFlow<()> {
        let written = self.out.write_all(bytes);
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
