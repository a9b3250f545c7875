//! The result for a person: a line for each interval, then the mean rate and each side's cost.

use std::fmt::Write as _;
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::time::Duration;

use haul_workbench::bench::{Amount, Disk, Found, Interval, Offset, Request, Side};

use crate::bench::names;
use crate::text::figures::{bits, bytes, counted, duration, rate};
use crate::text::printable::printable;

pub fn heading(request: &Request) -> String {
    let cipher = if request.cipher.is_none() { "clear" } else { names::cipher(request) };
    let mut text = format!("{} -> {}", names::source(request), names::sink(request));
    let _ = write!(text, ", {}, {cipher}", counted(request.lanes.into(), "lane", "lanes"));
    let _ = write!(text, ", blocks of {}", bytes(request.block_bytes as u64));
    if request.offset == Offset::Fixed {
        text.push_str(" at a fixed offset");
    }
    if request.verify {
        text.push_str(", verified");
    }
    let _ = match request.amount {
        Amount::Time(time) => write!(text, ", {}", duration(time)),
        Amount::Bytes(n) => write!(text, ", {}", bytes(n)),
    };
    text.push_str("\n\n");
    text.push_str("interval               transfer     rate\n");
    text
}

pub fn line(interval: &Interval) -> String {
    row(interval.start, interval.end, interval.bytes)
}

pub fn summary(request: &Request, found: &Found) -> String {
    let mut text = String::from("\n");
    text.push_str(&row(Duration::ZERO, found.elapsed, found.bytes));
    if let Some(flush) = found.flush {
        let whole = found.elapsed + flush;
        let mean = found.bytes as f64 / whole.as_secs_f64().max(1e-6);
        let _ = writeln!(text, "on the disk after a flush of {}: {}", duration(flush), rate(mean));
    }
    text.push('\n');
    side(&mut text, "sender", &found.send, found);
    side(&mut text, "receiver", &found.receive, found);
    if found.writes_in_flight_max > 0 {
        let writes = counted(found.writes_in_flight_max as u64, "write", "writes");
        let _ = writeln!(text, "at most {writes} of a lane in flight at once");
    }
    for (who, side) in [("sender", &found.send), ("receiver", &found.receive)] {
        for dropped in &side.dropped {
            let why = printable(&dropped.why);
            let _ = writeln!(text, "{who}: {} was refused ({why}); {} is used instead", dropped.route, dropped.instead);
        }
    }
    if request.cipher.is_some() {
        let [sealed, opened] = [found.sealed_in_kernel, found.opened_in_kernel].map(names::by_whom);
        let _ = writeln!(text, "TLS records sealed by {sealed}, opened by {opened}");
    }
    let verified = if request.verify { "every chunk verified, " } else { "" };
    let _ = writeln!(text, "{verified}congestion control {}", printable(&found.congestion_control));
    if found.interrupted {
        text.push_str("interrupted\n");
    }
    text
}

pub fn disk(directory: &Path, found: &Disk) -> String {
    let path = printable(directory.as_os_str().as_bytes());
    let how =
        if found.direct { "past the page cache" } else { "through the page cache: direct I/O is not possible here" };
    let (write, read) = (rate(found.write_bytes_per_s as f64), rate(found.read_bytes_per_s as f64));
    format!("the disk below {path}, {how}\nwrite  {write}\nread   {read}\n")
}

pub fn memory(threads: u16, bytes_per_s: u64) -> String {
    let threads = counted(threads.into(), "thread", "threads");
    format!("memory to memory, {threads}\ncopy   {}\n", rate(bytes_per_s as f64))
}

fn row(start: Duration, end: Duration, n: u64) -> String {
    let seconds = format!("{:.2}-{:.2} s", start.as_secs_f64(), end.as_secs_f64());
    let mean = n as f64 / (end - start).as_secs_f64().max(1e-6);
    format!("{seconds:<20}  {:>9}    {:>12}\n", bytes(n), bits(mean))
}

fn side(text: &mut String, who: &str, side: &Side, found: &Found) {
    let gb = (found.bytes as f64 / 1e9).max(1e-9);
    let [user, system] = [side.usage.user_us, side.usage.system_us].map(|us| us as f64 / 1e6 / gb);
    let share = side.usage.total_us() as f64 / 1e6 / found.elapsed.as_secs_f64().max(1e-6) * 100.0;
    let cost = side.cpu_s_per_gb(found.bytes);
    let _ = writeln!(
        text,
        "{who:<9} {:<13} {cost:.3} CPU s/GB (user {user:.3}, system {system:.3}), {share:.0} % of a processor",
        side.route
    );
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::tests::found;

    #[test]
    fn a_measurement_in_full() {
        let (request, found) = found();
        let lines: String = found.intervals.iter().map(line).collect();
        let text = format!("{}{lines}{}", heading(&request), summary(&request, &found));
        assert!(!text.contains('\x1b'), "a name of a file must not drive the terminal");
        insta::assert_snapshot!("bench_in_full", text);
    }

    #[test]
    fn limits_stand_with_how_they_were_measured() {
        let found = Disk { write_bytes_per_s: 1_500_000_000, read_bytes_per_s: 1_900_000_000, direct: false };
        let text = disk(Path::new("/raid"), &found);
        assert!(text.contains("direct I/O is not possible") && text.contains("12.0 Gbit/s"), "{text}");
        assert!(memory(2, 12_800_000_000).contains("2 threads\ncopy   11.9 GiB/s (102 Gbit/s)"));
    }
}
