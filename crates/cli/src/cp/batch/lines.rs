//! The lines of `--batch`: a job `SRC... DST` each, quoted as in a shell, without variables and wildcards.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;

use haul_job::{Error, Fault};

use crate::text::printable::printable;

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BatchLine {
    /// Counts from 1, with empty lines and comments.
    pub number: usize,
    pub paths: Vec<OsString>,
}

const MAX_JOBS: usize = 100_000;

const SHOWN_BYTES: usize = 200;

/// All jobs of a file, so a bad line is found before any copy.
pub fn parse(bytes: &[u8]) -> Result<Vec<BatchLine>, Error> {
    let mut lines = Vec::new();
    for (number, line) in (1..).zip(bytes.split(|byte| *byte == b'\n')) {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let mut words = shlex::bytes::Shlex::new(line);
        let paths: Vec<OsString> = words.by_ref().map(OsString::from_vec).collect();
        if words.had_error {
            let shown = printable(&line[..line.len().min(SHOWN_BYTES)]);
            return Err(usage(format!("line {number} of --batch is not complete: {shown}"))
                .because("a quote is not closed, or nothing follows a backslash"));
        }
        if !paths.is_empty() {
            lines.push(BatchLine { number, paths });
        }
        if lines.len() > MAX_JOBS {
            return Err(usage(format!("--batch has more than {MAX_JOBS} jobs"))
                .try_this("name many files of one directory in one job, with --files-from"));
        }
    }
    if lines.is_empty() {
        return Err(usage("--batch names no job".to_owned()).try_this("a job is a line: SRC... DST"));
    }
    Ok(lines)
}

impl BatchLine {
    pub fn explain(&self, error: Error) -> Error {
        Error { what: format!("line {} of --batch: {}", self.number, error.what), ..error }
    }
}

fn usage(what: String) -> Error {
    Error::new(Fault::Usage, what)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn paths(text: &[u8]) -> Vec<(usize, Vec<Vec<u8>>)> {
        let line = |line: BatchLine| (line.number, line.paths.into_iter().map(OsString::into_vec).collect());
        parse(text).unwrap().into_iter().map(line).collect()
    }

    #[test]
    fn words_are_quoted_as_in_a_shell_and_comments_are_left_out() {
        let text = b"# of today\n\na 'b c' h:d\r\n  \"e \\\" f\" h:'g'h # the rest\n\xff\\ i h:j";
        let words = |words: &[&[u8]]| words.iter().map(|word| word.to_vec()).collect::<Vec<_>>();
        let expected = vec![
            (3, words(&[b"a", b"b c", b"h:d"])),
            (4, words(&[b"e \" f", b"h:gh"])),
            (5, words(&[b"\xff i", b"h:j"])),
        ];
        assert_eq!(paths(text), expected);
    }

    #[test]
    fn a_line_that_makes_no_sense_is_named() {
        let error = parse(b"a b\n'c d\n").unwrap_err();
        assert_eq!(error.what, "line 2 of --batch is not complete: 'c d");
        assert_eq!(parse(b"\n # nothing\n").unwrap_err().what, "--batch names no job");
    }
}
