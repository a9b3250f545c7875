//! Bearer tokens: `haul token` makes them, and a holder can narrow one without the server.
//!
//! ```text
//! haul1.<hex of: nonce, who, conditions, tag>
//! key of the token  HMAC-SHA256(secret of the service, "haul token 1" nonce who)
//! tag               for each condition, in order: HMAC-SHA256(tag before, condition); the first from the token's key
//! ```
//! As in macaroons (Birgisson and others, NDSS 2014), conditions can be added, not removed. `who` names a line of the list of
//! keys.

use std::fmt::{self, Write as _};
use std::time::{SystemTime, UNIX_EPOCH};

use aws_lc_rs::constant_time::verify_slices_are_equal;
use aws_lc_rs::hmac;
use zeroize::Zeroizing;

/// The secret of a service, from which all its tokens come.
pub struct Secret(Zeroizing<[u8; 32]>);

/// A token. Only [`Token::to_text`] shows it, so none is printed by accident.
#[derive(Clone, PartialEq, Eq)]
pub struct Token {
    nonce: [u8; NONCE_BYTES],
    who: String,
    conditions: Vec<Condition>,
    tag: [u8; TAG_BYTES],
}

/// A condition on requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Condition {
    /// The path is this one, or beneath it.
    Path(Vec<u8>),
    /// The request only reads.
    ReadOnly,
    /// The request comes before this second since 1970.
    Until(u64),
    /// The request comes at this second since 1970, or later.
    From(u64),
}

/// Why a token is not accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refused {
    /// The text is no token.
    #[error("it is no token of haul")]
    Malformed,
    /// The secret is another, or the token was changed.
    #[error("this service did not make it")]
    Forged,
    /// The token has expired.
    #[error("it has expired")]
    Expired,
    /// The token is not yet valid.
    #[error("it is not yet valid")]
    NotYet,
    /// The operator has revoked its number.
    #[error("it was revoked")]
    Revoked,
    /// The token is for another path.
    #[error("it is for another path")]
    OtherPath,
    /// The token would become too long.
    #[error("it has all the conditions that fit into a token")]
    Full,
}

impl Secret {
    /// Keeps a secret.
    pub fn new(secret: Zeroizing<[u8; 32]>) -> Secret {
        Secret(secret)
    }

    /// Makes a token for a line of the list. `nonce` is random.
    pub fn issue(&self, who: &str, nonce: [u8; NONCE_BYTES]) -> Result<Token, Refused> {
        if who.is_empty() || who.len() > MAX_WHO_BYTES {
            return Err(Refused::Malformed);
        }
        let tag = self.first_tag(who, &nonce);
        Ok(Token { nonce, who: who.to_owned(), conditions: Vec::new(), tag })
    }

    /// Whether this secret made the token. Only then its holder learns why it is refused.
    pub fn made(&self, token: &Token) -> bool {
        let first = self.first_tag(&token.who, &token.nonce);
        let tag = token.conditions.iter().fold(first, |tag, condition| mac(&tag, &[&condition.to_bytes()]));
        verify_slices_are_equal(&tag, &token.tag).is_ok()
    }

    /// Returns the holder, if token and conditions hold for this path and time.
    pub fn verify<'a>(&self, token: &'a Token, path: &[u8], now: SystemTime) -> Result<&'a str, Refused> {
        if !self.made(token) {
            return Err(Refused::Forged);
        }
        let second = now.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        for condition in &token.conditions {
            match condition {
                Condition::Until(until) if second >= *until => return Err(Refused::Expired),
                Condition::From(from) if second < *from => return Err(Refused::NotYet),
                Condition::Path(top) if !is_beneath(path, top) => return Err(Refused::OtherPath),
                // Readers only read.
                Condition::ReadOnly | Condition::Until(_) | Condition::From(_) | Condition::Path(_) => {}
            }
        }
        Ok(&token.who)
    }

    fn first_tag(&self, who: &str, nonce: &[u8]) -> [u8; TAG_BYTES] {
        let key = mac(&self.0[..], &[b"haul token 1", nonce, who.as_bytes()]);
        mac(&key, &[b"begin"])
    }
}

/// A random nonce for a new token.
pub fn nonce() -> Result<[u8; NONCE_BYTES], std::io::Error> {
    let mut nonce = [0; NONCE_BYTES];
    let failed = |_| std::io::Error::other("the system gave no randomness");
    aws_lc_rs::rand::fill(&mut nonce).map_err(failed)?;
    Ok(nonce)
}

impl Token {
    /// Adds a condition.
    pub fn narrowed(mut self, condition: Condition) -> Result<Token, Refused> {
        let bytes = condition.to_bytes();
        if self.conditions.len() >= MAX_CONDITIONS || bytes.len() > MAX_CONDITION_BYTES {
            return Err(Refused::Full);
        }
        self.tag = mac(&self.tag, &[&bytes]);
        self.conditions.push(condition);
        Ok(self)
    }

    /// The line that the token is for.
    pub fn who(&self) -> &str {
        &self.who
    }

    /// The token's number in logs and lists; a narrowed one keeps it.
    pub fn number(&self) -> Number {
        let (number, _) = self.nonce.split_first_chunk().expect("a nonce is longer");
        Number(*number)
    }

    /// The paths that the holder may read.
    pub fn reach(&self) -> Reach {
        let paths = self.conditions.iter().filter_map(|condition| match condition {
            Condition::Path(path) => Some(path.clone()),
            Condition::ReadOnly | Condition::Until(_) | Condition::From(_) => None,
        });
        Reach { tops: paths.collect() }
    }

    /// The conditions.
    pub fn conditions(&self) -> &[Condition] {
        &self.conditions
    }

    /// The secret text to hand on.
    pub fn to_text(&self) -> Zeroizing<String> {
        let mut bytes = Zeroizing::new(Vec::with_capacity(MAX_TEXT_BYTES / 2));
        bytes.extend_from_slice(&self.nonce);
        bytes.push(self.who.len() as u8);
        bytes.extend_from_slice(self.who.as_bytes());
        bytes.push(self.conditions.len() as u8);
        for condition in &self.conditions {
            let condition = condition.to_bytes();
            bytes.extend_from_slice(&(condition.len() as u16).to_be_bytes());
            bytes.extend_from_slice(&condition);
        }
        bytes.extend_from_slice(&self.tag);
        let mut text = Zeroizing::new(String::with_capacity(PREFIX.len() + 2 * bytes.len()));
        text.push_str(PREFIX);
        for byte in bytes.iter() {
            let _ = write!(text, "{byte:02x}");
        }
        text
    }

    /// Reads what [`Token::to_text`] writes, and nothing else.
    pub fn parse(text: &str) -> Result<Token, Refused> {
        let digits = text.strip_prefix(PREFIX).filter(|_| text.len() <= MAX_TEXT_BYTES).ok_or(Refused::Malformed)?;
        let bytes = Zeroizing::new(from_hex(digits.as_bytes()).ok_or(Refused::Malformed)?);
        Token::from_bytes(&bytes).ok_or(Refused::Malformed)
    }

    fn from_bytes(bytes: &[u8]) -> Option<Token> {
        let (nonce, rest) = bytes.split_first_chunk::<NONCE_BYTES>()?;
        let (len, rest) = rest.split_first()?;
        let (who, rest) = rest.split_at_checked(usize::from(*len))?;
        let who = std::str::from_utf8(who).ok().filter(|who| !who.is_empty())?;
        let (count, mut rest) = rest.split_first()?;
        if usize::from(*count) > MAX_CONDITIONS {
            return None;
        }
        let mut conditions = Vec::with_capacity((*count).into());
        for _ in 0..*count {
            let (len, behind) = rest.split_first_chunk::<2>()?;
            let (condition, behind) = behind.split_at_checked(u16::from_be_bytes(*len).into())?;
            conditions.push(Condition::from_bytes(condition)?);
            rest = behind;
        }
        Some(Token { nonce: *nonce, who: who.to_owned(), conditions, tag: rest.try_into().ok()? })
    }
}

impl Condition {
    /// The condition that a path is beneath this one. Slashes at the ends do not count.
    pub fn path(path: &[u8]) -> Condition {
        let components = path.split(|byte| *byte == b'/').filter(|component| !component.is_empty());
        Condition::Path(components.collect::<Vec<_>>().join(&b'/'))
    }

    fn to_bytes(&self) -> Vec<u8> {
        match self {
            Condition::Path(path) => [b"path=", path.as_slice()].concat(),
            Condition::ReadOnly => b"ro".to_vec(),
            Condition::Until(second) => format!("until={second}").into_bytes(),
            Condition::From(second) => format!("from={second}").into_bytes(),
        }
    }

    /// Refuses a newer version's condition, which cannot be checked.
    fn from_bytes(bytes: &[u8]) -> Option<Condition> {
        let condition = match bytes {
            b"ro" => Condition::ReadOnly,
            _ if bytes.starts_with(b"path=") => Condition::path(&bytes[b"path=".len()..]),
            _ if bytes.starts_with(b"from=") => Condition::From(second(&bytes[b"from=".len()..])?),
            _ => Condition::Until(second(bytes.strip_prefix(b"until=")?)?),
        };
        // The tag is over what was read only if there is one way to write it.
        (bytes.len() <= MAX_CONDITION_BYTES && condition.to_bytes() == bytes).then_some(condition)
    }
}

fn second(digits: &[u8]) -> Option<u64> {
    std::str::from_utf8(digits).ok()?.parse().ok()
}

/// The first 64 bits of a token's nonce. The number opens nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Number([u8; NUMBER_BYTES]);

impl Number {
    /// Reads the digits that `Display` writes.
    pub fn parse(text: &str) -> Option<Number> {
        from_hex(text.as_bytes())?.try_into().ok().map(Number)
    }
}

impl fmt::Display for Number {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", u64::from_be_bytes(self.0))
    }
}

/// The paths that a reader may have. Without conditions: all.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reach {
    tops: Vec<Vec<u8>>,
}

impl Reach {
    /// Whether the reader may have this path without links and dots.
    pub fn includes(&self, path: &[u8]) -> bool {
        self.tops.iter().all(|top| is_beneath(path, top))
    }
}

fn is_beneath(path: &[u8], top: &[u8]) -> bool {
    top.is_empty() || path.strip_prefix(top).is_some_and(|rest| rest.is_empty() || rest.starts_with(b"/"))
}

fn mac(key: &[u8], parts: &[&[u8]]) -> [u8; TAG_BYTES] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    context.sign().as_ref().try_into().expect("HMAC-SHA256 has 32 bytes")
}

fn from_hex(digits: &[u8]) -> Option<Vec<u8>> {
    let value = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    };
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs.iter().map(|[high, low]| Some(value(*high)? << 4 | value(*low)?)).collect::<Option<Vec<u8>>>()?;
    rest.is_empty().then_some(bytes)
}

const PREFIX: &str = "haul1.";
/// 128 bits: no two tokens have the same.
pub const NONCE_BYTES: usize = 16;
/// Two of a million tokens share a number with a chance of 1 to 37 million.
const NUMBER_BYTES: usize = 8;
const TAG_BYTES: usize = 32;
/// The length takes one byte.
pub const MAX_WHO_BYTES: usize = 255;
/// Each narrowing adds one to three.
pub const MAX_CONDITIONS: usize = 16;
/// The kernel's longest path, and its word.
pub const MAX_CONDITION_BYTES: usize = 4_096 + 5;
/// 12 KiB: two conditions of the longest path are too long for a header.
pub const MAX_TEXT_BYTES: usize = 12 << 10;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn secret(byte: u8) -> Secret {
        Secret::new(Zeroizing::new([byte; 32]))
    }

    fn at(second: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_secs(second)
    }

    #[test]
    fn a_holder_narrows_a_token_and_cannot_widen_it() {
        let secret = secret(1);
        let wide = secret.issue("token:lab", [7; NONCE_BYTES]).unwrap();
        assert_eq!(secret.verify(&wide, b"any/path", at(5)), Ok("token:lab"));
        let narrow = wide.clone().narrowed(Condition::path(b"/runs/3/")).unwrap();
        let narrow = narrow.narrowed(Condition::Until(100)).unwrap().narrowed(Condition::ReadOnly).unwrap();
        let narrow = Token::parse(&narrow.to_text()).unwrap();
        for path in ["runs/3", "runs/3/a/b"] {
            assert_eq!(secret.verify(&narrow, path.as_bytes(), at(99)), Ok("token:lab"));
        }
        for path in ["", "runs", "runs/33", "runs/2", "other/runs/3"] {
            assert_eq!(secret.verify(&narrow, path.as_bytes(), at(99)), Err(Refused::OtherPath), "{path}");
        }
        assert_eq!(secret.verify(&narrow, b"runs/3", at(100)), Err(Refused::Expired));
        let later = wide.clone().narrowed(Condition::From(50)).unwrap();
        assert_eq!(secret.verify(&later, b"", at(49)), Err(Refused::NotYet));
        assert_eq!(secret.verify(&later, b"", at(50)), Ok("token:lab"));
        assert!(later.number() == wide.number() && Token::parse(&later.to_text()).is_ok_and(|same| same == later));
        assert_eq!(wide.number().to_string(), "0707070707070707");
        assert_eq!(Number::parse("0707070707070707"), Some(wide.number()));
        assert!(Number::parse("070707070707070").is_none() && Number::parse("").is_none());
        for conditions in [
            vec![Condition::Path(b"runs/3".to_vec()), Condition::Until(100)],
            vec![Condition::Path(b"runs".to_vec()), Condition::Until(100), Condition::ReadOnly],
            vec![Condition::Until(100), Condition::Path(b"runs/3".to_vec()), Condition::ReadOnly],
            vec![],
        ] {
            let forged = Token { conditions, ..narrow.clone() };
            assert_eq!(secret.verify(&forged, b"runs/3", at(5)), Err(Refused::Forged));
        }
        let other = Token { who: "token:boss".to_owned(), ..wide.clone() };
        assert_eq!(secret.verify(&other, b"", at(5)), Err(Refused::Forged));
        assert_eq!(super::tests::secret(2).verify(&wide, b"", at(5)), Err(Refused::Forged));
    }

    #[test]
    fn a_text_is_read_in_one_way_only() {
        let token = secret(1).issue("token:lab", [7; NONCE_BYTES]).unwrap();
        let token = token.narrowed(Condition::path(b"a/\xff")).unwrap().narrowed(Condition::Until(9)).unwrap();
        let text = token.to_text();
        assert!(Token::parse(&text).unwrap() == token);
        for end in 0..text.len() {
            assert!(Token::parse(&text[..end]).is_err(), "{end}");
        }
        assert!(Token::parse(&format!("{}00", *text)).is_err());
        assert!(Token::parse(&text.to_uppercase()).is_err());
        let with = |condition: &[u8]| Condition::from_bytes(condition);
        for odd in
            ["path=/a", "path=a//b", "until=09", "until=+9", "until=", "from=x", "from=", "ro ", "rw", "", "host=x"]
        {
            assert_eq!(with(odd.as_bytes()), None, "{odd}");
        }
    }

    #[test]
    fn a_token_has_an_end() {
        let mut token = secret(1).issue("token:lab", [7; NONCE_BYTES]).unwrap();
        for second in 0..MAX_CONDITIONS as u64 {
            token = token.narrowed(Condition::Until(second)).unwrap();
        }
        assert!(token.clone().narrowed(Condition::ReadOnly).is_err_and(|why| why == Refused::Full));
        assert!(secret(1).issue(&"x".repeat(256), [0; NONCE_BYTES]).is_err());
    }
}
