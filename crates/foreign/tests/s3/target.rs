//! Objects as a target.

use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use haul_foreign::{TargetSettings, Told};
use haul_store::{Draft, DraftPlan, Metadata, StoreError, TargetTree, Time};

use crate::server::{Reply, Request, Server, State, answer, crc64, open_bucket, settings};

#[derive(Clone, Default)]
pub struct Silent(pub Arc<Mutex<Vec<String>>>);

impl Told for Silent {
    fn warn(&self, text: String) {
        self.0.lock().unwrap().push(text);
    }

    fn unsummed(&self) {
        self.0.lock().unwrap().push("unsummed".to_owned());
    }
}

const PART: usize = 64 << 10;
const SIZE: usize = 3 * PART + 1000;

fn data() -> Vec<u8> {
    (0..SIZE).map(|at| (at * 7 % 251) as u8).collect()
}

fn plan() -> DraftPlan {
    let mtime = Time { s: 1_700_000_000, ns: 5 };
    DraftPlan {
        size: SIZE as u64,
        chunk_bytes: PART as u64,
        mtime,
        mode: 0o640,
        uid: 7,
        gid: 8,
        ..DraftPlan::default()
    }
}

fn target(server: &Server, journals: Option<&Path>) -> (Arc<dyn TargetTree>, Silent) {
    target_as(
        server,
        TargetSettings { sums: true, journals: journals.map(Path::to_owned), ..TargetSettings::default() },
    )
}

fn target_as(server: &Server, target: TargetSettings) -> (Arc<dyn TargetTree>, Silent) {
    let told = Silent::default();
    let opened = open_bucket("bucket", b"d/", target, Box::new(told.clone()), &server.environment(), settings);
    (opened.unwrap().0, told)
}

fn write(draft: &Draft, parts: std::ops::Range<usize>) -> Result<(), StoreError> {
    let data = data();
    for part in parts.rev() {
        for block in data[part * PART..].chunks(10_000).take(PART.div_ceil(10_000)).enumerate() {
            let (at, block) = (part * PART + block.0 * 10_000, block.1);
            let end = (at + block.len()).min((part + 1) * PART);
            draft.write_at(&block[..end - at], at as u64)?;
        }
    }
    Ok(())
}

fn upload(tree: &Arc<dyn TargetTree>) -> Result<(), StoreError> {
    let draft = tree.new_draft_of(b"f", &plan())?;
    write(&draft, 0..4)?;
    draft.commit(&Metadata::default(), true)
}

#[test]
fn parts_in_any_order_become_one_object_with_the_metadata_that_other_tools_read() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::honest();
    let all = TargetSettings {
        modes: true,
        owners: true,
        sums: true,
        journals: Some(dir.path().to_owned()),
        ..TargetSettings::default()
    };
    let (tree, told) = target_as(&server, all);
    upload(&tree).unwrap();
    let object = server.object("d/f").unwrap();
    assert!(object.data == data());
    let field = |name: &str| object.fields.get(name).map(String::as_str);
    assert_eq!(field("x-amz-meta-mtime"), Some("1700000000.000000005"));
    assert_eq!(
        [field("x-amz-meta-mode"), field("x-amz-meta-uid"), field("x-amz-meta-gid")],
        [Some("33184"), Some("7"), Some("8")]
    );
    assert_eq!((server.state.lock().unwrap().uploads(), told.0.lock().unwrap().len()), (0, 0));
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "the journal went with the upload");
}

#[test]
fn empty_objects_and_marks_of_directories_name_their_length() {
    let server = Server::honest();
    let (tree, _) = target(&server, None);
    let draft = tree.new_draft_of(b"empty", &DraftPlan { size: 0, ..plan() }).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    tree.mark_directory(b"sub", &Metadata::default()).unwrap();
    for key in ["d/empty", "d/sub/"] {
        assert!(server.object(key).unwrap().data.is_empty(), "{key}");
    }
}

#[test]
fn the_only_file_of_a_copy_to_an_empty_place_needs_no_look() {
    let server = Server::honest();
    let settings_of = TargetSettings { sums: true, single_file: true, ..TargetSettings::default() };
    let (tree, _) = target_as(&server, settings_of.clone());
    assert!(tree.make_dir(b"").unwrap(), "it is known since the place was opened");
    assert!(tree.stat(b"f").unwrap().is_none());
    assert_eq!(server.seen().len(), 1, "{:?}", server.lines());
    let told = Box::new(Silent::default());
    let (tree, name) =
        open_bucket("bucket", b"d/new", settings_of.clone(), told, &server.environment(), settings).unwrap();
    let before = server.seen().len();
    assert_eq!((name.as_deref(), tree.stat(b"new").unwrap().is_none()), (Some(&b"new"[..]), true));
    assert_eq!(server.seen().len() - before, 2, "for the object and for a link: {:?}", server.lines());
    let (tree, _) = target_as(&server, settings_of.clone());
    tree.stat(b"f").unwrap();
    server.state.lock().unwrap().put(b"d/f", b"of somebody else");
    upload(&tree).unwrap_err();
    assert_eq!(server.object("d/f").unwrap().data, b"of somebody else");
    assert!(tree.stat(b"f").unwrap().is_some(), "a later look asks");
    let (tree, _) = target_as(&server, settings_of);
    assert!(!tree.make_dir(b"").unwrap() && tree.stat(b"f").unwrap().is_some());
}

#[test]
fn a_store_that_does_not_know_the_key_refuses_the_login_and_one_that_forbids_an_object_does_not() {
    let open = |code: &'static str| {
        let server = Server::start(move |_, _| Some(Reply::error(403, code)));
        let told = Box::new(Silent::default());
        open_bucket("bucket", b"d/", TargetSettings::default(), told, &server.environment(), settings).err().unwrap()
    };
    assert!(open("SignatureDoesNotMatch").is_of_login() && open("InvalidAccessKeyId").is_of_login());
    assert!(!open("AccessDenied").is_of_login());
    let of_head = |code: &'static str| {
        let server = Server::start(move |request, _| match request.method.as_str() {
            "HEAD" => Some(Reply::status(403)),
            _ if request.key.is_empty() && request.asks("prefix").is_none() => Some(Reply::error(403, code)),
            _ => None,
        });
        target(&server, None).0.stat(b"f").err().unwrap()
    };
    assert!(of_head("SignatureDoesNotMatch").is_of_login(), "a head has no words");
    assert!(!of_head("AccessDenied").is_of_login());
}

#[test]
fn a_small_file_is_one_request_with_its_hash() {
    let server = Server::honest();
    let (tree, _) = target(&server, None);
    let draft = tree.new_draft_of(b"f", &DraftPlan { size: 4, ..plan() }).unwrap();
    draft.write_at(b"data", 0).unwrap();
    let before = server.seen().len();
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!(server.lines()[before..], ["PUT d/f"]);
    let hash = server.object("d/f").unwrap().fields["x-amz-meta-blake3"].clone();
    assert_eq!(hash, blake3::hash(b"data").to_hex().to_string());
}

/// Complete's answer is lost, or an error, in each order.
#[test]
fn a_complete_whose_answer_is_lost_or_an_error_counts_if_our_object_stands_there() {
    type Way = fn(&Request, &mut State) -> Reply;
    let ways: [(&str, Way); 5] = [
        ("done, then cut", |request, state| {
            answer(request, state);
            Reply::cut()
        }),
        ("cut, not done", |_, _| Reply::cut()),
        ("done, with an error in the 200", |request, state| {
            answer(request, state);
            Reply::error(200, "InternalError")
        }),
        ("not done, with an error in the 200", |_, _| Reply::error(200, "InternalError")),
        ("done, and half an answer", |request, state| {
            answer(request, state);
            Reply::xml(200, "  <CompleteMultipart")
        }),
    ];
    for (name, way) in ways {
        let completes = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&completes);
        let server = Server::start(move |request, state| {
            let is_complete = request.method == "POST" && request.asks("uploadId").is_some();
            (is_complete && counted.fetch_add(1, Ordering::Relaxed) == 0).then(|| way(request, state))
        });
        upload(&target(&server, None).0).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!(server.object("d/f").unwrap().data == data(), "{name}");
        assert!(completes.load(Ordering::Relaxed) <= 2, "{name}");
    }
}

#[test]
fn somebody_elses_object_is_not_taken_for_ours_when_the_upload_is_gone() {
    let server = Server::start(|request, state| {
        let is_complete = request.method == "POST" && request.asks("uploadId").is_some();
        is_complete.then(|| {
            state.put(b"d/f", b"theirs");
            Reply::error(404, "NoSuchUpload")
        })
    });
    let error = upload(&target(&server, None).0).unwrap_err();
    assert!(error.to_string().contains("NoSuchUpload"), "{error}");
}

#[test]
fn an_upload_goes_on_with_the_parts_that_the_store_has_as_they_were_sent() {
    let dir = tempfile::tempdir().unwrap();
    let changed = Arc::new(AtomicUsize::new(0));
    let lies = Arc::clone(&changed);
    let server = Server::start(move |request, state| {
        let is_list = request.method == "GET" && request.asks("uploadId").is_some();
        // Another part stands there.
        (is_list && lies.load(Ordering::Relaxed) > 0).then(|| {
            let mut reply = answer(request, state);
            let text = String::from_utf8(reply.body).unwrap();
            reply.body = text.replacen("&quot;part-", "&quot;other-", 1).into_bytes();
            reply
        })
    });
    let begin = || {
        let (tree, _) = target(&server, Some(dir.path()));
        let draft = tree.new_draft_of(b"f", &plan()).unwrap();
        write(&draft, 1..3).unwrap();
        draft.journal_start(b"header").unwrap();
        draft.journal_append(b" records").unwrap();
        write(&draft, 0..1).unwrap();
        draft.id()
    };
    let resume = || target(&server, Some(dir.path())).0.resume_draft(b"f", false).unwrap();
    let part = PART as u64;
    let id = begin();
    let (draft, journal) = resume().unwrap();
    assert_eq!((&journal[..], draft.id()), (&b"header records"[..], id));
    let proved = |draft: &Draft| [0, 1, 2, 3].map(|number| draft.proves(number * part, part));
    assert_eq!(
        proved(&draft),
        [Some(false), Some(true), Some(true), Some(false)],
        "of the first part no record is there"
    );
    draft.journal_keep(journal.len() as u64).unwrap();
    write(&draft, 3..4).unwrap();
    write(&draft, 0..1).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.object("d/f").unwrap().data == data());
    assert!(resume().is_none());

    begin();
    changed.store(1, Ordering::Relaxed);
    let (draft, _) = resume().unwrap();
    assert_eq!(
        proved(&draft),
        [Some(false), Some(true), Some(true), Some(false)],
        "the first listed part is not in the journal"
    );
    drop(draft);
    changed.store(0, Ordering::Relaxed);
    // A changed source ends the old upload.
    upload(&target(&server, Some(dir.path())).0).unwrap();
    assert_eq!(server.state.lock().unwrap().uploads(), 0);
}

#[test]
fn an_upload_that_is_given_up_is_ended_and_so_is_one_of_a_run_that_was_killed_at_once() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::honest();
    let (tree, _) = target(&server, Some(dir.path()));
    let draft = tree.new_draft_of(b"f", &plan()).unwrap();
    write(&draft, 0..1).unwrap();
    draft.discard().unwrap();
    assert!(draft.give_name().is_err() && draft.write_at(b"x", 0).is_err());
    assert_eq!(server.state.lock().unwrap().uploads(), 0);
    drop(tree.new_draft_of(b"f", &plan()).unwrap());
    assert_eq!(server.state.lock().unwrap().uploads(), 1, "killed before its first part");
    assert!(tree.resume_draft(b"f", false).unwrap().is_none());
    upload(&tree).unwrap();
    assert_eq!((server.state.lock().unwrap().uploads(), std::fs::read_dir(dir.path()).unwrap().count()), (0, 0));
}

#[test]
fn a_store_that_knows_no_sums_gets_none_and_that_is_said_once() {
    let server = Server::start(|request, _| {
        let has_sum =
            request.fields.keys().any(|name| name.starts_with("x-amz-checksum-") && name != "x-amz-checksum-mode");
        has_sum.then(|| Reply::error(501, "NotImplemented"))
    });
    let (tree, told) = target(&server, None);
    upload(&tree).unwrap();
    upload(&tree).unwrap();
    assert!(server.object("d/f").unwrap().data == data());
    let told = told.0.lock().unwrap().clone();
    assert!(told[0].contains("takes no CRC64NVME") && told[1..] == ["unsummed", "unsummed"], "{told:?}");
}

#[test]
fn a_part_that_arrives_changed_is_refused_and_a_busy_store_gets_it_again() {
    let count = AtomicUsize::new(0);
    let server = Server::start(move |request, state| {
        if request.method != "PUT" || request.asks("partNumber").is_none() {
            return None;
        }
        match count.fetch_add(1, Ordering::Relaxed) {
            0 => Some(Reply::error(503, "SlowDown").with("Retry-After", "0")),
            1 => Some(Reply::cut()),
            2 => Some(Reply::error(400, "RequestTimeout")),
            3 => Some(Reply::error(403, "ExpiredToken")),
            _ => {
                // The data changes on its way to the disk, and the store notices.
                let mut request = request.clone();
                let is_last = request.asks("partNumber") == Some("1");
                if is_last {
                    request.body[0] ^= 1;
                }
                Some(answer(&request, state))
            }
        }
    });
    let error = upload(&target(&server, None).0).unwrap_err();
    assert!(error.to_string().contains("BadDigest"), "{error}");
    assert!(server.object("d/f").is_none());
}

#[test]
fn no_object_is_replaced_where_that_is_not_wanted_also_not_one_that_came_meanwhile() {
    let server = Server::honest();
    let settings = TargetSettings { keeps_what_stands: true, sums: true, ..TargetSettings::default() };
    let (tree, _) = target_as(&server, settings);
    let small = tree.new_draft_of(b"s", &DraftPlan { size: 4, ..plan() }).unwrap();
    small.write_at(b"ours", 0).unwrap();
    let large = tree.new_draft_of(b"f", &plan()).unwrap();
    write(&large, 0..4).unwrap();
    for key in [&b"d/s"[..], b"d/f"] {
        server.state.lock().unwrap().put(key, b"theirs");
    }
    assert!(small.give_name().unwrap_err().to_string().contains("PreconditionFailed"));
    assert!(large.give_name().unwrap_err().to_string().contains("PreconditionFailed"));
    assert_eq!(server.object("d/f").unwrap().data, b"theirs");
}

#[test]
fn the_metadata_of_an_object_are_written_anew_by_a_copy_onto_itself() {
    let server = Server::honest();
    server.state.lock().unwrap().put(b"d/f", b"data");
    let (tree, _) = target(&server, None);
    let meta = Metadata { mtime: Some(Time { s: 5, ns: 0 }), mode: Some(0o600), ..Metadata::default() };
    assert!(tree.set_metadata(b"f", &meta).unwrap().changed);
    assert!(!tree.set_metadata(b"f", &meta).unwrap().changed, "modes are not kept here");
    let object = server.object("d/f").unwrap();
    assert_eq!((object.data.as_slice(), object.fields["x-amz-meta-mtime"].as_str()), (&b"data"[..], "5.000000000"));
    assert!(!object.fields.contains_key("x-amz-meta-mode"));
}

#[test]
fn a_file_takes_the_place_of_a_link_and_a_link_that_of_a_file() {
    let server = Server::honest();
    let (tree, _) = target(&server, None);
    assert!(tree.make_symlink(b"f", b"elsewhere", &Metadata::default()).unwrap());
    assert!(tree.stat(b"f").unwrap().is_some());
    upload(&tree).unwrap();
    assert!(server.object("d/f").is_some() && server.object("d/f.rclonelink").is_none());
    assert!(tree.make_symlink(b"f", b"elsewhere", &Metadata::default()).unwrap());
    assert!(server.object("d/f").is_none() && server.object("d/f.rclonelink").unwrap().data == b"elsewhere");
}

#[test]
fn directories_are_what_stands_in_front_of_slashes_and_an_empty_one_leaves_a_mark() {
    let server = Server::honest();
    server.state.lock().unwrap().put(b"d/old/x", b"");
    let (tree, _) = target(&server, None);
    assert!(!tree.abilities().directories);
    assert_eq!(
        [tree.make_dir(b"").unwrap(), tree.make_dir(b"old").unwrap(), tree.make_dir(b"new").unwrap()],
        [false, false, true]
    );
    let before = server.seen().len();
    assert!(tree.make_dir(b"new/beneath").unwrap());
    assert_eq!(server.seen().len(), before, "what lies in a new one is new");
    tree.mark_directory(b"new", &Metadata::default()).unwrap();
    assert_eq!(server.object("d/new/").unwrap().data, b"");
}

#[test]
fn names_that_no_key_can_be_are_refused_before_anything_is_sent() {
    let server = Server::honest();
    let (tree, _) = target(&server, None);
    let long = [b'n'; 1023];
    for path in [&b"\xff"[..], &long, b"a.rclonelink", b"", b"../x"] {
        assert!(tree.new_draft_of(path, &plan()).is_err(), "{path:?}");
    }
    for (size, chunk_bytes) in [(40 << 40, 4 << 30), (1 << 40, 8 << 30)] {
        let large = DraftPlan { size, chunk_bytes, ..plan() };
        assert!(tree.new_draft_of(b"f", &large).unwrap_err().to_string().contains("at most 39 TiB"));
    }
    assert_eq!(server.lines(), ["GET ?encoding-type&list-type&max-keys&prefix"]);
}

/// Sends all parts as if larger than 64 MiB.
fn target_that_holds_nothing(server: &Server, journals: Option<&Path>) -> (Arc<dyn TargetTree>, Silent) {
    let held_part_bytes = Some(PART as u64 / 2);
    let journals = journals.map(Path::to_owned);
    target_as(server, TargetSettings { sums: true, held_part_bytes, journals, ..TargetSettings::default() })
}

#[test]
fn a_part_that_is_not_held_goes_while_it_is_written_with_its_sum_behind_it() {
    let server = Server::honest();
    // The store is busy, then the credentials expire, both before the body.
    let busy = [Reply::error(503, "SlowDown"), Reply::error(400, "ExpiredToken")];
    server.state.lock().unwrap().early = busy.to_vec();
    upload(&target_that_holds_nothing(&server, None).0).unwrap();
    assert!(server.object("d/f").unwrap().data == data());
    let parts: Vec<Request> =
        server.seen().into_iter().filter(|request| request.asks("partNumber").is_some()).collect();
    assert_eq!(parts.len(), 4, "{:?}", server.lines());
    for part in parts {
        assert_eq!(part.field("x-amz-content-sha256"), Some("STREAMING-UNSIGNED-PAYLOAD-TRAILER"));
        assert_eq!(part.field("x-amz-checksum-crc64nvme"), Some(&*crc64(&part.body)));
    }
}

#[test]
fn a_store_without_trailers_gets_parts_without_a_sum_and_compares_that_of_the_whole() {
    let server = Server::honest();
    server.state.lock().unwrap().early = vec![Reply::error(501, "NotImplemented")];
    let (tree, told) = target_that_holds_nothing(&server, None);
    upload(&tree).unwrap();
    assert!(server.object("d/f").unwrap().data == data());
    let seen = server.seen();
    let parts = seen.iter().filter(|request| request.asks("partNumber").is_some());
    assert!(parts.clone().count() == 4 && parts.clone().all(|part| part.field("x-amz-trailer").is_none()));
    let complete = seen.iter().find(|request| request.method == "POST" && request.asks("uploadId").is_some()).unwrap();
    assert_eq!(complete.field("x-amz-checksum-crc64nvme"), Some(&*crc64(&data())));
    assert!(told.0.lock().unwrap().is_empty());
}

#[test]
fn a_part_that_breaks_off_fails_its_file_and_the_next_run_sends_only_that_one() {
    let dir = tempfile::tempdir().unwrap();
    let breaks = Arc::new(AtomicUsize::new(1));
    let (counted, refused) = (Arc::clone(&breaks), Reply::error(500, "InternalError"));
    let server = Server::start(move |request, _| {
        let is_part = request.asks("partNumber") == Some("1");
        (is_part && counted.fetch_sub(1, Ordering::Relaxed) == 1).then(|| refused.clone())
    });
    let (tree, _) = target_that_holds_nothing(&server, Some(dir.path()));
    let draft = tree.new_draft_of(b"f", &plan()).unwrap();
    draft.journal_start(b"header").unwrap();
    let error = write(&draft, 0..4).unwrap_err();
    assert!(error.to_string().contains("the same command goes on"), "{error}");
    draft.journal_append(b" records").unwrap();
    drop((draft, tree));
    let (draft, journal) =
        target_that_holds_nothing(&server, Some(dir.path())).0.resume_draft(b"f", false).unwrap().unwrap();
    assert_eq!(journal, b"header records");
    let part = PART as u64;
    let proved: Vec<_> =
        [(0, part), (1, part), (2, part), (3, 1000)].map(|(number, length)| draft.proves(number * part, length)).into();
    assert_eq!(proved, [Some(false), Some(true), Some(true), Some(true)]);
    draft.journal_keep(journal.len() as u64).unwrap();
    let sent = server.seen().len();
    write(&draft, 0..1).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert!(server.object("d/f").unwrap().data == data());
    assert!(server.seen().len() <= sent + 3);
}
