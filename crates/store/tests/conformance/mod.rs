//! The scenarios that every end must pass.
//!
//! ```text
//!   source_conforms! { || tree }     a tree to read
//!   target_conforms! { || bench }    a tree to write, which is also read back
//! ```
//! Another crate takes this module in by its path, as `conformance` at its root, beside the names of `store`. Where an
//! ability is missing, a scenario asks for the refusal.

pub(crate) mod reading;
pub(crate) mod writing;

use std::any::Any;
use std::sync::Arc;

use crate::{Draft, Found, FoundEntry, Metadata, SourceTree, TargetTree, WalkOptions};

pub(crate) struct Bench {
    pub target: Arc<dyn TargetTree>,
    pub source: Box<dyn Fn() -> Arc<dyn SourceTree>>,
    pub _held: Box<dyn Any>,
}

pub(crate) struct Reading {
    pub tree: Arc<dyn SourceTree>,
    pub _held: Box<dyn Any>,
}

impl Bench {
    pub(crate) fn draft(&self, path: &str) -> Draft {
        self.target.new_draft(path.as_bytes(), false).unwrap()
    }

    pub(crate) fn written(&self, path: &str, data: &[u8]) -> Draft {
        let draft = self.draft(path);
        draft.write_at(data, 0).unwrap();
        draft
    }

    pub(crate) fn file(&self, path: &str, data: &[u8]) {
        self.written(path, data).commit(&Metadata::default(), true).unwrap();
    }

    pub(crate) fn content(&self, path: &str) -> Vec<u8> {
        let file = self.target.open_file(path.as_bytes()).unwrap();
        let mut data = vec![0; 1 << 20];
        let read = file.read_at(&mut data, 0).unwrap();
        data.truncate(read);
        data
    }

    pub(crate) fn exists(&self, path: &str) -> bool {
        self.target.stat(path.as_bytes()).unwrap().is_some()
    }

    /// The paths that a copy would find, without the root.
    pub(crate) fn paths(&self) -> Vec<String> {
        let entries = entries(&(self.source)(), WalkOptions::default());
        let paths = entries.iter().map(|entry| String::from_utf8(entry.path.clone()).unwrap());
        paths.filter(|path| !path.is_empty()).collect()
    }
}

fn entries(tree: &Arc<dyn SourceTree>, options: WalkOptions) -> Vec<FoundEntry> {
    let entry = |found| match found {
        Found::Entry(entry) => Some(entry),
        Found::DirEnd { .. } => None,
        other => panic!("{other:?}"),
    };
    Arc::clone(tree).items(options).filter_map(entry).collect()
}

macro_rules! conforms {
    ($room:ident, $bench:expr; $($scenario:ident)*) => {
        $(#[test]
        fn $scenario() {
            $crate::conformance::$room::$scenario(&$bench());
        })*
    };
}

/// The tests of a tree to read with at least one file with content.
macro_rules! source_conforms {
    ($tree:expr) => {
        $crate::conformance::conforms! { reading, $tree;
            each_item_comes_once_and_a_directory_before_its_content
            a_file_is_read_at_any_offset_up_to_its_end
            all_bytes_outside_of_the_data_ranges_are_zeros
            a_file_that_does_not_change_keeps_its_version
            only_what_was_found_can_be_opened
            what_a_filter_excludes_is_not_found
        }
    };
}

macro_rules! target_conforms {
    ($bench:expr) => {
        $crate::conformance::conforms! { writing, $bench;
            a_draft_shows_under_no_name_until_it_is_committed
            a_committed_draft_replaces_what_stood_there
            a_discarded_draft_leaves_no_trace_and_gets_no_name
            a_new_draft_begins_empty_whatever_an_earlier_one_held
            pieces_come_in_any_order_from_several_threads
            what_was_written_is_read_back_from_the_draft
            a_size_that_is_set_cuts_and_extends_by_zeros
            a_range_that_is_punched_reads_as_zeros
            metadata_is_kept_as_far_as_the_end_can
            the_version_of_a_file_changes_with_its_contents
            a_directory_is_made_once_and_a_file_needs_its_directory
            links_are_made_or_refused
            no_path_leads_out_of_the_tree
            what_is_not_there_is_missing_or_an_error_that_names_it
            a_draft_with_a_journal_is_found_again_with_all_that_was_flushed
            a_journal_ends_with_its_draft
            deletion_keeps_what_is_to_stay_and_tells_the_rest
            a_file_that_is_written_in_place_is_marked_or_refused
        }
    };
}

pub(crate) use {conforms, source_conforms, target_conforms};
