//! The error of an operation: what failed, on which path, and why.

use std::fmt::Write as _;
use std::io;

use rustix::io::Errno;

/// A failed operation on one path.
#[derive(Debug, thiserror::Error)]
#[error("cannot {op} {}: {}", shown(path), reason(source))]
pub struct StoreError {
    /// The operation: "open", "make directory".
    pub op: &'static str,
    /// The path's bytes; print them with [`printable`].
    pub path: Vec<u8>,
    /// The cause.
    pub source: io::Error,
}

/// The end does not accept who asks: no path of it opens. A file that may not be read is another matter.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct LoginRefused(String);

impl LoginRefused {
    /// Makes the cause of a [`StoreError`].
    pub fn because(why: impl Into<String>) -> io::Error {
        io::Error::new(io::ErrorKind::PermissionDenied, LoginRefused(why.into()))
    }
}

/// The result of an operation on a path.
pub type Result<T> = std::result::Result<T, StoreError>;

impl StoreError {
    /// Joins an operation, its path and the reason.
    pub fn new(op: &'static str, path: &[u8], source: impl Into<io::Error>) -> StoreError {
        StoreError { op, path: path.to_vec(), source: source.into() }
    }

    /// `to_string`, with `root` as the root's name.
    pub fn seen_from(&self, root: &[u8]) -> String {
        let path = if self.path.is_empty() { root } else { &self.path };
        format!("cannot {} {}: {}", self.op, shown(path), reason(&self.source))
    }

    /// The file existed and no longer does.
    pub fn is_vanished(&self) -> bool {
        self.is_one_of(&[Errno::NOENT, Errno::STALE])
    }

    /// No such file, or a named directory is none.
    pub fn is_of_no_file(&self) -> bool {
        self.is_vanished() || self.is_one_of(&[Errno::NOTDIR])
    }

    /// The device or the quota is full.
    pub fn is_no_space(&self) -> bool {
        self.is_one_of(&[Errno::NOSPC, Errno::DQUOT]) || self.source.kind() == io::ErrorKind::StorageFull
    }

    /// The file system is read-only.
    pub fn is_read_only(&self) -> bool {
        self.is_one_of(&[Errno::ROFS])
    }

    /// The connection to the end is lost (never on a disk).
    pub fn is_lost(&self) -> bool {
        self.source.kind() == io::ErrorKind::BrokenPipe && self.source.raw_os_error().is_none()
    }

    /// The end refuses the login (never on a disk).
    pub fn is_of_login(&self) -> bool {
        self.source.get_ref().is_some_and(|inner| inner.is::<LoginRefused>())
    }

    /// No other path of the end fares better.
    pub fn is_of_every_path(&self) -> bool {
        self.is_lost() || self.is_of_login()
    }

    /// The same error once more, of an end.
    pub fn again(&self) -> StoreError {
        let source = match self.is_of_login() {
            true => LoginRefused::because(self.source.to_string()),
            false => io::Error::new(self.source.kind(), self.source.to_string()),
        };
        StoreError { op: self.op, path: self.path.clone(), source }
    }

    /// The end could not be reached (never on a disk).
    pub fn is_of_no_server(&self) -> bool {
        use io::ErrorKind::{ConnectionRefused, HostUnreachable, NetworkUnreachable, NotConnected};
        matches!(self.source.kind(), ConnectionRefused | HostUnreachable | NetworkUnreachable | NotConnected)
    }

    /// The process may open no more files.
    pub fn is_out_of_files(&self) -> bool {
        self.is_one_of(&[Errno::MFILE, Errno::NFILE])
    }

    fn is_one_of(&self, errors: &[Errno]) -> bool {
        let code = self.source.raw_os_error();
        errors.iter().any(|error| code == Some(error.raw_os_error()))
    }
}

/// rsync, too, calls the top of a tree `.`.
fn shown(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { printable(path) }
}

pub(crate) trait Context<T> {
    fn context(self, op: &'static str, path: &[u8]) -> Result<T>;
}

impl<T, E: Into<io::Error>> Context<T> for std::result::Result<T, E> {
    fn context(self, op: &'static str, path: &[u8]) -> Result<T> {
        self.map_err(|error| StoreError::new(op, path, error))
    }
}

/// The reason without the kernel's number. `EXDEV` and `ELOOP` of openat2(2): a path would leave the open root, or goes
/// through a link.
fn reason(source: &io::Error) -> String {
    match source.raw_os_error().map(Errno::from_raw_os_error) {
        Some(Errno::XDEV) => "it leads out of its directory, or to another file system".to_owned(),
        Some(Errno::LOOP) => "a symbolic link is in the way, and links are not followed here".to_owned(),
        Some(_) => {
            let text = source.to_string();
            text.find(" (os error").map_or(text.clone(), |end| text[..end].to_owned())
        }
        None => source.to_string(),
    }
}

pub(crate) fn refusal(kind: io::ErrorKind, why: &'static str) -> io::Error {
    io::Error::new(kind, why)
}

pub(crate) fn is_missing(error: &io::Error) -> bool {
    error.raw_os_error() == Some(Errno::NOENT.raw_os_error())
}

/// A name as one visible line. Control characters, direction marks and invalid text are escaped; different names never print
/// alike.
pub fn printable(path: &[u8]) -> String {
    let mut text = String::with_capacity(path.len());
    for chunk in path.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\\' => text.push_str("\\\\"),
                '\n' => text.push_str("\\n"),
                '\r' => text.push_str("\\r"),
                '\t' => text.push_str("\\t"),
                character if character.is_ascii_control() => {
                    let _ = write!(text, "\\x{:02x}", character as u32);
                }
                character if drives_terminal(character) || is_invisible(character) => {
                    let _ = write!(text, "\\u{{{:x}}}", character as u32);
                }
                character => text.push(character),
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// Whether a terminal obeys this character: control characters (C0, DEL, C1), line separators, and direction marks
/// (Unicode's Bidi_Control): `gpj.exe` shows as `exe.jpg`.
pub fn drives_terminal(character: char) -> bool {
    character.is_control()
        || matches!(character,
            '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Two names that differ only in such characters look the same.
fn is_invisible(character: char) -> bool {
    matches!(character, '\u{200b}'..='\u{200d}' | '\u{2060}'..='\u{2065}' | '\u{206a}'..='\u{206f}' | '\u{feff}')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_root_of_a_tree_is_called_as_it_was_typed() {
        let error = |path: &[u8]| StoreError::new("set metadata of", path, Errno::PERM);
        assert_eq!(error(b"").seen_from(b"to/run42"), "cannot set metadata of to/run42: Operation not permitted");
        assert_eq!(error(b"").seen_from(b""), "cannot set metadata of .: Operation not permitted");
        assert_eq!(error(b"a").seen_from(b"to/run42"), "cannot set metadata of a: Operation not permitted");
    }

    #[test]
    fn names_print_on_one_line_and_unambiguously() {
        for (name, expected) in [
            (b"plain name".as_slice(), "plain name"),
            ("größe/データ".as_bytes(), "größe/データ"),
            (b"a\nb\rc\td", "a\\nb\\rc\\td"),
            (b"\x1b[31mred\x07\x7f", "\\x1b[31mred\\x07\\x7f"),
            (b"latin\xe9", "latin\\xe9"),
            (b"back\\slash", "back\\\\slash"),
            ("\u{202e}txt.exe \u{9b}".as_bytes(), "\\u{202e}txt.exe \\u{9b}"),
            (b"", ""),
        ] {
            assert_eq!(printable(name), expected);
        }
    }

    #[test]
    fn what_drives_a_terminal_is_what_unicode_lists() {
        let listed: Vec<u32> = (0..=0x10_ffff).filter(|&c| char::from_u32(c).is_some_and(drives_terminal)).collect();
        let ranges = [0..=0x1f, 0x7f..=0x9f, 0x61c..=0x61c, 0x200e..=0x200f, 0x2028..=0x202e, 0x2066..=0x2069];
        assert_eq!(listed, ranges.into_iter().flatten().collect::<Vec<u32>>());
    }

    #[test]
    fn an_error_about_the_top_of_a_tree_has_a_name_for_it() {
        let error = StoreError::new("read directory", b"", Errno::ACCESS);
        assert_eq!(error.to_string(), "cannot read directory .: Permission denied");
    }

    #[test]
    fn an_error_says_what_failed_on_what_and_why() {
        let error = StoreError::new("open", b"a\nb", Errno::NOENT);
        assert_eq!(error.to_string(), "cannot open a\\nb: No such file or directory");
        assert!(error.is_vanished() && !error.is_no_space() && !error.is_read_only());
        assert!(StoreError::new("write", b"x", Errno::DQUOT).is_no_space());
        assert!(StoreError::new("write", b"x", Errno::ROFS).is_read_only());
    }
}
