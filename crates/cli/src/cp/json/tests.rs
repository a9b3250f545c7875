//! The form of all lines.

use std::sync::Arc;

use haul_job::{
    Carriage, Endpoint, Far, Fault, Here, PathNow, Place, Progress, Remedy, Selection, SshOptions, Subject,
};

use super::*;
use crate::cp::closing_lines::tests::report;

#[derive(Clone, Default)]
struct Kept(Arc<Mutex<Vec<u8>>>);

impl Write for Kept {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

#[test]
fn nothing_follows_the_report() {
    let (kept, late) = (Kept::default(), Event::Connecting { place: "host-b".into() });
    let lines = JsonLines::new(Box::new(kept.clone()), None);
    lines.on_event(&late);
    lines.report(&report(), 0);
    lines.on_event(&late);
    let text = String::from_utf8(kept.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.lines().count(), 2, "{text}");
    assert!(text.lines().last().unwrap().contains(r#""event":"report""#), "{text}");
}

fn all_lines() -> Vec<Line> {
    let job = Job {
        movers: Vec::new(),
        files_from: None,
        sources: vec![
            Endpoint { place: Place::Here(Here::Disk), path: b"data/".to_vec() },
            Endpoint { place: Place::Here(Here::Disk), path: b"odd\xff".to_vec() },
        ],
        target: Endpoint {
            place: Place::Far(Far::Ssh { user: Some("me".into()), host: "host-b".into(), port: None }),
            path: b"in".to_vec(),
        },
        selection: Selection::default(),
        carriage: Carriage::default(),
        ssh: SshOptions::default(),
    };
    let path = b"data/a".to_vec();
    let events = [
        Event::Connecting { place: "me@host-b".into() },
        Event::Installing { place: "me@host-b".into(), bytes: 12_000_000 },
        Event::Chose { what: Subject::Lanes, choice: "4".into(), reason: "2 cores at the slower end".into() },
        Event::Found { files: 3, bytes: 4096, complete: true },
        Event::Progress(Progress {
            files_done: 1,
            files_found: 3,
            files_left: 2,
            bytes_moved: 1024,
            bytes_kept: 512,
            bytes_read_again: 256,
            bytes_found: 4096,
            bytes_left: 2560,
            found_all: true,
            lanes: 4,
            failed: 1,
            ..Progress::default()
        }),
        Event::Path(PathNow {
            path: 1,
            rate_bytes_per_s: 117_600_000,
            rtt_us: 231_100,
            rtt_min_us: 228_000,
            queueing_us: 3_100,
            resent_ppm: 120,
            lanes: 4,
            pacing_bytes_per_s: 120_000_000,
            held_by: Some(Cause::ReceiveWindow),
            mark: 46,
            marked_lanes: 3,
            subflows: Vec::new(),
        }),
        Event::Copied { path: path.clone(), bytes: 1024, bytes_matched: 1000, change: Change::Data },
        Event::Copied { path: b"odd\xff".to_vec(), bytes: 0, bytes_matched: 0, change: Change::Made },
        Event::Deleted { path: path.clone(), is_directory: true },
        Event::Skipped { path: path.clone(), why: "it is a socket".into() },
        Event::LeftOut { path: path.clone(), rule: haul_job::LeftOut::TooLarge },
        Event::Item(Box::new(crate::progress::itemise::tests::file(haul_job::Changed {
            size: true,
            ..Default::default()
        }))),
        Event::Failed { path: path.clone(), why: "cannot read: permission denied".into() },
        Event::RateLimit { bytes_per_s: Some(25_000_000) },
        Event::Retry {
            why: "cannot reach host-b".into(),
            pause: Duration::from_secs(2),
            gives_up_after: Some(Duration::from_secs(600)),
        },
        Event::Warning { text: "a lane died and came back".into() },
    ];
    let failures = vec![(path, "permission denied".into())];
    let failed = Report { failed: 1, failures, remedies: vec![Remedy::LookAtPath], ..report() };
    let error = Error::new(Fault::Network, "cannot reach host-b").because("connection refused").try_this("-P");
    let mut lines = vec![of_job(&job)];
    lines.extend(events.iter().filter_map(|event| of_event(event, Duration::ZERO, &mut Outlook::default())));
    lines.push(Line::Report(Box::new(of_report(&failed, 23))));
    lines.push(Line::Error(of_error(&error)));
    lines
}

#[test]
fn the_schema_is_what_the_documentation_promises() {
    let text: String = all_lines().iter().map(|line| render(line, Duration::from_millis(1_500), None)).collect();
    insta::with_settings!({ snapshot_path => "../snapshots" }, { insta::assert_snapshot!("json_lines", text) });
}

#[test]
fn every_line_is_one_object_and_every_field_is_documented() {
    let documentation = include_str!("../../../../../docs/use/json.md");
    for line in all_lines() {
        let text = render(&line, Duration::ZERO, None);
        assert_eq!(text.matches('\n').count(), 1);
        let value: serde_json::Value = serde_json::from_str(&text).unwrap();
        let object = value.as_object().unwrap();
        let event = object["event"].as_str().unwrap();
        assert!(documentation.contains(&format!("### `{event}`")), "{event}");
        for field in object.keys() {
            assert!(documentation.contains(&format!("`{field}`")), "{event}: {field}");
        }
    }
}

#[test]
fn a_reader_that_went_away_is_no_error() {
    struct Closed;
    impl Write for Closed {
        fn write(&mut self, _: &[u8]) -> std::io::Result<usize> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Err(std::io::ErrorKind::BrokenPipe.into())
        }
    }
    let lines = Arc::new(JsonLines::new(Box::new(Closed), None));
    lines.on_event(&Event::Warning { text: "x".into() });
    lines.report(&report(), 0);
}
