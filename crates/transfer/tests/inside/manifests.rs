//! Tests copies with a manifest, and that `haul verify` confirms the target.

use std::fs;
use std::sync::{Arc, Mutex};

use haul_job::{Carriage, Endpoint, Event, Here, Job, ManifestLine, Observer, Place, Report, SshOptions};
use haul_net::Stream;

use crate::scenarios::{Bench, checkpoints_every};
use haul_channel::reporter::Watch;
use haul_copy::receiver::CHECKPOINT_BYTES;
use haul_kept::files::manifest_file::Writer;
use haul_kept::surroundings::Surroundings;
use haul_places::Ways;
use haul_places::verify::{Finding, ListAt, VerifyOptions, VerifyProgress, VerifyWatcher, verify};
use haul_transfer::here;

#[derive(Clone, Copy, Debug)]
enum Way {
    Push,
    Pull,
}

const WAYS: [Way; 2] = [Way::Push, Way::Pull];

#[derive(Default)]
pub struct Lister(pub Mutex<Vec<ManifestLine>>);

impl Observer for Lister {
    fn on_event(&self, event: &Event) {
        if let Event::Manifest(line) = event {
            self.0.lock().unwrap().push(line.clone());
        }
    }

    fn wants_manifest(&self) -> bool {
        true
    }
}

#[derive(Default)]
struct Findings(Mutex<Vec<(String, Finding)>>);

impl VerifyWatcher for Findings {
    fn on_finding(&self, path: &[u8], finding: &Finding) {
        self.0.lock().unwrap().push((String::from_utf8(path.to_vec()).unwrap(), finding.clone()));
    }

    fn on_progress(&self, _: &VerifyProgress) {}
}

/// Returns the names that `--manifest-out` lists, in order, and the findings of `haul verify --extra`.
fn checked(bench: &Bench, job: &Job, way: Way) -> (Report, Vec<String>, Vec<(String, Finding)>) {
    let lister = Arc::<Lister>::default();
    let (watch, silent) = (Arc::new(Watch::new(Arc::clone(&lister) as Arc<dyn Observer>)), Arc::new(Watch::silent()));
    let watches = match way {
        Way::Push => [&watch, &silent],
        Way::Pull => [&silent, &watch],
    };
    let lanes: Vec<_> = (0..2).map(|_| Stream::plain_pair().unwrap()).collect();
    let ends = here::here_watched(
        None,
        job,
        &Surroundings::default(),
        watches,
        true,
        lanes,
        checkpoints_every(CHECKPOINT_BYTES),
    )
    .unwrap();
    let report = watch.report(&ends, Default::default(), false).unwrap();

    let manifest = bench.root().join("manifest");
    let mut writer = Writer::start(fs::File::create(&manifest).unwrap()).unwrap();
    let lines = lister.0.lock().unwrap();
    lines.iter().for_each(|line| writer.add(line).unwrap());
    writer.finish().unwrap();
    let findings = Findings::default();
    let tree = Endpoint { place: Place::Here(Here::Disk), path: bench.to().into_os_string().into_encoded_bytes() };
    let options = VerifyOptions {
        list: ListAt::Here(manifest),
        tree,
        threads: 2,
        extra: true,
        algorithm: None,
        carriage: Carriage::default(),
        ssh: SshOptions::default(),
    };
    let nobody: Arc<dyn Observer> = Arc::<Lister>::default();
    let verified = verify(&options, &Ways::to_hauls(&Surroundings::default()), &nobody, &findings).unwrap();
    assert_eq!((verified.root_blake3, verified.files), (Some(report.root_blake3), report.root_files));
    let listed = lines.iter().map(|line| String::from_utf8(line.path.clone()).unwrap()).collect();
    (report, listed, findings.0.into_inner().unwrap())
}

#[test]
fn every_name_of_a_file_is_listed_when_it_is_made_and_when_it_is_there() {
    for way in WAYS {
        let bench = Bench::new();
        for (name, size) in [("a", 1000), ("b/large", 5_000_000), ("c", 10)] {
            bench.write(name, size);
        }
        for (first, second) in [("a", "b/a-again"), ("a", "z"), ("b/large", "b/more")] {
            fs::hard_link(bench.from().join(first), bench.from().join(second)).unwrap();
        }
        let mut job = bench.job();
        job.selection.hard_links = true;
        let choices: [fn(&mut Job); 4] =
            [|_| (), |_| (), |job| job.selection.ignore_existing = true, |job| job.selection.checksum = true];
        for (run, choose) in choices.into_iter().enumerate() {
            choose(&mut job);
            let (report, listed, findings) = checked(&bench, &job, way);
            let moved = if run == 0 { 3 } else { 0 };
            assert_eq!((report.failed, report.files_moved, report.files_kept), (0, moved, 3 - moved), "{way:?} {run}");
            assert_eq!(listed, ["a", "b/a-again", "b/large", "b/more", "c", "z"], "{way:?}, run {run}");
            assert_eq!(findings, [], "{way:?}, run {run}");
        }
    }
}

#[test]
fn what_stays_where_a_second_name_would_go_is_not_listed() {
    for way in WAYS {
        let bench = Bench::new();
        bench.write("a", 1000);
        fs::hard_link(bench.from().join("a"), bench.from().join("b")).unwrap();
        fs::create_dir(bench.to()).unwrap();
        fs::write(bench.to().join("b"), "what somebody else wrote there").unwrap();
        let mut job = bench.job();
        (job.selection.hard_links, job.selection.ignore_existing) = (true, true);
        let (report, listed, findings) = checked(&bench, &job, way);
        assert_eq!((report.failed, report.files_moved, report.files_kept), (0, 1, 0), "{way:?}");
        assert_eq!(listed, ["a"], "{way:?}");
        assert_eq!(findings, [("b".to_owned(), Finding::Extra)], "{way:?}");
    }
}

#[test]
fn a_single_file_is_listed_by_the_name_that_it_gets() {
    for way in WAYS {
        let bench = Bench::new();
        bench.write("a.bin", 5_000_000);
        fs::create_dir(bench.to()).unwrap();
        let mut job = bench.job();
        let bytes = |path: std::path::PathBuf| path.into_os_string().into_encoded_bytes();
        job.sources[0].path = bytes(bench.from().join("a.bin"));
        for _ in 0..2 {
            job.target.path = bytes(bench.to().join("b.bin"));
            let (_, listed, findings) = checked(&bench, &job, way);
            assert_eq!((&listed[..], &findings[..]), (&["b.bin".to_owned()][..], &[][..]), "{way:?}");
        }
        fs::remove_file(bench.to().join("b.bin")).unwrap();
        job.target.path = bytes(bench.to());
        let (_, listed, findings) = checked(&bench, &job, way);
        assert_eq!((&listed[..], &findings[..]), (&["a.bin".to_owned()][..], &[][..]), "{way:?}");
    }
}
