//! The one way of a peer's or file's text to the terminal.

use std::fmt::Write as _;

use haul_transfer::drives_terminal;

/// Text that cannot drive a terminal: control characters, those that turn the direction of writing, and bytes that are
/// not UTF-8 become `\xHH` or `\u{HHHH}`.
pub fn printable(bytes: impl AsRef<[u8]>) -> String {
    let bytes = bytes.as_ref();
    let mut text = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for c in chunk.valid().chars() {
            if c.is_ascii_control() {
                let _ = write!(text, "\\x{:02x}", c as u32);
            } else if drives_terminal(c) {
                let _ = write!(text, "\\u{{{:x}}}", c as u32);
            } else {
                text.push(c);
            }
        }
        for byte in chunk.invalid() {
            let _ = write!(text, "\\x{byte:02x}");
        }
    }
    text
}

/// A path below source or target; an empty one is `.`, as in rsync.
pub fn printable_path(path: &[u8]) -> String {
    if path.is_empty() { ".".to_owned() } else { printable(path) }
}

pub fn printable_lines(text: &str) -> impl Iterator<Item = String> {
    text.lines().map(|line| printable(line.trim_end_matches('\r')))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_top_of_a_tree_has_a_name_in_messages() {
        assert_eq!((printable_path(b"").as_str(), printable_path(b"a\n").as_str()), (".", "a\\x0a"));
    }

    #[test]
    fn a_terminal_never_sees_what_could_drive_it() {
        assert_eq!(printable("plain ünïcode 😀 \\ "), "plain ünïcode 😀 \\ ");
        assert_eq!(printable(b"\x1b[31mred\x07\n\x7f"), r"\x1b[31mred\x07\x0a\x7f");
        assert_eq!(printable(b"\xff\xfeab\xc3"), r"\xff\xfeab\xc3");
        assert_eq!(printable("c1 \u{9b}31m rlo \u{202e}gpj.exe"), r"c1 \u{9b}31m rlo \u{202e}gpj.exe");
    }
}
