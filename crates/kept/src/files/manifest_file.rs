//! Reads and writes the manifest that `--manifest-out` writes and `haul verify` reads. docs/use/json.md has the format.
//!
//! A stranger's manifest is safe: each line is bounded before it is kept, and a path that leads out of the tree is an error.

use std::fmt::Write as _;
use std::io::{self, BufRead, Read, Write};

use haul_job::ManifestLine;

/// Writes a manifest.
pub struct Writer<W: Write> {
    out: W,
    root: RootHasher,
    bytes: u64,
}

impl<W: Write> Writer<W> {
    /// Writes the header.
    pub fn start(mut out: W) -> io::Result<Self> {
        writeln!(out, "{HEADER}")?;
        Ok(Self { out, root: RootHasher::default(), bytes: 0 })
    }

    /// Adds a file.
    pub fn add(&mut self, line: &ManifestLine) -> io::Result<()> {
        self.root.add(&line.path, line.size, &line.blake3);
        self.bytes = self.bytes.saturating_add(line.size);
        self.out.write_all(format_line(line).as_bytes())?;
        self.out.write_all(b"\n")
    }

    /// Writes the closing line, flushes, returns the output.
    pub fn finish(mut self) -> io::Result<W> {
        let (files, root) = self.root.finish();
        writeln!(self.out, "{}", Trailer { files, bytes: self.bytes, root }.format())?;
        self.out.flush()?;
        Ok(self.out)
    }
}

/// Reads by lines, in constant memory.
pub struct Reader<R: BufRead> {
    input: R,
    line: Vec<u8>,
    number: u64,
    root: RootHasher,
    files: u64,
    bytes: u64,
    closed: Option<Trailer>,
}

impl<R: BufRead> Reader<R> {
    /// Reads the header.
    pub fn start(input: R) -> Result<Self, ReadError> {
        let mut reader =
            Self { input, line: Vec::new(), number: 0, root: RootHasher::default(), files: 0, bytes: 0, closed: None };
        if !reader.read_line()? {
            return Err(ReadError::NotAManifest);
        }
        match reader.line.strip_prefix(HEADER_STEM.as_bytes()) {
            Some(b"1") => Ok(reader),
            Some(version) if !version.is_empty() && version.len() <= 9 && version.iter().all(u8::is_ascii_digit) => {
                Err(ReadError::Version(String::from_utf8_lossy(version).into_owned()))
            }
            _ => Err(ReadError::NotAManifest),
        }
    }

    /// Reads a file; `None` after a matching closing line.
    pub fn next_file(&mut self) -> Result<Option<ManifestLine>, ReadError> {
        if self.closed.is_some() {
            return Ok(None);
        }
        if !self.read_line()? {
            return Err(ReadError::Truncated);
        }
        if self.line.starts_with(b"#") {
            self.close()?;
            return Ok(None);
        }
        let line = parse_line(&self.line).map_err(|error| ReadError::Line { number: self.number, error })?;
        self.root.add(&line.path, line.size, &line.blake3);
        self.files += 1;
        self.bytes = self.bytes.saturating_add(line.size);
        Ok(Some(line))
    }

    /// The closing line, once read.
    pub fn trailer(&self) -> Option<&Trailer> {
        self.closed.as_ref()
    }

    fn close(&mut self) -> Result<(), ReadError> {
        let said = Trailer::parse(&self.line)
            .ok_or(ReadError::Line { number: self.number, error: LineError::UnknownDirective })?;
        let (files, root) = std::mem::take(&mut self.root).finish();
        let found = Trailer { files, bytes: self.bytes, root };
        if said != found {
            return Err(ReadError::TrailerDiffers);
        }
        if self.read_line()? {
            return Err(ReadError::Line { number: self.number, error: LineError::AfterTrailer });
        }
        self.closed = Some(said);
        Ok(())
    }

    /// A last line without newline was cut off.
    fn read_line(&mut self) -> Result<bool, ReadError> {
        self.line.clear();
        let most = MAX_LINE_BYTES as u64 + 1;
        let read = self.input.by_ref().take(most).read_until(b'\n', &mut self.line)?;
        if read == 0 {
            return Ok(false);
        }
        self.number += 1;
        if self.line.pop() != Some(b'\n') {
            let long = read as u64 == most;
            let number = self.number;
            return Err(if long {
                ReadError::Line { number, error: LineError::TooLong }
            } else {
                ReadError::Truncated
            });
        }
        Ok(true)
    }
}

/// Computes the root hash: BLAKE3 over `<hex>  <size> <escaped path>\n` of each file.
#[derive(Clone, Debug, Default)]
pub struct RootHasher {
    hasher: blake3::Hasher,
    line: String,
    files: u64,
    last: Option<[u8; 32]>,
}

impl RootHasher {
    /// Adds a file, in order.
    pub fn add(&mut self, path: &[u8], size: u64, hash: &[u8; 32]) {
        self.line.clear();
        let _ = write!(self.line, "{}  {size} ", blake3::Hash::from_bytes(*hash).to_hex());
        escape_into(path, &mut self.line);
        self.line.push('\n');
        self.hasher.update(self.line.as_bytes());
        self.files += 1;
        self.last = Some(*hash);
    }

    /// A single file's hash.
    pub fn only(&self) -> Option<[u8; 32]> {
        self.last.filter(|_| self.files == 1)
    }

    /// Returns the files and the root.
    pub fn finish(self) -> (u64, [u8; 32]) {
        (self.files, *self.hasher.finalize().as_bytes())
    }
}

/// The closing line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trailer {
    /// The files.
    pub files: u64,
    /// The bytes.
    pub bytes: u64,
    /// The root.
    pub root: [u8; 32],
}

impl Trailer {
    /// Makes the line, without newline.
    pub fn format(&self) -> String {
        format!("# files {} bytes {} root {}", self.files, self.bytes, blake3::Hash::from_bytes(self.root).to_hex())
    }

    /// Parses a closing line.
    pub fn parse(line: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(line).ok()?;
        let mut words = text.strip_prefix("# files ")?.split(' ');
        let files = decimal(words.next()?)?;
        (words.next()? == "bytes").then_some(())?;
        let bytes = decimal(words.next()?)?;
        (words.next()? == "root").then_some(())?;
        let root = hash_from_hex(words.next()?.as_bytes())?;
        words.next().is_none().then_some(Self { files, bytes, root })
    }
}

/// Makes a file's line, without newline.
pub fn format_line(line: &ManifestLine) -> String {
    let mut text = String::with_capacity(HASH_HEX + 48 + line.path.len());
    let hash = blake3::Hash::from_bytes(line.blake3).to_hex();
    let _ = write!(text, "{hash}  {} {}.{:09} ", line.size, line.mtime_s, line.mtime_ns);
    escape_into(&line.path, &mut text);
    text
}

/// Parses a file's line, if `format_line` would write it, and its path stays in the tree.
pub fn parse_line(line: &[u8]) -> Result<ManifestLine, LineError> {
    if line.len() > MAX_LINE_BYTES {
        return Err(LineError::TooLong);
    }
    let text = std::str::from_utf8(line).map_err(|_| LineError::Malformed)?;
    let (hash, rest) = text.split_once("  ").ok_or(LineError::Malformed)?;
    let (size, rest) = rest.split_once(' ').ok_or(LineError::Malformed)?;
    let (mtime, path) = rest.split_once(' ').ok_or(LineError::Malformed)?;
    let (seconds, nanoseconds) = mtime.split_once('.').ok_or(LineError::Malformed)?;
    if nanoseconds.len() != 9 {
        return Err(LineError::Malformed);
    }
    let line = ManifestLine {
        path: unescape(path)?,
        size: decimal(size).ok_or(LineError::Malformed)?,
        mtime_s: seconds_from(seconds).ok_or(LineError::Malformed)?,
        mtime_ns: nanoseconds
            .bytes()
            .all(|b| b.is_ascii_digit())
            .then(|| nanoseconds.parse().ok())
            .flatten()
            .ok_or(LineError::Malformed)?,
        blake3: hash_from_hex(hash.as_bytes()).ok_or(LineError::Malformed)?,
    };
    check_path(&line.path)?;
    Ok(line)
}

/// Escapes backslashes, control characters, and bytes that are not UTF-8.
pub fn escape(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    escape_into(path, &mut text);
    text
}

fn escape_into(path: &[u8], out: &mut String) {
    for chunk in path.utf8_chunks() {
        for c in chunk.valid().chars() {
            // A shown manifest must not drive a terminal.
            if c == '\\' || c.is_ascii_control() {
                let _ = write!(out, "\\x{:02x}", c as u32);
            } else {
                out.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(out, "\\x{byte:02x}");
        }
    }
}

fn unescape(text: &str) -> Result<Vec<u8>, LineError> {
    let mut path = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((&first, tail)) = rest.split_first() {
        if first == b'\\' {
            let [b'x', high, low, tail @ ..] = tail else { return Err(LineError::Malformed) };
            let (high, low) = (nibble(*high), nibble(*low));
            let (Some(high), Some(low)) = (high, low) else { return Err(LineError::Malformed) };
            path.push(high << 4 | low);
            rest = tail;
        } else {
            path.push(first);
            rest = tail;
        }
    }
    // A second spelling would let two manifests of a tree differ in bytes and agree in their root.
    if escape(&path) == text { Ok(path) } else { Err(LineError::Malformed) }
}

fn check_path(path: &[u8]) -> Result<(), LineError> {
    if path.is_empty() || path.len() > MAX_PATH_BYTES || path.contains(&0) {
        return Err(LineError::BadPath);
    }
    let bad = |name: &[u8]| name.is_empty() || name == b"." || name == b".." || name.len() > MAX_NAME_BYTES;
    if path.split(|b| *b == b'/').any(bad) { Err(LineError::BadPath) } else { Ok(()) }
}

/// A number has one spelling: `u64::parse` also takes a plus sign and leading zeros.
fn decimal(text: &str) -> Option<u64> {
    let canonical = text == "0" || !text.starts_with('0');
    (canonical && text.bytes().all(|b| b.is_ascii_digit())).then(|| text.parse().ok()).flatten()
}

fn seconds_from(text: &str) -> Option<i64> {
    match text.strip_prefix('-') {
        Some(digits) => decimal(digits).filter(|n| *n != 0).and_then(|_| text.parse().ok()),
        None => decimal(text).and_then(|n| i64::try_from(n).ok()),
    }
}

fn hash_from_hex(hex: &[u8]) -> Option<[u8; 32]> {
    let mut hash = [0; 32];
    if hex.len() != HASH_HEX {
        return None;
    }
    for (byte, pair) in hash.iter_mut().zip(hex.chunks_exact(2)) {
        *byte = nibble(pair[0])? << 4 | nibble(pair[1])?;
    }
    Some(hash)
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A line's fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LineError {
    /// The line exceeds [`MAX_LINE_BYTES`].
    #[error("the line is too long")]
    TooLong,
    /// No `<hash>  <size> <mtime> <path>`.
    #[error("the line is not of the form `<hash>  <size> <mtime> <path>`")]
    Malformed,
    /// A path that is absolute, empty, too long, or has `.`, `..` or a NUL.
    #[error("the path is not a plain path inside a tree")]
    BadPath,
    /// A `#` that is neither header nor closing line.
    #[error("a line with `#` that is not the closing line")]
    UnknownDirective,
    /// A line after the closing line.
    #[error("something follows the closing line")]
    AfterTrailer,
}

/// A manifest's fault.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// No header.
    #[error("this is not a manifest of haul")]
    NotAManifest,
    /// A wrong version.
    #[error("this is a manifest of version {0}; this haul reads version 1")]
    Version(String),
    /// No closing line.
    #[error("the manifest ends without its closing line: it is cut off")]
    Truncated,
    /// Lines were lost, added or altered.
    #[error("the manifest does not match its closing line: it was altered")]
    TrailerDiffers,
    /// A bad line.
    #[error("line {number}: {error}")]
    Line {
        /// The number, from 1.
        number: u64,
        /// The fault.
        error: LineError,
    },
    /// An unreadable manifest.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// The first line.
pub const HEADER: &str = "# haul-manifest 1";
/// The same without its version.
pub const HEADER_STEM: &str = "# haul-manifest ";

/// The longest path. Linux takes 4096 bytes in one call, but a walk that opens each directory gets deeper.
pub const MAX_PATH_BYTES: usize = 64 * 1024;

/// NAME_MAX of Linux.
pub const MAX_NAME_BYTES: usize = 255;

/// Hash 64 + 2, size 20 + 1, seconds 20, dot 1, nanoseconds 9 + 1, and a path whose every byte is escaped to four.
pub const MAX_LINE_BYTES: usize = 118 + 4 * MAX_PATH_BYTES;

const HASH_HEX: usize = 64;

#[cfg(test)]
mod tests {
    use haul_sys::intercept::{Call, Stopped, Verdict, under};
    use haul_sys::whole_file::{Mode, WholeFile};

    use super::*;

    const EIO: i32 = rustix::io::Errno::IO.raw_os_error();

    fn line(path: &[u8]) -> ManifestLine {
        let blake3 = *blake3::hash(b"hello").as_bytes();
        ManifestLine { path: path.to_vec(), size: 5, mtime_s: 1_700_000_000, mtime_ns: 42, blake3 }
    }

    fn written(paths: &[&[u8]]) -> Vec<u8> {
        let mut writer = Writer::start(Vec::new()).unwrap();
        for path in paths {
            writer.add(&line(path)).unwrap();
        }
        writer.finish().unwrap()
    }

    fn read(bytes: &[u8]) -> Result<Vec<Vec<u8>>, String> {
        let mut reader = Reader::start(bytes).map_err(|e| e.to_string())?;
        let mut paths = Vec::new();
        while let Some(line) = reader.next_file().map_err(|e| e.to_string())? {
            paths.push(line.path);
        }
        Ok(paths)
    }

    #[test]
    fn a_line_looks_like_this() {
        let text = format_line(&line(b"dir/back\\slash\nnew\xff \xc3\xa9"));
        insta::assert_snapshot!(text, @r"ea8f163db38682925e4491c5e58d4bb3506ef8c14eb78a86e908c5624a67200f  5 1700000000.000000042 dir/back\x5cslash\x0anew\xff é");
    }

    #[test]
    fn any_bytes_as_a_name_survive_the_way_out_and_back() {
        let every_byte: Vec<u8> = (1..=255).filter(|b| *b != b'/').collect();
        let paths: [&[u8]; 5] =
            [b"a", b" leading and trailing ", b"x\\x41", every_byte.as_slice(), "ünï/\u{1f600}".as_bytes()];
        assert_eq!(read(&written(&paths)).unwrap(), paths);
    }

    #[test]
    fn times_before_the_epoch_survive() {
        let early = ManifestLine { mtime_s: -2, mtime_ns: 999_999_999, ..line(b"a") };
        assert_eq!(parse_line(format_line(&early).as_bytes()).unwrap(), early);
        let least = ManifestLine { mtime_s: i64::MIN, ..line(b"a") };
        assert_eq!(parse_line(format_line(&least).as_bytes()).unwrap(), least);
    }

    #[test]
    fn paths_that_would_leave_the_tree_are_refused() {
        for path in ["../a", "a/../b", "a/..", "..", "/etc/passwd", "a//b", "a/", "", "./a", ".", "a/./b", r"a\x00b"] {
            let hash = "0".repeat(64);
            let text = format!("{hash}  1 1.000000000 {path}");
            assert_eq!(parse_line(text.as_bytes()), Err(LineError::BadPath), "{path:?}");
        }
    }

    #[test]
    fn lines_with_a_second_spelling_are_refused() {
        let hash = "0".repeat(64);
        for rest in [
            r"  1 1.000000000 a\x62",
            r"  1 1.000000000 a\x5C",
            r"  1 1.000000000 a\",
            r"  1 1.000000000 a\q",
            "  01 1.000000000 a",
            "  +1 1.000000000 a",
            "  1 -0.000000000 a",
            "  1 1.0 a",
            "  1 1.00000000x a",
            "  1 1.+00000000 a",
            "  99999999999999999999 1.000000000 a",
            " 1 1.000000000 a",
            "  1 1.000000000",
            "",
        ] {
            assert_eq!(parse_line(format!("{hash}{rest}").as_bytes()), Err(LineError::Malformed), "{rest:?}");
        }
        let upper = format!("{}  1 1.000000000 a", "A".repeat(64));
        assert_eq!(parse_line(upper.as_bytes()), Err(LineError::Malformed));
    }

    #[test]
    fn a_manifest_cut_anywhere_is_refused() {
        let whole = written(&[b"a", b"b/c"]);
        for end in 0..whole.len() {
            assert!(read(&whole[..end]).is_err(), "cut at {end} of {}", whole.len());
        }
    }

    #[test]
    fn a_manifest_with_lines_taken_out_swapped_or_added_is_refused() {
        let whole = String::from_utf8(written(&[b"a", b"b", b"c"])).unwrap();
        let lines: Vec<&str> = whole.lines().collect();
        for order in [vec![0, 1, 2, 4], vec![0, 2, 1, 3, 4], vec![0, 1, 2, 3, 3, 4], vec![0, 4], vec![0, 1, 2, 3, 4, 4]]
        {
            let altered: String = order.iter().map(|i| format!("{}\n", lines[*i])).collect();
            assert!(read(altered.as_bytes()).is_err(), "{order:?}");
        }
    }

    #[test]
    fn an_endless_line_is_refused_before_it_fills_memory() {
        let endless = io::Cursor::new(format!("{HEADER}\n")).chain(io::repeat(b'a'));
        let mut reader = Reader::start(io::BufReader::new(endless)).unwrap();
        let error = reader.next_file().unwrap_err();
        assert!(matches!(error, ReadError::Line { number: 2, error: LineError::TooLong }), "{error}");
    }

    #[test]
    fn a_name_that_may_not_stay_is_no_success() {
        let dir = tempfile::tempdir().unwrap();
        let (directory, path) = (dir.path().to_owned(), dir.path().join("m"));
        let mut asked = Vec::new();
        let decide = |_, stopped: &Stopped| {
            asked.push(stopped.file());
            if stopped.file() == directory { Verdict::Fail(EIO) } else { Verdict::Proceed }
        };
        let publishes = move || WholeFile::begin(&path, Mode::AsBefore).unwrap().publish();
        let Some((result, _)) = under(&[Call::Flush], decide, publishes) else { return };
        assert_eq!(result.unwrap_err().raw_os_error(), Some(EIO));
        assert_eq!((asked.len(), asked.last()), (2, Some(&directory)), "first what is in it, then its name");
    }

    #[test]
    fn another_version_is_named() {
        assert!(read(b"# haul-manifest 2\n").unwrap_err().contains("version 2"));
        assert!(read(b"hello\n").unwrap_err().contains("not a manifest"));
        assert!(read(b"").unwrap_err().contains("not a manifest"));
    }

    #[test]
    fn the_root_depends_on_hash_size_path_and_order() {
        let root = |files: &[(&[u8], u64, u8)]| {
            let mut hasher = RootHasher::default();
            for (path, size, fill) in files {
                hasher.add(path, *size, &[*fill; 32]);
            }
            hasher.finish().1
        };
        let base = root(&[(b"a", 1, 1), (b"b", 2, 2)]);
        assert_ne!(base, root(&[(b"b", 2, 2), (b"a", 1, 1)]));
        assert_ne!(base, root(&[(b"a", 1, 1), (b"b", 3, 2)]));
        assert_ne!(base, root(&[(b"a", 1, 1), (b"b", 2, 3)]));
        assert_ne!(base, root(&[(b"a", 1, 1), (b"c", 2, 2)]));
    }
}
