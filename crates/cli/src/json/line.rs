//! Turns an object into a line of JSON that is safe for a terminal.

use std::io::{self, Write};

use haul_transfer::drives_terminal;
use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};

/// Ends with a newline. Plain structs of numbers and strings never fail.
pub fn to_line(object: &impl Serialize) -> String {
    let mut text = Vec::new();
    object.serialize(&mut Serializer::with_formatter(&mut text, Shown)).expect("plain structs of numbers and strings");
    text.push(b'\n');
    String::from_utf8(text).expect("it is made of pieces of text")
}

/// Escapes as `\uXXXX`, the same text to a reader, all characters of a peer that drive a terminal; JSON requires this
/// only below U+0020.
struct Shown;

impl Formatter for Shown {
    fn write_string_fragment<W: ?Sized + Write>(&mut self, out: &mut W, fragment: &str) -> io::Result<()> {
        let mut rest = fragment;
        while let Some((at, c)) = rest.char_indices().find(|(_, c)| drives_terminal(*c)) {
            out.write_all(&rest.as_bytes()[..at])?;
            let mut units = [0; 2];
            for unit in c.encode_utf16(&mut units) {
                write!(out, "\\u{unit:04x}")?;
            }
            rest = &rest[at + c.len_utf8()..];
        }
        out.write_all(rest.as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn no_text_in_json_can_drive_a_terminal_and_all_of_it_is_still_there() {
        let all: String = (0..=char::MAX as u32).filter_map(char::from_u32).collect();
        let object = BTreeMap::from([(all.clone(), vec![all])]);
        let text = to_line(&object);
        let (shown, end) = text.split_at(text.len() - 1);
        assert_eq!((shown.find(drives_terminal), end), (None, "\n"));
        assert_eq!(serde_json::from_str::<BTreeMap<String, Vec<String>>>(&text).unwrap(), object);
        assert_eq!(to_line(&"ünï\"\u{7f}\u{9b}2J\u{202e}\n"), "\"ünï\\\"\\u007f\\u009b2J\\u202e\\n\"\n");
    }
}
