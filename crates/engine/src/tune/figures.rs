//! Numbers as they stand in reasons: three digits, without zeros at the end.

use alloc::format;
use alloc::string::String;

use super::host::Wanted;

/// `1 Gbit/s`, `589 Mbit/s`
pub fn rate_text(bytes_per_s: u64) -> String {
    let bits = bytes_per_s as f64 * 8.0;
    scaled(bits, &[(1e12, "Tbit/s"), (1e9, "Gbit/s"), (1e6, "Mbit/s"), (1e3, "kbit/s")])
}

/// `28.5 MB`: of 1000, as rates are.
pub fn size_text(bytes: u64) -> String {
    scaled(bytes as f64, &[(1e12, "TB"), (1e9, "GB"), (1e6, "MB"), (1e3, "kB")])
}

/// `228 ms`, `1.5 s`, `80 us`
pub fn rtt_text(rtt_us: u64) -> String {
    scaled(rtt_us as f64, &[(1e6, "s"), (1e3, "ms"), (1.0, "us")])
}

/// `64 MiB` where it is a whole number of them: settings are powers of two.
pub fn buffer_text(bytes: u64) -> String {
    let units = [(1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    let whole = units.into_iter().find(|(unit, _)| bytes >= *unit && bytes.is_multiple_of(*unit));
    whole.map_or_else(|| size_text(bytes), |(unit, name)| format!("{} {name}", bytes / unit))
}

/// `1 Gbit/s x 228 ms = 28.5 MB under way`
pub fn under_way_text(wanted: Wanted) -> String {
    let Wanted { rate_bytes_per_s, rtt_us } = wanted;
    let under_way = size_text(wanted.under_way_bytes());
    format!("{} x {} = {under_way} under way", rate_text(rate_bytes_per_s), rtt_text(rtt_us))
}

fn scaled(value: f64, units: &[(f64, &str)]) -> String {
    // 999.6 of a unit would read as 1000.
    let found = units.iter().find(|(factor, _)| value >= factor * 0.9995).or(units.last());
    let (factor, unit) = found.copied().unwrap_or((1.0, ""));
    format!("{} {unit}", three_digits(value / factor))
}

fn three_digits(value: f64) -> String {
    let text = match value {
        v if v < 9.995 => format!("{v:.2}"),
        v if v < 99.95 => format!("{v:.1}"),
        v => format!("{v:.0}"),
    };
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').into(),
        false => text,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_no_idle_zeros() {
        assert_eq!(rate_text(125_000_000), "1 Gbit/s");
        assert_eq!(rate_text(73_600_000), "589 Mbit/s");
        assert_eq!(rate_text(124_990_000), "1 Gbit/s");
        assert_eq!(size_text(28_500_000), "28.5 MB");
        assert_eq!(size_text(100), "0.1 kB");
        assert_eq!(rtt_text(228_000), "228 ms");
        assert_eq!(rtt_text(1_500_000), "1.5 s");
        assert_eq!(rtt_text(80), "80 us");
        assert_eq!(buffer_text(1 << 30), "1 GiB");
        assert_eq!(buffer_text(64 << 20), "64 MiB");
        assert_eq!(buffer_text(212_992), "208 KiB");
        assert_eq!(buffer_text(6_291_457), "6.29 MB");
    }
}
