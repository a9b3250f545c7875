//! `--log-file`: a line for each entry that changes, as rsync writes them: time, process, letters and name.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use haul_job::{Error, Event, Fault};
use haul_transfer::TypedFile;
use jiff::Zoned;

use crate::progress::itemise::{Direction, Format};
use crate::text::printable::{printable, printable_path};

/// An open log. Lines are added to what it has.
#[derive(Debug)]
pub struct LogFile {
    out: File,
    direction: Direction,
}

impl LogFile {
    /// Opens it before anything is copied.
    ///
    /// # Errors
    /// [`Fault::FileIo`].
    pub fn open(path: &Path, direction: Direction) -> Result<Self, Error> {
        let file = TypedFile::append(path).map_err(|error| {
            let shown = printable(path.as_os_str().as_encoded_bytes());
            Error::new(Fault::FileIo, format!("cannot open the log {shown}")).because(error)
        })?;
        Ok(Self { out: file, direction })
    }

    /// Whether this event has a line.
    pub fn takes(event: &Event) -> bool {
        matches!(
            event,
            Event::Item(_)
                | Event::Deleted { .. }
                | Event::Failed { .. }
                | Event::Skipped { .. }
                | Event::Warning { .. }
        )
    }

    /// Writes the line of an event. A log that is full ends no copy.
    pub fn add(&mut self, event: &Event) {
        match event {
            Event::Item(item) => self.line(Format::itemized().line(item, self.direction).trim_end()),
            Event::Deleted { path, is_directory } => {
                self.line(Format::itemized().deleted(path, *is_directory).trim_end())
            }
            Event::Failed { path, why } => self.line(&format!("failed: {}: {}", printable_path(path), printable(why))),
            Event::Skipped { path, why } => {
                self.line(&format!("skipped: {}: {}", printable_path(path), printable(why)))
            }
            Event::Warning { text } => self.line(&format!("warning: {}", printable(text))),
            _ => {}
        }
    }

    fn line(&mut self, text: &str) {
        let now = Zoned::now().strftime("%Y/%m/%d %H:%M:%S").to_string();
        // One write a line: a program that follows the log sees whole lines.
        let line = format!("{now} [{}] {text}\n", std::process::id());
        let _ = self.out.write_all(line.as_bytes());
    }
}
