//! Lists in JSON tell sizes and times, so files are not asked for before they are read.

use haul_foreign::WebPlace;
use haul_store::PlaceTree;

use super::*;

/// Writes nginx's list, with the time of [`file`].
fn list(files: &[(&str, usize)]) -> Reply {
    let one = |(name, size): &(&str, usize)| {
        format!("{{\"name\":\"{name}\",\"type\":\"file\",\"mtime\":\"Sun, 06 Nov 1994 08:49:37 GMT\",\"size\":{size}}}")
    };
    page("application/json", &format!("[{}]", files.iter().map(one).collect::<Vec<_>>().join(",")))
}

/// Requests without content, except for questions for sums.
fn looks(server: &Server) -> Vec<String> {
    let is_look = |seen: &Request| seen.is_head() && seen.field("want-repr-digest").is_none();
    let heads = server.seen().into_iter().filter(|seen| is_look(seen) && !seen.target.ends_with('/'));
    heads.map(|seen| seen.target).collect()
}

fn entries(tree: &Arc<dyn SourceTree>) -> Vec<haul_store::FoundEntry> {
    let found = tree.clone().items(WalkOptions::default());
    let entry = |found| match found {
        Found::Entry(entry) if entry.stat.kind == haul_store::Kind::File => Some(entry),
        _ => None,
    };
    found.filter_map(entry).collect()
}

#[test]
fn files_of_a_list_that_is_exact_are_asked_for_once_and_compared_with_the_list() {
    let changes = Arc::new(AtomicBool::new(false));
    let changed = Arc::clone(&changes);
    let server = Server::start(move |request| match request.target.as_str() {
        "/d/" => list(&[("a", 50), ("b", 50), ("c", 50)]),
        "/d/c" if changed.load(Ordering::Relaxed) => file(request, &data(60), "\"new\""),
        _ => file(request, &data(50), "\"a\""),
    });
    let tree = tree(&server, "/d/").unwrap();
    let found = entries(&tree);
    assert_eq!(looks(&server), ["/d/a"], "the first one shows whether the list is exact");
    changes.store(true, Ordering::Relaxed);
    for entry in &found[..2] {
        let file = tree.open(0, &entry.source_path).unwrap();
        assert!(read_all(&file, 20).unwrap() == data(50));
        assert_eq!(file.stat().unwrap(), entry.stat, "the answer is of the version that was listed");
    }
    let file = tree.open(0, &found[2].source_path).unwrap();
    assert!(read_all(&file, 20).unwrap() == data(60), "all of it is of one version");
    assert_ne!(file.stat().unwrap(), found[2].stat, "which is another one than the list has, and that shows");
    assert_eq!(looks(&server), ["/d/a"]);
}

#[test]
fn where_a_server_sends_other_lengths_than_it_lists_each_file_is_asked_for() {
    let server = Server::start(move |request| match request.target.as_str() {
        "/d/" => list(&[("a", 70), ("b", 70)]),
        _ => file(request, &data(50), "\"a\""),
    });
    let tree = tree(&server, "/d/").unwrap();
    let sizes: Vec<u64> = entries(&tree).iter().map(|entry| entry.stat.size).collect();
    assert_eq!(sizes, [50, 50]);
}

#[test]
fn who_looks_at_a_server_that_refuses_is_told_its_name() {
    let server = Server::start(|_| status("403 Forbidden", &[]));
    let origin = server.url("/").origin().clone();
    let place = WebPlace::new(origin, settings(Credentials::default()), Lists::Pages);
    let host = format!("127.0.0.1:{}: the server does not let us read it", server.port);
    assert!(why(place.facts(b"/d/x", true)).starts_with(&host));
    assert!(why(place.list(b"/d/", true, false, &mut |_, _| std::ops::ControlFlow::Continue(()))).starts_with(&host));
    assert!(why(place.open(b"/d/x")).starts_with(&host));
}
