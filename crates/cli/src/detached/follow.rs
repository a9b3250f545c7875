//! Follows a detached copy: its messages, and its end.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::unix::fs::MetadataExt as _;
use std::time::Duration;

use crate::detached::record::Record;

/// A copy writes its record each second.
const LOOK_EVERY: Duration = Duration::from_millis(200);

const READ_BYTES: usize = 64 << 10;

pub fn until_over(is_over: impl Fn() -> bool) {
    while !is_over() {
        std::thread::park_timeout(LOOK_EVERY);
    }
}

/// Hands over the log as it grows, until `is_over`, or until `hear` returns false.
///
/// # Errors
/// The log cannot be read.
pub fn log(record: &Record, is_over: impl Fn() -> bool, mut hear: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut followed = Followed { record, open: None };
    if !hear(&record.logged_before()?) {
        return Ok(());
    }
    loop {
        // The last words before the end are read after it.
        let is_last = is_over();
        let hears = followed.read(&mut hear)?;
        if !hears || is_last {
            return Ok(());
        }
        std::thread::park_timeout(LOOK_EVERY);
    }
}

struct Followed<'a> {
    record: &'a Record,
    open: Option<File>,
}

impl Followed<'_> {
    fn read(&mut self, hear: &mut impl FnMut(&[u8]) -> bool) -> io::Result<bool> {
        loop {
            let named = match self.record.log() {
                Ok(file) => Some(file),
                Err(error) if error.kind() == io::ErrorKind::NotFound => None,
                Err(error) => return Err(error),
            };
            let mut buffer = [0; READ_BYTES];
            while let Some(file) = &mut self.open {
                match file.read(&mut buffer)? {
                    0 => break,
                    read if !hear(&buffer[..read]) => return Ok(false),
                    _ => {}
                }
            }
            match named {
                Some(named) if !is_same(self.open.as_ref(), &named)? => self.open = Some(named),
                _ => return Ok(true),
            }
        }
    }
}

/// A long log was renamed, and a new one has begun.
fn is_same(open: Option<&File>, named: &File) -> io::Result<bool> {
    let Some(open) = open else { return Ok(false) };
    let (open, named) = (open.metadata()?, named.metadata()?);
    Ok((open.dev(), open.ino()) == (named.dev(), named.ino()))
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::fs;

    use super::*;
    use crate::detached::record::Records;
    use crate::detached::record::tests::copy;

    #[test]
    fn a_log_is_followed_over_a_change_of_its_name_to_its_last_word() {
        let dir = tempfile::tempdir().unwrap();
        let (record, _) = Records::at(&dir.path().join("copies")).claim(copy(1), 1).unwrap();
        let path = |name: &str| record.path().join(name);
        fs::write(path("log.1"), "before\n").unwrap();
        fs::write(path("log"), "one\n").unwrap();
        let turn = Cell::new(0);
        let is_over = || {
            turn.set(turn.get() + 1);
            match turn.get() {
                2 => {
                    fs::write(path("log"), "one\ntwo\n").unwrap();
                    fs::rename(path("log"), path("log.1")).unwrap();
                    fs::write(path("log"), "three\n").unwrap();
                }
                3 => fs::write(path("log"), "three\nfour\n").unwrap(),
                _ => {}
            }
            turn.get() == 3
        };
        let mut heard = Vec::new();
        log(&record, is_over, |bytes| {
            heard.extend(bytes);
            true
        })
        .unwrap();
        assert_eq!(String::from_utf8(heard).unwrap(), "before\none\ntwo\nthree\nfour\n");
    }

    #[test]
    fn whoever_hears_nothing_more_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let (record, _) = Records::at(&dir.path().join("copies")).claim(copy(1), 1).unwrap();
        fs::write(record.path().join("log"), "one\n").unwrap();
        log(&record, || false, |bytes| bytes.is_empty()).unwrap();
    }
}
