//! The advice for a program: one object, promised in `docs/use/json.md` and pinned by a test.

use haul_workbench::tune::{Finding, LANES, Matters, Reach, Remedy, Step};
use serde::Serialize;

use crate::json::line::to_line;
use crate::json::values::SCHEMA;
use crate::tune::seen::{RateFrom, Seen};

pub fn object(seen: Option<&Seen>, steps: &[Step]) -> String {
    let object = Tune {
        event: "tune",
        schema: SCHEMA,
        version: env!("CARGO_PKG_VERSION"),
        advice: seen.map(advice),
        steps: steps.iter().map(step).collect(),
    };
    to_line(&object)
}

#[derive(Serialize)]
struct Tune<'a> {
    event: &'static str,
    schema: u32,
    version: &'static str,
    advice: Option<AdviceObject<'a>>,
    steps: Vec<StepObject<'a>>,
}

#[derive(Serialize)]
struct AdviceObject<'a> {
    rate_bytes_per_s: u64,
    rate_from: &'static str,
    rate_device: Option<&'a str>,
    rtt_us: u64,
    rtt_from: &'static str,
    under_way_bytes: u64,
    memory_bytes: Option<u64>,
    lanes: u64,
    reach_now: ReachObject,
    reach_advised: ReachObject,
    findings: Vec<FindingObject<'a>>,
}

/// Bytes per second; null if the host does not tell.
#[derive(Serialize)]
struct ReachObject {
    sending_one: Option<u64>,
    receiving_one: Option<u64>,
    sending_lanes: Option<u64>,
    receiving_lanes: Option<u64>,
}

#[derive(Serialize)]
struct FindingObject<'a> {
    setting: &'a str,
    now: Option<&'a str>,
    advised: Option<&'a str>,
    why: &'a str,
    matters: &'static str,
    remedy: &'static str,
    commands: &'a [String],
}

#[derive(Serialize)]
#[serde(tag = "action", rename_all = "snake_case")]
enum StepObject<'a> {
    Set { setting: &'a str, before: &'a str, value: &'a str },
    Left { setting: &'a str, value: &'a str },
    Wrote { path: String },
    Removed { path: String },
    NotOurs { path: String },
}

fn advice(seen: &Seen) -> AdviceObject<'_> {
    let (rate_from, rate_device) = match &seen.rate_from {
        RateFrom::Typed => ("asked", None),
        RateFrom::Device(name) => ("device", Some(name.as_str())),
        RateFrom::Default => ("assumed", None),
    };
    AdviceObject {
        rate_bytes_per_s: seen.wanted.rate_bytes_per_s,
        rate_from,
        rate_device,
        rtt_us: seen.wanted.rtt_us,
        rtt_from: if seen.rtt_typed { "asked" } else { "assumed" },
        under_way_bytes: seen.advice.under_way_bytes,
        memory_bytes: seen.host.memory_bytes,
        lanes: LANES,
        reach_now: reach(&seen.advice.now),
        reach_advised: reach(&seen.advice.then),
        findings: seen.advice.findings.iter().map(finding).collect(),
    }
}

fn reach(reach: &Reach) -> ReachObject {
    let &Reach { sending_one, receiving_one, sending_lanes, receiving_lanes } = reach;
    ReachObject { sending_one, receiving_one, sending_lanes, receiving_lanes }
}

fn finding(finding: &Finding) -> FindingObject<'_> {
    FindingObject {
        setting: &finding.setting,
        now: finding.now.as_deref(),
        advised: finding.advised.as_deref(),
        why: &finding.why,
        matters: match finding.matters {
            Matters::Yes => "yes",
            Matters::WouldHelp => "would_help",
            Matters::Fine => "fine",
            Matters::NotTold => "not_told",
        },
        remedy: match finding.remedy {
            Remedy::Sysctl { here: true } => "sysctl",
            Remedy::Sysctl { here: false } => "sysctl_on_host",
            Remedy::ByHand => "by_hand",
            Remedy::None => "none",
        },
        commands: &finding.commands,
    }
}

fn step(step: &Step) -> StepObject<'_> {
    match step {
        Step::Set { name, from, to } => StepObject::Set { setting: name, before: from, value: to },
        Step::Lacking { name, value } => StepObject::Left { setting: name, value },
        Step::Wrote(path) => StepObject::Wrote { path: path.display().to_string() },
        Step::Removed(path) => StepObject::Removed { path: path.display().to_string() },
        Step::NotOurs(path) => StepObject::NotOurs { path: path.display().to_string() },
    }
}

#[cfg(test)]
mod tests {
    use haul_workbench::tune::{Host, Wanted, advise};
    use serde_json::Value;

    use super::*;

    #[test]
    fn every_field_and_word_is_documented() {
        let host = Host { page_bytes: 4096, ..Host::default() };
        let wanted = Wanted { rate_bytes_per_s: 125_000_000, rtt_us: 228_000 };
        let advice = advise(&host, wanted);
        let seen = Seen { wanted, rate_from: RateFrom::Default, rtt_typed: true, host, advice };
        let steps = [
            Step::Set { name: "a".into(), from: "0".into(), to: "1".into() },
            Step::Lacking { name: "b".into(), value: "1".into() },
            Step::Wrote("/etc/x".into()),
            Step::Removed("/etc/x".into()),
        ];
        let object: Value = serde_json::from_str(&object(Some(&seen), &steps)).unwrap();
        let documentation = include_str!("../../../../docs/use/json.md");
        let mut fields = Vec::new();
        collect_fields(&object, &mut fields);
        assert!(fields.len() > 30, "{fields:?}");
        for field in fields.iter().map(String::as_str).chain([
            "asked",
            "device",
            "assumed",
            "yes",
            "would_help",
            "fine",
            "not_told",
            "sysctl",
            "sysctl_on_host",
            "by_hand",
            "none",
            "set",
            "left",
            "wrote",
            "removed",
        ]) {
            assert!(documentation.contains(&format!("`{field}`")), "{field}");
        }
    }

    fn collect_fields(value: &Value, fields: &mut Vec<String>) {
        match value {
            Value::Object(object) => {
                for (field, value) in object {
                    fields.push(field.clone());
                    collect_fields(value, fields);
                }
            }
            Value::Array(values) => values.iter().for_each(|value| collect_fields(value, fields)),
            _ => {}
        }
    }

    #[test]
    fn putting_back_has_steps_and_no_advice() {
        let text = object(None, &[Step::Removed("/etc/x".into())]);
        let start = r#"{"event":"tune","schema":2,"version":""#;
        let end = r#"","advice":null,"steps":[{"action":"removed","path":"/etc/x"}]}"#;
        assert!(text.starts_with(start) && text.trim_end().ends_with(end), "{text}");
    }
}
