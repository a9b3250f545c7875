//! What the tally tells -> events for the observer.

use haul_engine::tally::Told;
use haul_job::{Change, Event, ManifestLine, WITH_ITS_DIRECTORY};
use haul_kept::files::manifest_file::RootHasher;
use haul_wire::RelPath;

use crate::convert;

pub(crate) fn named(told: Told, name: Option<&RelPath>) -> Told {
    match (told, name) {
        (Told::Hashed { size, mtime, blake3, .. }, Some(name)) => {
            Told::Hashed { path: name.clone(), size, mtime, blake3 }
        }
        (told, _) => told,
    }
}

pub(crate) fn event_of(
    told: Told,
    root: &mut RootHasher,
    failures: &mut Vec<(Vec<u8>, String)>,
    wants_manifest: bool,
) -> Option<Event> {
    let bytes_of = |path: RelPath| path.as_bytes().to_vec();
    Some(match told {
        Told::Copied { path, bytes, matched_bytes } => {
            Event::Copied { path: bytes_of(path), bytes, bytes_matched: matched_bytes, change: Change::Data }
        }
        Told::Touched { path } => {
            Event::Copied { path: bytes_of(path), bytes: 0, bytes_matched: 0, change: Change::Metadata }
        }
        Told::Made { path } => Event::Copied { path: bytes_of(path), bytes: 0, bytes_matched: 0, change: Change::Made },
        Told::Skipped { path, why } => Event::Skipped { path: bytes_of(path), why },
        Told::LeftOut { path, rule } => Event::LeftOut { path: bytes_of(path), rule: convert::left_out(rule) },
        Told::Item { item, result, changes } => Event::Item(Box::new(convert::item_told(&item, &result, changes))),
        Told::Failed { path, why } => {
            let path = bytes_of(path);
            keep_failure(failures, &path, &why);
            Event::Failed { path, why }
        }
        Told::Hashed { path, size, mtime, blake3 } => {
            root.add(path.as_bytes(), size, &blake3);
            let line = ManifestLine { path: bytes_of(path), size, mtime_s: mtime.s, mtime_ns: mtime.ns, blake3 };
            return wants_manifest.then_some(Event::Manifest(line));
        }
    })
}

pub(crate) fn keep_failure(failures: &mut Vec<(Vec<u8>, String)>, path: &[u8], why: &str) {
    if failures.len() < FAILURES_KEPT && !why.ends_with(WITH_ITS_DIRECTORY) {
        failures.push((path.to_vec(), why.to_owned()));
    }
}

/// Each failure was reported when it happened.
const FAILURES_KEPT: usize = 20;
