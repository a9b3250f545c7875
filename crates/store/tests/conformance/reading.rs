//! Scenarios of a tree to read.

use std::collections::HashSet;
use std::sync::Arc;

use super::{Reading, entries};
use crate::{EntryKind, Filter, Found, FoundEntry, SourceTree, WalkOptions};

type Tree = Arc<dyn SourceTree>;

fn files(tree: &Tree) -> Vec<FoundEntry> {
    let is_file = |entry: &FoundEntry| matches!(entry.kind, EntryKind::File { .. });
    let files: Vec<FoundEntry> = entries(tree, WalkOptions::default()).into_iter().filter(is_file).collect();
    assert!(files.iter().any(|file| file.stat.size > 0), "the tree has a file with content");
    files
}

pub(crate) fn each_item_comes_once_and_a_directory_before_its_content(Reading { tree, .. }: &Reading) {
    let (mut open, mut seen) = (Vec::<Vec<u8>>::new(), HashSet::new());
    for found in Arc::clone(tree).items(WalkOptions::default()) {
        match found {
            Found::Entry(entry) => {
                assert!(seen.insert(entry.path.clone()), "{entry:?} comes twice");
                if let Some(parent) = open.last() {
                    assert!(is_in(&entry.path, parent), "{entry:?} comes in another directory");
                }
                if entry.kind == EntryKind::Directory {
                    open.push(entry.path);
                }
            }
            Found::DirEnd { path, complete } => assert!(open.pop() == Some(path) && complete),
            other => panic!("{other:?}"),
        }
    }
    assert!(open.is_empty(), "{open:?} have no end");
    let paths = |tree| entries(tree, WalkOptions::default()).into_iter().map(|entry| entry.path);
    assert!(paths(tree).eq(paths(tree)), "the order is another one each time");
}

fn is_in(path: &[u8], directory: &[u8]) -> bool {
    let parent = path.iter().rposition(|byte| *byte == b'/').map_or(&b""[..], |slash| &path[..slash]);
    parent == directory
}

/// The most bytes to compare: a file of zeros may be far too large.
const MOST_BYTES: u64 = 1 << 20;

pub(crate) fn a_file_is_read_at_any_offset_up_to_its_end(Reading { tree, .. }: &Reading) {
    for entry in files(tree) {
        let file = tree.open(entry.source, &entry.source_path).unwrap();
        let size = entry.stat.size;
        assert_eq!(file.stat().unwrap().size, size);
        let begin = size.saturating_sub(MOST_BYTES);
        let mut whole = vec![7; (size - begin) as usize + 10];
        assert_eq!(file.read_at(&mut whole, begin).unwrap() as u64, size - begin, "up to the end, and not further");
        for offset in [begin, begin + 1, begin + (size - begin) / 2, size.saturating_sub(1)] {
            let mut piece = vec![9; 300];
            let read = file.read_at(&mut piece, offset).unwrap();
            assert_eq!(read as u64, 300.min(size.saturating_sub(offset)));
            let at = (offset - begin) as usize;
            assert_eq!(piece[..read], whole[at..at + read]);
        }
        assert_eq!(file.read_at(&mut [0; 10], size).unwrap() + file.read_at(&mut [0; 10], size + 5).unwrap(), 0);
    }
}

pub(crate) fn all_bytes_outside_of_the_data_ranges_are_zeros(Reading { tree, .. }: &Reading) {
    for entry in files(tree) {
        let file = tree.open(entry.source, &entry.source_path).unwrap();
        let end = entry.stat.size.min(MOST_BYTES);
        let mut whole = vec![7; end as usize];
        file.read_at(&mut whole, 0).unwrap();
        let mut at = 0;
        while let Some((start, stop)) = file.next_data(at, end).unwrap() {
            assert!(at <= start && start < stop && stop <= end, "{start} to {stop}, from {at}");
            assert!(whole[at as usize..start as usize].iter().all(|byte| *byte == 0));
            at = stop;
        }
        assert!(whole[at as usize..].iter().all(|byte| *byte == 0));
        assert_eq!(file.next_data(end, end).unwrap(), None);
    }
}

pub(crate) fn a_file_that_does_not_change_keeps_its_version(Reading { tree, .. }: &Reading) {
    for entry in files(tree) {
        for _ in 0..2 {
            let now = tree.open(entry.source, &entry.source_path).unwrap().stat().unwrap();
            let state = |stat: &crate::Stat| (stat.size, stat.mtime, stat.version);
            assert_eq!(state(&now), state(&entry.stat));
        }
    }
}

pub(crate) fn only_what_was_found_can_be_opened(Reading { tree, .. }: &Reading) {
    for entry in files(tree) {
        let other = [&entry.source_path[..], b"-other"].concat();
        let error = tree.open(entry.source, &other).unwrap_err();
        assert!(error.is_vanished() && error.path == other, "{error}");
        assert!(tree.open(entry.source + 1, &entry.source_path).is_err());
    }
}

pub(crate) fn what_a_filter_excludes_is_not_found(Reading { tree, .. }: &Reading) {
    let Some(first) = files(tree).into_iter().next() else { return };
    let name = first.path.rsplit(|byte| *byte == b'/').next().unwrap().to_vec();
    let filter = Filter::new(&[(false, name)]).unwrap();
    let left = entries(tree, WalkOptions { filter, ..WalkOptions::default() });
    assert!(left.iter().all(|entry| entry.path != first.path));
}
