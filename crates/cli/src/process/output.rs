//! Standard output. A closed pipe is no error: the reader has read enough. Any other failed write is an error at the
//! end of every command.

use std::io::{self, LineWriter, Write};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use haul_job::{Error, Fault};
use haul_transfer::standard_streams::Output;

use crate::text::failure;

/// Standard output as a writer that never fails. [`lost`] tells of a failed write.
#[derive(Debug)]
pub struct Out;

/// Lines that are not yet written.
static OUTPUT: Mutex<Option<LineWriter<Output>>> = Mutex::new(None);

fn write(act: impl FnOnce(&mut LineWriter<Output>) -> io::Result<()>) {
    let mut output = OUTPUT.lock().unwrap_or_else(PoisonError::into_inner);
    note(act(output.get_or_insert_with(|| LineWriter::new(Output))));
}

/// The error of the first failed write.
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

/// Writes the text and flushes it.
pub fn say(text: impl AsRef<[u8]>) {
    write(|output| output.write_all(text.as_ref()).and_then(|()| output.flush()));
}

/// Whether standard output can be written at all.
pub fn is_open() -> io::Result<()> {
    Output.write(b"").map(drop)
}

/// Keeps the error of a write to standard output.
pub fn note(result: io::Result<()>) {
    let Err(error) = result else { return };
    IS_OVER.store(true, Ordering::Relaxed);
    if error.kind() != io::ErrorKind::BrokenPipe {
        LOST.lock().unwrap_or_else(PoisonError::into_inner).get_or_insert(error);
    }
}

/// Whether a write has failed, so that nobody reads on. A command without an end should end then.
pub fn is_over() -> bool {
    IS_OVER.load(Ordering::Relaxed)
}

static IS_OVER: AtomicBool = AtomicBool::new(false);

/// The error of the first failed write. The first caller takes it.
pub fn lost() -> Option<Error> {
    let cause = LOST.lock().unwrap_or_else(PoisonError::into_inner).take()?;
    Some(Error::new(Fault::FileIo, "cannot write to standard output").because(cause))
}

/// Tells an error on standard output as JSON. If standard output has failed, standard error gets the text.
pub fn tell(error: &Error, json: impl FnOnce()) {
    json();
    if LOST.lock().unwrap_or_else(PoisonError::into_inner).is_some() {
        let _ = write!(io::stderr(), "{}", failure::text(error));
    }
}
