//! Rates, times, sizes and probabilities as typed: `1Gbit`, `228ms`, `14MB`, `1e-4`, `0.1%`.
//!
//! Types that cannot be wrong. Decimal units are in thousands, as in networks (1 Gbit = 10^9 bits); `KiB`, `MiB`, `GiB` in
//! powers of 1024.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use serde::de::{Deserialize, Deserializer, Error as _};

/// Bits per second, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate {
    bits_per_s: u64,
}

/// A time; zero is allowed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time(pub Duration);

/// A number of bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Size {
    /// Bytes.
    pub bytes: u64,
}

/// A share between 0 and 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd)]
pub struct Probability(f64);

/// The text, and the expected form.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{written:?} is no {what}: write it like {example}")]
pub struct UnitError {
    written: String,
    what: &'static str,
    example: &'static str,
}

impl Rate {
    /// `None` for zero.
    pub fn from_bits_per_s(bits_per_s: u64) -> Option<Rate> {
        (bits_per_s > 0).then_some(Rate { bits_per_s })
    }

    /// Bits per second.
    pub fn bits_per_s(self) -> u64 {
        self.bits_per_s
    }

    /// Time of these bytes in nanoseconds, rounded up.
    pub fn time_of(self, bytes: u64) -> Duration {
        let ns = (u128::from(bytes) * 8 * 1_000_000_000).div_ceil(u128::from(self.bits_per_s));
        Duration::from_nanos(u64::try_from(ns).unwrap_or(u64::MAX))
    }

    /// Bytes in this time, rounded down.
    pub fn bytes_in(self, time: Duration) -> u64 {
        let bytes = u128::from(self.bits_per_s) * time.as_nanos() / 8 / 1_000_000_000;
        u64::try_from(bytes).unwrap_or(u64::MAX)
    }
}

impl Probability {
    /// `None` outside 0 to 1.
    pub fn new(share: f64) -> Option<Probability> {
        (0.0..=1.0).contains(&share).then_some(Probability(share))
    }

    /// 0 to 1.
    pub fn share(self) -> f64 {
        self.0
    }

    /// Whether it is zero.
    pub fn is_never(self) -> bool {
        self.0 == 0.0
    }
}

/// Splits `12.5Mbit` into 12.5 and `Mbit`.
fn split(text: &str) -> Option<(f64, &str)> {
    let text = text.trim();
    // An `e` needs digits behind it: 1e-4, but not 1e.
    let end = (0..=text.len()).rev().find(|&end| text.is_char_boundary(end) && text[..end].parse::<f64>().is_ok())?;
    let number: f64 = text[..end].parse().ok()?;
    (number.is_finite() && number >= 0.0).then(|| (number, text[end..].trim()))
}

fn scale(unit: &str, units: &[(&str, f64)]) -> Option<f64> {
    units.iter().find(|(name, _)| name.eq_ignore_ascii_case(unit)).map(|(_, scale)| *scale)
}

impl FromStr for Rate {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: [(&str, f64); 9] = [
            ("bit", 1.0),
            ("kbit", 1e3),
            ("Mbit", 1e6),
            ("Gbit", 1e9),
            ("Tbit", 1e12),
            ("bit/s", 1.0),
            ("kbit/s", 1e3),
            ("Mbit/s", 1e6),
            ("Gbit/s", 1e9),
        ];
        let parsed = split(text).and_then(|(number, unit)| {
            let bits_per_s = number * scale(unit, &UNITS)?;
            // A float counts single bits up to 2^53, faster than any link.
            (1.0..9e15).contains(&bits_per_s).then(|| Rate { bits_per_s: bits_per_s.round() as u64 })
        });
        parsed.ok_or_else(|| UnitError { written: text.to_owned(), what: "rate", example: "1Gbit or 25Mbit" })
    }
}

impl FromStr for Time {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: [(&str, f64); 5] = [("ns", 1e-9), ("us", 1e-6), ("ms", 1e-3), ("s", 1.0), ("min", 60.0)];
        let parsed = split(text).and_then(|(number, unit)| {
            if number == 0.0 && unit.is_empty() {
                return Some(Time::default());
            }
            Duration::try_from_secs_f64(number * scale(unit, &UNITS)?).ok().map(Time)
        });
        parsed.ok_or_else(|| UnitError { written: text.to_owned(), what: "time", example: "228ms, 50us or 5s" })
    }
}

impl FromStr for Size {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        const UNITS: [(&str, f64); 11] = [
            ("", 1.0),
            ("B", 1.0),
            ("kB", 1e3),
            ("MB", 1e6),
            ("GB", 1e9),
            ("TB", 1e12),
            ("KiB", 1024.0),
            ("MiB", 1048576.0),
            ("GiB", 1073741824.0),
            ("k", 1e3),
            ("M", 1e6),
        ];
        let parsed = split(text).and_then(|(number, unit)| {
            let bytes = number * scale(unit, &UNITS)?;
            (bytes < 9e15).then(|| Size { bytes: bytes.round() as u64 })
        });
        parsed.ok_or_else(|| UnitError { written: text.to_owned(), what: "size", example: "14MB, 64KiB or 1500" })
    }
}

impl FromStr for Probability {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let parsed = split(text).and_then(|(number, unit)| match unit {
            "" => Probability::new(number),
            "%" => Probability::new(number / 100.0),
            _ => None,
        });
        parsed.ok_or_else(|| UnitError {
            written: text.to_owned(),
            what: "probability",
            example: "1e-4 or 0.1%, between 0 and 1",
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bits = self.bits_per_s as f64;
        let (number, unit) = match bits {
            _ if bits >= 1e9 => (bits / 1e9, "Gbit/s"),
            _ if bits >= 1e6 => (bits / 1e6, "Mbit/s"),
            _ if bits >= 1e3 => (bits / 1e3, "kbit/s"),
            _ => (bits, "bit/s"),
        };
        write!(f, "{} {unit}", trimmed(number))
    }
}

impl fmt::Display for Time {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let s = self.0.as_secs_f64();
        let (number, unit) = match s {
            _ if s >= 1.0 => (s, "s"),
            _ if s >= 1e-3 => (s * 1e3, "ms"),
            _ => (s * 1e6, "us"),
        };
        write!(f, "{} {unit}", trimmed(number))
    }
}

impl fmt::Display for Size {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.bytes as f64;
        let (number, unit) = match bytes {
            _ if bytes >= 1e9 => (bytes / 1e9, "GB"),
            _ if bytes >= 1e6 => (bytes / 1e6, "MB"),
            _ if bytes >= 1e3 => (bytes / 1e3, "kB"),
            _ => (bytes, "B"),
        };
        write!(f, "{} {unit}", trimmed(number))
    }
}

impl fmt::Display for Probability {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Up to three digits after the point, without final zeros.
fn trimmed(number: f64) -> String {
    let text = format!("{number:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[derive(serde::Deserialize)]
#[serde(untagged)]
enum Written {
    Text(String),
    Whole(u64),
    Number(f64),
}

macro_rules! deserialize_as_written {
    ($($kind:ty),*) => {$(
        impl<'de> Deserialize<'de> for $kind {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                let text = match Written::deserialize(deserializer)? {
                    Written::Text(text) => text,
                    Written::Whole(number) => number.to_string(),
                    Written::Number(number) => number.to_string(),
                };
                text.parse().map_err(D::Error::custom)
            }
        }
    )*};
}

deserialize_as_written!(Rate, Time, Size, Probability);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_what_people_write() {
        assert_eq!("1Gbit".parse::<Rate>().unwrap().bits_per_s(), 1_000_000_000);
        assert_eq!("2.5 gbit/s".parse::<Rate>().unwrap().bits_per_s(), 2_500_000_000);
        assert_eq!("228ms".parse::<Time>().unwrap().0, Duration::from_millis(228));
        assert_eq!("0".parse::<Time>().unwrap().0, Duration::ZERO);
        assert_eq!("14MB".parse::<Size>().unwrap().bytes, 14_000_000);
        assert_eq!("64KiB".parse::<Size>().unwrap().bytes, 65_536);
        assert_eq!("1e-4".parse::<Probability>().unwrap().share(), 1e-4);
        assert_eq!("0.1%".parse::<Probability>().unwrap().share(), 1e-3);
    }

    #[test]
    fn says_what_it_would_have_understood() {
        for wrong in ["", "fast", "0bit", "-1Gbit", "1e", "1Gbyte", "inf", "nanbit"] {
            assert!(wrong.parse::<Rate>().is_err(), "{wrong}");
        }
        assert_eq!("10".parse::<Time>().unwrap_err().to_string(), "\"10\" is no time: write it like 228ms, 50us or 5s");
        assert!("2".parse::<Probability>().is_err());
    }

    #[test]
    fn a_rate_knows_the_time_of_its_bytes() {
        let rate: Rate = "1Gbit".parse().unwrap();
        assert_eq!(rate.time_of(1538), Duration::from_nanos(12_304));
        assert_eq!(rate.bytes_in(Duration::from_secs(1)), 125_000_000);
        assert_eq!(rate.to_string(), "1 Gbit/s");
    }
}
