//! Standard output. A closed pipe is no error: the reader has enough. Other failed writes are errors at every command's
//! end.

use std::io::{self, LineWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_job::{Error, Fault};
use haul_transfer::standard_streams::Output;

use crate::text::failure;

/// A writer that never fails; [`lost`] tells of failed writes.
#[derive(Debug)]
pub struct Out;

static OUTPUT: Mutex<Option<LineWriter<Output>>> = Mutex::new(None);

fn write(act: impl FnOnce(&mut LineWriter<Output>) -> io::Result<()>) {
    let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    note(act(output.get_or_insert_with(|| LineWriter::new(Output))));
}

static LOST: Mutex<Option<io::Error>> = Mutex::new(None);

impl Write for Out {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        write(|output| output.write_all(bytes));
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        write(LineWriter::flush);
        Ok(())
    }
}

pub fn say(text: impl AsRef<[u8]>) {
    write(|output| output.write_all(text.as_ref()).and_then(|()| output.flush()));
}

pub fn is_open() -> io::Result<()> {
    Output.write(b"").map(drop)
}

pub fn note(result: io::Result<()>) {
    let Err(error) = result else { return };
    IS_OVER.store(true, Ordering::Relaxed);
    if error.kind() != io::ErrorKind::BrokenPipe {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// True if a write has failed: a command without an end should end.
pub fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// Hands the first failed write's error to the first caller.
pub fn lost() -> Option<Error> {
    let cause = LOST.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some(Error::new(Fault::FileIo, "cannot write to standard output").because(cause))
}

/// Tells an error as JSON, or as text on standard error if standard output failed.
pub fn tell(error: &Error, json: impl FnOnce()) {
    json();
    if LOST.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        let _ = write!(io::stderr(), "{}", failure::text(error));
    }
}
