//! Reads lists of hashes in the common formats: those of `b3sum`, `md5sum`, `sha256sum` and their like, and manifests of bags.
//!
//! ```text
//! <hex>  <name>                 b3sum, md5sum, sha1sum, sha256sum, sha512sum; `*` in place of the second space: read as binary
//! SHA256 (<name>) = <hex>       with --tag, as BSD writes it; openssl dgst leaves the spaces out
//! \<hex>  <name>                `\\`, `\n`, `\r` in the name
//! # ...                         a comment
//! <hex> <name>                  a bag's manifest (RFC 8493, 2.1.3): `%0A`, `%0D`, and `%25` since version 1.0
//! ```
//! A stranger's list is safe: each line is bounded before it is kept, and a name that leads out of the tree is refused.

use std::io::{self, BufRead, Read as _};

use haul_wire::hashed::Algorithm;
use haul_wire::{PathFault, RelPath};

use crate::files::manifest_file::MAX_PATH_BYTES;

/// A listed file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// The path.
    pub path: RelPath,
    /// The size, if listed.
    pub size: Option<u64>,
    /// The hash.
    pub hash: Vec<u8>,
    /// The algorithm.
    pub algorithm: Algorithm,
    /// A second fit: SHA-256 or BLAKE3.
    pub or: Option<Algorithm>,
}

/// The form of lines.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Style {
    /// Lines of programs.
    Program {
        /// The default; `None`: by length.
        algorithm: Option<Algorithm>,
        /// Whether absolute names are beneath the root.
        takes_absolute: bool,
    },
    /// Lines of a bag's manifest.
    Bag {
        /// The algorithm.
        algorithm: Algorithm,
        /// Whether `%25` is a percent sign.
        escapes_percent: bool,
    },
}

/// Reads by lines, in constant memory.
pub struct Reader<R: BufRead> {
    input: R,
    style: Style,
    line: Vec<u8>,
    number: u64,
    files: u64,
}

impl<R: BufRead> Reader<R> {
    /// Starts at the first line.
    pub fn new(input: R, style: Style) -> Self {
        Self { input, style, line: Vec::new(), number: 0, files: 0 }
    }

    /// Reads a file; `None` at the end.
    ///
    /// # Errors
    /// A line is malformed, or the list is empty.
    pub fn next_file(&mut self) -> Result<Option<Listed>, ListError> {
        loop {
            self.line.clear();
            let read = self.input.by_ref().take(MAX_LINE_BYTES + 1).read_until(b'\n', &mut self.line)?;
            if read == 0 {
                // A bag may have no payload.
                let may_be_empty = matches!(self.style, Style::Bag { .. });
                return if self.files > 0 || may_be_empty { Ok(None) } else { Err(ListError::Empty) };
            }
            self.number += 1;
            let at = |error| ListError::Line { number: self.number, error };
            if read as u64 > MAX_LINE_BYTES {
                return Err(at(LineError::TooLong));
            }
            if let Some(listed) = parse_line(trimmed(&self.line), self.style).map_err(at)? {
                self.files += 1;
                return Ok(Some(listed));
            }
        }
    }
}

/// Windows ends a line with a carriage return, too.
fn trimmed(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// Parses a line without its end; `None`: comment or empty.
///
/// # Errors
/// The line is malformed, or its name is not beneath the root.
pub fn parse_line(line: &[u8], style: Style) -> Result<Option<Listed>, LineError> {
    if line.is_empty() || (line.starts_with(b"#") && matches!(style, Style::Program { .. })) {
        return Ok(None);
    }
    match style {
        Style::Program { algorithm, takes_absolute } => program_line(line, algorithm, takes_absolute),
        Style::Bag { algorithm, escapes_percent } => bag_line(line, algorithm, escapes_percent),
    }
    .map(Some)
}

fn program_line(line: &[u8], algorithm: Option<Algorithm>, takes_absolute: bool) -> Result<Listed, LineError> {
    let (is_escaped, body) = line.strip_prefix(b"\\").map_or((false, line), |body| (true, body));
    let (hex, name, algorithm, or) = match tagged(body) {
        Some((algorithm, name, hex)) => (hex, name, algorithm, None),
        None => {
            let digits = body.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
            let (hex, rest) = body.split_at(digits);
            let rest = rest.strip_prefix(b" ").ok_or(LineError::Malformed)?;
            let name = rest.strip_prefix(b" ").or_else(|| rest.strip_prefix(b"*")).unwrap_or(rest);
            let (found, or) = match algorithm {
                Some(algorithm) => (algorithm, None),
                None => of_length(hex.len()).ok_or(LineError::UnknownHash(hex.len()))?,
            };
            (hex, name, found, or)
        }
    };
    let name = if is_escaped { unescaped(name)? } else { name.to_vec() };
    let path = beneath(&name, takes_absolute)?;
    Ok(Listed { path, size: None, hash: from_hex(hex, algorithm)?, algorithm, or })
}

fn tagged(line: &[u8]) -> Option<(Algorithm, &[u8], &[u8])> {
    let (algorithm, rest) = TAGS.iter().find_map(|(tag, algorithm)| {
        let rest = line.strip_prefix(tag.as_bytes())?;
        let rest = rest.strip_prefix(b" ").unwrap_or(rest);
        rest.strip_prefix(b"(").map(|rest| (*algorithm, rest))
    })?;
    let digits = rest.iter().rev().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (before, hex) = rest.split_at(rest.len() - digits);
    let before = before.trim_ascii_end().strip_suffix(b"=")?.trim_ascii_end();
    Some((algorithm, before.strip_suffix(b")")?, hex))
}

fn of_length(digits: usize) -> Option<(Algorithm, Option<Algorithm>)> {
    match digits {
        32 => Some((Algorithm::Md5, None)),
        40 => Some((Algorithm::Sha1, None)),
        64 => Some((Algorithm::Sha256, Some(Algorithm::Blake3))),
        128 => Some((Algorithm::Sha512, None)),
        _ => None,
    }
}

fn unescaped(name: &[u8]) -> Result<Vec<u8>, LineError> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name.iter();
    while let Some(byte) = rest.next() {
        bytes.push(match (byte, byte == &b'\\') {
            (byte, false) => *byte,
            (_, true) => match rest.next() {
                Some(b'\\') => b'\\',
                Some(b'n') => b'\n',
                Some(b'r') => b'\r',
                _ => return Err(LineError::Malformed),
            },
        });
    }
    Ok(bytes)
}

fn bag_line(line: &[u8], algorithm: Algorithm, escapes_percent: bool) -> Result<Listed, LineError> {
    let digits = line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count();
    let (hex, rest) = line.split_at(digits);
    let blanks = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
    if blanks == 0 {
        return Err(LineError::Malformed);
    }
    let name = &rest[blanks..];
    let name = without_percents(name.strip_prefix(b"*").unwrap_or(name), escapes_percent);
    Ok(Listed { path: beneath(&name, false)?, size: None, hash: from_hex(hex, algorithm)?, algorithm, or: None })
}

fn without_percents(name: &[u8], escapes_percent: bool) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(name.len());
    let mut rest = name;
    while let Some((first, tail)) = rest.split_first() {
        let meant = match tail {
            [b'0', b'A' | b'a', ..] if *first == b'%' => Some(b'\n'),
            [b'0', b'D' | b'd', ..] if *first == b'%' => Some(b'\r'),
            [b'2', b'5', ..] if *first == b'%' && escapes_percent => Some(b'%'),
            _ => None,
        };
        bytes.push(meant.unwrap_or(*first));
        rest = if meant.is_some() { &tail[2..] } else { tail };
    }
    bytes
}

fn beneath(name: &[u8], takes_absolute: bool) -> Result<RelPath, LineError> {
    if name.starts_with(b"/") && !takes_absolute {
        return Err(LineError::Absolute);
    }
    let parts: Vec<&[u8]> = name.split(|byte| *byte == b'/').filter(|part| !part.is_empty() && *part != b".").collect();
    if parts.is_empty() {
        return Err(LineError::Malformed);
    }
    RelPath::new(parts.join(&b'/')).map_err(LineError::Path)
}

fn from_hex(hex: &[u8], algorithm: Algorithm) -> Result<Vec<u8>, LineError> {
    if hex.len() != 2 * algorithm.bytes() {
        return Err(LineError::UnknownHash(hex.len()));
    }
    let digit = |byte: u8| char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok());
    let byte = |pair: &[u8]| Some(digit(pair[0])? << 4 | digit(pair[1])?);
    hex.chunks_exact(2).map(byte).collect::<Option<Vec<u8>>>().ok_or(LineError::Malformed)
}

/// Writes a line as programs do, or in BSD's form (`tag`). An escaped end of line in a name cannot pose as two lines.
pub fn format_line(hash: &[u8], path: &[u8], tag: Option<Algorithm>) -> Vec<u8> {
    let mut name = Vec::with_capacity(path.len());
    for byte in path {
        match byte {
            b'\\' => name.extend(b"\\\\"),
            b'\n' => name.extend(b"\\n"),
            b'\r' => name.extend(b"\\r"),
            byte => name.push(*byte),
        }
    }
    let mark: &[u8] = if name.len() == path.len() { b"" } else { b"\\" };
    let hex: String = hash.iter().map(|byte| format!("{byte:02x}")).collect();
    match tag.and_then(|algorithm| TAGS.iter().find(|(_, of)| *of == algorithm)) {
        Some((tag, _)) => [mark, tag.as_bytes(), b" (", &name, b") = ", hex.as_bytes()].concat(),
        None => [mark, hex.as_bytes(), b"  ", &name].concat(),
    }
}

/// A line's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line exceeds [`MAX_LINE_BYTES`].
    #[error("the line is too long")]
    TooLong,
    /// No known form.
    #[error("the line is not of the form `<hash>  <name>`")]
    Malformed,
    /// No known hash has so many digits.
    #[error("a hash of {0} digits is none of BLAKE3, MD5, SHA-1, SHA-256, SHA-512")]
    UnknownHash(usize),
    /// An absolute name below another root than `/`.
    #[error("the name is absolute")]
    Absolute,
    /// A name out of the tree, or too long.
    #[error("{0}")]
    Path(PathFault),
}

/// A list's fault.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    /// No file.
    #[error("it lists no file")]
    Empty,
    /// A bad line.
    #[error("line {number}: {error}")]
    Line {
        /// The number, from 1.
        number: u64,
        /// The fault.
        error: LineError,
    },
    /// An unreadable list.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The first name is the one that we write; openssl has two of its own.
const TAGS: [(&str, Algorithm); 7] = [
    ("BLAKE3", Algorithm::Blake3),
    ("MD5", Algorithm::Md5),
    ("SHA1", Algorithm::Sha1),
    ("SHA256", Algorithm::Sha256),
    ("SHA512", Algorithm::Sha512),
    ("SHA2-256", Algorithm::Sha256),
    ("SHA2-512", Algorithm::Sha512),
];

/// A mark, 128 digits, two blanks, and a path whose every byte is escaped to three.
pub const MAX_LINE_BYTES: u64 = 131 + 3 * MAX_PATH_BYTES as u64 + 2;

#[cfg(test)]
mod tests {
    use super::*;

    const PROGRAM: Style = Style::Program { algorithm: None, takes_absolute: false };
    const MD5: &str = "d41d8cd98f00b204e9800998ecf8427e";

    fn parsed(line: &str, style: Style) -> Result<Option<(String, Algorithm, Option<Algorithm>)>, LineError> {
        let text = |path: &RelPath| String::from_utf8(path.as_bytes().to_vec()).unwrap();
        parse_line(line.as_bytes(), style).map(|line| line.map(|line| (text(&line.path), line.algorithm, line.or)))
    }

    #[test]
    fn the_format_of_a_line_is_told_by_the_line() {
        let (sha256, sha512) = ("ab".repeat(32), "CD".repeat(64));
        let md5 = |name: &str| Ok(Some((name.to_owned(), Algorithm::Md5, None)));
        let table = [
            (format!("{MD5}  a b"), md5("a b")),
            (format!("{MD5} *a"), md5("a")),
            (format!("{MD5} a"), md5("a")),
            (format!("{MD5}  ./d//a"), md5("d/a")),
            (format!("\\{MD5}  a\\\\b\\nc\\rd"), md5("a\\b\nc\rd")),
            (format!("{MD5}  a\\n"), md5("a\\n")),
            (format!("MD5 (a) = (b)) = {MD5}"), md5("a) = (b)")),
            (format!("MD5(a)= {MD5}"), md5("a")),
            (format!("\\MD5 (a\\nb) = {MD5}"), md5("a\nb")),
            (format!("{sha256}  a"), Ok(Some(("a".into(), Algorithm::Sha256, Some(Algorithm::Blake3))))),
            (format!("BLAKE3 (a) = {sha256}"), Ok(Some(("a".into(), Algorithm::Blake3, None)))),
            (format!("SHA2-256(a)= {sha256}"), Ok(Some(("a".into(), Algorithm::Sha256, None)))),
            (format!("{sha512}  a"), Ok(Some(("a".into(), Algorithm::Sha512, None)))),
            ("# words".into(), Ok(None)),
            (String::new(), Ok(None)),
            (format!("{MD5}0  a"), Err(LineError::UnknownHash(33))),
            (format!("SHA256 (a) = {MD5}"), Err(LineError::UnknownHash(32))),
            (format!("{MD5}  "), Err(LineError::Malformed)),
            (format!("{MD5}  ."), Err(LineError::Malformed)),
            ("words".into(), Err(LineError::Malformed)),
            (format!("{MD5}  /a"), Err(LineError::Absolute)),
            (format!("{MD5}  a/../../b"), Err(LineError::Path(PathFault::DotName))),
            (format!("\\{MD5}  a\\x"), Err(LineError::Malformed)),
        ];
        for (line, expected) in table {
            assert_eq!(parsed(&line, PROGRAM), expected, "{line}");
        }
        let from_root = Style::Program { algorithm: None, takes_absolute: true };
        assert_eq!(parsed(&format!("{MD5}  /a/b"), from_root), md5("a/b"));
        let told = Style::Program { algorithm: Some(Algorithm::Blake3), takes_absolute: false };
        assert_eq!(parsed(&format!("{sha256}  a"), told), Ok(Some(("a".into(), Algorithm::Blake3, None))));
    }

    #[test]
    fn a_bag_writes_some_bytes_of_a_name_in_percents() {
        let bag = |escapes_percent| Style::Bag { algorithm: Algorithm::Md5, escapes_percent };
        let name = |line: &str, percent| parsed(line, bag(percent)).unwrap().unwrap().0;
        assert_eq!(name(&format!("{MD5} \t*data/a%0Ab%0dc%25"), true), "data/a\nb\rc%");
        assert_eq!(name(&format!("{MD5}  data/a%0Ab%25"), false), "data/a\nb%25");
        assert_eq!(parsed(&format!("{MD5}data/a"), bag(true)), Err(LineError::Malformed));
        assert_eq!(parsed(&format!("{MD5} ../a"), bag(true)), Err(LineError::Path(PathFault::DotName)));
    }

    #[test]
    fn what_is_written_is_read_and_is_one_line_whatever_the_name() {
        for name in [&b"a b"[..], b"a\nb\\c\r", b"x) = y", b"*\xff"] {
            for tag in [None, Some(Algorithm::Md5)] {
                let line = format_line(&[7; 16], name, tag);
                assert!(!line.contains(&b'\n'));
                let read = parse_line(&line, PROGRAM).unwrap().unwrap();
                assert_eq!((read.path.as_bytes(), read.hash, read.algorithm), (name, vec![7; 16], Algorithm::Md5));
            }
        }
        assert_eq!(format_line(&[0xab], b"a\nb\\c", None), b"\\ab  a\\nb\\\\c");
    }

    #[test]
    fn a_list_without_a_file_and_a_line_without_an_end_are_refused() {
        let read = |text: &[u8]| {
            let mut reader = Reader::new(text, PROGRAM);
            let mut files = 0;
            while reader.next_file().map_err(|error| error.to_string())?.is_some() {
                files += 1;
            }
            Ok::<u64, String>(files)
        };
        assert_eq!(read(format!("{MD5}  a\r\n\n{MD5}  b").as_bytes()), Ok(2));
        assert_eq!(read(b"# only words\n"), Err("it lists no file".into()));
        let long = [MD5.as_bytes(), b"  ", &vec![b'a'; 1 << 20]].concat();
        assert_eq!(read(&long), Err("line 1: the line is too long".into()));
    }
}
