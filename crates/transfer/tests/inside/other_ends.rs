//! Tests whole jobs between ends that are no disk: a tree in memory, and a list of items in the place of a walk.

use std::sync::Arc;
use std::time::Duration;

use haul_job::{Error, Job, Report};
use haul_net::Stream;
use haul_store::memory::Memory;
use haul_store::{
    EntryKind, Found, FoundEntry, ItemSource, Metadata, SourceFile, SourceSet, SourceTree, TargetTree, Time,
    WalkOptions,
};

use crate::scenarios::{Bench, Lane, Witness, checkpoints_every};
use haul_channel::reporter::Watch;
use haul_copy::receiver::{ReceiverJob, Target};
use haul_copy::sender::{OpenSource, SenderJob, Sources};
use haul_kept::surroundings::Surroundings;
use haul_transfer::here::{carry, roles};

type Tree = Arc<dyn SourceTree>;

/// Runs a job whose ends may differ from those that it names.
fn copy_over(
    job: &Job,
    from: Option<Tree>,
    to: Option<&Memory>,
    lanes: Vec<(Stream, Stream)>,
) -> Result<Report, Error> {
    let (sender, receiver) =
        roles(job, &Surroundings::default(), &Arc::new(Watch::silent()), false, checkpoints_every(1 << 20))?;
    let sources = from.map_or(sender.sources, |tree| Sources::Open(OpenSource::of(tree)));
    let target = to.map_or(receiver.target, |tree| Target::Open(Arc::new(tree.clone())));
    let watch = Arc::new(Watch::new(Arc::<Witness>::default()));
    let watches = [&watch, &Arc::new(Watch::silent())];
    let ends = carry(SenderJob { sources, ..sender }, ReceiverJob { target, ..receiver }, watches, lanes)?;
    Ok(watch.report(&ends, Default::default(), false).unwrap())
}

fn copy(job: &Job, from: Option<Tree>, to: Option<&Memory>) -> Report {
    let lanes = (0..2).map(|_| Stream::plain_pair().unwrap()).collect();
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
    put(
        &tree,
        "d/large",
        &(0..5_000_000_u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 11) as u8).collect::<Vec<u8>>(),
    );
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

/// A chosen part of a tree.
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
