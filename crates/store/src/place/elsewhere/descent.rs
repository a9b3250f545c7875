//! Walks a tree at a server, as `place/descent.rs` does on a disk.

use std::io;
use std::ops::ControlFlow;

use super::super::operand::Operand;
use super::{Elsewhere, is_gone};
use crate::error::refusal;
use crate::limits::MAX_DEPTH;
use crate::listing::{Flow, Hint, Names};
use crate::name::join;
use crate::place::site::{Line, Tell};

pub(super) enum Step<'a> {
    /// The turn of this directory. The callee notes directories to enter in `enter`; other names there come later as
    /// [`Step::At`].
    Into {
        directory: &'a [u8],
        path: &'a [u8],
        enter: &'a mut Names,
        room: usize,
        note: u32,
    },
    At {
        path: &'a [u8],
    },
    OutOf {
        path: &'a [u8],
    },
}

struct Frame {
    path: Vec<u8>,
    enter: Names,
    next: usize,
}

impl Elsewhere {
    pub(super) fn descend(
        &self,
        operand: &Operand,
        tell: Tell<'_>,
        step: &mut dyn FnMut(Step<'_>, Tell<'_>) -> Flow,
    ) -> ControlFlow<()> {
        let mut stack: Vec<Frame> = Vec::new();
        let mut held = 0;
        let mut next = Some((Vec::new(), 0));
        loop {
            if let Some((path, note)) = next.take() {
                tell(Line::Busy)?;
                let mut enter = Names::default();
                let directory = self.beneath(operand, &path);
                let room = self.bounds.held_bytes.saturating_sub(held);
                let into = Step::Into { directory: &directory, path: &path, enter: &mut enter, room, note };
                let read = match stack.len() {
                    MAX_DEPTH.. => Err(refusal(io::ErrorKind::InvalidInput, "directories are nested too deep")),
                    _ => step(into, tell),
                };
                match read {
                    Ok(flow) => flow?,
                    Err(error) if is_gone(&error) && !path.is_empty() => {}
                    Err(error) => self.failed("read directory", &join(&operand.shown, &path), error, tell)?,
                }
                if held + enter.memory_bytes() > self.bounds.held_bytes {
                    let why =
                        refusal(io::ErrorKind::FileTooLarge, "there are too many directories in it to enter them");
                    self.failed("enter", &join(&operand.shown, &path), why, tell)?;
                    enter = Names::default();
                }
                held += enter.memory_bytes();
                stack.push(Frame { path, enter, next: 0 });
            }
            let Some(frame) = stack.last_mut() else { return ControlFlow::Continue(()) };
            if let Some((name, hint)) = frame.enter.get(frame.next) {
                let path = join(&frame.path, name);
                let note = frame.enter.source(frame.next).unwrap_or(0);
                frame.next += 1;
                match hint {
                    Hint::Directory => next = Some((path, note)),
                    _ => self.go_on(step(Step::At { path: &path }, tell))?,
                }
            } else if let Some(done) = stack.pop() {
                held -= done.enter.memory_bytes();
                self.go_on(step(Step::OutOf { path: &done.path }, tell))?;
            }
        }
    }

    fn go_on(&self, step: Flow) -> ControlFlow<()> {
        step.unwrap_or(ControlFlow::Continue(()))
    }

    pub(super) fn failed(&self, op: &'static str, shown: &[u8], error: io::Error, tell: Tell<'_>) -> ControlFlow<()> {
        let error = self.note(op, shown, error);
        if error.is_of_every_path() { ControlFlow::Break(()) } else { tell(Line::Failed(error)) }
    }
}
