//! Tests whole jobs between ends that are no disk: a tree in memory, and a list of items.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use haul_job::{Error, Job, Report};
use haul_net::Stream;
use haul_store::memory::Memory;
use haul_store::{
    Abilities, Applied, Draft, DraftPlan, EntryKind, FileToWrite, Found, FoundEntry, ItemSource, Journal, Metadata,
    Result as StoreResult, SourceFile, SourceNames, SourceSet, SourceTree, Stat, StoreError, TargetTree, Time,
    WalkOptions,
};

use crate::scenarios::{Bench, Lane, Witness, checkpoints_every, random};
use haul_channel::reporter::Watch;
use haul_copy::receiver::{ReceiverJob, Target};
use haul_copy::sender::{OpenSource, SenderJob, Sources};
use haul_kept::surroundings::Surroundings;
use haul_transfer::here::{carry, roles};

type Tree = Arc<dyn SourceTree>;

fn copy_over(
    job: &Job,
    from: Option<Tree>,
    to: Option<&dyn InMemory>,
    lanes: Vec<(Stream, Stream)>,
) -> Result<Report, Error> {
    let (sender, receiver) =
        roles(job, &Surroundings::default(), &Arc::new(Watch::silent()), false, checkpoints_every(1 << 20))?;
    let sources = from.map_or(sender.sources, |tree| Sources::Open(OpenSource::of(tree)));
    let target = to.map_or(receiver.target, |tree| Target::Open(tree.shared()));
    let watch = Arc::new(Watch::new(Arc::<Witness>::default()));
    let watches = [&watch, &Arc::new(Watch::silent())];
    let ends = carry(SenderJob { sources, ..sender }, ReceiverJob { target, ..receiver }, watches, lanes)?;
    Ok(watch.report(&ends, Default::default(), false).unwrap())
}

trait InMemory {
    fn shared(&self) -> Arc<dyn TargetTree>;
}

impl InMemory for Memory {
    fn shared(&self) -> Arc<dyn TargetTree> {
        Arc::new(self.clone())
    }
}

fn copy(job: &Job, from: Option<Tree>, to: Option<&dyn InMemory>) -> Report {
    let lanes = (0..4).map(|_| Stream::plain_pair().unwrap()).collect();
    copy_over(job, from, to, lanes).unwrap()
}

fn source(tree: &Memory) -> Option<Tree> {
    Some(Arc::new(tree.clone()))
}

const OLD: Time = Time { s: 1_000_000_000, ns: 123_456_789 };

fn put(tree: &Memory, path: &str, data: &[u8]) {
    let draft = tree.new_draft(path.as_bytes(), false).unwrap();
    draft.write_at(data, 0).unwrap();
    draft.commit(&Metadata { mtime: Some(OLD), ..Metadata::default() }, false).unwrap();
}

fn filled() -> Memory {
    let tree = Memory::default();
    tree.make_dir(b"d").unwrap();
    tree.make_dir(b"d/empty").unwrap();
    put(&tree, "d/large", &random(0, 5_000_000));
    put(&tree, "d/none", b"");
    put(&tree, "small", b"data");
    tree.make_symlink(b"link", b"small", &Metadata { mtime: Some(OLD), ..Metadata::default() }).unwrap();
    tree
}

fn contents(tree: &Memory) -> Vec<(String, String, Option<Time>, Vec<u8>)> {
    let of = |found| match found {
        Found::Entry(entry) => {
            let is_file = matches!(entry.kind, EntryKind::File { .. });
            let mut data = vec![0; if is_file { entry.stat.size as usize } else { 0 }];
            if is_file {
                let file = SourceTree::open(tree, entry.source, &entry.source_path).unwrap();
                assert_eq!(file.read_at(&mut data, 0).unwrap(), data.len());
            }
            let path = String::from_utf8(entry.path).unwrap();
            Some((path, format!("{:?}", entry.kind), is_file.then_some(entry.stat.mtime), data))
        }
        _ => None,
    };
    Arc::new(tree.clone()).items(WalkOptions::default()).filter_map(of).collect()
}

fn names(tree: &Memory) -> Vec<String> {
    contents(tree).into_iter().map(|(path, ..)| path).filter(|path| !path.is_empty()).collect()
}

#[test]
fn a_tree_goes_from_memory_to_memory_and_a_second_run_moves_nothing() {
    let (bench, from, to) = (Bench::new(), filled(), Memory::default());
    let report = copy(&bench.job(), source(&from), Some(&to));
    assert_eq!((report.files_moved, report.failed), (3, 0), "{:?}", report.failures);
    assert!(contents(&from) == contents(&to), "{:?}", names(&to));
    let report = copy(&bench.job(), source(&from), Some(&to));
    assert_eq!((report.files_moved, report.files_kept, report.failed), (0, 3, 0), "{:?}", report.failures);
    put(&from, "small", b"DATA");
    put(&to, "d/extra", b"goes");
    let mut job = bench.job();
    (job.selection.delete, job.selection.checksum) = (true, true);
    let report = copy(&job, source(&from), Some(&to));
    assert_eq!((report.files_moved, report.deleted, report.failed), (1, 1, 0), "{:?}", report.failures);
    assert!(contents(&from) == contents(&to), "{:?}", names(&to));
}

#[test]
fn a_tree_goes_from_a_disk_to_memory_and_on_to_a_disk() {
    let (bench, memory) = (Bench::with_tree(), Memory::default());
    let mut job = bench.job();
    job.selection.verify_disk = true;
    let report = copy(&job, None, Some(&memory));
    assert_eq!((report.files_moved, report.failed), (201, 0), "{:?}", report.failures);
    assert!(!bench.to().exists());
    let report = copy(&bench.job(), source(&memory), None);
    assert_eq!((report.files_moved, report.failed), (201, 0), "{:?}", report.failures);
    bench.assert_equal();
}

#[test]
fn a_copy_into_memory_that_broke_off_goes_on_with_its_draft() {
    let (bench, from, to) = (Bench::new(), filled(), Memory::default());
    let mut job = bench.job();
    job.carriage.timeout = Duration::from_millis(500);
    copy_over(&job, source(&from), Some(&to), vec![Lane::Cut(4_000_000).pair()]).unwrap_err();
    assert!(!names(&to).contains(&"d/large".to_owned()), "half a file shows");
    let report = copy(&bench.job(), source(&from), Some(&to));
    assert!(contents(&from) == contents(&to), "{:?}", names(&to));
    assert!((1..5_000_000).contains(&report.bytes_moved), "{}: what is verified is not sent again", report.bytes_moved);
}

#[test]
fn what_an_end_cannot_do_fails_by_itself_and_the_rest_is_copied() {
    let (bench, memory) = (Bench::new(), Memory::default());
    bench.write("first", 100);
    bench.write("other", 100);
    std::fs::hard_link(bench.from().join("first"), bench.from().join("second")).unwrap();
    let mut job = bench.job();
    job.selection.hard_links = true;
    let report = copy(&job, None, Some(&memory));
    assert_eq!((report.files_moved, report.failed), (2, 1), "{:?}", report.failures);
    assert!(format!("{:?}", report.failures).contains("this target has no hard links"), "{:?}", report.failures);
    assert_eq!(names(&memory), ["first", "other"]);
}

#[derive(Debug)]
struct Leased {
    tree: Tree,
    wanted: Vec<&'static str>,
}

impl SourceTree for Leased {
    fn items(self: Arc<Self>, options: WalkOptions) -> Box<dyn ItemSource> {
        let is_wanted = |found: &Found| match found {
            Found::Entry(FoundEntry { path, .. }) | Found::DirEnd { path, .. } => {
                self.wanted.iter().any(|wanted| wanted.as_bytes() == path)
            }
            Found::Skipped { .. } | Found::Failed { .. } => false,
        };
        let items: Vec<Found> = Arc::clone(&self.tree).items(options).filter(is_wanted).collect();
        Box::new(items.into_iter())
    }

    fn open(&self, source: u32, source_path: &[u8]) -> haul_store::Result<SourceFile> {
        self.tree.open(source, source_path)
    }
}

#[test]
fn a_list_of_items_is_copied_like_what_a_walk_finds() {
    let bench = Bench::with_tree();
    let path = bench.job().sources[0].path.clone();
    let disk = SourceSet::resolve(&[path], &haul_store::ResolveOptions::default()).unwrap();
    let wanted = vec!["d3", "d3/small10", "d3/small3", "large"];
    let memory = Memory::default();
    let leased = Leased { tree: Arc::new(disk), wanted: wanted.clone() };
    let report = copy(&bench.job(), Some(Arc::new(leased)), Some(&memory));
    assert_eq!((report.files_moved, report.failed), (3, 0), "{:?}", report.failures);
    assert_eq!(names(&memory), wanted);
}

/// Its names are safe at once.
#[derive(Clone, Debug, Default)]
struct InOrder {
    memory: Memory,
    looked_at: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl InMemory for InOrder {
    fn shared(&self) -> Arc<dyn TargetTree> {
        Arc::new(self.clone())
    }
}

#[derive(Debug)]
struct DraftInOrder {
    draft: Draft,
    at: Mutex<u64>,
    size: u64,
}

impl TargetTree for InOrder {
    fn abilities(&self) -> Abilities {
        Abilities { random_writes: false, holes: false, flushes_names: false, ..self.memory.abilities() }
    }

    fn stat(&self, path: &[u8]) -> StoreResult<Option<Stat>> {
        self.looked_at.lock().unwrap().push(path.to_vec());
        TargetTree::stat(&self.memory, path)
    }

    fn open_file(&self, path: &[u8]) -> StoreResult<SourceFile> {
        self.memory.open_file(path)
    }

    fn make_dir(&self, path: &[u8]) -> StoreResult<bool> {
        self.memory.make_dir(path)
    }

    fn make_symlink(&self, path: &[u8], target: &[u8], meta: &Metadata) -> StoreResult<bool> {
        self.memory.make_symlink(path, target, meta)
    }

    fn make_hard_link(&self, path: &[u8], first: &[u8]) -> StoreResult<bool> {
        self.memory.make_hard_link(path, first)
    }

    fn set_metadata(&self, path: &[u8], meta: &Metadata) -> StoreResult<Applied> {
        TargetTree::set_metadata(&self.memory, path, meta)
    }

    fn flush_dir(&self, path: &[u8]) -> StoreResult<()> {
        panic!("{path:?} has no names to flush")
    }

    fn flush_file(&self, path: &[u8]) -> StoreResult<()> {
        self.memory.flush_file(path)
    }

    fn new_draft(&self, path: &[u8], _inplace: bool) -> StoreResult<Draft> {
        panic!("{path:?} comes unannounced")
    }

    fn new_draft_of(&self, path: &[u8], plan: &DraftPlan) -> StoreResult<Draft> {
        let (draft, at) = (self.memory.new_draft(path, plan.inplace)?, Mutex::new(0));
        Ok(Draft::Other(Box::new(DraftInOrder { draft, at, size: plan.size })))
    }

    fn resume_draft(&self, _path: &[u8], _inplace: bool) -> StoreResult<Option<(Draft, Vec<u8>)>> {
        Ok(None)
    }

    fn delete_extraneous(
        &self,
        path: &[u8],
        has: &SourceNames,
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.memory.delete_extraneous(path, has, spare, dry_run, deleted)
    }

    fn delete_entry(
        &self,
        path: &[u8],
        spare: &dyn Fn(&[u8], bool) -> bool,
        dry_run: bool,
        deleted: &mut dyn FnMut(Vec<u8>, bool),
    ) -> Vec<StoreError> {
        self.memory.delete_entry(path, spare, dry_run, deleted)
    }
}

impl FileToWrite for DraftInOrder {
    fn path(&self) -> &[u8] {
        self.draft.path()
    }

    fn id(&self) -> (u64, u64) {
        self.draft.id()
    }

    fn write_at(&self, data: &[u8], offset: u64) -> StoreResult<()> {
        let mut at = self.at.lock().unwrap();
        assert_eq!(offset, *at, "out of order");
        *at += data.len() as u64;
        self.draft.write_at(data, offset)
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> StoreResult<usize> {
        assert_eq!(*self.at.lock().unwrap(), self.size, "it is read back before its end");
        self.draft.read_at(buffer, offset)
    }

    fn size(&self) -> StoreResult<u64> {
        self.draft.size()
    }

    fn set_size(&self, size: u64) -> StoreResult<()> {
        self.draft.set_size(size)
    }

    fn flush(&self) -> StoreResult<()> {
        self.draft.flush()
    }

    fn set_metadata(&self, meta: &Metadata, flush: bool) -> StoreResult<()> {
        assert_eq!(*self.at.lock().unwrap(), self.size, "it is not complete");
        self.draft.set_metadata(meta, flush)
    }

    fn give_name(&self) -> StoreResult<()> {
        self.draft.give_name()
    }

    fn discard(&self) -> StoreResult<()> {
        self.draft.discard()
    }

    fn journal(&self) -> &dyn Journal {
        panic!("nothing of it can be gone on with")
    }
}

#[test]
fn an_end_that_takes_files_from_front_to_back_gets_each_over_one_lane_and_several_at_once() {
    for verify_disk in [false, true] {
        let (bench, to) = (Bench::with_tree(), InOrder::default());
        (0..5).for_each(|n| bench.write(&format!("large{n}"), 7_000_000 + n));
        let holed = std::fs::File::create(bench.from().join("holed")).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&holed, b"end", 9_000_000).unwrap();
        let mut job = bench.job();
        (job.carriage.in_order, job.selection.sparse) = (true, false);
        (job.selection.whole_file, job.selection.no_resume) = (true, true);
        job.selection.verify_disk = verify_disk;
        let report = copy(&job, None, Some(&to));
        assert_eq!((report.files_moved, report.failed), (207, 0), "{:?}", report.failures);
        let report = copy(&bench.job(), source(&to.memory), None);
        assert_eq!((report.files_moved, report.failed), (207, 0), "{:?}", report.failures);
        bench.assert_equal();
    }
}

#[test]
fn an_end_that_takes_files_from_front_to_back_is_refused_where_lanes_bring_them_in_any_order() {
    let (bench, to) = (Bench::with_tree(), InOrder::default());
    let lanes = vec![Stream::plain_pair().unwrap()];
    let error = copy_over(&bench.job(), None, Some(&to), lanes).unwrap_err();
    assert!(error.cause.unwrap().contains("front to back"));
}

#[test]
fn a_file_for_an_end_without_flushes_of_names_costs_no_look_at_its_directory() {
    let (bench, to) = (Bench::with_tree(), InOrder::default());
    bench.write("one", 7_000_000);
    let mut job = bench.job();
    job.sources[0].path = bench.from().join("one").into_os_string().into_encoded_bytes();
    job.carriage.in_order = true;
    let report = copy(&job, None, Some(&to));
    assert_eq!((report.files_moved, report.failed), (1, 0), "{:?}", report.failures);
    let looked_at = to.looked_at.lock().unwrap();
    assert!(!looked_at.is_empty() && looked_at.iter().all(|path| !path.is_empty()), "{looked_at:?}");
}
