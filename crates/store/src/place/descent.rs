//! Walks a tree directory by directory. Holds only names of directories to enter, and of waiting files.

use std::io;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use haul_sys::beneath::{self, Links};
use rustix::fs::{Mode, OFlags};

use crate::error::{StoreError, is_missing, refusal};
use crate::kernel_files::KernelFiles;
use crate::limits::MAX_DEPTH;
use crate::listing::{Flow, Hint, Names};
use crate::name::join;

pub(super) enum Step<'a> {
    /// The open directory. The callee notes directories to enter in `enter`; other names there come later as
    /// [`Step::At`]. `room`: the bytes of names that fit.
    Into {
        dir: BorrowedFd<'a>,
        path: &'a [u8],
        enter: &'a mut Names,
        room: usize,
    },
    /// The turn of a name that is no directory, beneath `root`.
    At {
        root: BorrowedFd<'a>,
        path: &'a [u8],
    },
    OutOf {
        path: &'a [u8],
    },
    Failed(StoreError),
}

struct Frame {
    path: Vec<u8>,
    enter: Names,
    next: usize,
}

/// Enters `root`, and each noted directory, without following links. Errors' paths begin with `shown`.
pub(super) fn descend(
    root: OwnedFd,
    shown: &[u8],
    (kernel_files, held_bytes): (KernelFiles, usize),
    step: &mut dyn FnMut(Step<'_>) -> Flow,
) -> ControlFlow<()> {
    let mut stack: Vec<Frame> = Vec::new();
    let mut held = 0;
    let mut next = Some(Vec::new());
    loop {
        if let Some(path) = next.take() {
            let mut enter = Names::default();
            let opened = match stack.len() {
                MAX_DEPTH.. => Err(refusal(io::ErrorKind::InvalidInput, "directories are nested too deep")),
                _ if path.is_empty() => Ok(None),
                _ => open(&root, &path, kernel_files).map(Some),
            };
            let read = opened.and_then(|opened| {
                let dir = opened.as_ref().map_or(root.as_fd(), AsFd::as_fd);
                step(Step::Into { dir, path: &path, enter: &mut enter, room: held_bytes.saturating_sub(held) })
            });
            let read = match read {
                Err(error) if is_missing(&error) && !path.is_empty() => Ok(ControlFlow::Continue(())),
                read => read,
            };
            match read {
                Ok(flow) => flow?,
                Err(error) => {
                    let failed = StoreError::new("read directory", &join(shown, &path), error);
                    go_on(step(Step::Failed(failed)))?;
                }
            }
            if held + enter.memory_bytes() > held_bytes {
                let why = refusal(io::ErrorKind::FileTooLarge, "there are too many directories in it to enter them");
                go_on(step(Step::Failed(StoreError::new("enter", &join(shown, &path), why))))?;
                enter = Names::default();
            }
            held += enter.memory_bytes();
            stack.push(Frame { path, enter, next: 0 });
        }
        let Some(frame) = stack.last_mut() else { return ControlFlow::Continue(()) };
        if let Some((name, hint)) = frame.enter.get(frame.next) {
            let path = join(&frame.path, name);
            frame.next += 1;
            match hint {
                Hint::Directory => next = Some(path),
                _ => go_on(step(Step::At { root: root.as_fd(), path: &path }))?,
            }
        } else if let Some(done) = stack.pop() {
            held -= done.enter.memory_bytes();
            go_on(step(Step::OutOf { path: &done.path }))?;
        }
    }
}

/// Errors come only from reading directories, not from `step`.
fn go_on(step: Flow) -> ControlFlow<()> {
    step.unwrap_or(ControlFlow::Continue(()))
}

fn open(root: &OwnedFd, path: &[u8], kernel_files: KernelFiles) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW;
    kernel_files.checked(beneath::open(root.as_fd(), path, flags, Mode::empty(), Links::Refused)?)
}
