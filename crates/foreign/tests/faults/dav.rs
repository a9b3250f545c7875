//! Copies from and to servers with WebDAV that cut, lie and lead elsewhere.

use std::sync::Arc;

use haul_foreign::{Credentials, Lists, OpenOptions, open};
use haul_store::{
    Draft, DraftPlan, EntryKind, Found, Metadata, SourceNames, SourceTree, StoreError, TargetTree, Time, WalkOptions,
};

use crate::dav_server::{self, Dav, multistatus};
use crate::server::{Reply, Request, Server, settings, status};
use crate::{data, why};

fn plan(size: usize) -> DraftPlan {
    DraftPlan { size: size as u64, mtime: Time { s: 784_111_777, ns: 5 }, ..DraftPlan::default() }
}

fn written(target: &dyn TargetTree, path: &str, content: &[u8], block: usize) -> Result<Draft, StoreError> {
    let draft = target.new_draft_of(path.as_bytes(), &plan(content.len()))?;
    for (at, piece) in content.chunks(block).enumerate() {
        draft.write_at(piece, (at * block) as u64)?;
    }
    Ok(draft)
}

fn put(target: &dyn TargetTree, path: &str, content: &[u8]) -> Result<(), StoreError> {
    written(target, path, content, 256 << 10)?.commit(&Metadata::default(), true)
}

const LONG: usize = 5 << 20;

fn source(server: &Server, path: &str) -> Arc<dyn SourceTree> {
    open(&[server.url(path)], settings(Credentials::default()), Lists::Dav).unwrap().tree
}

fn found(tree: &Arc<dyn SourceTree>) -> Vec<String> {
    let of = |found| match found {
        Found::Entry(entry) => {
            let slash = if matches!(entry.kind, EntryKind::Directory) { "/" } else { "" };
            format!("{}{slash} {}", haul_store::printable(&entry.path), entry.stat.size)
        }
        Found::Failed { path, error, .. } => format!("{}: {error}", haul_store::printable(&path)),
        Found::DirEnd { path, complete } => format!("end {} {complete}", haul_store::printable(&path)),
        other => format!("{other:?}"),
    };
    Arc::clone(tree).items(WalkOptions::default()).map(of).collect()
}

#[test]
fn a_directory_is_one_request_and_no_file_is_looked_at_by_itself() {
    let dav = Dav::with(&[("/d/", b""), ("/d/a b;c", b"12"), ("/d/sub/", b""), ("/d/sub/\u{e4}%", b"3")]);
    let server = Server::start(move |request| dav.answer(request));
    let tree = source(&server, "/d/");
    assert_eq!(found(&tree), ["/ 0", "a b;c 2", "sub/ 0", "sub/\u{e4}% 1", "end sub true", "end  true"]);
    let methods: Vec<_> =
        server.seen().iter().map(|seen| (seen.method.clone(), seen.field("depth").map(str::to_owned))).collect();
    let propfind = |depth: &str| ("PROPFIND".to_owned(), Some(depth.to_owned()));
    assert_eq!(methods, [propfind("0"), propfind("1"), propfind("1")]);
    let file = tree.open(0, b"/d/sub/%C3%A4%25").unwrap();
    assert_eq!((file.read_at(&mut [0; 9], 0).unwrap(), file.stat().unwrap().size), (1, 1));
}

#[test]
fn a_list_that_is_no_list_or_names_what_no_file_can_be_called_fails_for_that_and_for_nothing_else() {
    let named = |href: &str, size: &str| {
        format!(
            "<D:response><D:href>{href}</D:href><D:propstat><D:prop><D:resourcetype/>\
             <D:getcontentlength>{size}</D:getcontentlength></D:prop></D:propstat></D:response>"
        )
    };
    let responses = [
        named("/d/good", "1"),
        named("/d/..%2Fpasswd", "1"),
        named("/d/%2e%2e", "1"),
        named("/d/a%00b", "1"),
        named("/other/x", "1"),
        named("/d/deep/er", "1"),
    ];
    for (reply, expected) in [
        (multistatus(&responses.concat()), "..: cannot copy ..: no file can have its name"),
        (Reply { body: b"<html>".to_vec(), ..multistatus("") }, "/ 0"),
    ] {
        let server = Server::start(move |request| match request.field("depth") {
            Some("0") => multistatus(
                "<D:response><D:href>/d/</D:href><D:propstat><D:prop><D:resourcetype><D:collection/></D:resourcetype>\
                 </D:prop></D:propstat></D:response>",
            ),
            _ => reply.clone(),
        });
        let all = found(&source(&server, "/d/"));
        assert!(all.iter().any(|line| line == expected), "{all:?}");
        assert!(all.last().unwrap() == "end  false", "nothing is deleted by it: {all:?}");
        assert!(!all.iter().any(|line| line.contains("other") || line.contains("er 1")), "{all:?}");
    }
}

#[test]
fn files_go_up_under_another_name_and_get_theirs_at_the_end() {
    let dav = Dav::with(&[("/f", b"old")]);
    let (server, target) = dav.target(Dav::answer);
    for (path, size) in [("f", 0), ("f", 10), ("g", 1 << 20), ("long", LONG)] {
        let draft = written(&target, path, &data(size), 200_000).unwrap();
        draft.set_metadata(&Metadata::default(), true).unwrap();
        assert!(dav.names().iter().any(|name| name.starts_with("/.haul-")), "{path}");
        draft.give_name().unwrap();
        assert_eq!(dav.content(&format!("/{path}")), Some(data(size)));
    }
    assert_eq!(dav.names(), ["/", "/f", "/g", "/long"]);
    let first = server.seen().into_iter().find(|seen| seen.method == "PUT").unwrap();
    assert_eq!((first.field("content-length"), first.field("x-oc-mtime")), (Some("0"), Some("784111777")));
    assert!(server.seen().iter().all(|seen| seen.field("content-range").is_none()));
}

#[test]
fn an_upload_that_is_cut_leaves_what_stood_there() {
    for at in [0, 1, LONG / 2, LONG - 1] {
        let dav = Dav::with(&[("/f", b"old")]);
        let (_server, target) = dav.target(Dav::answer);
        let draft = target.new_draft_of(b"f", &plan(LONG)).unwrap();
        data(at).chunks(100_000).enumerate().for_each(|(n, piece)| draft.write_at(piece, n as u64 * 100_000).unwrap());
        assert!(why(draft.commit(&Metadata::default(), true)).contains("not complete"), "{at}");
        draft.discard().unwrap();
        assert_eq!((dav.content("/f"), dav.names().len()), (Some(b"old".to_vec()), 2), "{at}");
    }
}

#[test]
fn a_server_that_takes_less_than_it_confirms_gives_no_name() {
    let dav = Dav::with(&[("/f", b"old")]);
    let (_server, target) = dav.target(|dav, request| {
        let cut = request.method == "PUT" && request.body.is_some();
        let body = request.body.clone().map(|body| if cut { body[..body.len() / 2].to_vec() } else { body });
        dav.answer(&Request { body, ..request.clone() })
    });
    for size in [10, LONG] {
        assert!(why(put(&target, "f", &data(size))).contains("bytes of it"), "{size}");
        assert_eq!(dav.content("/f"), Some(b"old".to_vec()));
    }
}

#[test]
fn an_adler32_that_the_server_keeps_is_compared() {
    let dav = Dav::with(&[]);
    let (_server, target) = dav.target(|dav, request| {
        let reply = dav.answer(request);
        let text = String::from_utf8_lossy(&reply.body).replace(
            "<D:getlastmodified>",
            "<s:Checksum xmlns:s=\"http://storm.italiangrid.org/2014/webdav\">1</s:Checksum><D:getlastmodified>",
        );
        match request.method == "PROPFIND" {
            true => Reply {
                head: reply.head.replace("Content-Length", "X"),
                body: text.into_bytes(),
                cut: Some(usize::MAX),
                ..reply
            },
            false => reply,
        }
    });
    assert!(why(put(&target, "f", b"data")).contains("adler32"));
    assert_eq!(dav.content("/f"), None);
}

#[test]
fn an_upload_follows_a_redirect_before_and_during_its_body_and_never_loses_its_method() {
    for (code, size) in
        [("302 Found", 10), ("307 Temporary Redirect", 10), ("302 Found", LONG), ("308 Permanent Redirect", LONG)]
    {
        let dav = Dav::with(&[("/elsewhere/", b"")]);
        let (server, target) = dav.target(move |dav, request| match request.method.as_str() {
            "PUT" if !request.target.starts_with("/elsewhere") => {
                status(code, &[("Location", &format!("/elsewhere{}", request.target)), ("Connection", "close")])
            }
            // The name is one, wherever the data lies.
            "PUT" => dav.answer(&Request { target: request.target.replace("/elsewhere", ""), ..request.clone() }),
            _ => dav.answer(request),
        });
        put(&target, "f", &data(size)).unwrap();
        assert_eq!(dav.content("/f"), Some(data(size)), "{code}");
        assert!(server.seen().iter().filter(|seen| seen.target.contains("elsewhere")).all(|seen| seen.method == "PUT"));
    }
}

#[test]
fn a_full_disk_a_missing_directory_and_a_refusal_are_said() {
    for (code, words) in [
        ("507 Insufficient Storage", "no room"),
        ("409 Conflict", "directory above"),
        ("403 Forbidden", "does not let us"),
        ("423 Locked", "locked"),
        ("413 Payload Too Large", "larger than"),
    ] {
        for size in [10, LONG] {
            let dav = Dav::with(&[]);
            let (_server, target) = dav.target(move |dav, request| match request.method.as_str() {
                "PUT" => status(code, &[("Connection", "close")]),
                _ => dav.answer(request),
            });
            let error = why(put(&target, "f", &data(size)));
            assert!(error.contains(words), "{code}: {error}");
        }
    }
}

#[test]
fn a_server_without_move_is_refused_and_written_in_place_where_asked() {
    let dav = Dav::with(&[]);
    let honest = dav.clone();
    let server = Server::start(move |request| match request.method.as_str() {
        "OPTIONS" => status("200 OK", &[("Allow", "GET,PUT,PROPFIND")]),
        "MOVE" => status("405 Method Not Allowed", &[]),
        _ => honest.answer(request),
    });
    assert!(why(dav_server::open(&server, OpenOptions::default()).map(drop)).contains("--inplace"));
    let (target, _) = dav_server::open(&server, OpenOptions { in_place: true, ..OpenOptions::default() }).unwrap();
    let draft = target.new_draft_of(b"f", &DraftPlan { inplace: true, ..plan(4) }).unwrap();
    draft.write_at(b"data", 0).unwrap();
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!(dav.content("/f"), Some(b"data".to_vec()));
}

#[test]
fn a_server_that_writes_a_name_in_another_way_fails_the_file() {
    let dav = Dav::with(&[]);
    let (_server, target) = dav.target(|dav, request| {
        let cut = |text: &str| text.split("%3B").next().unwrap().to_owned();
        let mut request = Request { target: cut(&request.target), ..request.clone() };
        if let Some(to) = request.fields.get_mut("destination") {
            *to = cut(to);
        }
        dav.answer(&request)
    });
    assert!(why(put(&target, "a;b", b"data")).contains("another name: a"));
    put(&target, "c", b"data").unwrap();
}

#[test]
fn data_that_comes_again_fails_the_file_and_data_of_another_lane_waits_for_its_turn() {
    let dav = Dav::with(&[]);
    let (_server, target) = dav.target(Dav::answer);
    let content = data(LONG);
    let draft = target.new_draft_of(b"f", &plan(LONG)).unwrap();
    std::thread::scope(|scope| {
        let later = scope.spawn(|| draft.write_at(&content[1000..], 1000));
        draft.write_at(&content[..1000], 0).unwrap();
        later.join().unwrap().unwrap();
    });
    assert!(why(draft.write_at(&content[..1000], 0)).contains("came again"));
    draft.commit(&Metadata::default(), true).unwrap();
    assert_eq!(dav.content("/f"), Some(content));
}

#[test]
fn what_the_source_lacks_goes_entry_by_entry_and_spared_entries_keep_their_directories() {
    let dav = Dav::with(&[
        ("/a", b""),
        ("/b", b""),
        ("/d/", b""),
        ("/d/x", b""),
        ("/e/", b""),
        ("/e/stays", b""),
        ("/e/goes", b""),
    ]);
    let (_server, target) = dav.target(Dav::answer);
    let mut deleted = Vec::new();
    let mut has = SourceNames::default();
    has.add(b"a").unwrap();
    has.seal();
    let spare = |path: &[u8], _: bool| path == b"e/stays";
    let mut told = |path: Vec<u8>, _: bool| deleted.push(String::from_utf8(path).unwrap());
    let errors = target.delete_extraneous(b"", &has, &spare, false, &mut told);
    assert!(errors.is_empty(), "{errors:?}");
    assert_eq!(deleted, ["b", "d/x", "d", "e/goes"]);
    assert_eq!(dav.names(), ["/", "/a", "/e/", "/e/stays"]);
}

#[test]
fn entries_are_looked_at_by_the_list_of_their_directory() {
    let dav = Dav::with(&[("/d/", b""), ("/d/a", b"1"), ("/d/b", b"22")]);
    let (server, target) = dav.target(Dav::answer);
    let before = server.seen().len();
    let size = |path: &[u8]| target.stat(path).unwrap().map(|stat| stat.size);
    assert_eq!([size(b"d/a"), size(b"d/b"), size(b"d/c"), size(b"x/y")], [Some(1), Some(2), None, None]);
    assert_eq!(server.seen().len() - before, 2);
    put(&target, "d/c", b"333").unwrap();
    assert_eq!(size(b"d/c"), Some(3));
}
