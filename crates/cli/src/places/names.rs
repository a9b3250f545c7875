//! Names on standard output: plain for a program, quoted as by GNU ls at a terminal.

use haul_transfer::drives_terminal;

/// At a terminal, quotes and digits make a name safe and fit to be typed again.
pub fn shown(name: &[u8], at_terminal: bool) -> Vec<u8> {
    if at_terminal { quoted(name).into_bytes() } else { name.to_vec() }
}

enum Part<'a> {
    Plain(&'a str),
    Bytes(&'a [u8]),
}

fn quoted(name: &[u8]) -> String {
    let parts = parts(name);
    let text: Option<String> =
        parts.iter().map(|part| if let Part::Plain(text) = part { Some(*text) } else { None }).collect();
    match text {
        Some(text) if is_bare(&text) => text,
        Some(text) if text.contains('\'') && !text.contains(['"', '$', '`', '!', '\\']) => format!("\"{text}\""),
        _ => {
            let mut all = String::new();
            for part in &parts {
                match part {
                    Part::Plain(text) => all.push_str(&format!("'{}'", text.replace('\'', "'\\''"))),
                    Part::Bytes(bytes) => {
                        if all.is_empty() {
                            all.push_str("''");
                        }
                        let escapes: String = bytes.iter().map(|byte| escape(*byte)).collect();
                        all.push_str(&format!("$'{escapes}'"));
                    }
                }
            }
            all
        }
    }
}

fn escape(byte: u8) -> String {
    match byte {
        0x07 => "\\a".to_owned(),
        0x08 => "\\b".to_owned(),
        b'\t' => "\\t".to_owned(),
        b'\n' => "\\n".to_owned(),
        0x0b => "\\v".to_owned(),
        0x0c => "\\f".to_owned(),
        b'\r' => "\\r".to_owned(),
        byte => format!("\\{byte:03o}"),
    }
}

fn parts(name: &[u8]) -> Vec<Part<'_>> {
    let mut parts = Vec::new();
    for chunk in name.utf8_chunks() {
        let mut rest = chunk.valid();
        while let Some(first) = rest.chars().next() {
            let drives = drives_terminal(first);
            let end = rest.find(|c| drives_terminal(c) != drives).unwrap_or(rest.len());
            let (part, behind) = rest.split_at(end);
            parts.push(if drives { Part::Bytes(part.as_bytes()) } else { Part::Plain(part) });
            rest = behind;
        }
        match (chunk.invalid(), parts.last_mut()) {
            (b"", _) => {}
            (invalid, _) => parts.push(Part::Bytes(invalid)),
        }
    }
    parts
}

fn is_bare(text: &str) -> bool {
    let special = |c: char| c == ' ' || "!\"$&'()*;<=>?[\\^`|".contains(c);
    !text.is_empty() && !text.starts_with(['#', '~']) && !matches!(text, "{" | "}") && !text.contains(special)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// coreutils 9.1 shows these with `ls --quoting-style=shell-escape`.
    #[test]
    fn names_at_a_terminal_can_be_typed_again() {
        for (name, expected) in [
            (&b"plain-1.txt"[..], "plain-1.txt"),
            ("größe".as_bytes(), "größe"),
            (b"with space", "'with space'"),
            (b"it's", "\"it's\""),
            (b"a'b\"c", "'a'\\''b\"c'"),
            (b"new\nline", "'new'$'\\n''line'"),
            (b"\x1b[2J", "''$'\\033''[2J'"),
            (b"latin\xe9", "'latin'$'\\351'"),
            (b"$(id)", "'$(id)'"),
            (b"back\\slash", "'back\\slash'"),
            (b"#x", "'#x'"),
            (b"x#~", "x#~"),
            (b"a]b{}", "a]b{}"),
            ("rlo\u{202e}gpj".as_bytes(), "'rlo'$'\\342\\200\\256''gpj'"),
        ] {
            assert_eq!(quoted(name), expected);
            assert_eq!(shown(name, false), name);
        }
    }
}
