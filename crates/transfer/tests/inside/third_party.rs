//! Tests whole jobs whose files a third party brings, past both roles.

use std::sync::{Arc, Mutex};

use haul_channel::reporter::Watch;
use haul_copy::receiver::{ReceiverJob, Target};
use haul_copy::sender::{OpenSource, SenderJob, Sources};
use haul_job::{Proof, Report};
use haul_kept::surroundings::Surroundings;
use haul_net::Stream;
use haul_store::memory::Memory;
use haul_store::{
    Abilities, Applied, Carried, Draft, FileToBring, Metadata, Result as StoreResult, SourceFile, SourceNames,
    SourceTree, Stat, StoreError, TargetTree, ThirdParty, Time,
};
use haul_transfer::here::{carry, roles};

use crate::scenarios::{Bench, Witness, checkpoints_every};

/// A target that another server fills.
#[derive(Clone, Debug)]
struct Filled {
    from: Memory,
    to: Memory,
    brought: Arc<Mutex<Vec<String>>>,
}

impl ThirdParty for Filled {
    fn bring(&self, file: &FileToBring<'_>) -> StoreResult<Carried> {
        let name = String::from_utf8_lossy(file.path).into_owned();
        let carried = match &name[..] {
            "differs" => return Ok(Carried::Differs),
            "here" => return Ok(Carried::ThroughThisHost),
            "fails" => return Err(StoreError::new("have it sent to", file.path, std::io::ErrorKind::InvalidData)),
            _ => Carried::BetweenServers,
        };
        let mut content = vec![0; file.size as usize];
        SourceTree::open(&self.from, 0, file.source_path)?.read_at(&mut content, 0).unwrap();
        (file.moves)(file.size / 2);
        put(&self.to, &name, &content);
        self.brought.lock().unwrap().push(name);
        Ok(carried)
    }

    fn at_once(&self) -> usize {
        3
    }
}

impl TargetTree for Filled {
    fn third_party(&self) -> Option<Arc<dyn ThirdParty>> {
        Some(Arc::new(self.clone()))
    }

    fn abilities(&self) -> Abilities {
        self.to.abilities()
    }

    fn stat(&self, path: &[u8]) -> StoreResult<Option<Stat>> {
        TargetTree::stat(&self.to, path)
    }

    fn open_file(&self, path: &[u8]) -> StoreResult<SourceFile> {
        self.to.open_file(path)
    }

    fn make_dir(&self, path: &[u8]) -> StoreResult<bool> {
        self.to.make_dir(path)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> StoreResult<bool> {
        self.to.make_symlink(path, target, meta)
    }

    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> StoreResult<bool> {
        self.to.make_hard_link(path, first)
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> StoreResult<Applied> {
        TargetTree::set_metadata(&self.to, path, meta)
    }

    fn flush_dir(&self, path: &[u8]) -> StoreResult<()> {
        self.to.flush_dir(path)
    }

    fn flush_file(&self, path: &[u8]) -> StoreResult<()> {
        self.to.flush_file(path)
    }

    fn new_draft(&self, path: &[u8], inplace: bool) -> StoreResult<Draft> {
        self.to.new_draft(path, inplace)
    }

    fn resume_draft(&self, path: &[u8], inplace: bool) -> StoreResult<Option<(Draft, Vec<u8>)>> {
        self.to.resume_draft(path, inplace)
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.to.delete_extraneous(path, has, spare, dry_run, deleted)
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.to.delete_entry(path, spare, dry_run, deleted)
    }
}

const OLD: Time = Time { s: 1_000_000_000, ns: 0 };

fn put(tree: &Memory, path: &str, data: &[u8]) {
    let draft = tree.new_draft(path.as_bytes(), false).unwrap();
    draft.write_at(data, 0).unwrap();
    draft.commit(&Metadata { mtime: Some(OLD), ..Metadata::default() }, false).unwrap();
}

fn copy(names: &[&str]) -> (Report, Filled) {
    let bench = Bench::new();
    let filled = Filled { from: Memory::default(), to: Memory::default(), brought: Arc::default() };
    for (name, size) in names.iter().zip(1..) {
        put(&filled.from, name, &vec![size; usize::from(size) * 3_000_000]);
    }
    let silent = Arc::new(Watch::silent());
    let (sender, receiver) =
        roles(&bench.job(), &Surroundings::default(), &silent, false, checkpoints_every(1 << 20)).unwrap();
    let open = OpenSource { sums: Some(Arc::default()), ..OpenSource::of(Arc::new(filled.from.clone())) };
    let sources = Sources::Open(open);
    let receiver = ReceiverJob { sums: sources.sums(), target: Target::Open(Arc::new(filled.clone())), ..receiver };
    let lanes: Vec<_> = (0..4).map(|_| Stream::plain_pair().unwrap()).collect();
    let watch = Arc::new(Watch::new(Arc::<Witness>::default()));
    let ends = carry(SenderJob { sources, ..sender }, receiver, [&watch, &silent], lanes).unwrap();
    (watch.report(&ends, Default::default(), false).unwrap(), filled)
}

fn has(filled: &Filled, name: &str) -> bool {
    TargetTree::stat(&filled.to, name.as_bytes()).unwrap().is_some()
}

#[test]
fn files_that_a_third_party_brings_have_moved_and_are_proved_by_both_servers() {
    let (report, filled) = copy(&["a", "b", "c", "d", "e"]);
    assert_eq!((report.files_moved, report.files_between_servers, report.failed), (5, 5, 0), "{:?}", report.failures);
    assert_eq!((report.bytes_moved, report.bytes_kept, report.proof), (45_000_000, 0, Proof::ByBothServers));
    assert_eq!(filled.brought.lock().unwrap().len(), 5);
}

#[test]
fn what_a_third_party_does_not_bring_passes_this_host_and_what_differs_has_no_name() {
    let (report, filled) = copy(&["a", "differs", "fails", "here"]);
    assert_eq!((report.files_moved, report.files_between_servers), (2, 1), "{:?}", report.failures);
    assert_eq!((report.failed, report.unverified, report.bytes_moved), (2, 1, 15_000_000), "{:?}", report.failures);
    assert!(report.proof != Proof::ByBothServers, "one of two went through this host");
    assert_eq!(["a", "here", "differs", "fails"].map(|name| has(&filled, name)), [true, true, false, false]);
    assert_eq!(*filled.brought.lock().unwrap(), ["a"]);
}
