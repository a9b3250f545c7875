//! Parses rates as people type them: `--rate 500Mbit`, `--bwlimit 10M` as in rsync, `-l 8000` as in scp; and `--rtt 228ms`.
//!
//! `--rate` needs a unit: a guess between bits and bytes would be wrong half of the time.

/// Parses `--rate` to bytes per second: number, prefix, `bit` or `B`. k M G T are powers of 1000, Ki Mi Gi Ti of 1024.
pub fn parse_rate(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let bare = unit.strip_suffix("/s").unwrap_or(unit);
    let (prefix, bits_per_unit) = if let Some(prefix) = strip_word(bare, &["bits", "bit"]) {
        (prefix, 1)
    } else if let Some(prefix) = bare.strip_suffix('B') {
        (prefix, 8)
    } else {
        return Err(unit_missing(text, bare));
    };
    let factor = match prefix {
        "" => 1,
        "k" | "K" => 1_000,
        "m" | "M" => 1_000_000,
        "g" | "G" => 1_000_000_000,
        "t" | "T" => 1_000_000_000_000,
        "Ki" | "ki" => 1 << 10,
        "Mi" | "mi" => 1 << 20,
        "Gi" | "gi" => 1 << 30,
        "Ti" | "ti" => 1_u64 << 40,
        _ => return Err(unit_missing(text, bare)),
    };
    number.times(factor).map(|units| units.saturating_mul(bits_per_unit) / 8).ok_or_else(too_large).and_then(in_range)
}

/// Parses `--bwlimit` as rsync: KiB per second, or with a suffix. 0 lifts the limit.
pub fn parse_bwlimit(text: &str) -> Result<Option<u64>, String> {
    let (number, unit) = split_number(text)?;
    let unit = unit.to_ascii_uppercase();
    let factor = binary_or_decimal(if unit.is_empty() { "K" } else { &unit })
        .ok_or("as in rsync: a number of KiB/s, or with a suffix K M G (1024) or KB MB GB (1000)")?;
    match number.times(factor) {
        Some(0) => Ok(None),
        Some(rate) => in_range(u64::try_from(rate).map_err(|_| too_large())?.into()).map(Some),
        None => Err(too_large()),
    }
}

/// Parses a size as rsync: bytes, or with K M G (1024) or KB MB GB (1000).
pub fn parse_size(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    let factor = binary_or_decimal(&unit.to_ascii_uppercase())
        .ok_or("a number of bytes, or with a suffix K M G (1024) or KB MB GB (1000)")?;
    number.times(factor).and_then(|size| u64::try_from(size).ok()).ok_or_else(|| "that is too large".to_owned())
}

/// Parses `--max-size` and `--min-size` as rsync: [`parse_size`], also with `P`, and with `+1` or `-1` behind it.
pub fn parse_rsync_size(text: &str) -> Result<u64, String> {
    let wrong = || "a size as in rsync: 1500, 1.5K, 100M, 2GB, 1G-1".to_owned();
    let (size, step) = match text.len().checked_sub(2).and_then(|at| text.split_at_checked(at)) {
        Some((size, step @ ("+1" | "-1"))) if !size.is_empty() => (size, step),
        _ => (text, ""),
    };
    let (number, unit) = split_number(size).map_err(|_| wrong())?;
    let factor = match unit.to_ascii_uppercase().as_str() {
        "P" | "PIB" => 1 << 50,
        "PB" => 1_000_000_000_000_000,
        unit => binary_or_decimal(unit).ok_or_else(wrong)?,
    };
    let bytes = number.times(factor).and_then(|size| u64::try_from(size).ok());
    let stepped = match step {
        "+1" => bytes.and_then(|size| size.checked_add(1)),
        "-1" => bytes.and_then(|size| size.checked_sub(1)),
        _ => bytes,
    };
    stepped.ok_or_else(wrong)
}

fn binary_or_decimal(unit: &str) -> Option<u64> {
    Some(match unit {
        "" | "B" => 1,
        "K" | "KIB" => 1 << 10,
        "M" | "MIB" => 1 << 20,
        "G" | "GIB" => 1 << 30,
        "T" | "TIB" => 1 << 40,
        "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        _ => return None,
    })
}

/// Parses `-l` as scp, to bytes per second: kbit/s, with 1024 for k.
pub fn parse_scp_limit(text: &str) -> Result<u64, String> {
    let (number, unit) = split_number(text)?;
    if !unit.is_empty() {
        return Err("as in scp: a plain number of kbit/s; --rate takes units, such as --rate 500Mbit".to_owned());
    }
    number.times(1024).map(|bits| bits / 8).ok_or_else(too_large).and_then(in_range)
}

/// Parses `--rtt` (`s`, `ms` or `us`) to microseconds.
pub fn parse_rtt_us(text: &str) -> Result<u64, String> {
    let wrong = || "a time with its unit, from 1us to 60s, such as 228ms, 1.5s, 80us".to_owned();
    let (number, unit) = split_number(text).map_err(|_| wrong())?;
    let us_per_unit = match unit {
        "s" => 1_000_000,
        "ms" => 1_000,
        "us" | "µs" => 1,
        _ => return Err(wrong()),
    };
    let us = number.times(us_per_unit).and_then(|us| u64::try_from(us).ok());
    us.filter(|us| (1..=MAX_RTT_US).contains(us)).ok_or_else(wrong)
}

/// A decimal number, exact: `units / 10^9`.
struct Number {
    nanos: u128,
}

impl Number {
    fn times(&self, factor: u64) -> Option<u128> {
        self.nanos.checked_mul(u128::from(factor)).map(|n| n / 1_000_000_000)
    }
}

fn split_number(text: &str) -> Result<(Number, &str), String> {
    if text.starts_with('-') {
        return Err("a rate cannot be negative".to_owned());
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (digits, unit) = text.split_at(end);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || fraction.contains('.') {
        return Err("a rate starts with a number, such as 500Mbit".to_owned());
    }
    if whole.len() > MAX_DIGITS || fraction.len() > 9 {
        return Err(too_large());
    }
    let padded = format!("{whole}{fraction:0<9}");
    let nanos = padded.parse().map_err(|_| too_large())?;
    Ok((Number { nanos }, unit.trim_start()))
}

fn strip_word<'a>(text: &'a str, words: &[&str]) -> Option<&'a str> {
    words.iter().find_map(|word| {
        let at = text.len().checked_sub(word.len())?;
        (text.is_char_boundary(at) && text[at..].eq_ignore_ascii_case(word)).then(|| &text[..at])
    })
}

fn unit_missing(text: &str, unit: &str) -> String {
    let number = text.trim_end_matches(|c: char| !c.is_ascii_digit());
    match unit {
        "" => format!("a rate needs a unit: {number}Mbit is bits per second, {number}MB bytes per second"),
        "kb" | "Kb" | "mb" | "Mb" | "gb" | "Gb" | "tb" | "Tb" | "b" | "kbps" | "Mbps" | "Gbps" | "mbps" | "gbps"
        | "KBps" | "MBps" | "GBps" | "bps" | "Bps" => {
            let prefix = unit.strip_suffix("ps").unwrap_or(unit).trim_end_matches(['b', 'B']).to_ascii_uppercase();
            format!("bits or bytes? {number}{prefix}bit is bits per second, {number}{prefix}B bytes per second")
        }
        _ => {
            "the unit is bit or B with k M G T (powers of 1000) or Ki Mi Gi Ti (powers of 1024), such as 10Gbit, 500MB"
                .to_owned()
        }
    }
}

fn in_range(rate: u128) -> Result<u64, String> {
    match u64::try_from(rate) {
        Ok(rate) if rate > MAX_RATE_BYTES_PER_S => Err(too_large()),
        Ok(rate) if rate >= MIN_RATE_BYTES_PER_S => Ok(rate),
        Ok(_) => Err("less than 8kbit is too slow for any copy; leave the flag out for no limit".to_owned()),
        Err(_) => Err(too_large()),
    }
}

fn too_large() -> String {
    "more than 1000Tbit; leave the flag out for no limit".to_owned()
}

/// 1000 Tbit/s: thousands of times the fastest card.
pub const MAX_RATE_BYTES_PER_S: u64 = 125_000_000_000_000;

/// 8 kbit/s: below this, keep-alive messages would be most of the traffic.
pub const MIN_RATE_BYTES_PER_S: u64 = 1_000;

/// A minute; the round trip to the Moon takes three seconds.
const MAX_RTT_US: u64 = 60_000_000;

/// Keeps the text short: 10^20 x 10^9 x 2^40 < 2^128 x 10, and the multiplication is checked.
const MAX_DIGITS: usize = 20;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_rate_is_bits_or_bytes_and_says_which() {
        let table = [
            ("500Mbit", 62_500_000),
            ("500mbit/s", 62_500_000),
            ("10Gbit", 1_250_000_000),
            ("10 Gbits/s", 1_250_000_000),
            ("1.5Gbit", 187_500_000),
            ("100MB", 100_000_000),
            ("100MB/s", 100_000_000),
            ("100MiB", 104_857_600),
            ("1TiB", 1 << 40),
            ("8000bit", 1_000),
            ("1000B", 1_000),
            ("1000Tbit", MAX_RATE_BYTES_PER_S),
        ];
        for (text, rate) in table {
            assert_eq!(parse_rate(text), Ok(rate), "{text}");
        }
    }

    #[test]
    fn a_rate_that_can_be_misread_is_refused_with_both_readings() {
        assert_eq!(
            parse_rate("500").unwrap_err(),
            "a rate needs a unit: 500Mbit is bits per second, 500MB bytes per second"
        );
        for text in ["10Mb", "10mb", "10Mbps", "10MBps"] {
            assert_eq!(
                parse_rate(text).unwrap_err(),
                "bits or bytes? 10Mbit is bits per second, 10MB bytes per second",
                "{text}"
            );
        }
    }

    #[test]
    fn a_round_trip_has_its_unit() {
        for (text, us) in [("228ms", 228_000), ("1.5 s", 1_500_000), ("80us", 80), ("0.5ms", 500), ("60s", 60_000_000)]
        {
            assert_eq!(parse_rtt_us(text), Ok(us), "{text}");
        }
        for text in ["", "228", "0ms", "0.0001ms", "61s", "-1ms", "1min", "ms"] {
            assert!(parse_rtt_us(text).is_err(), "{text}");
        }
    }

    #[test]
    fn absurd_rates_are_refused() {
        for text in [
            "",
            "fast",
            "-5Mbit",
            "0Mbit",
            "0bit",
            "7999bit",
            "99999999999Tbit",
            "1.2.3Mbit",
            ".5Mbit",
            "1e9bit",
            "1Pbit",
            "99999999999999999999999999999999Tbit",
            "1001Tbit",
            "10Mbitß",
            "1ßbit",
            "ß",
            "∞bit",
            "10Mbit/h",
        ] {
            assert!(parse_rate(text).is_err(), "{text}");
        }
    }

    #[test]
    fn bwlimit_is_read_as_rsync_reads_it() {
        let table = [
            ("0", None),
            ("100", Some(102_400)),
            ("100k", Some(102_400)),
            ("100KiB", Some(102_400)),
            ("100KB", Some(100_000)),
            ("1.5m", Some(1_572_864)),
            ("2G", Some(1 << 31)),
            ("5000b", Some(5_000)),
        ];
        for (text, rate) in table {
            assert_eq!(parse_bwlimit(text), Ok(rate), "{text}");
        }
        for text in ["", "x", "-1", "10Mbit", "99999999999999999999T"] {
            assert!(parse_bwlimit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn scp_limit_is_read_as_scp_reads_it() {
        assert_eq!(parse_scp_limit("8000"), Ok(1_024_000));
        for text in ["0", "-1", "8M", "x", ""] {
            assert!(parse_scp_limit(text).is_err(), "{text}");
        }
    }

    #[test]
    fn limits_of_size_are_read_as_in_rsync() {
        for (text, bytes) in [
            ("0", 0),
            ("1500", 1500),
            ("1k", 1024),
            ("1.5mb-1", 1_499_999),
            ("2g+1", (2 << 30) + 1),
            ("1KiB", 1024),
            ("3B", 3),
            ("1P", 1 << 50),
        ] {
            assert_eq!(parse_rsync_size(text), Ok(bytes), "{text}");
        }
        for wrong in ["", "+1", "-1", "1x", "1k+2", "0-1", "k"] {
            assert!(parse_rsync_size(wrong).unwrap_err().contains("1G-1"), "{wrong}");
        }
    }
}
