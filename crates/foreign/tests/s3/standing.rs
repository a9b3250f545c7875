//! What stands at a target is replaced only as it was seen.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use haul_foreign::TargetSettings;
use haul_store::{DraftPlan, Metadata, StoreError, TargetTree};

use crate::server::{Reply, Request, Server, answer, open_bucket, settings};
use crate::target::Silent;

const PART: u64 = 64 << 10;

fn target(server: &Server) -> (Arc<dyn TargetTree>, Silent) {
    let (told, target) = (Silent::default(), TargetSettings { sums: true, ..TargetSettings::default() });
    let opened = open_bucket("bucket", b"d/", target, Box::new(told.clone()), &server.environment(), settings);
    (opened.unwrap().0, told)
}

/// Writes a file of one part or two, with `meanwhile` before it gets its name.
fn write(tree: &Arc<dyn TargetTree>, path: &[u8], parts: u64, meanwhile: impl FnOnce()) -> Result<(), StoreError> {
    let plan = DraftPlan { size: parts * PART, chunk_bytes: PART, ..DraftPlan::default() };
    let draft = tree.new_draft_of(path, &plan)?;
    for part in 0..parts {
        draft.write_at(&[7; PART as usize], part * PART)?;
    }
    meanwhile();
    draft.commit(&Metadata::default(), true)
}

fn put(server: &Server, key: &str, data: &[u8]) {
    server.state.lock().unwrap().put(key.as_bytes(), data);
}

#[test]
fn an_object_that_somebody_else_writes_or_removes_meanwhile_is_left_as_it_is() {
    for parts in [1, 2] {
        let server = Server::honest();
        for key in ["d/stood", "d/went", "d/unseen"] {
            put(&server, key, b"before");
        }
        let (tree, _) = target(&server);
        assert!(tree.stat(b"stood").unwrap().is_some() && tree.stat(b"went").unwrap().is_some());
        assert!(tree.stat(b"new").unwrap().is_none());
        let refused = |path: &[u8], meanwhile: &dyn Fn()| {
            let error = write(&tree, path, parts, meanwhile).unwrap_err();
            assert!(error.to_string().contains("somebody else has written"), "{error}");
        };
        refused(b"stood", &|| put(&server, "d/stood", b"theirs"));
        refused(b"new", &|| put(&server, "d/new", b"theirs"));
        refused(b"went", &|| drop(server.state.lock().unwrap().objects.remove(&b"d/went"[..])));
        for key in ["d/stood", "d/new"] {
            assert_eq!(server.object(key).unwrap().data, b"theirs", "{key}");
        }
        assert!(server.object("d/went").is_none());
        write(&tree, b"unseen", parts, || ()).unwrap();
        assert!(tree.stat(b"stood").unwrap().is_some());
        write(&tree, b"stood", parts, || ()).unwrap();
        write(&tree, b"stood", parts, || ()).unwrap();
        assert_eq!(server.object("d/stood").unwrap().data.len() as u64, parts * PART);
    }
}

#[test]
fn an_answer_that_was_lost_is_no_somebody_else() {
    for parts in [1, 2] {
        let count = AtomicUsize::new(0);
        let server = Server::start(move |request, state| {
            let has_condition = request.field("if-none-match").is_some();
            (has_condition && count.fetch_add(1, Ordering::Relaxed) == 0).then(|| {
                answer(request, state);
                Reply::cut()
            })
        });
        let (tree, _) = target(&server);
        assert!(tree.stat(b"f").unwrap().is_none());
        write(&tree, b"f", parts, || ()).unwrap();
        assert_eq!(server.object("d/f").unwrap().data.len() as u64, parts * PART);
    }
}

#[test]
fn a_store_without_conditions_is_told_of_once_and_its_sums_stay() {
    let is_conditional = |request: &Request| request.fields.keys().any(|name| name.starts_with("if-"));
    let server = Server::start(move |request, _| {
        let is_write = matches!(request.method.as_str(), "PUT" | "POST");
        (is_write && is_conditional(request)).then(|| Reply::error(501, "NotImplemented"))
    });
    let (tree, told) = target(&server);
    for (path, parts) in [(&b"small"[..], 1), (b"large", 2), (b"another", 1)] {
        assert!(tree.stat(path).unwrap().is_none());
        write(&tree, path, parts, || ()).unwrap();
    }
    let told = told.0.lock().unwrap().clone();
    assert!(told.len() == 1 && told[0].contains("knows no conditions"), "{told:?}");
    let sums = server.seen().iter().filter(|request| request.field("x-amz-checksum-crc64nvme").is_some()).count();
    assert_eq!(sums, 6, "of two small files, one of them twice, of two parts, and of the whole");
}
