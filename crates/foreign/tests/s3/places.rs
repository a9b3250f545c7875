//! A bucket that is looked at and changed one path at a time.

use std::fmt::Write as _;
use std::ops::ControlFlow;
use std::sync::Arc;

use haul_foreign::{PlaceSettings, S3Place};
use haul_store::place::{Elsewhere, Grounds, Line, ListOptions, NodeKind, Removal, SiteBounds};
use haul_store::{Listed, PlaceTree};

use crate::place_conformance::{Place, place_conforms};
use crate::server::{Reply, Request, Server, State, answer, get, settings};

fn open(server: &Server) -> Arc<dyn PlaceTree> {
    Arc::new(S3Place::open("bucket", PlaceSettings::default(), &server.environment(), settings).unwrap())
}

fn with(server: &Server, keys: &[&str]) -> Arc<dyn PlaceTree> {
    for key in keys {
        server.state.lock().unwrap().put(key.as_bytes(), key.as_bytes());
    }
    open(server)
}

fn place() -> Place {
    let server = Server::honest();
    {
        let mut state = server.state.lock().unwrap();
        state.put(b"directory/inner", b"more data");
        state.put(b"empty", b"");
        state.put(b"file", b"data");
    }
    Place { tree: open(&server), root: Vec::new(), writes: true, _held: Box::new(server) }
}

place_conforms! { place }

/// Lists a removal with all beneath: `gone NAME`, or the failure.
fn removed(tree: &Arc<dyn PlaceTree>, path: &str, dry_run: bool) -> Vec<String> {
    let elsewhere = Elsewhere::new(Arc::clone(tree), SiteBounds::default());
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let operand = grounds.operands(path.as_bytes()).unwrap().remove(0);
    let mut lines = Vec::new();
    let removal = Removal { trees: true, dry_run, ..Removal::default() };
    let flow = grounds.remove(&operand, removal, &mut |line| {
        match line {
            Line::Removed(path) => lines.push(format!("gone {}", String::from_utf8(path).unwrap())),
            Line::Failed(error) => lines.push(error.to_string()),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    lines
}

fn keys(server: &Server) -> Vec<String> {
    server.state.lock().unwrap().objects.keys().map(|key| String::from_utf8(key.clone()).unwrap()).collect()
}

#[test]
fn all_beneath_a_directory_goes_also_keys_that_no_file_can_have() {
    let server = Server::honest();
    let odd = ["d/", "d/a", "d/b//c", "d/../up", "d/sub/", "d/sub/line\nend", "d/x.rclonelink", "d.txt", "dd/a"];
    let tree = with(&server, &odd);
    let expected = [
        "gone \\x2e\\x2e/up",
        "gone a",
        "gone b/\\x2f/c",
        "gone sub",
        "gone sub/line\nend",
        "gone x.rclonelink",
        "gone ",
    ];
    assert_eq!(removed(&tree, "d", true), expected);
    assert_eq!(keys(&server).len(), odd.len(), "it would be removed");
    assert_eq!(removed(&tree, "d/", false), expected);
    assert_eq!(keys(&server), ["d.txt", "dd/a"]);
    let deletes = server.lines().iter().filter(|line| line.starts_with("DELETE")).count();
    assert_eq!(deletes, 1, "XML cannot name a key with a control character; the others went by one request");
}

#[test]
fn a_store_without_the_request_for_many_keys_gets_one_for_each() {
    let server = Server::start(|request, _| request.asks("delete").map(|_| Reply::error(501, "NotImplemented")));
    let tree = with(&server, &["d/a", "d/b"]);
    assert_eq!(removed(&tree, "d", false), ["gone a", "gone b", "gone "]);
    assert_eq!(keys(&server), [""; 0]);
}

#[test]
fn a_key_that_the_store_keeps_is_named_and_so_is_the_directory() {
    let server = Server::start(|request, _| {
        let text =
            "<DeleteResult><Error><Key>d/b</Key><Code>AccessDenied</Code><Message>no</Message></Error></DeleteResult>";
        request.asks("delete").map(|_| Reply::xml(200, text))
    });
    let tree = with(&server, &["d/a", "d/b"]);
    let lines = removed(&tree, "d", false);
    assert!(lines[0] == "gone a" && lines[1].contains("d/b") && lines[1].contains("AccessDenied"), "{lines:?}");
    assert_eq!(lines.len(), 2);
}

#[test]
fn an_object_and_keys_beneath_it_are_told_apart_and_links_are_links() {
    let server = Server::honest();
    let tree = with(&server, &["both", "both/inner", "link.rclonelink", "a.txt", "a/x"]);
    server.state.lock().unwrap().put(b"link.rclonelink", b"a/x");
    let mut told = Vec::new();
    let flow = tree.list(b"", true, false, &mut |name, listed| {
        told.push((String::from_utf8(name.to_vec()).unwrap(), listed.map(|listed| listed.kind()).ok()));
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    let expected = [
        ("a", Some(NodeKind::Directory)),
        ("a.txt", Some(NodeKind::File)),
        ("both", Some(NodeKind::File)),
        ("both", None),
        ("link", Some(NodeKind::Symlink)),
    ];
    assert_eq!(told, expected.map(|(name, kind)| (name.to_owned(), kind)));
    let link = tree.facts(b"link", false).unwrap();
    assert_eq!((link.kind, &link.target[..]), (NodeKind::Symlink, &b"a/x"[..]));
    assert!(tree.open(b"link").is_err());
    tree.rename(b"link", b"a.txt", false).unwrap();
    assert_eq!(keys(&server), ["a.txt.rclonelink", "a/x", "both", "both/inner"], "the link has replaced the file");
    assert_eq!(tree.facts(b"a.txt", false).unwrap().kind, NodeKind::Symlink);
}

#[test]
fn names_are_told_while_the_store_still_lists() {
    const PAGES: usize = 100;
    let server = Server::start(|request, _| {
        let page: usize = match (request.method.as_str(), request.asks("list-type"), request.asks("max-keys")) {
            ("GET", Some(_), Some("1000")) => {
                request.asks("continuation-token").map_or(0, |text| text.parse().unwrap())
            }
            _ => return None,
        };
        let mut text = String::new();
        for at in page * 1000..(page + 1) * 1000 {
            let _ = write!(text, "<Contents><Key>key-{at:07}</Key><Size>1</Size></Contents>");
        }
        let next = match page + 1 < PAGES {
            true => {
                format!("<IsTruncated>true</IsTruncated><NextContinuationToken>{}</NextContinuationToken>", page + 1)
            }
            false => String::new(),
        };
        Some(Reply::xml(200, &format!("<ListBucketResult>{next}{text}</ListBucketResult>")))
    });
    let elsewhere = Elsewhere::new(open(&server), SiteBounds { sorted_bytes: 0, ..SiteBounds::default() });
    let mut grounds = Grounds::Elsewhere(&elsewhere);
    let root = grounds.operands(b"").unwrap().remove(0);
    let (mut names, mut pages_at_first) = (0, 0);
    let options = ListOptions { recursive: false, hidden: true, facts: false, itself: false };
    let flow = grounds.list(&root, options, &mut |line| {
        match line {
            Line::Entry(path, _) => {
                assert_eq!(path, format!("key-{names:07}").into_bytes(), "in order, and none is held");
                names += 1;
                if names == 1 {
                    pages_at_first = server.seen().len();
                }
            }
            Line::Unsorted => panic!("a store lists in order"),
            _ => {}
        }
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    assert_eq!(names, PAGES * 1000);
    assert!(pages_at_first <= 6, "the first name came after {pages_at_first} requests");
}

#[test]
fn what_changes_while_it_is_moved_stays_under_both_names() {
    let server = Server::start(|request, state| {
        if request.field("x-amz-copy-source").is_some() {
            let reply = answer(request, state);
            state.put(b"from", b"written meanwhile");
            return Some(reply);
        }
        None
    });
    let tree = with(&server, &["from"]);
    let error = tree.rename(b"from", b"to", false).unwrap_err();
    assert!(error.to_string().contains("both stay"), "{error}");
    assert_eq!(server.object("from").unwrap().data, b"written meanwhile");
    assert_eq!(server.object("to").unwrap().data, b"from");
}

#[test]
fn an_error_behind_a_200_of_a_copy_removes_nothing() {
    let server = Server::start(|request, _| {
        let is_copy = request.field("x-amz-copy-source").is_some();
        is_copy.then(|| Reply::xml(200, " <Error><Code>SlowDown</Code></Error>"))
    });
    let tree = with(&server, &["from"]);
    assert!(tree.rename(b"from", b"to", false).unwrap_err().to_string().contains("SlowDown"));
    assert_eq!(keys(&server), ["from"]);
}

#[test]
fn a_directory_moves_with_all_its_keys_and_never_into_one_that_is_not_empty() {
    let server = Server::honest();
    let tree = with(&server, &["d/", "d/a", "d/b//c", "e/x", "dd"]);
    assert_eq!(tree.rename(b"d", b"e", false).unwrap_err().kind(), std::io::ErrorKind::DirectoryNotEmpty);
    tree.rename(b"d", b"new", false).unwrap();
    assert_eq!(keys(&server), ["dd", "e/x", "new/", "new/a", "new/b//c"]);
    assert_eq!(server.object("new/b//c").unwrap().data, b"d/b//c");
}

/// The store says that the object has 6 GiB.
#[test]
fn a_large_object_is_copied_in_parts_with_its_metadata() {
    const SIZE: usize = (6 << 30) + 7;
    let large = |request: &Request, state: &State| match state.objects.contains_key(&request.key) {
        true => Reply { length: Some(SIZE), ..get(request, state) },
        false => Reply::error(404, "NoSuchKey"),
    };
    let server = Server::start(move |request, state| {
        match (request.method.as_str(), request.asks("uploadId"), request.field("x-amz-copy-source-range")) {
            ("HEAD", ..) => Some(large(request, state)),
            ("PUT", Some(_), Some(range)) => {
                Some(Reply::xml(200, &format!("<CopyPartResult><ETag>\"{range}\"</ETag></CopyPartResult>")))
            }
            ("POST", Some(_), _) => {
                state.put(&request.key, b"copied");
                Some(Reply::xml(200, "<CompleteMultipartUploadResult></CompleteMultipartUploadResult>"))
            }
            _ => None,
        }
    });
    let tree = with(&server, &["from"]);
    let fields = [("x-amz-meta-mtime", "5.000000007"), ("x-amz-meta-mode", "33188")];
    let fields = fields.map(|(name, value)| (name.to_owned(), value.to_owned()));
    server.state.lock().unwrap().objects.get_mut(&b"from"[..]).unwrap().fields.extend(fields);
    tree.rename(b"from", b"to", false).unwrap();
    assert_eq!(keys(&server), ["to"]);
    let seen = server.seen();
    let begun = seen.iter().find(|request| request.asks("uploads").is_some()).unwrap();
    assert_eq!([begun.field("x-amz-meta-mtime"), begun.field("x-amz-meta-mode")], [Some("5.000000007"), Some("33188")]);
    let mut ranges: Vec<(usize, usize)> = seen
        .iter()
        .filter_map(|request| request.field("x-amz-copy-source-range"))
        .filter_map(|range| range.strip_prefix("bytes=")?.split_once('-'))
        .map(|(start, last)| (start.parse().unwrap(), last.parse::<usize>().unwrap() + 1))
        .collect();
    ranges.sort_unstable();
    assert_eq!((ranges[0].0, ranges.last().unwrap().1), (0, SIZE));
    assert!(ranges.windows(2).all(|pair| pair[0].1 == pair[1].0), "{ranges:?}");
}

#[test]
fn sizes_cost_no_look_at_each_object() {
    let server = Server::honest();
    let tree = with(&server, &["d/a", "d/bb"]);
    let before = server.seen().len();
    let mut sizes = Vec::new();
    let flow = tree.list_sizes(b"d", &mut |_, listed| {
        let Ok(Listed::Facts(facts)) = listed else { panic!("it has facts") };
        sizes.push(facts.size);
        ControlFlow::Continue(())
    });
    assert!(flow.unwrap().is_continue());
    assert_eq!((sizes, server.seen().len() - before), (vec![3, 4], 1));
}
