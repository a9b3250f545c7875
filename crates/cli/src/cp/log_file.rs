//! `--log-file`: rsync's line for each entry that changes: time, process, letters, name.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use haul_job::{Error, Event, Fault};
use haul_transfer::TypedFile;
use jiff::Zoned;

use crate::progress::itemise::{Direction, Format};
use crate::text::printable::{printable, printable_path};

#[derive(Debug)]
pub struct LogFile {
    out: File,
    direction: Direction,
}

impl LogFile {
    /// Opens it before any copy.
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

    /// A full log ends no copy.
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
        // One write a line: a program that follows sees whole lines.
        let line = format!("{now} [{}] {text}\n", std::process::id());
        let _ = self.out.write_all(line.as_bytes());
    }
}
