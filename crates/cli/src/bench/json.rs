//! The result for a program: one object, promised in `docs/use/json.md` and pinned by a test.

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use haul_workbench::bench::{Disk, Found, Offset, Request, Side};
use serde::Serialize;

use crate::bench::names::{self, by_whom, cipher};
use crate::json::line::to_line;
use crate::json::values::{SCHEMA, seconds};
use crate::text::printable::printable;

pub fn object(request: &Request, found: &Found) -> String {
    to_line(&Run {
        event: "bench",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        source: names::source(request),
        sink: names::sink(request),
        block_bytes: request.block_bytes,
        offset: if request.offset == Offset::Fixed { "fixed" } else { "moving" },
        lanes: request.lanes,
        cipher: cipher(request),
        sealed_by: request.cipher.map(|_| by_whom(found.sealed_in_kernel)),
        opened_by: request.cipher.map(|_| by_whom(found.opened_in_kernel)),
        verified: request.verify,
        reverse: request.reverse,
        congestion_control: &found.congestion_control,
        interrupted: found.interrupted,
        bytes: found.bytes,
        elapsed_s: seconds(found.elapsed),
        rate_bytes_per_s: (found.bytes as f64 / found.elapsed.as_secs_f64().max(1e-6)) as u64,
        flush_s: found.flush.map(seconds),
        writes_in_flight_max: found.writes_in_flight_max,
        sender: side(&found.send, found),
        receiver: side(&found.receive, found),
        intervals: found
            .intervals
            .iter()
            .map(|interval| IntervalLine {
                start_s: seconds(interval.start),
                end_s: seconds(interval.end),
                bytes: interval.bytes,
                rate_bytes_per_s: interval.bytes_per_s() as u64,
            })
            .collect(),
    })
}

pub fn disk(directory: &Path, found: &Disk) -> String {
    to_line(&DiskLine {
        event: "bench-disk",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        directory: printable(directory.as_os_str().as_bytes()),
        direct: found.direct,
        write_bytes_per_s: found.write_bytes_per_s,
        read_bytes_per_s: found.read_bytes_per_s,
    })
}

pub fn memory(threads: u16, copy_bytes_per_s: u64) -> String {
    let version = env!("CARGO_PKG_VERSION");
    to_line(&MemoryLine { event: "bench-memory", schema: SCHEMA, version, threads, copy_bytes_per_s })
}

#[derive(Serialize)]
struct Run<'a> {
    event: &'static str,
    schema: u32,
    version: &'static str,
    source: String,
    sink: String,
    block_bytes: usize,
    offset: &'static str,
    lanes: u16,
    cipher: &'static str,
    sealed_by: Option<&'static str>,
    opened_by: Option<&'static str>,
    verified: bool,
    reverse: bool,
    congestion_control: &'a str,
    interrupted: bool,
    bytes: u64,
    elapsed_s: f64,
    rate_bytes_per_s: u64,
    flush_s: Option<f64>,
    writes_in_flight_max: usize,
    sender: SideLine<'a>,
    receiver: SideLine<'a>,
    intervals: Vec<IntervalLine>,
}

#[derive(Serialize)]
struct SideLine<'a> {
    route: &'static str,
    dropped: Vec<DroppedLine<'a>>,
    user_s: f64,
    system_s: f64,
    cpu_s_per_gb: f64,
}

#[derive(Serialize)]
struct DroppedLine<'a> {
    route: &'static str,
    instead: &'static str,
    why: &'a str,
}

#[derive(Serialize)]
struct IntervalLine {
    start_s: f64,
    end_s: f64,
    bytes: u64,
    rate_bytes_per_s: u64,
}

#[derive(Serialize)]
struct DiskLine {
    event: &'static str,
    schema: u32,
    version: &'static str,
    directory: String,
    direct: bool,
    write_bytes_per_s: u64,
    read_bytes_per_s: u64,
}

#[derive(Serialize)]
struct MemoryLine {
    event: &'static str,
    schema: u32,
    version: &'static str,
    threads: u16,
    copy_bytes_per_s: u64,
}

fn side<'a>(side: &'a Side, found: &Found) -> SideLine<'a> {
    let s = |us: u64| seconds(std::time::Duration::from_micros(us));
    SideLine {
        route: side.route,
        dropped: side
            .dropped
            .iter()
            .map(|dropped| DroppedLine { route: dropped.route, instead: dropped.instead, why: &dropped.why })
            .collect(),
        user_s: s(side.usage.user_us),
        system_s: s(side.usage.system_us),
        cpu_s_per_gb: (side.cpu_s_per_gb(found.bytes) * 1e4).round() / 1e4,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::bench::tests::found;

    #[test]
    fn an_object_in_full() {
        let (request, found) = found();
        let object: Value = serde_json::from_str(&object(&request, &found)).unwrap();
        insta::assert_snapshot!("bench_object", serde_json::to_string_pretty(&object).unwrap());
    }

    #[test]
    fn every_field_is_documented() {
        let (request, found) = found();
        let documentation = include_str!("../../../../docs/use/json.md");
        let whole = documentation.split("\n## ").find(|part| part.contains("`haul bench`")).expect("its part");
        let rates = Disk { write_bytes_per_s: 1, read_bytes_per_s: 1, direct: true };
        for said in [object(&request, &found), disk(Path::new("/raid"), &rates), memory(1, 1)] {
            let object: Value = serde_json::from_str(&said).unwrap();
            let inner = [&object["sender"], &object["sender"]["dropped"][0], &object["intervals"][0]];
            let inner = inner.into_iter().filter_map(Value::as_object).flat_map(|object| object.keys());
            for field in object.as_object().unwrap().keys().chain(inner) {
                assert!(whole.contains(&format!("`{field}`")), "{field}");
            }
        }
    }
}
