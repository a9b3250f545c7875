//! Escapes control characters in a far side's text for our terminal. A question shows before its line ends.

use std::fmt::Write as _;

use haul_store::drives_terminal;

/// Makes blocks safe to show. `\r` passes only before `\n`: alone it would let text overwrite its line.
#[derive(Default)]
pub(super) struct Escaper {
    begun: Vec<u8>,
    after_return: bool,
}

impl Escaper {
    pub(super) fn push(&mut self, block: &[u8]) -> String {
        let mut bytes = std::mem::take(&mut self.begun);
        bytes.extend_from_slice(block);
        let mut shown = String::with_capacity(bytes.len());
        let mut rest = bytes.as_slice();
        while !rest.is_empty() {
            let (text, wrong) = match str::from_utf8(rest) {
                Ok(text) => (text, 0),
                Err(error) => {
                    let text = str::from_utf8(&rest[..error.valid_up_to()]).expect("it was just found to be valid");
                    // An error without a length is at the end: more bytes may make it a character.
                    (text, error.error_len().unwrap_or(0))
                }
            };
            text.chars().for_each(|c| self.show(c, &mut shown));
            let (invalid, after) = rest[text.len()..].split_at(wrong);
            if invalid.is_empty() {
                self.begun = after.to_vec();
                break;
            }
            self.show_bytes(invalid, &mut shown);
            rest = after;
        }
        shown
    }

    pub(super) fn finish(mut self) -> String {
        let mut shown = String::new();
        let begun = std::mem::take(&mut self.begun);
        self.show_bytes(&begun, &mut shown);
        shown
    }

    fn show(&mut self, c: char, shown: &mut String) {
        if c == '\n' && std::mem::take(&mut self.after_return) {
            shown.push_str("\r\n");
            return;
        }
        self.show_return(shown);
        match c {
            '\r' => self.after_return = true,
            '\n' | '\t' => shown.push(c),
            c if c.is_ascii_control() => {
                let _ = write!(shown, "\\x{:02x}", c as u32);
            }
            c if drives_terminal(c) => {
                let _ = write!(shown, "\\u{{{:x}}}", c as u32);
            }
            c => shown.push(c),
        }
    }

    fn show_bytes(&mut self, bytes: &[u8], shown: &mut String) {
        self.show_return(shown);
        for byte in bytes {
            let _ = write!(shown, "\\x{byte:02x}");
        }
    }

    fn show_return(&mut self, shown: &mut String) {
        if std::mem::take(&mut self.after_return) {
            shown.push_str("\\x0d");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(said: &[u8], expected: &str) {
        for cut in 0..=said.len() {
            let mut escaper = Escaper::default();
            let shown = escaper.push(&said[..cut]) + &escaper.push(&said[cut..]) + &escaper.finish();
            assert_eq!(shown, expected, "cut at {cut}");
        }
    }

    #[test]
    fn what_a_far_side_says_drives_no_terminal_however_it_is_cut() {
        check("größe \u{1f600} データ\n\tand\r\nlines\n".as_bytes(), "größe \u{1f600} データ\n\tand\r\nlines\n");
        check(b"\x1b]0;title\x07 \x00\x08\x7f", r"\x1b]0;title\x07 \x00\x08\x7f");
        check("c1 \u{9b}2J rlo \u{202e}gpj.exe".as_bytes(), r"c1 \u{9b}2J rlo \u{202e}gpj.exe");
        check(b"true\rfalse\r\r\nend\r", "true\\x0dfalse\\x0d\r\nend\\x0d");
        check(b"latin \xe9t\xe9 \xf0\x9f\x98", r"latin \xe9t\xe9 \xf0\x9f\x98");
        check(b"\r\xff\r", r"\x0d\xff\x0d");
    }

    #[test]
    fn a_question_is_shown_before_its_line_ends() {
        let mut escaper = Escaper::default();
        assert_eq!(escaper.push("Kennwort für a@h: ".as_bytes()), "Kennwort für a@h: ");
        assert_eq!(escaper.push(b"\xc3"), "");
        assert_eq!(escaper.push(b"\xa9?"), "é?");
    }

    #[test]
    fn little_is_held_back_and_little_is_added() {
        let mut escaper = Escaper::default();
        for block in [[0xf0; 1024], [0x1b; 1024], [b'\r'; 1024], [0xe2; 1024]] {
            assert!(escaper.push(&block).len() <= 4 * (1024 + 4));
            assert!(escaper.begun.len() <= 3);
        }
    }
}
