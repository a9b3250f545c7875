//! Wildcards over bytes: `*` and `?` stay within a component, `**` crosses slashes, `[...]` is a class.
//!
//! A pattern may come from a peer: matching tracks the set of reachable positions, and takes at most pattern times name
//! length.

use crate::limits::MAX_PATTERN_BYTES;

/// A compiled pattern, of up to 16 bytes for each byte of text.
#[derive(Debug, Clone)]
pub(crate) enum Pattern {
    Literal(Vec<u8>),
    Wild(Vec<Token>),
    /// The pattern matches nothing: see [`Manner::Rsync`].
    Nothing,
}

#[derive(Debug, Clone)]
pub(crate) enum Token {
    Byte(u8),
    /// `?`: one byte but a slash.
    Any,
    /// `*`: any bytes without a slash.
    Star,
    /// `**`: any bytes.
    DoubleStar,
    /// `[...]`: one byte of a set, but no slash. Bit n of the 256 is byte n.
    Class(Box<[u64; 4]>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Manner {
    /// An endless class and a final backslash are themselves.
    Shell,
    /// A pattern with either matches no name.
    Rsync,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Start {
    First,
    AnyComponent,
}

/// Whether the text has an unescaped wildcard, or an escape before one.
pub fn has_wildcard(text: &[u8]) -> bool {
    text.iter().any(|byte| matches!(byte, b'*' | b'?' | b'['))
}

impl Pattern {
    /// Compiles a pattern. A backslash quotes only in patterns with wildcards.
    pub(crate) fn new(text: &[u8], manner: Manner) -> Result<Pattern, String> {
        if text.len() > MAX_PATTERN_BYTES {
            return Err(format!("a pattern is longer than {MAX_PATTERN_BYTES} bytes"));
        }
        if !has_wildcard(text) {
            return Ok(Pattern::Literal(text.to_vec()));
        }
        let mut tokens = Vec::with_capacity(text.len());
        let mut at = 0;
        while at < text.len() {
            let token = match text[at] {
                b'\\' => {
                    at += 1;
                    match text.get(at) {
                        Some(byte) => Token::Byte(*byte),
                        None if manner == Manner::Rsync => return Ok(Pattern::Nothing),
                        None => Token::Byte(b'\\'),
                    }
                }
                b'?' => Token::Any,
                b'*' => {
                    let stars = text[at..].iter().take_while(|&&byte| byte == b'*').count();
                    at += stars - 1;
                    if stars == 1 { Token::Star } else { Token::DoubleStar }
                }
                b'[' => match parse_class(&text[at + 1..]) {
                    Some((class, len)) => {
                        at += len;
                        Token::Class(Box::new(class))
                    }
                    None if manner == Manner::Rsync => return Ok(Pattern::Nothing),
                    None => Token::Byte(b'['),
                },
                byte => Token::Byte(byte),
            };
            tokens.push(token);
            at += 1;
        }
        Ok(Pattern::Wild(tokens))
    }

    pub(crate) fn matches(&self, pieces: [&[u8]; 3], start: Start) -> bool {
        let bytes = || pieces.iter().copied().flatten().copied();
        match self {
            Pattern::Literal(literal) => {
                let Some(before) = pieces.iter().map(|piece| piece.len()).sum::<usize>().checked_sub(literal.len())
                else {
                    return false;
                };
                let starts = match (before.checked_sub(1), start) {
                    (None, _) => true,
                    (Some(at), Start::AnyComponent) => bytes().nth(at) == Some(b'/'),
                    (Some(_), Start::First) => false,
                };
                starts && bytes().skip(before).eq(literal.iter().copied())
            }
            Pattern::Wild(tokens) => matches_tokens(tokens, bytes(), start),
            Pattern::Nothing => false,
        }
    }
}

fn matches_tokens(tokens: &[Token], text: impl Iterator<Item = u8>, start: Start) -> bool {
    // `at[i]`: the text so far can be matched by the first i tokens.
    let mut at = vec![false; tokens.len() + 1];
    at[0] = true;
    pass_stars(tokens, &mut at);
    for byte in text {
        // From the right: each position keeps its old value for its right neighbour.
        for index in (0..tokens.len()).rev() {
            let here = at[index];
            at[index + 1] = here && tokens[index].takes(byte)
                // A star that stays: the position before it survives.
                || matches!(tokens.get(index + 1), Some(token) if token.is_star() && at[index + 1] && token.takes(byte));
        }
        at[0] =
            (tokens[0].is_star() && at[0] && tokens[0].takes(byte)) || (start == Start::AnyComponent && byte == b'/');
        pass_stars(tokens, &mut at);
    }
    at[tokens.len()]
}

/// A star may match nothing.
fn pass_stars(tokens: &[Token], at: &mut [bool]) {
    for (index, token) in tokens.iter().enumerate() {
        if at[index] && token.is_star() {
            at[index + 1] = true;
        }
    }
}

impl Token {
    fn is_star(&self) -> bool {
        matches!(self, Token::Star | Token::DoubleStar)
    }

    fn takes(&self, byte: u8) -> bool {
        match self {
            Token::Byte(expected) => *expected == byte,
            Token::Any | Token::Star => byte != b'/',
            Token::DoubleStar => true,
            Token::Class(set) => byte != b'/' && has(set, byte),
        }
    }
}

fn has(set: &[u64; 4], byte: u8) -> bool {
    set[usize::from(byte >> 6)] & (1 << (byte & 63)) != 0
}

fn parse_class(text: &[u8]) -> Option<([u64; 4], usize)> {
    let mut set = [0u64; 4];
    let mut add = |byte: u8| set[usize::from(byte >> 6)] |= 1 << (byte & 63);
    let negated = matches!(text.first(), Some(b'!' | b'^'));
    let first = usize::from(negated);
    let mut at = first;
    loop {
        let byte = *text.get(at)?;
        if byte == b']' && at > first {
            break;
        }
        if byte == b'[' && text.get(at + 1) == Some(&b':') {
            let rest = &text[at + 2..];
            let end = rest.iter().position(|byte| *byte == b']')?;
            // Without a colon before the bracket it is a class of these characters.
            if let Some(name) = rest[..end].strip_suffix(b":") {
                (0..=u8::MAX).filter(named_class(name)?).for_each(&mut add);
                at += 2 + end + 1;
                continue;
            }
        }
        let (low, after) = class_byte(text, at)?;
        at = after;
        // rsync adds the first byte even of an upside-down range.
        add(low);
        let is_range = text.get(at) == Some(&b'-') && text.get(at + 1).is_some_and(|&byte| byte != b']');
        if is_range {
            let (high, after) = class_byte(text, at + 1)?;
            at = after;
            (low..=high).for_each(&mut add);
        }
    }
    if negated {
        set = set.map(|bits| !bits);
    }
    Some((set, at + 1))
}

fn class_byte(text: &[u8], at: usize) -> Option<(u8, usize)> {
    match *text.get(at)? {
        b'\\' => Some((*text.get(at + 1)?, at + 2)),
        byte => Some((byte, at + 1)),
    }
}

type Member = fn(&u8) -> bool;

fn named_class(name: &[u8]) -> Option<Member> {
    let member: Member = match name {
        b"alnum" => u8::is_ascii_alphanumeric,
        b"alpha" => u8::is_ascii_alphabetic,
        b"blank" => |byte| matches!(byte, b' ' | b'\t'),
        b"cntrl" => u8::is_ascii_control,
        b"digit" => u8::is_ascii_digit,
        b"graph" => u8::is_ascii_graphic,
        b"lower" => u8::is_ascii_lowercase,
        b"print" => |byte| matches!(byte, b' '..=b'~'),
        b"punct" => u8::is_ascii_punctuation,
        b"space" => |byte| matches!(byte, b' ' | b'\t'..=b'\r'),
        b"upper" => u8::is_ascii_uppercase,
        b"xdigit" => u8::is_ascii_hexdigit,
        _ => return None,
    };
    Some(member)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn check(pattern: &str, yes: &[&str], no: &[&str]) {
        let compiled = Pattern::new(pattern.as_bytes(), Manner::Rsync).unwrap();
        for text in yes {
            assert!(compiled.matches([b"", text.as_bytes(), b""], Start::First), "{pattern} should match {text}");
        }
        for text in no {
            assert!(!compiled.matches([b"", text.as_bytes(), b""], Start::First), "{pattern} should not match {text}");
        }
    }

    #[test]
    fn wildcards_match_like_rsyncs() {
        check("a*b*c", &["abc", "aXbYc", "abcbc"], &["ab", "a/bc", "abcd"]);
        check("**", &["", "a", "a/b"], &[]);
        check("a**c", &["ac", "a/b/c"], &["a/b"]);
        check("a/**/b*c", &["a/x/bc", "a/x/y/bXc", "a/b/bc"], &["a/bc", "a/x/b/c"]);
        check("?", &["a"], &["", "/", "ab"]);
        check("[a-c]x", &["ax", "cx"], &["dx", "x"]);
        check("[!a-c]x", &["dx"], &["ax", "/x"]);
        check("[^]]x", &["ax"], &["]x"]);
        check("[]-]x", &["]x", "-x"], &["ax"]);
        check("[[:digit:]_]?", &["1a", "_b"], &["aa"]);
        check("[\\]a]*", &["]", "ab"], &["b"]);
        check("[abc*", &[], &["[abc", "[abcd", "a"]);
        check("[[:odd:]]*", &[], &["o", "d"]);
        check("[[:ab]*", &["[", ":", "a", "bc"], &["x"]);
        check("a*\\", &[], &["a", "a\\", "ab"]);
        check("\\*a*", &["*a", "*ab"], &["xa"]);
        check("a\\b", &["a\\b"], &["ab"]);
        check("***", &["a/b"], &[]);
    }

    #[test]
    fn a_start_at_any_component_is_at_a_boundary() {
        for (pattern, text, expected) in [
            ("a/b", "x/a/b", true),
            ("a/b", "xa/b", false),
            ("a*/b", "x/ay/b", true),
            ("a*/b", "xay/b", false),
            ("*/b", "b", false),
            ("*/b", "x/y/b", true),
        ] {
            let pattern = Pattern::new(pattern.as_bytes(), Manner::Rsync).unwrap();
            assert_eq!(
                pattern.matches([b"", text.as_bytes(), b""], Start::AnyComponent),
                expected,
                "{pattern:?} {text}"
            );
        }
    }

    #[test]
    fn a_hostile_pattern_ends_soon() {
        let pattern = Pattern::new("**a*".repeat(1000).as_bytes(), Manner::Rsync).unwrap();
        assert!(!pattern.matches([b"", &[b'b'; 4000], b""], Start::AnyComponent));
    }

    fn naive(tokens: &[Token], text: &[u8]) -> bool {
        match (tokens.split_first(), text.split_first()) {
            (None, rest) => rest.is_none(),
            (Some((token, rest)), Some((&byte, after))) if token.is_star() => {
                naive(rest, text) || (token.takes(byte) && naive(tokens, after))
            }
            (Some((token, rest)), None) => token.is_star() && naive(rest, text),
            (Some((token, rest)), Some((&byte, after))) => token.takes(byte) && naive(rest, after),
        }
    }

    proptest! {
        #[test]
        fn agrees_with_the_definition(pattern in "[ab/?*]{1,8}", text in "[ab/]{0,10}") {
            if let Pattern::Wild(tokens) = Pattern::new(pattern.as_bytes(), Manner::Rsync).unwrap() {
                let whole = naive(&tokens, text.as_bytes());
                prop_assert_eq!(matches_tokens(&tokens, text.bytes(), Start::First), whole);
                let boundaries = std::iter::once(0).chain(text.match_indices('/').map(|(at, _)| at + 1));
                let any = boundaries.into_iter().any(|at| naive(&tokens, &text.as_bytes()[at..]));
                prop_assert_eq!(matches_tokens(&tokens, text.bytes(), Start::AnyComponent), any);
            }
        }
    }
}
