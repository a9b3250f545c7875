//! The scenarios of every end that fit a store of objects: it has no directories, and a draft of one part has no journal.

use haul_foreign::{TargetSettings, open_objects};

use crate::conformance::{Bench, Reading, conforms, source_conforms};
use crate::server::{Server, open_bucket, settings};
use crate::target::Silent;

fn bench() -> Bench {
    let server = Server::honest();
    let environment = server.environment();
    let target = TargetSettings { sums: true, ..TargetSettings::default() };
    let (tree, _) = open_bucket("bucket", b"", target, Box::new(Silent::default()), &environment, settings).unwrap();
    let source = move || open_objects("bucket", &[Vec::new()], true, &environment, settings).unwrap().tree;
    Bench { target: tree, source: Box::new(source), _held: Box::new(server) }
}

fn reading() -> Reading {
    let bench = bench();
    bench.file("directory/file", &[7; 900_000]);
    bench.file("empty", b"");
    bench.file("small", b"data");
    Reading { tree: (bench.source)(), _held: Box::new(bench) }
}

source_conforms! { reading }

conforms! { writing, bench;
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
    links_are_made_or_refused
    no_path_leads_out_of_the_tree
    what_is_not_there_is_missing_or_an_error_that_names_it
    deletion_keeps_what_is_to_stay_and_tells_the_rest
    a_file_that_is_written_in_place_is_marked_or_refused
}
