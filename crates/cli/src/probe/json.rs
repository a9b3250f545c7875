//! The result for a program: one object, promised in `docs/use/json.md` and pinned by a test.

use haul_transfer::probe::{Found, Way};
use serde::Serialize;

use crate::json::line::to_line;
use crate::json::values::{SCHEMA, seconds, share};
use crate::probe::text;
use crate::report::json::{HostLine, RemedyLine, of_host};
use crate::report::limit::{self, Case};
use crate::report::paths::{OnePathLine, PathLine, of_path};
use crate::report::time::{TimeLine, of_shares};

pub fn object(found: &Found) -> String {
    let object = Probe {
        event: "probe",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        seconds_each_way: seconds(found.time),
        lane_path: found.lane_path.name(),
        cipher: &found.cipher,
        there: way(&found.there, Case::there(found)),
        back: way(&found.back, Case::back(found)),
        here: of_host(&found.here),
        far: of_host(&found.far),
        tune: text::tune(found),
    };
    to_line(&object)
}

#[derive(Serialize)]
struct Probe<'a> {
    event: &'static str,
    schema: u32,
    version: &'static str,
    seconds_each_way: f64,
    lane_path: &'a str,
    cipher: &'a str,
    there: WayLine,
    back: WayLine,
    here: HostLine,
    far: HostLine,
    tune: Option<String>,
}

#[derive(Serialize)]
struct WayLine {
    rate_bytes_per_s: u64,
    arrived_bytes: u64,
    limit: &'static str,
    limit_share: f64,
    limited_by: Option<String>,
    rtt_loaded_us: u32,
    jitter_us: u32,
    mtu_bytes: u32,
    segment_bytes: u32,
    path: PathLine,
    paths: Vec<OnePathLine>,
    time: TimeLine,
    remedies: Vec<RemedyLine>,
}

fn way(way: &Way, case: Case<'_>) -> WayLine {
    WayLine {
        rate_bytes_per_s: way.bytes_per_s,
        arrived_bytes: way.arrived_bytes,
        limit: way.limit.map_or("nothing moved", |limit| limit.cause.name()),
        limit_share: share(way.limit.map_or(0.0, |limit| limit.share)),
        limited_by: limit::limited_by(case),
        rtt_loaded_us: text::loaded_us(way),
        jitter_us: way.jitter_us,
        mtu_bytes: way.mtu_bytes,
        segment_bytes: way.segment_bytes,
        path: of_path(&way.path),
        paths: text::paths(way),
        time: of_shares(&way.time),
        remedies: limit::remedies(case)
            .into_iter()
            .map(|remedy| RemedyLine { text: remedy.words, command: remedy.command })
            .collect(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::probe::tests::found;

    #[test]
    fn an_object_in_full() {
        let object: Value = serde_json::from_str(&object(&found())).unwrap();
        insta::assert_snapshot!("probe_object", serde_json::to_string_pretty(&object).unwrap());
    }

    #[test]
    fn every_field_is_documented() {
        let object: Value = serde_json::from_str(&object(&found())).unwrap();
        let documentation = include_str!("../../../../docs/use/json.md");
        let whole = documentation.split("\n## ").find(|part| part.contains("`haul probe`")).expect("its part");
        let fields = object.as_object().unwrap().keys().chain(object["there"].as_object().unwrap().keys());
        for field in fields {
            assert!(whole.contains(&format!("`{field}`")), "{field}");
        }
    }
}
