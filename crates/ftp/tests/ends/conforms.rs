//! The scenarios of every end, as far as FTP has what they are about: a file goes up from front to back, and without a journal.

use std::sync::Arc;

use crate::conformance::{Bench, Reading, conforms, source_conforms};
use crate::server::{Faults, Server};
use haul_ftp::{FtpServer, FtpSource, OpenOptions};
use haul_store::SourceTree;

fn reading() -> Reading {
    let server = Server::start(
        &[("/directory/", b""), ("/directory/file", &[7; 900_000]), ("/empty", b""), ("/small", b"data")],
        Faults::default(),
    );
    Reading { tree: FtpSource::open(server.settings(), &[b"/".to_vec()]).unwrap(), _held: Box::new(server) }
}

source_conforms! { reading }

fn bench() -> Bench {
    let server = Arc::new(Server::start(&[], Faults::default()));
    let (target, name) = FtpServer::new(server.settings()).open(b"", OpenOptions::default()).unwrap();
    assert_eq!(name, None);
    let here = Arc::clone(&server);
    let source = move || -> Arc<dyn SourceTree> { FtpSource::open(here.settings(), &[b"/".to_vec()]).unwrap() };
    Bench { target: Arc::new(target), source: Box::new(source), _held: Box::new(server) }
}

conforms! { writing, bench;
    a_committed_draft_replaces_what_stood_there
    a_discarded_draft_leaves_no_trace_and_gets_no_name
    a_new_draft_begins_empty_whatever_an_earlier_one_held
    what_was_written_is_read_back_from_the_draft
    the_version_of_a_file_changes_with_its_contents
    a_directory_is_made_once_and_a_file_needs_its_directory
    links_are_made_or_refused
    no_path_leads_out_of_the_tree
    what_is_not_there_is_missing_or_an_error_that_names_it
    deletion_keeps_what_is_to_stay_and_tells_the_rest
    a_file_that_is_written_in_place_is_marked_or_refused
}
