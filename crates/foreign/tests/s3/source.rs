//! Objects as a source.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use haul_foreign::{OpenedObjects, open_objects};
use haul_store::{EntryKind, Found, SourceFile, WalkOptions};

use crate::server::{Reply, Request, Server, State, environment, get, settings};

fn open(server: &Server, key: &str) -> OpenedObjects {
    open_objects("bucket", &[key.as_bytes().to_vec()], true, &server.environment(), settings).unwrap()
}

fn walked(server: &Server, key: &str) -> Vec<String> {
    let shown = |found| match found {
        Found::Entry(entry) => {
            let path = String::from_utf8_lossy(&entry.path).into_owned();
            match entry.kind {
                EntryKind::Directory => format!("{path}/"),
                EntryKind::Symlink { target } => format!("{path} -> {}", String::from_utf8_lossy(&target)),
                _ => path,
            }
        }
        Found::DirEnd { path, complete } => format!("end {} {complete}", String::from_utf8_lossy(&path)),
        Found::Failed { path, error, .. } => format!("failed {}: {}", String::from_utf8_lossy(&path), error.source),
        Found::Skipped { path, .. } => format!("skipped {}", String::from_utf8_lossy(&path)),
    };
    open(server, key).tree.items(WalkOptions::default()).map(shown).collect()
}

fn read_all(file: &SourceFile) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut buffer) = (Vec::new(), vec![0; 100_000]);
    loop {
        match file.read_at(&mut buffer, bytes.len() as u64)? {
            0 => return Ok(bytes),
            count => bytes.extend_from_slice(&buffer[..count]),
        }
    }
}

fn with(keys: &[&[u8]]) -> Server {
    let server = Server::honest();
    for key in keys {
        server.state.lock().unwrap().put(key, key);
    }
    server
}

#[test]
fn names_come_in_their_order_although_keys_come_in_another() {
    let server = with(&[b"a.txt", b"a/x", b"a-b", b"a/x.y", b"a/x/z", b"b"]);
    let expected = [
        "/",
        "a/",
        "failed a/x: something else in the store has its name",
        "a/x",
        "a/x.y",
        "end a false",
        "a-b",
        "a.txt",
        "b",
        "end  true",
    ];
    let mut found = walked(&server, "");
    for line in &mut found {
        *line = line.split(": an object or").next().unwrap().to_owned();
    }
    // A file and the failed directory of its name come in any order.
    found[2..4].sort_by_key(|line| !line.starts_with("failed"));
    assert_eq!(found, expected);
}

#[test]
fn links_come_where_their_names_stand_and_not_where_their_keys_do() {
    let server = with(&[b"k", b"k-2", b"k.rclonelink", b"l-2", b"l.a", b"l.rclonelink", b"l/in", b"m.rclonelink"]);
    for number in 0..4000 {
        server.state.lock().unwrap().put(format!("n.{number:04}").as_bytes(), b"");
    }
    server.state.lock().unwrap().put(b"n.rclonelink", b"far");
    let found = walked(&server, "");
    let names: Vec<&str> = found.iter().map(|line| line.split(": ").next().unwrap()).collect();
    let expected = [
        "/",
        "k",
        "failed k",
        "k-2",
        "l -> l.rclonelink",
        "failed l",
        "l-2",
        "l.a",
        "m -> m.rclonelink",
        "n -> far",
        "n.0000",
    ];
    assert_eq!(names[..11], expected);
    assert_eq!(found.len(), 11 + 4000);
}

#[test]
fn a_listing_of_more_pages_than_are_held_back_is_asked_for_the_directory_that_comes_first() {
    let server = Server::honest();
    for number in 0..5000 {
        server.state.lock().unwrap().put(format!("f.{number:04}").as_bytes(), b"");
    }
    server.state.lock().unwrap().put(b"f/in", b"1");
    let found = walked(&server, "");
    assert_eq!(found[..6], ["/", "f/", "f/in", "end f true", "f.0000", "f.0001"]);
    assert_eq!(found.len(), 5000 + 5);
    let lists = server.seen().iter().filter(|request| request.key.is_empty()).count();
    assert!(lists < 15, "{lists}");
}

#[test]
fn keys_that_no_file_can_have_are_named_one_by_one_and_hide_no_other() {
    let long = [b'n'; 256];
    let server = with(&[
        b"a//b",
        b"../x",
        b"./y",
        b"nul\0",
        &long,
        b"d/",
        b"e/f",
        b"x\x01",
        b"x\r",
        b"plus+ %41",
        b"k.rclonelink",
        b"z",
    ]);
    let found = walked(&server, "");
    let failed: Vec<&str> = found.iter().filter_map(|line| line.strip_prefix("failed ")).collect();
    assert_eq!(failed.len(), 6, "{failed:?}");
    for (why, count) in [("empty name", 2), (". or ..", 2), ("NUL", 1), ("255 bytes", 1)] {
        assert_eq!(failed.iter().filter(|line| line.contains(why)).count(), count, "{why} {failed:?}");
    }
    for file in ["e/f", "x\x01", "x\r", "plus+ %41", "k -> k.rclonelink", "z"] {
        assert!(found.iter().any(|line| line == file), "{file} {found:?}");
    }
}

#[test]
fn a_store_that_lists_without_order_or_without_end_is_given_up() {
    let page = |keys: &str| {
        let listed = |key: &str| format!("<Contents><Key>{key}</Key><Size>0</Size></Contents>");
        let keys: String = keys.split_whitespace().map(listed).collect();
        let more = "<IsTruncated>true</IsTruncated><NextContinuationToken>t</NextContinuationToken>";
        Reply::xml(200, &format!("<ListBucketResult>{more}{keys}</ListBucketResult>"))
    };
    // Each page promises one more.
    for (why, first, next) in [("their order", "b c", "a"), ("their order", "b", "b"), ("without any key", "", "")] {
        let server = Server::start(move |request, _| {
            let keys = if request.asks("continuation-token").is_some() { next } else { first };
            (request.asks("max-keys") == Some("1000")).then(|| page(keys))
        });
        let found = walked(&server, "");
        assert!(found.iter().any(|line| line.contains(why)), "{why}: {found:?}");
    }
}

#[test]
fn what_was_read_is_compared_with_the_sum_that_the_store_keeps() {
    let data: Vec<u8> = (0..500_000_u32).map(|at| (at % 251) as u8).collect();
    let content = data.clone();
    let server = Server::start(move |request, state| match (request.method.as_str(), request.asks("list-type")) {
        // The store gives back other bytes than it got.
        ("GET", None) if request.number >= 100 => {
            let mut reply = get(request, state);
            if let Some(last) = reply.body.last_mut() {
                *last ^= 1;
            }
            Some(reply)
        }
        _ => None,
    });
    server.state.lock().unwrap().put(b"f", &content);
    let opened = open(&server, "f");
    assert!(read_all(&opened.tree.open(0, b"f").unwrap()).unwrap() == data);
    assert_eq!(opened.uncompared.load(Ordering::Relaxed), 0);
    for _ in server.seen().len()..100 {
        drop(open(&server, "f"));
    }
    let error = read_all(&opened.tree.open(0, b"f").unwrap()).unwrap_err();
    assert!(error.to_string().contains("CRC64NVME"), "{error}");
}

#[test]
fn an_object_that_is_replaced_while_it_is_read_gives_no_bytes_of_the_other_one() {
    let server = with(&[]);
    server.state.lock().unwrap().put(b"f", &[1; 300_000]);
    let opened = open(&server, "f");
    let file = opened.tree.open(0, b"f").unwrap();
    let mut buffer = vec![0; 1000];
    assert_eq!(file.read_at(&mut buffer, 0).unwrap(), 1000);
    server.state.lock().unwrap().put(b"f", &[2; 300_000]);
    let error = file.read_at(&mut buffer, 200_000).unwrap_err();
    assert_eq!(error.kind(), std::io::ErrorKind::StaleNetworkFileHandle);
    drop(file);
    assert_eq!(opened.uncompared.load(Ordering::Relaxed), 1);
}

#[test]
fn a_busy_store_is_asked_again_and_expired_credentials_are_found_anew() {
    let server = Server::start(|request, _| match request.number {
        0 => Some(Reply::error(503, "SlowDown").with("Retry-After", "0")),
        1 => Some(Reply::error(500, "InternalError")),
        3 => Some(Reply::error(403, "ExpiredToken")),
        // A head has no reason.
        5 if request.method == "HEAD" => Some(Reply::status(400)),
        _ => None,
    });
    server.state.lock().unwrap().put(b"d/f", b"data");
    assert_eq!(walked(&server, "d/")[1..], ["f", "end  true"]);
}

#[test]
fn whoever_has_no_credentials_or_wrong_ones_is_told_what_to_do() {
    let server = with(&[b"f"]);
    let endpoint = format!("http://127.0.0.1:{}", server.port);
    let variables = [("AWS_ENDPOINT_URL", endpoint.as_str()), ("AWS_EC2_METADATA_DISABLED", "true")];
    let mut nobody = environment(&variables);
    nobody.variables.remove("AWS_ACCESS_KEY_ID");
    let why = open_objects("bucket", &[b"f".to_vec()], true, &nobody, settings).err().unwrap();
    assert!(why.to_string().contains("AWS_PROFILE") && server.seen().is_empty(), "{why}");
    let refusing = Server::start(|_, _| Some(Reply::error(403, "SignatureDoesNotMatch")));
    let why = open_objects("bucket", &[b"d/".to_vec()], true, &refusing.environment(), settings).err().unwrap();
    assert!(why.to_string().contains("AWS_SECRET_ACCESS_KEY"), "{why}");
}

/// Both forms of a profile that `aws configure sso` has written over the years.
#[test]
fn a_login_by_sso_is_found_for_a_profile_and_for_a_session_of_profiles() {
    const ROLE: &str = "sso_account_id = 123456789012\nsso_role_name = reader\n";
    const URL: &str = "sso_start_url = https://x.awsapps.com/start\nsso_region = us-east-1\n";
    // `aws sso login` keeps a token below the SHA-1 of the session's name, or of the URL.
    let forms = [
        (
            format!("[profile p]\nsso_session = my\n{ROLE}[sso-session my]\n{URL}"),
            "3ece1471f44f63177cbc35ba0b904e0c096b6783",
        ),
        (format!("[profile p]\n{URL}{ROLE}"), "3947de8b16688092197fa616c34e01335f21d256"),
    ];
    let portal = Server::start(|request, _| {
        let of_role = (request.asks("account_id"), request.asks("role_name")) == (Some("123456789012"), Some("reader"));
        let is_ours = of_role && request.field("x-amz-sso_bearer_token") == Some("token");
        let found = r#"{"roleCredentials": {"accessKeyId": "OF-SSO", "secretAccessKey": "s", "sessionToken": "t", "expiration": 4000000000000}}"#;
        Some(if is_ours { Reply::xml(200, found) } else { Reply::status(403) })
    });
    let server = Server::start(|request, _| {
        let signed = request.field("authorization").unwrap_or_default();
        (!signed.contains("Credential=OF-SSO/")).then(|| Reply::error(403, "InvalidAccessKeyId"))
    });
    server.state.lock().unwrap().put(b"d/f", b"data");
    let portal = format!("http://127.0.0.1:{}/bucket/portal", portal.port);
    for (config, sha1) in forms {
        let home = tempfile::tempdir().unwrap();
        let kept = home.path().join(".aws/sso/cache");
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(home.path().join(".aws/config"), &config).unwrap();
        let mut environment = server.environment();
        environment.home = Some(home.path().to_owned());
        environment.variables.retain(|name, _| name == "AWS_ENDPOINT_URL");
        for (name, value) in
            [("AWS_PROFILE", "p"), ("AWS_SSO_ENDPOINT", &portal), ("AWS_EC2_METADATA_DISABLED", "true")]
        {
            environment.variables.insert(name.to_owned(), value.to_owned());
        }
        let open = || open_objects("bucket", &[b"d/".to_vec()], true, &environment, settings);
        let why = open().err().unwrap().to_string();
        assert!(why.contains("aws sso login"), "{config}{why}");
        std::fs::write(
            kept.join(format!("{sha1}.json")),
            r#"{"accessToken": "token", "expiresAt": "2099-01-01T00:00:00Z"}"#,
        )
        .unwrap();
        let why = open().err().map(|error| error.to_string());
        assert_eq!(why, None, "{config}");
    }
}

#[test]
fn a_store_that_leads_to_another_host_learns_nothing_of_the_session() {
    let elsewhere = Server::honest();
    let there = format!("http://127.0.0.1:{}/bucket/f", elsewhere.port);
    let server = Server::start(move |request: &Request, _: &mut State| {
        (request.method == "GET" && !request.key.is_empty()).then(|| Reply::status(307).with("Location", &there))
    });
    server.state.lock().unwrap().put(b"f", b"data");
    let opened = open(&server, "f");
    let file = opened.tree.open(0, b"f").unwrap();
    assert!(read_all(&file).unwrap_err().to_string().contains("another host"));
    assert!(elsewhere.seen().is_empty());
}

#[test]
fn a_hundred_thousand_keys_are_walked_with_few_of_them_in_memory() {
    const KEYS: usize = 100_000;
    // The listing is made on request, of empty objects.
    let server = Server::start(|request: &Request, _: &mut State| {
        if !request.key.is_empty() {
            return Some(Reply { length: Some(0), ..Reply::status(200).with("ETag", "\"e\"") });
        }
        let from: usize = request.asks("continuation-token").map_or(0, |token| token.parse().unwrap());
        let end = (from + 1000).min(KEYS);
        let keys: String =
            (from..end).map(|key| format!("<Contents><Key>k{key:06}</Key><Size>0</Size></Contents>")).collect();
        let next = format!("<NextContinuationToken>{end}</NextContinuationToken>");
        Some(Reply::xml(
            200,
            &format!("<ListBucketResult><IsTruncated>{}</IsTruncated>{next}{keys}</ListBucketResult>", end < KEYS),
        ))
    });
    let tree = open(&server, "").tree;
    let mut items = Arc::clone(&tree).items(WalkOptions::default());
    let first: Vec<_> = items.by_ref().take(2).collect();
    assert_eq!(first.len(), 2);
    let pages = |server: &Server| server.seen().iter().filter(|request| request.key.is_empty()).count();
    assert!(pages(&server) < 5, "the first name comes before the listing ends");
    // A sample is enough: each key costs a request.
    let more: BTreeMap<_, _> = items.take(3000).enumerate().collect();
    assert_eq!(more.len(), 3000);
    assert!(pages(&server) < 10, "{}", pages(&server));
}

#[test]
fn a_run_of_an_object_is_one_request_that_names_its_end() {
    let server = Server::honest();
    let data: Vec<u8> = (0..100_000u32).map(|at| (at % 251) as u8).collect();
    server.state.lock().unwrap().put(b"k", &data);
    let opened = open(&server, "k");
    let file = opened.tree.open(0, b"k").unwrap();
    let mut block = vec![0; 40_000];
    for (start, end) in [(0, 30_000), (60_000, 100_000)] {
        file.reads_on(start, end);
        let length = (end - start) as usize;
        assert_eq!(file.read_at(&mut block[..length], start).unwrap(), length);
        assert!(block[..length] == data[start as usize..end as usize]);
    }
    let ranges: Vec<_> = server.seen().iter().filter_map(|request| request.field("range").map(str::to_owned)).collect();
    assert_eq!(ranges, ["bytes=0-29999", "bytes=60000-99999"]);
}
