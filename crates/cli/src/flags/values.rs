//! Values of several commands' flags.

use clap::ValueEnum;
use haul_job::Cipher;
use haul_job::job::WriteRoute;
use haul_pump::SendRoute;
use haul_transfer::place::Algorithm;

/// `u64::parse` would take a plus sign.
pub fn whole(text: &str) -> Option<u64> {
    text.bytes().all(|b| b.is_ascii_digit()).then(|| text.parse().ok()).flatten()
}

pub fn parse_port_range(text: &str) -> Result<PortRange, String> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    match (parse_port(first), parse_port(last)) {
        (Ok(first), Ok(last)) if first <= last => Ok(PortRange(first, last)),
        _ => Err("two ports from 1 to 65535, the smaller first, such as 50000-50010".to_owned()),
    }
}

pub fn parse_port(text: &str) -> Result<u16, String> {
    match whole(text).and_then(|n| u16::try_from(n).ok()) {
        Some(port) if port != 0 => Ok(port),
        _ => Err("a number from 1 to 65535".to_owned()),
    }
}

/// `--port-range`, first and last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortRange(pub u16, pub u16);

/// `--cipher`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CipherName {
    #[value(name = "aes128-gcm")]
    Aes128Gcm,
    #[value(name = "aes256-gcm")]
    Aes256Gcm,
    #[value(name = "chacha20", alias = "chacha20-poly1305")]
    Chacha20,
    None,
}

impl CipherName {
    /// `None` for connections in the clear.
    pub fn cipher(self) -> Option<Cipher> {
        match self {
            CipherName::Aes128Gcm => Some(Cipher::Aes128Gcm),
            CipherName::Aes256Gcm => Some(Cipher::Aes256Gcm),
            CipherName::Chacha20 => Some(Cipher::Chacha20Poly1305),
            CipherName::None => None,
        }
    }
}

/// Seconds of `90s`, `10m`, `1h30m`, `30d`, `2w`, `1y`; a year has 365 days.
pub fn length_s(text: &str) -> Option<u64> {
    let (mut seconds, mut rest) = (0_u64, text);
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit())?);
        let mut letters = tail.chars();
        let unit_s = match letters.next()? {
            's' => 1,
            'm' => 60,
            'h' => 3_600,
            'd' => DAY_S,
            'w' => 7 * DAY_S,
            'y' => 365 * DAY_S,
            _ => return None,
        };
        seconds = seconds.checked_add(number.parse::<u64>().ok()?.checked_mul(unit_s)?)?;
        rest = letters.as_str();
    }
    Some(seconds)
}

const DAY_S: u64 = 24 * 60 * 60;

pub fn parse_age(text: &str) -> Result<u64, String> {
    let age_s = length_s(text).filter(|_| !text.is_empty());
    age_s.ok_or_else(|| "a time with its unit, such as 90m, 12h, 30d, 2w or 1y".to_owned())
}

/// Linux's TCP_CA_NAME_MAX is 16, with the NUL.
pub fn parse_congestion_control(text: &str) -> Result<String, String> {
    let plain = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-';
    match text.len() {
        1..=15 if text.bytes().all(plain) => Ok(text.to_owned()),
        _ => Err("the name of a congestion control of the kernel, such as bbr, cubic, reno".to_owned()),
    }
}

/// `--algorithm`
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmName {
    Blake3,
    Md5,
    Sha1,
    Sha256,
    Sha512,
}

impl From<AlgorithmName> for Algorithm {
    fn from(name: AlgorithmName) -> Self {
        match name {
            AlgorithmName::Blake3 => Self::Blake3,
            AlgorithmName::Md5 => Self::Md5,
            AlgorithmName::Sha1 => Self::Sha1,
            AlgorithmName::Sha256 => Self::Sha256,
            AlgorithmName::Sha512 => Self::Sha512,
        }
    }
}

pub fn named_value<R: Copy>(all: &[(R, &'static str)], text: &str) -> Result<R, String> {
    let found = all.iter().find(|(_, name)| *name == text).map(|(route, _)| *route);
    found.ok_or_else(|| format!("one of {}", all.iter().map(|(_, name)| *name).collect::<Vec<_>>().join(", ")))
}

pub fn send_route(text: &str) -> Result<SendRoute, String> {
    named_value(&SendRoute::ALL, text)
}

pub fn write_route(text: &str) -> Result<WriteRoute, String> {
    named_value(&WriteRoute::ALL.map(|route| (route, route.name())), text)
}

pub fn interval(text: &str) -> Result<f64, String> {
    let seconds = text.parse::<f64>().ok().filter(|seconds| (0.1..=60.0).contains(seconds));
    seconds.ok_or_else(|| "seconds from 0.1 to 60".to_owned())
}

/// Splits at spaces, except within single and double quotes, as in rsync.
pub fn split_words(text: &str) -> Result<Vec<String>, String> {
    let mut words = Vec::new();
    let mut word: Option<String> = None;
    let mut quote = None;
    for c in text.chars() {
        match quote {
            Some(open) if c == open => quote = None,
            None if c == '\'' || c == '"' => {
                quote = Some(c);
                word.get_or_insert_default();
            }
            None if c.is_whitespace() => words.extend(word.take()),
            _ => word.get_or_insert_default().push(c),
        }
    }
    words.extend(word);
    if quote.is_some() { Err("a quote is not closed".to_owned()) } else { Ok(words) }
}
