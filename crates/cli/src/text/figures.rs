//! Numbers as written for people.

use std::time::Duration;

/// `5.60 GiB`: three significant digits, powers of 1024.
pub fn bytes(n: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if n < 1024 {
        return format!("{n} B");
    }
    let mut value = n as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would round up to 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    format!("{} {}", three_digits(value), UNITS[unit])
}

/// `466 MiB/s (3.91 Gbit/s)`: bytes by 1024, bits by 1000, as disks and networks count.
pub fn rate(bytes_per_s: f64) -> String {
    format!("{}/s ({})", bytes(bytes_per_s as u64), bits(bytes_per_s))
}

/// `3.91 Gbit/s`: powers of 1000, as networks.
pub fn bits(bytes_per_s: f64) -> String {
    let bits = bytes_per_s * 8.0;
    let (value, unit) = match bits {
        b if b >= 999.5e6 => (b / 1e9, "Gbit/s"),
        b if b >= 999.5e3 => (b / 1e6, "Mbit/s"),
        b => (b / 1e3, "kbit/s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// `228 ms`, `0.35 ms`: round-trip times.
pub fn latency(us: u32) -> String {
    format!("{} ms", three_digits(f64::from(us) / 1e3))
}

/// `62 %`, `<1 %`
pub fn percent(fraction: f64) -> String {
    match fraction * 100.0 {
        p if p > 0.0 && p < 0.5 => "<1 %".to_owned(),
        p => format!("{p:.0} %"),
    }
}

/// `0.012 %`, from parts per million.
pub fn parts(ppm: u32) -> String {
    match f64::from(ppm) / 1e4 {
        p if p >= 1.0 || ppm == 0 => format!("{} %", three_digits(p)),
        p if p >= 0.1 => format!("{p:.2} %"),
        p if p >= 0.01 => format!("{p:.3} %"),
        p => format!("{p:.4} %"),
    }
}

/// `1,234,567`
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// `1 file`, `2 files`, `1,234 files`
pub fn counted(n: u64, one: &str, many: &str) -> String {
    format!("{} {}", count(n), if n == 1 { one } else { many })
}

/// `just now`, `5 s ago`, `3 min 05 s ago`: by clocks of whole seconds.
pub fn ago(seconds: u64) -> String {
    match seconds {
        0 => "just now".to_owned(),
        s => format!("{} ago", whole_seconds(s)),
    }
}

/// `7 s`, `3 min 05 s`
pub fn whole_seconds(seconds: u64) -> String {
    match seconds {
        s @ 0..60 => format!("{s} s"),
        s => duration(Duration::from_secs(s)),
    }
}

/// `12.3 s`, `3 min 05 s`, `2 h 05 min`, `3 d 04 h`
pub fn duration(d: Duration) -> String {
    let seconds = d.as_secs_f64();
    let whole = seconds.round() as u64;
    match whole {
        _ if seconds < 9.995 => format!("{seconds:.2} s"),
        _ if seconds < 59.95 => format!("{seconds:.1} s"),
        0..3600 => format!("{} min {:02} s", whole / 60, whole % 60),
        3600..86_400 => format!("{} h {:02} min", whole / 3600, whole % 3600 / 60),
        _ => format!("{} d {:02} h", whole / 86_400, whole % 86_400 / 3600),
    }
}

/// `0:12`, `3:05`, `2:05:00`, for the progress bar.
pub fn clock(d: Duration) -> String {
    let s = d.as_secs();
    if s < 3600 {
        format!("{}:{:02}", s / 60, s % 60)
    } else {
        format!("{}:{:02}:{:02}", s / 3600, s % 3600 / 60, s % 60)
    }
}

fn three_digits(value: f64) -> String {
    match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_have_three_digits_and_never_1024_of_a_unit() {
        let table = [
            (0, "0 B"),
            (1023, "1023 B"),
            (1024, "1.00 KiB"),
            (1_048_575, "1.00 MiB"),
            (10 * 1024, "10.0 KiB"),
            (999 * 1024 * 1024, "999 MiB"),
            (6_012_954_214, "5.60 GiB"),
            (u64::MAX, "16.0 EiB"),
        ];
        for (n, text) in table {
            assert_eq!(bytes(n), text);
        }
    }

    #[test]
    fn rates_show_bytes_and_bits() {
        assert_eq!(rate(488_636_416.0), "466 MiB/s (3.91 Gbit/s)");
        assert_eq!(rate(125_000.0), "122 KiB/s (1.00 Mbit/s)");
        assert_eq!(rate(0.0), "0 B/s (0.00 kbit/s)");
    }

    #[test]
    fn figures_of_a_path_have_the_digits_that_matter() {
        assert_eq!(bits(125_000_000.0), "1.00 Gbit/s");
        assert_eq!([latency(228_000), latency(350), latency(0)], ["228 ms", "0.35 ms", "0.00 ms"]);
        assert_eq!([percent(0.0), percent(0.004), percent(0.62), percent(1.0)], ["0 %", "<1 %", "62 %", "100 %"]);
        let table = [(0, "0.00 %"), (7, "0.0007 %"), (120, "0.012 %"), (1_200, "0.12 %"), (25_000, "2.50 %")];
        for (ppm, text) in table {
            assert_eq!(parts(ppm), text);
        }
    }

    #[test]
    fn counts_have_separators() {
        assert_eq!(count(0), "0");
        assert_eq!(count(999), "999");
        assert_eq!(count(1000), "1,000");
        assert_eq!(count(1_234_567), "1,234,567");
        assert_eq!(counted(1, "file", "files"), "1 file");
    }

    #[test]
    fn durations_keep_two_units_at_most() {
        let table = [
            (0.004, "0.00 s"),
            (9.994, "9.99 s"),
            (12.34, "12.3 s"),
            (59.96, "1 min 00 s"),
            (185.0, "3 min 05 s"),
            (7_500.0, "2 h 05 min"),
            (273_600.0, "3 d 04 h"),
        ];
        for (seconds, text) in table {
            assert_eq!(duration(Duration::from_secs_f64(seconds)), text);
        }
    }

    #[test]
    fn the_bar_counts_down_like_a_clock() {
        assert_eq!(clock(Duration::from_secs(12)), "0:12");
        assert_eq!(clock(Duration::from_secs(7_500)), "2:05:00");
    }
}
