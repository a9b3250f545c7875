//! Standard input and output, and whether this process was given them.
//!
//! Rust's runtime opens `/dev/null` for a closed stream, and ignores `EBADF`: a copy from it would be an empty file, lost
//! output a success. So an earlier function notes the closed ones, and these streams hide no error.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, BorrowedFd};
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::io::Errno;

/// Standard input, without a buffer.
#[derive(Debug)]
pub struct Input(());

impl Input {
    /// Opens it; `EBADF` if closed at the start.
    pub fn open() -> io::Result<Self> {
        if CLOSED[0].load(Ordering::Relaxed) { Err(Errno::BADF.into()) } else { Ok(Self(())) }
    }
}

impl Read for Input {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        Ok(rustix::io::read(rustix::stdio::stdin(), buffer)?)
    }
}

impl AsFd for Input {
    fn as_fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdin()
    }
}

/// Standard output, without a buffer; `EBADF` if closed at the start.
#[derive(Clone, Copy, Debug)]
pub struct Output;

impl Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if CLOSED[1].load(Ordering::Relaxed) {
            return Err(Errno::BADF.into());
        }
        Ok(rustix::io::write(rustix::stdio::stdout(), bytes)?)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl AsFd for Output {
    fn as_fd(&self) -> BorrowedFd<'_> {
        rustix::stdio::stdout()
    }
}

/// Sends standard output and standard error to this file from now on.
pub fn send_output_to(file: BorrowedFd<'_>) -> io::Result<()> {
    rustix::stdio::dup2_stdout(file)?;
    CLOSED[1].store(false, Ordering::Relaxed);
    Ok(rustix::stdio::dup2_stderr(file)?)
}

/// Whether standard input and output were closed at the start.
static CLOSED: [AtomicBool; 2] = [AtomicBool::new(false), AtomicBool::new(false)];

/// The C library runs this before `main`, and so before Rust's runtime.
#[used]
// SAFETY: entries of this section are pointers to functions of this type; the C library passes three arguments, which
// such a function may ignore.
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = note_closed;

extern "C" fn note_closed() {
    for (number, closed) in (0..).zip(&CLOSED) {
        // SAFETY: asks for the flags of a number, which need not be open. No other thread runs yet.
        if unsafe { libc::fcntl(number, libc::F_GETFD) } != -1 {
            continue;
        }
        closed.store(true, Ordering::Relaxed);
        // A socket without a peer takes the place: it can be neither read nor written, and `/dev/stdin` and
        // `/dev/stdout` lead to no file. Otherwise the runtime puts `/dev/null` there, which is an empty list by that
        // name.
        // SAFETY: opens a socket at the lowest free number, and closes it if that is another one.
        unsafe {
            let stand_in = libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
            if stand_in != -1 && stand_in != number {
                libc::close(stand_in);
            }
        }
    }
}
